//! Authenticated requests of the server itself.

use std::time::Duration;

use http_body_util::BodyExt as _;
use secrecy::{SecretSlice, SecretString};
use tokio::time::timeout;
use url::Url;
use zeroize::Zeroizing;

use crate::{
    fetch::{FetchError, connection_error, send},
    session::Egress,
};

impl Egress {
    /// Requests `url` with a bearer token, and returns the status and the whole body. The host is resolved, checked and
    /// dialled like a session's. Redirects are not followed, because the token is for this host only.
    ///
    /// # Errors
    /// See [`FetchError`]; [`FetchError::TooLong`] if the body has more than `max_bytes`, [`FetchError::Silent`] if it
    /// is not complete after `within`.
    pub async fn ask(
        &self,
        url: &Url,
        bearer: &SecretString,
        max_bytes: usize,
        within: Duration,
    ) -> Result<(u16, SecretSlice<u8>), FetchError> {
        let exchange = async {
            let (answer, _driver) = send(&self.upstream(), url, Some(bearer)).await?;
            let status = answer.status().as_u16();
            let mut body = answer.into_body();
            let mut content = Zeroizing::new(Vec::new());
            while let Some(frame) = body.frame().await {
                let Ok(part) = frame.map_err(|error| connection_error(&error))?.into_data() else { continue };
                if part.len() > max_bytes - content.len() {
                    return Err(FetchError::TooLong(max_bytes));
                }
                content.extend_from_slice(&part);
            }
            Ok((status, std::mem::take(&mut *content).into()))
        };
        timeout(within, exchange).await.map_err(|_| FetchError::Silent)?
    }
}
