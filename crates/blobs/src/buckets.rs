//! The buckets of the operator at an S3-compatible store, for the export of audit records.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_domain::audit_destination::{AuditBuckets, BucketFault, BucketTarget};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, RetryConfig};
use secrecy::{ExposeSecret as _, SecretString};
use tokio_rustls::rustls;
use tracing::debug;
use url::Url;

use crate::transport::{Connector, StoreFault};

/// The timeout of one request. An object has some MiB at most.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The keys of the operator.
#[derive(Clone)]
pub struct BucketKeys {
    /// The id of the key.
    pub id: String,
    /// The secret key.
    pub secret: SecretString,
    /// The token of temporary keys.
    pub token: Option<SecretString>,
}

impl fmt::Debug for BucketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketKeys").finish_non_exhaustive()
    }
}

/// The buckets that the operator offers, and how they are reached.
#[derive(Clone, Debug)]
pub struct BucketSettings {
    /// The names of the buckets.
    pub buckets: Vec<String>,
    /// The URL of the store, with the bucket as the first part of paths; `None`: AWS, by the region of the bucket.
    pub endpoint: Option<Url>,
    /// The keys.
    pub keys: BucketKeys,
}

/// Writes objects to the buckets.
#[derive(Clone, Debug)]
pub struct OperatorBuckets(Option<Offered>);

#[derive(Clone, Debug)]
struct Offered {
    settings: BucketSettings,
    connector: Connector,
}

impl OperatorBuckets {
    /// Creates the client. Without settings every request is refused.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(settings: Option<BucketSettings>) -> Result<Self, rustls::Error> {
        let Some(settings) = settings else { return Ok(Self(None)) };
        Ok(Self(Some(Offered { settings, connector: Connector::new()? })))
    }

    /// Runs one request to the bucket of the target.
    async fn request(
        &self,
        target: &BucketTarget,
        work: impl AsyncFnOnce(AmazonS3) -> object_store::Result<()>,
    ) -> Result<(), BucketFault> {
        let offered = self.0.as_ref().ok_or(BucketFault::NotOffered)?;
        if !offered.settings.buckets.contains(&target.bucket) {
            return Err(BucketFault::NotOffered);
        }
        // Each target has a client of its own. They share the connections.
        let store = offered.settings.client(target, offered.connector.clone()).map_err(|_| BucketFault::Other)?;
        let done = tokio::time::timeout(REQUEST_TIMEOUT, work(store)).await;
        let Err(error) = done.map_err(|_elapsed| BucketFault::Silent)? else { return Ok(()) };
        let fault = match StoreFault::of(&error) {
            Some(StoreFault::Silent) => BucketFault::Unreachable,
            Some(StoreFault::Refused { status, code }) => BucketFault::Refused { status, code },
            None => BucketFault::Other,
        };
        debug!(bucket = target.bucket, %fault, "a request to a bucket failed");
        Err(fault)
    }
}

impl BucketSettings {
    fn client(&self, target: &BucketTarget, connector: Connector) -> object_store::Result<AmazonS3> {
        let BucketKeys { id, secret, token } = &self.keys;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&target.bucket)
            .with_region(&target.region)
            .with_access_key_id(id)
            .with_secret_access_key(secret.expose_secret())
            // The export has pauses of its own.
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .with_http_connector(connector);
        if let Some(token) = token {
            builder = builder.with_token(token.expose_secret());
        }
        if let Some(key) = &target.kms_key_id {
            builder = builder.with_sse_kms_encryption(key);
        }
        builder = match &self.endpoint {
            Some(endpoint) => {
                let plain = endpoint.scheme() == "http";
                builder.with_endpoint(endpoint.as_str().trim_end_matches('/')).with_allow_http(plain)
            }
            // A certificate of AWS does not match a host name that begins with a bucket with dots.
            None => builder.with_virtual_hosted_style_request(!target.bucket.contains('.')),
        };
        builder.build()
    }
}

#[async_trait]
impl AuditBuckets for OperatorBuckets {
    async fn put(&self, target: &BucketTarget, name: &str, content: Bytes) -> Result<(), BucketFault> {
        let path = Path::parse(name).map_err(|_| BucketFault::Other)?;
        self.request(target, async move |store: AmazonS3| store.put(&path, content.into()).await.map(drop)).await
    }

    async fn remove(&self, target: &BucketTarget, name: &str) -> Result<(), BucketFault> {
        let path = Path::parse(name).map_err(|_| BucketFault::Other)?;
        self.request(target, async move |store: AmazonS3| store.delete(&path).await).await
    }
}
