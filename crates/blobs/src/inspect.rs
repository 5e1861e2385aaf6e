//! Checks archives before they are stored.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::PathBuf;

use async_trait::async_trait;
use casement_archive::{ArchiveError, extension};
use casement_domain::extension::{ExtensionArchives, InspectedArchive, MAX_EXTENSION_BYTES};
use casement_domain::field::{FieldCode, InvalidInput, InvalidValue};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, TryStreamExt as _};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;
use tokio_util::io::ReaderStream;

/// The maximum number of archives that are checked at a time, because each check uses a core.
const MAX_PARALLEL: usize = 2;
/// The size of one read, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Checks archives of extensions. During the check an archive is in an unnamed file, which is deleted when its last
/// descriptor is closed.
#[derive(Debug)]
pub struct Inspector {
    directory: PathBuf,
    turns: Semaphore,
}

impl Inspector {
    /// Creates an inspector with its files in `directory`, which must exist.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, turns: Semaphore::new(MAX_PARALLEL) }
    }

    /// Writes the content to a file; returns the file, its length and its checksum.
    async fn write_down(&self, field: &str, mut content: ByteStream) -> Result<(File, u64, String), OperationError> {
        let mut file = tokio::fs::File::from_std(tempfile::tempfile_in(&self.directory).map_err(disk)?);
        let (mut size, mut checksum) = (0, Sha256::new());
        while let Some(part) = content.try_next().await? {
            size += part.len() as u64;
            if size > MAX_EXTENSION_BYTES {
                let message = format!("{field}: an extension has at most {MAX_EXTENSION_BYTES} bytes");
                return Err(OperationError::TooLarge(message));
            }
            checksum.update(&part);
            file.write_all(&part).await.map_err(disk)?;
        }
        file.flush().await.map_err(disk)?;
        let checksum = checksum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((file.into_std().await, size, checksum))
    }
}

#[async_trait]
impl ExtensionArchives for Inspector {
    async fn inspect(&self, field: &str, content: ByteStream) -> Result<InspectedArchive, OperationError> {
        let (file, size_bytes, checksum) = self.write_down(field, content).await?;
        let file = {
            let _turn = self.turns.acquire().await;
            tokio::task::spawn_blocking(move || look_through(file)).await.map_err(|e| disk(io::Error::other(e)))?
        };
        let file = file.map_err(|error| match error {
            ArchiveError::Io(error) => disk(error),
            bad => InvalidInput::of(field, InvalidValue::new(FieldCode::InvalidFormat, bad.to_string())).into(),
        })?;
        let content = ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK_BYTES).map_err(disk).boxed();
        Ok(InspectedArchive { size_bytes, checksum, content })
    }
}

fn look_through(mut file: File) -> Result<File, ArchiveError> {
    file.rewind()?;
    extension::inspect(file.try_clone()?)?;
    file.rewind()?;
    Ok(file)
}

fn disk(error: io::Error) -> OperationError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            OperationError::DiskFull("the server has no room for another archive now".to_owned())
        }
        _ => OperationError::Failed(format!("an archive cannot be inspected: {error}")),
    }
}
