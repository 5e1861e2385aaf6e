//! `casement backup` and `casement restore`.
//!
//! A backup is a folder: the manifest, the dump of the database, the blobs, and the secret files of the data directory,
//! sealed under a passphrase. The sealed file authenticates the manifest, which has the checksum of every other part,
//! so nothing of a backup is used that the owner of the passphrase did not write.

mod create;
mod folder;
mod manifest;
mod part;
mod passphrase;
pub(crate) mod progress;
mod restore;
mod secret_files;

use tokio::signal::unix::{SignalKind, signal};

pub(crate) use create::run as create;
pub(crate) use restore::run as restore;

/// The file with the list of parts.
const MANIFEST: &str = "manifest.json";
/// The file with the sealed secret files.
const SECRETS: &str = "secrets.sealed";
/// The part with the dump of the database.
const DUMP: &str = "database.dump";
/// The prefix of the names of blobs.
const BLOBS: &str = "blobs/";

/// Runs `work` until it is done or a signal asks this process to end.
pub(crate) async fn until_interrupted<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        done = work => done,
        _ = terminate.recv() => anyhow::bail!("interrupted"),
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
    }
}

/// Returns a size for people.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
