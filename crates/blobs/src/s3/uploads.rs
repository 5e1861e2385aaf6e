//! Incomplete uploads, which the S3 client cannot list. The store keeps their parts until they are aborted.

use casement_domain::blob::BlobError;
use http::Method;
use http::header::DATE;
use object_store::aws::AwsAuthorizer;
use object_store::client::{HttpConnector as _, HttpRequest, HttpRequestBody};
use object_store::multipart::MultipartStore as _;
use object_store::path::Path;
use object_store::{ClientOptions, Error};
use serde::Deserialize;
use time::format_description::well_known::{Rfc2822, Rfc3339};
use time::{Duration, OffsetDateTime};
use url::Url;

use super::S3Blobs;
use crate::objects::Faults as _;

/// The most pages that are read at a time. The next run reads the rest.
const MAX_PAGES: usize = 100;

/// A page of the answer to `GET /?uploads`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Page {
    #[serde(rename = "Upload")]
    uploads: Vec<Upload>,
    is_truncated: bool,
    next_key_marker: String,
    next_upload_id_marker: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Upload {
    key: String,
    upload_id: String,
    initiated: String,
}

impl S3Blobs {
    /// Aborts incomplete uploads that began at least `age` ago; returns their number.
    ///
    /// # Errors
    /// See [`BlobError`].
    pub async fn abort_uploads(&self, age: Duration) -> Result<usize, BlobError> {
        self.admit()?;
        let (mut aborted, mut after) = (0, None);
        for _ in 0..MAX_PAGES {
            let (page, now) = self.page(after.as_ref()).await?;
            for upload in &page.uploads {
                let began = OffsetDateTime::parse(&upload.initiated, &Rfc3339);
                if began.is_ok_and(|began| now.is_some_and(|now| began <= now - age)) {
                    self.abort(upload).await?;
                    aborted += 1;
                }
            }
            if !page.is_truncated {
                break;
            }
            after = Some((page.next_key_marker, page.next_upload_id_marker));
        }
        Ok(aborted)
    }

    async fn abort(&self, upload: &Upload) -> Result<(), BlobError> {
        let path = Path::parse(&upload.key).map_err(|error| BlobError::Store(Box::new(error)))?;
        match self.s3.abort_multipart(&path, &upload.upload_id).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.faults.failed(error)),
        }
    }

    /// Returns a page, and the time by the clock of the store.
    async fn page(&self, after: Option<&(String, String)>) -> Result<(Page, Option<OffsetDateTime>), BlobError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            self.faults.failed(Error::Generic { store: "S3", source: error })
        };
        let mut url = Url::parse(&self.bucket_url).map_err(|error| failed(error.into()))?;
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        url.query_pairs_mut().append_pair("uploads", "");
        if !self.prefix.is_empty() {
            url.query_pairs_mut().append_pair("prefix", &format!("{}/", self.prefix));
        }
        if let Some((key, id)) = after {
            url.query_pairs_mut().append_pair("key-marker", key).append_pair("upload-id-marker", id);
        }
        let request = http::Request::builder().method(Method::GET).uri(url.as_str()).body(HttpRequestBody::empty());
        let mut request: HttpRequest = request.map_err(|error| failed(error.into()))?;
        let credential = self.s3.credentials().get_credential().await.map_err(|error| self.faults.failed(error))?;
        let signer = AwsAuthorizer::new(&credential, "s3", &self.region);
        signer.try_authorize(&mut request, None).map_err(|error| self.faults.failed(error))?;
        let client = self.connector.connect(&ClientOptions::default()).map_err(|error| self.faults.failed(error))?;
        let response = client.execute(request).await.map_err(|error| failed(error.into()))?;
        let now = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        let now = now.and_then(|date| OffsetDateTime::parse(date, &Rfc2822).ok());
        let text = response.into_body().bytes().await.map_err(|error| failed(error.into()))?;
        Ok((quick_xml::de::from_reader(&*text).map_err(|error| failed(error.into()))?, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_uploads_is_read_with_its_continuation() {
        let text = "<ListMultipartUploadsResult><Bucket>b</Bucket><Upload><Initiated>2026-11-27T01:45:37Z</Initiated>\
            <Key>a/big</Key><UploadId>1</UploadId></Upload><Upload><Initiator><ID>x</ID></Initiator><Key>c</Key>\
            <UploadId>2</UploadId><Initiated>2026-11-27T01:45:38.000Z</Initiated></Upload><IsTruncated>true</IsTruncated>\
            <NextKeyMarker>c</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker></ListMultipartUploadsResult>";
        let page: Page = quick_xml::de::from_str(text).expect("a page");
        assert_eq!(page.uploads.iter().map(|one| &*one.key).collect::<Vec<_>>(), ["a/big", "c"]);
        assert!(page.is_truncated && page.next_key_marker == "c" && page.next_upload_id_marker == "2");
        assert!(page.uploads.iter().all(|one| OffsetDateTime::parse(&one.initiated, &Rfc3339).is_ok()));
    }
}
