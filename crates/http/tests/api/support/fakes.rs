//! Fake ports that need no expectations.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use casement_domain::{
    ApiKeyId, BrowserId, PoolId, StoreError,
    audit::{AuditEntry, AuditTrail, PreparedRecord, RecordTimestamp},
    audit_destination::AuditExportWaker,
    deployment::{InspectedPackage, PackageArchives, PackagePath},
    extension::{ExtensionArchives, InspectedArchive},
    field::{FieldCode, InvalidInput, InvalidValue},
    session_operation::{ByteStream, OperationError},
    sign_in::{CookieHash, SignIn, SignInBounds, SignInRepository},
};
use casement_http::{
    Health, PoolStatus, PoolStatusSource, Readiness, SessionConnector,
    relay::{BrowserConnection, BrowserConnector, Channel, ConnectorError},
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use time::OffsetDateTime;

use super::TIMEOUT;

/// Sign-ins in memory; clones share them.
#[derive(Clone, Default)]
pub(in crate::api) struct MemorySignIns(Arc<Mutex<Vec<SignIn>>>);

#[async_trait]
impl SignInRepository for MemorySignIns {
    async fn create(&self, sign_in: &SignIn, _: &SignInBounds) -> Result<(), StoreError> {
        self.0.lock().push(sign_in.clone());
        Ok(())
    }

    async fn find(&self, cookie: CookieHash) -> Result<Option<SignIn>, StoreError> {
        Ok(self.0.lock().iter().find(|one| one.cookie == cookie).cloned())
    }

    async fn mark_used(&self, cookie: CookieHash, at: OffsetDateTime) -> Result<(), StoreError> {
        self.0.lock().iter_mut().filter(|one| one.cookie == cookie).for_each(|one| one.last_used_at = at);
        Ok(())
    }

    async fn delete(&self, cookie: CookieHash) -> Result<(), StoreError> {
        self.0.lock().retain(|one| one.cookie != cookie);
        Ok(())
    }

    async fn delete_of_key(&self, key: ApiKeyId) -> Result<(), StoreError> {
        self.0.lock().retain(|one| one.key != key);
        Ok(())
    }
}

/// An audit trail that stores records in memory; clones share it.
#[derive(Clone, Default)]
pub(in crate::api) struct Trail {
    pub(in crate::api) entries: Arc<Mutex<Vec<(bool, AuditEntry)>>>,
    /// The stored audit intents.
    pub(in crate::api) intents: Arc<Mutex<Vec<AuditEntry>>>,
    /// Whether writing records fails.
    pub(in crate::api) fails_records: bool,
    /// Whether storing audit intents fails.
    pub(in crate::api) fails_intents: bool,
    /// The moment from which on records are not written yet.
    pub(in crate::api) unwritten_since: Option<OffsetDateTime>,
    /// The moment until which the records of all nodes are complete.
    pub(in crate::api) whole_until: Option<OffsetDateTime>,
}

impl Trail {
    /// Waits for the first record, and returns all records, each with whether its call waited until it was stored.
    pub(in crate::api) async fn entries(&self) -> Vec<(bool, AuditEntry)> {
        let first = async {
            while self.entries.lock().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // If there is no record until the timeout, the list is empty.
        tokio::time::timeout(TIMEOUT, first).await.ok();
        self.entries.lock().clone()
    }
}

#[async_trait]
impl AuditTrail for Trail {
    async fn begin(&self, entry: AuditEntry) -> Result<(), StoreError> {
        if self.fails_intents {
            return Err(StoreError::unavailable("audit.begin", "away"));
        }
        self.intents.lock().push(entry);
        Ok(())
    }

    async fn keep(&self, entry: AuditEntry, _: Option<Arc<PreparedRecord>>) -> Result<(), StoreError> {
        if self.fails_records {
            return Err(StoreError::unavailable("audit.append", "away"));
        }
        self.entries.lock().push((true, entry));
        Ok(())
    }

    fn note(&self, entry: AuditEntry, _: Option<Arc<PreparedRecord>>) {
        self.entries.lock().push((false, entry));
    }

    fn refused(&self, entry: AuditEntry) {
        self.entries.lock().push((false, entry));
    }

    fn stamp(&self, now: OffsetDateTime) -> RecordTimestamp {
        RecordTimestamp::free(now)
    }

    async fn whole_until(&self, end: OffsetDateTime) -> Result<OffsetDateTime, StoreError> {
        match self.unwritten_since {
            Some(since) if since < end => Err(StoreError::unavailable("audit.settle", "records wait")),
            _ => Ok(self.whole_until.map_or(end, |whole| whole.min(end))),
        }
    }
}

/// A connector whose connections fail.
pub(in crate::api) struct FailingConnector;

impl SessionConnector for FailingConnector {
    fn connector(&self, _: BrowserId) -> Arc<dyn BrowserConnector> {
        Arc::new(Self)
    }
}

#[async_trait]
impl BrowserConnector for FailingConnector {
    async fn dial(&self, _: Channel) -> Result<BrowserConnection, ConnectorError> {
        Err(ConnectorError::Unavailable("no browser".into()))
    }

    async fn cdp_path(&self) -> Result<String, ConnectorError> {
        Err(ConnectorError::Unavailable("no browser".into()))
    }
}

/// A fixed status for every pool.
pub(super) struct FixedPoolStatus;

impl PoolStatusSource for FixedPoolStatus {
    fn status(&self, _: PoolId) -> PoolStatus {
        PoolStatus { waiting: 3, longest_wait_seconds: 4, failed_starts: 5, blocked: Some("no_room") }
    }
}

/// A fixed readiness.
pub(super) struct FixedHealth {
    pub(super) failure: Option<String>,
    pub(super) degraded: Option<&'static str>,
    /// The id of the thread that was asked last: the server's worker.
    pub(super) worker: Arc<AtomicI32>,
}

#[async_trait]
impl Health for FixedHealth {
    async fn ready(&self) -> Result<Readiness, String> {
        self.worker.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        let readiness = self.degraded.map_or(Readiness::Whole, Readiness::Degraded);
        self.failure.clone().map_or(Ok(readiness), Err)
    }
}

/// The only archive that is accepted.
pub(in crate::api) const ARCHIVE: &[u8] = b"PK\x03\x04 an archive";

/// Accepts [`ARCHIVE`] and no other archive.
pub(super) struct Archives;

#[async_trait]
impl ExtensionArchives for Archives {
    async fn inspect(&self, field: &str, content: ByteStream) -> Result<InspectedArchive, OperationError> {
        let bytes: Vec<Bytes> = content.try_collect().await?;
        if bytes.concat() != ARCHIVE {
            return Err(InvalidInput::of(field, InvalidValue::new(FieldCode::InvalidFormat, "no archive")).into());
        }
        let content = futures_util::stream::iter([Ok(Bytes::from_static(ARCHIVE))]).boxed();
        Ok(InspectedArchive { size_bytes: ARCHIVE.len() as u64, checksum: "ab".repeat(32), content })
    }
}

#[async_trait]
impl PackageArchives for Archives {
    async fn inspect(&self, entrypoint: &PackagePath, content: ByteStream) -> Result<InspectedPackage, OperationError> {
        let InspectedArchive { size_bytes, checksum, content } =
            ExtensionArchives::inspect(self, "file", content).await?;
        if entrypoint.as_str() == "missing.py" {
            let bad = InvalidValue::new(FieldCode::InvalidFormat, "is no file of the archive");
            return Err(InvalidInput::of("entrypoint_rel_path", bad).into());
        }
        Ok(InspectedPackage { size_bytes, checksum, content })
    }
}

/// An export that is never woken, because it does not run.
pub(super) struct NoWaker;

impl AuditExportWaker for NoWaker {
    fn wake(&self) {}
}
