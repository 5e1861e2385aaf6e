//! Blobs in an S3-compatible store.

mod uploads;

use std::fmt;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use async_trait::async_trait;
use casement_domain::blob::{BlobError, BlobInfo, BlobStore};
use casement_domain::session_operation::ByteStream;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use parking_lot::RwLock;
use time::{Duration, OffsetDateTime};
use url::{Host, Url};

use crate::objects::{self, Faults};
use crate::setup::BlobSetupError;
use crate::transport::{Connector, StoreFault};

/// The size of the parts in which long contents are written, in bytes. A store takes at most 10,000 of them.
const PART_BYTES: usize = 8 << 20;
/// The age from which an incomplete upload is aborted. The store does not know when it was continued.
const UPLOAD_MAX_AGE: Duration = Duration::days(1);
/// The number of repetitions of a request, and the time after which none begins.
const MAX_RETRIES: usize = 2;
const RETRY_TIMEOUT: StdDuration = StdDuration::from_secs(15);
/// The region of stores that have none.
const DEFAULT_REGION: &str = "us-east-1";

/// The store, and how it is reached.
#[derive(Clone)]
pub struct S3Settings {
    /// The bucket.
    pub bucket: String,
    /// The beginning of the names of all objects, without slashes at its ends; may be empty.
    pub prefix: String,
    /// The URL of the store; `None`: that of the variables, or AWS.
    pub endpoint: Option<Url>,
    /// The region; `None`: that of the variables, or `us-east-1`.
    pub region: Option<String>,
    /// Whether the bucket is the first part of paths, instead of the first part of the host's name.
    pub path_style: bool,
    /// The variables of AWS's own tools, with their values: credentials and defaults.
    pub variables: Vec<(String, String)>,
}

impl fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Settings").field("bucket", &self.bucket).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl S3Settings {
    /// Returns where the store is, for people.
    fn location(&self) -> String {
        let place = format!("s3://{}/{}", self.bucket, self.prefix);
        place.trim_end_matches('/').to_owned()
    }

    /// Returns the URL of the bucket in a region. Addresses have no subdomains, and certificates of AWS do not match
    /// buckets with dots, so those are always the first part of paths.
    fn bucket_url(&self, endpoint: Option<&Url>, region: &str) -> String {
        let bucket = &self.bucket;
        let Some(endpoint) = endpoint else {
            let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
            return if self.path_style || bucket.contains('.') {
                format!("https://s3.{region}.{domain}/{bucket}")
            } else {
                format!("https://{bucket}.s3.{region}.{domain}")
            };
        };
        let text = endpoint.as_str().trim_end_matches('/');
        match endpoint.host() {
            Some(Host::Domain(domain)) if !self.path_style && domain != "localhost" && !bucket.contains('.') => {
                text.replacen("://", &format!("://{bucket}."), 1)
            }
            _ => format!("{text}/{bucket}"),
        }
    }
}

/// Blobs in a bucket of an S3-compatible store. Clones share their connections and their state.
///
/// After a request to which the store did not respond, all others fail at once until [`allow`](Self::allow): callers do
/// not wait for a store that is away.
#[derive(Clone)]
pub struct S3Blobs {
    store: Arc<PrefixStore<AmazonS3>>,
    s3: AmazonS3,
    connector: Connector,
    bucket_url: String,
    region: String,
    prefix: String,
    location: String,
    faults: S3Faults,
}

impl fmt::Debug for S3Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Blobs").field("location", &self.location).finish_non_exhaustive()
    }
}

/// Knows whether the store works.
#[derive(Clone, Debug, Default)]
pub(crate) struct S3Faults(Arc<RwLock<Option<String>>>);

impl Faults for S3Faults {
    fn failed(&self, error: object_store::Error) -> BlobError {
        let Some(fault) = StoreFault::of(&error) else { return BlobError::Store(Box::new(error)) };
        if fault.is_outage() {
            *self.0.write() = Some(fault.to_string());
        }
        BlobError::Unavailable(fault.to_string())
    }
}

impl S3Blobs {
    /// Creates the client, which sends nothing yet.
    ///
    /// # Errors
    /// See [`BlobSetupError`].
    pub(crate) fn new(settings: &S3Settings) -> Result<Self, BlobSetupError> {
        let connector = Connector::new()?;
        let location = settings.location();
        let wrong = |source| BlobSetupError::Store { location: location.clone(), source };
        let mut builder = AmazonS3Builder::new();
        for (name, value) in &settings.variables {
            if let Ok(key) = name.to_ascii_lowercase().parse() {
                builder = builder.with_config(key, value);
            }
        }
        let named = |key: AmazonS3ConfigKey| builder.get_config_value(&key);
        let region = settings.region.clone().or_else(|| named(AmazonS3ConfigKey::Region));
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
        let endpoint = settings.endpoint.clone().or_else(|| {
            let named = named(AmazonS3ConfigKey::S3Endpoint).or_else(|| named(AmazonS3ConfigKey::Endpoint));
            named.and_then(|url| Url::parse(&url).ok())
        });
        let bucket_url = settings.bucket_url(endpoint.as_ref(), &region);
        let backoff = BackoffConfig { max_backoff: StdDuration::from_secs(2), ..BackoffConfig::default() };
        let builder = builder
            .with_bucket_name(&settings.bucket)
            .with_region(&region)
            // Not every store deletes several objects at a time.
            .with_disable_bulk_delete(true)
            // The whole URL of the bucket is given in either style.
            .with_virtual_hosted_style_request(true)
            .with_config(AmazonS3ConfigKey::S3Endpoint, &bucket_url)
            .with_allow_http(bucket_url.starts_with("http://"))
            .with_retry(RetryConfig { backoff, max_retries: MAX_RETRIES, retry_timeout: RETRY_TIMEOUT })
            .with_http_connector(connector.clone());
        let s3 = builder.build().map_err(wrong)?;
        let prefix = Path::parse(&settings.prefix).map_err(|error| wrong(error.into()))?;
        let store = Arc::new(PrefixStore::new(s3.clone(), prefix.clone()));
        let (prefix, faults) = (prefix.to_string(), S3Faults::default());
        Ok(Self { store, s3, connector, bucket_url, region, prefix, location, faults })
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    pub(crate) fn faults(&self) -> &S3Faults {
        &self.faults
    }

    pub(crate) fn location(&self) -> &str {
        &self.location
    }

    /// Returns the reason for which requests are refused; `None` if they are sent.
    #[must_use]
    pub fn refuses(&self) -> Option<String> {
        self.faults.0.read().clone()
    }

    /// Sends requests again.
    pub fn allow(&self) {
        *self.faults.0.write() = None;
    }

    /// Refuses all requests, for this reason.
    pub fn refuse(&self, why: &str) {
        *self.faults.0.write() = Some(why.to_owned());
    }

    fn admit(&self) -> Result<&dyn ObjectStore, BlobError> {
        match self.refuses() {
            Some(why) => Err(BlobError::Unavailable(why)),
            None => Ok(self.store()),
        }
    }
}

#[async_trait]
impl BlobStore for S3Blobs {
    async fn put(&self, key: &str, content: ByteStream) -> Result<(), BlobError> {
        objects::put(self.admit()?, &self.faults, key, content, PART_BYTES).await
    }

    async fn get(&self, key: &str) -> Result<Option<ByteStream>, BlobError> {
        objects::read(self.admit()?, &self.faults, key, None).await
    }

    async fn get_part(&self, key: &str, offset: u64, length: u64) -> Result<Option<ByteStream>, BlobError> {
        objects::read(self.admit()?, &self.faults, key, Some((offset, length))).await
    }

    async fn find(&self, key: &str) -> Result<Option<BlobInfo>, BlobError> {
        objects::find(self.admit()?, &self.faults, key).await
    }

    async fn delete(&self, key: &str) -> Result<(), BlobError> {
        objects::delete(self.admit()?, &self.faults, key).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, OffsetDateTime)>, BlobError> {
        objects::list(self.admit()?, &self.faults, prefix).await
    }

    async fn clear_unfinished(&self, untouched: Duration) -> Result<usize, BlobError> {
        self.abort_uploads(untouched.max(UPLOAD_MAX_AGE)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(bucket: &str, path_style: bool) -> S3Settings {
        let (bucket, prefix) = (bucket.to_owned(), String::new());
        S3Settings { bucket, prefix, endpoint: None, region: None, path_style, variables: Vec::new() }
    }

    #[test]
    fn the_bucket_is_part_of_the_host_or_of_the_path() {
        let url = |bucket: &str, path_style: bool, endpoint: Option<&str>| {
            let endpoint = endpoint.map(|url| Url::parse(url).expect("a URL"));
            settings(bucket, path_style).bucket_url(endpoint.as_ref(), "eu-central-1")
        };
        assert_eq!(url("b", false, None), "https://b.s3.eu-central-1.amazonaws.com");
        assert_eq!(url("b", true, None), "https://s3.eu-central-1.amazonaws.com/b");
        assert_eq!(url("b.c", false, None), "https://s3.eu-central-1.amazonaws.com/b.c");
        let own = Some("https://s3.example.com:9000/");
        assert_eq!(url("b", false, own), "https://b.s3.example.com:9000");
        assert_eq!(url("b", true, own), "https://s3.example.com:9000/b");
        assert_eq!(url("b", false, Some("http://10.0.0.7:9000")), "http://10.0.0.7:9000/b");
        assert_eq!(url("b", false, Some("http://localhost:9000")), "http://localhost:9000/b");
    }
}
