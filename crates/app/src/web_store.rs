//! Downloads extensions from the Chrome Web Store, under the egress rules of sessions.

use async_trait::async_trait;
use bytes::{Buf as _, Bytes, BytesMut};
use casement_domain::extension::{MAX_EXTENSION_BYTES, Platform, StoreItem, WebStore, crx_payload};
use casement_domain::session_operation::{ByteStream, OperationError, UpstreamFault};
use casement_egress::{Egress, FetchError};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use url::Url;

/// The URL of the store's downloads.
pub(crate) const STORE: &str = "https://clients2.google.com/service/update2/crx";
/// The browser version in requests: one that accepts any current extension.
const CHROME_VERSION: &str = "156.0.0.0";

/// A web store at a URL.
pub(crate) struct ChromeWebStore {
    pub(crate) egress: Egress,
    pub(crate) url: Url,
}

impl ChromeWebStore {
    fn address(&self, item: &StoreItem, platform: Platform) -> Url {
        let mut url = self.url.clone();
        url.query_pairs_mut()
            .append_pair("response", "redirect")
            .append_pair("acceptformat", "crx2,crx3")
            .append_pair("prod", "chromiumcrx")
            .append_pair("prodversion", CHROME_VERSION)
            .append_pair("os", &platform.to_string())
            .append_pair("x", &format!("id={}&installsource=ondemand&uc", item.as_str()));
        url
    }
}

#[async_trait]
impl WebStore for ChromeWebStore {
    async fn fetch(&self, item: &StoreItem, platform: Platform) -> Result<ByteStream, OperationError> {
        let answer = self.egress.fetch(&self.address(item, platform)).await.map_err(|error| upstream(&error))?;
        let zip = unpacked(answer.map_err(|error| upstream(&error))).await?;
        let mut remaining = MAX_EXTENSION_BYTES;
        let bounded = zip.map(move |part| {
            let part = part?;
            remaining = remaining
                .checked_sub(part.len() as u64)
                .ok_or_else(|| no_answer(format!("the extension has more than {MAX_EXTENSION_BYTES} bytes")))?;
            Ok(part)
        });
        Ok(bounded.boxed())
    }
}

/// Returns the content of a packed extension.
async fn unpacked(
    packed: impl Stream<Item = Result<Bytes, OperationError>> + Send + 'static,
) -> Result<ByteStream, OperationError> {
    let mut packed = Box::pin(packed);
    let no_extension = || no_answer("the store has no such extension, or answered something else".to_owned());
    let mut head = BytesMut::new();
    while head.len() < 16 {
        head.extend_from_slice(&packed.try_next().await?.ok_or_else(no_extension)?);
    }
    let first: [u8; 16] = head[..16].try_into().map_err(|_| no_extension())?;
    let mut skip = crx_payload(&first).filter(|skip| *skip < MAX_EXTENSION_BYTES).ok_or_else(no_extension)?;
    let all = stream::once(async move { Ok(head.freeze()) }).chain(packed);
    let rest = all.map_ok(move |mut part| {
        let cut = usize::try_from(skip).unwrap_or(usize::MAX).min(part.len());
        skip -= cut as u64;
        part.advance(cut);
        part
    });
    Ok(rest.try_filter(|part| std::future::ready(!part.is_empty())).boxed())
}

fn upstream(error: &FetchError) -> OperationError {
    let fault = match error {
        FetchError::Status(_) | FetchError::Redirects | FetchError::BadAddress | FetchError::TooLong(_) => {
            UpstreamFault::HttpStatus
        }
        FetchError::ConnectError | FetchError::Connection(_) | FetchError::Silent => UpstreamFault::Connect,
    };
    OperationError::Upstream { fault, message: format!("the Chrome Web Store: {error}") }
}

fn no_answer(message: String) -> OperationError {
    OperationError::Upstream { fault: UpstreamFault::HttpStatus, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(parts: Vec<Vec<u8>>) -> Result<Vec<u8>, OperationError> {
        let parts = stream::iter(parts.into_iter().map(|part| Ok(Bytes::from(part))));
        let all: Vec<Bytes> = unpacked(parts).await?.try_collect().await?;
        Ok(all.concat())
    }

    #[tokio::test]
    async fn the_zip_is_extracted_from_the_crx() {
        let packed =
            [b"Cr24".as_slice(), &3_u32.to_le_bytes(), &9_u32.to_le_bytes(), b"signature", b"PK\x03\x04zip"].concat();
        for size in [1, 7, 21, 100] {
            let parts = packed.chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(read(parts).await.expect("an extension"), b"PK\x03\x04zip", "{size}");
        }
        for other in [b"".as_slice(), b"<!doctype html><title>sorry</title>", b"Cr24"] {
            assert!(matches!(
                read(vec![other.to_vec()]).await,
                Err(OperationError::Upstream { fault: UpstreamFault::HttpStatus, .. })
            ));
        }
    }

    #[test]
    fn a_request_names_one_extension() {
        let rules = casement_egress::Rules::default();
        let resolver = std::sync::Arc::new(casement_egress::SystemResolver::default());
        let egress = Egress::new(rules, resolver, casement_egress::Limits::default());
        let store = ChromeWebStore { egress, url: STORE.parse().expect("an address") };
        let item = StoreItem::parse("https://chromewebstore.google.com/detail/x/cjpalhdlnbpafiamejdnhcphjbkeiagm");
        let url = store.address(&item.expect("an item"), Platform::Mac);
        assert_eq!(url.host_str(), Some("clients2.google.com"));
        let query = url.query().expect("a query");
        assert!(query.contains("x=id%3Dcjpalhdlnbpafiamejdnhcphjbkeiagm%26installsource%3Dondemand%26uc"), "{query}");
        assert!(query.contains("os=mac"), "{query}");
    }
}
