//! The store of the blobs, and whether it is the one of the database.

use std::path::Path;
use std::sync::Arc;

use casement_blobs::{BlobPlace, Blobs};
use casement_domain::blob::{BlobError, BlobStore, RecordedStore, StoreMark};
use casement_domain::{BlobStoreId, DatabaseId, StoreError};
use casement_postgres::PgBlobStore;
use tracing::warn;

use crate::settings::{BlobSettings, local_place};
use crate::system::System;

/// The reason why a store is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreRefused {
    /// The store does not respond, or it refuses requests.
    #[error("{location}: {fault}")]
    Blobs { location: String, fault: BlobError },
    #[error(
        "{location} is not the store of this database, whose stored files are in {recorded}: give this server that one, or \
         move them with `casement blobs move` while no server runs"
    )]
    Other { location: String, recorded: String },
    #[error("{location} has the stored files of another database: give this one another bucket, prefix or directory")]
    OtherDatabase { location: String },
    #[error(
        "the stored files of this database are in {directory}: move them with `casement blobs move --to {location}`, or \
         start the server without --blob-url"
    )]
    NotMoved { location: String, directory: String },
    #[error(transparent)]
    Database(#[from] StoreError),
}

/// Opens the store that the settings name. Nothing is read of a store outside of this machine.
pub(crate) fn open(settings: &BlobSettings, data_dir: &Path) -> anyhow::Result<Blobs> {
    Ok(Blobs::open(&settings.place(data_dir)?)?)
}

/// Returns the blobs in a data directory, for a command that only needs what is in the database.
pub(crate) fn of_directory(data_dir: &Path) -> anyhow::Result<Arc<dyn BlobStore>> {
    Ok(Blobs::open(&local_place(data_dir))?.port())
}

/// Opens the store of a server, and checks that it is the one of the database. If the store does not respond, the server
/// starts nevertheless: sessions go on, and what needs the store is refused until [`check`] succeeds.
pub(crate) async fn open_for_server(
    settings: &BlobSettings,
    data_dir: &Path,
    rows: &PgBlobStore,
) -> anyhow::Result<(Blobs, Option<StoreMark>)> {
    let blobs = open(settings, data_dir)?;
    match check(&blobs, rows, data_dir).await {
        Ok(mark) => Ok((blobs, Some(mark))),
        Err(error) if is_away(&blobs) => {
            warn!(%error, "the object store is unavailable: operations that need it are refused until it answers again");
            Ok((blobs, None))
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses a store whose blobs were moved before this server was announced. A later move sees the announcement.
pub(crate) async fn ensure_not_moved(rows: &PgBlobStore, mark: Option<&StoreMark>) -> anyhow::Result<()> {
    let record = rows.read(DatabaseId::mint(&System)).await?;
    let is_same = mark.is_none_or(|mark| record.store == Some(mark.store));
    anyhow::ensure!(is_same, "the stored files are being moved by another command: start the server again");
    Ok(())
}

fn is_away(blobs: &Blobs) -> bool {
    match blobs {
        Blobs::Local(_) => false,
        Blobs::S3(blobs) => blobs.refuses().is_some(),
    }
}

/// Checks that the store is the one of the database. Marks and records the first one.
///
/// # Errors
/// See [`StoreRefused`].
pub(crate) async fn check(blobs: &Blobs, rows: &PgBlobStore, data_dir: &Path) -> Result<StoreMark, StoreRefused> {
    let location = blobs.location();
    let record = rows.read(DatabaseId::mint(&System)).await?;
    if record.store.is_none() && matches!(blobs, Blobs::S3(_)) {
        ensure_moved(data_dir, &location).await?;
    }
    let mark = match read_mark(blobs).await? {
        None if record.store.is_none() => new_mark(blobs, record.database).await?,
        found => found,
    };
    let record = match (&mark, record.store) {
        (Some(mark), None) if mark.database == record.database => rows.record_first(mark.store, &location).await?,
        _ => record,
    };
    compare(mark.as_ref(), &record, location)
}

/// Refuses a store that is not the recorded one. Without a record every store is accepted.
///
/// # Errors
/// See [`StoreRefused`].
pub(crate) async fn ensure_recorded(blobs: &Blobs, record: Option<&RecordedStore>) -> Result<(), StoreRefused> {
    let Some(record) = record.filter(|record| record.store.is_some()) else { return Ok(()) };
    let mark = read_mark(blobs).await?;
    compare(mark.as_ref(), record, blobs.location()).map(drop)
}

fn compare(mark: Option<&StoreMark>, record: &RecordedStore, location: String) -> Result<StoreMark, StoreRefused> {
    match mark {
        Some(mark) if mark.database != record.database => Err(StoreRefused::OtherDatabase { location }),
        Some(mark) if record.store == Some(mark.store) => Ok(*mark),
        _ => Err(StoreRefused::Other { location, recorded: record.location.clone().unwrap_or_default() }),
    }
}

/// Marks a store for this database, and returns the mark that it has then.
///
/// # Errors
/// See [`StoreRefused`].
pub(crate) async fn new_mark(blobs: &Blobs, database: DatabaseId) -> Result<Option<StoreMark>, StoreRefused> {
    let mark = StoreMark { store: BlobStoreId::mint(&System), database };
    let failed = |fault| StoreRefused::Blobs { location: blobs.location(), fault };
    blobs.create_mark(&mark).await.map_err(failed)?;
    read_mark(blobs).await
}

/// Reads the mark of a store.
///
/// # Errors
/// See [`StoreRefused`].
pub(crate) async fn read_mark(blobs: &Blobs) -> Result<Option<StoreMark>, StoreRefused> {
    blobs.mark().await.map_err(|fault| StoreRefused::Blobs { location: blobs.location(), fault })
}

/// Refuses a store outside if the blobs of an installation are still in its data directory.
async fn ensure_moved(data_dir: &Path, location: &str) -> Result<(), StoreRefused> {
    let place = local_place(data_dir);
    let BlobPlace::Directory(directory) = &place else { return Ok(()) };
    if !directory.is_dir() {
        return Ok(());
    }
    let (location, directory) = (location.to_owned(), directory.display().to_string());
    let found = match Blobs::open(&place) {
        Ok(local) => local.port().list("").await,
        Err(error) => Err(BlobError::Store(error.into())),
    };
    match found {
        Ok(found) if found.is_empty() => Ok(()),
        Ok(_) => Err(StoreRefused::NotMoved { location, directory }),
        Err(fault) => Err(StoreRefused::Blobs { location: directory, fault }),
    }
}
