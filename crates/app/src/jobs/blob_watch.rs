//! Watches whether the object store responds, and whether it is the one of the database.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use casement_blobs::{Blobs, S3Blobs};
use casement_domain::blob::StoreMark;
use casement_postgres::PgBlobStore;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::Job;
use crate::blob_store::{self, StoreRefused};

/// The reason for which requests are refused to a store that was replaced by another one.
const FOREIGN: &str = "the object store is not the one of this database";

/// Sends a request regularly. Between them, callers find out themselves that the store does not respond.
pub(crate) struct BlobWatch {
    store: S3Blobs,
    blobs: Blobs,
    rows: PgBlobStore,
    data_dir: PathBuf,
    /// The mark of the store of the database; `None` until it was read.
    mark: Option<StoreMark>,
    /// The reason that the log has reported.
    reported: Option<String>,
}

impl BlobWatch {
    /// Returns the watch of a store outside of this machine; `None` for a directory.
    pub(crate) fn new(blobs: &Blobs, rows: PgBlobStore, data_dir: PathBuf, mark: Option<StoreMark>) -> Option<Self> {
        let Blobs::S3(store) = blobs else { return None };
        let reported = store.refuses();
        Some(Self { store: store.clone(), blobs: blobs.clone(), rows, data_dir, mark, reported })
    }

    /// Returns the reason for which the store cannot be used; `None` if it can.
    async fn look(&mut self) -> Result<Option<String>, StoreRefused> {
        let found = match self.mark {
            Some(mark) => blob_store::read_mark(&self.blobs).await.map(|found| found == Some(mark)),
            None => blob_store::check(&self.blobs, &self.rows, &self.data_dir).await.map(|mark| {
                self.mark = Some(mark);
                true
            }),
        };
        match found {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(FOREIGN.to_owned())),
            Err(StoreRefused::Blobs { fault, .. }) => Ok(Some(fault.to_string())),
            Err(error @ StoreRefused::Database(_)) => Err(error),
            Err(error) => {
                error!(%error, "the object store is refused");
                Ok(Some(FOREIGN.to_owned()))
            }
        }
    }
}

#[async_trait]
impl Job for BlobWatch {
    fn name(&self) -> &'static str {
        "blob watch"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        let why = self.look().await?;
        match &why {
            None => self.store.allow(),
            Some(why) => self.store.refuse(why),
        }
        metrics::gauge!("casement_blob_store_up").set(f64::from(u8::from(why.is_none())));
        match (&self.reported, &why) {
            (Some(_), None) => info!("the object store responds again"),
            (reported, Some(why)) if reported.as_ref() != Some(why) => {
                warn!(why, "the object store cannot be used: pending saves are kept and retried");
            }
            _ => {}
        }
        self.reported = why;
        Ok(())
    }
}
