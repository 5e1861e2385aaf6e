//! The health of this node.

use async_trait::async_trait;
use casement_blobs::Blobs;
use casement_domain::node::{NodeState, OwnState};
use casement_domain::storage::DiskSpace as _;
use casement_http::{Health, Readiness};
use casement_postgres::Database;

use crate::disk::DiskWatch;
use crate::jobs::Spares;

/// The readiness message of a nearly full disk.
const DISK_IS_LOW: &str = "the disk is nearly full: telemetry, logs of apps and recordings are not stored";

/// The readiness message of a full disk. Calls succeed as long as the database finds space in its files.
const DATABASE_IS_FULL: &str = "the disk of the database is full: calls that change something are answered 503 as soon as the database needs space for them";

/// The readiness message of an object store that is away.
const STORE_IS_AWAY: &str =
    "the object store does not respond: profiles, extensions, replays and apps cannot be stored or read";

/// The health of this node. It is ready while it takes sessions, the database accepts changes and spares can be started. A pool that cannot fill
/// does not count: its configuration may be unusable.
pub(crate) struct NodeHealth {
    pub(crate) own: OwnState,
    pub(crate) database: Database,
    pub(crate) spares: Spares,
    pub(crate) disk: DiskWatch,
    pub(crate) blobs: Blobs,
}

#[async_trait]
impl Health for NodeHealth {
    async fn ready(&self) -> Result<Readiness, String> {
        if self.own.state() != NodeState::Serving {
            return Ok(Readiness::Draining);
        }
        self.own.answers().map_err(|away| away.to_string())?;
        self.database
            .check_writable()
            .await
            .map_err(|error| format!("the database does not accept changes: {error}"))?;
        if self.disk.database_is_full() {
            return Err(DATABASE_IS_FULL.to_owned());
        }
        if self.spares.failing() {
            return Err("no browser can be started here".to_owned());
        }
        if let Blobs::S3(blobs) = &self.blobs
            && blobs.refuses().is_some()
        {
            return Ok(Readiness::Degraded(STORE_IS_AWAY));
        }
        Ok(if self.disk.is_low() { Readiness::Degraded(DISK_IS_LOW) } else { Readiness::Whole })
    }
}
