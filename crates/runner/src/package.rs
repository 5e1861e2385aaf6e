//! Checks uploaded packages before they are stored.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::PathBuf;

use async_trait::async_trait;
use casement_archive::{ArchiveError, package};
use casement_domain::deployment::{InspectedPackage, PackageArchives, PackagePath};
use casement_domain::field::{FieldCode, InvalidInput, InvalidValue};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, TryStreamExt as _};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;
use tokio_util::io::ReaderStream;

/// The maximum number of archives that are checked at a time; each check occupies a core.
const MAX_CHECKS: usize = 2;
/// The read size in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Checks packages. Each package is spooled to an unnamed file, which is deleted with its last reader.
#[derive(Debug)]
pub struct Packages {
    directory: PathBuf,
    permits: Semaphore,
}

impl Packages {
    /// Creates a checker that spools to `directory`, which must exist.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, permits: Semaphore::new(MAX_CHECKS) }
    }
}

/// Writes content of at most `max_bytes` to a file. Returns the file at its beginning, its length in bytes and its
/// SHA-256 in hexadecimal.
pub(crate) async fn spool_to_file(
    file: File,
    mut content: ByteStream,
    max_bytes: u64,
) -> Result<(File, u64, String), OperationError> {
    let mut file = tokio::fs::File::from_std(file);
    let (mut size, mut checksum) = (0, Sha256::new());
    while let Some(part) = content.try_next().await? {
        size += part.len() as u64;
        if size > max_bytes {
            return Err(OperationError::TooLarge(format!("file: a package has at most {max_bytes} bytes")));
        }
        checksum.update(&part);
        file.write_all(&part).await.map_err(disk)?;
    }
    file.flush().await.map_err(disk)?;
    let mut file = file.into_std().await;
    file.rewind().map_err(disk)?;
    Ok((file, size, hex(checksum)))
}

/// Returns a checksum in hexadecimal.
pub(crate) fn hex(checksum: Sha256) -> String {
    checksum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[async_trait]
impl PackageArchives for Packages {
    async fn inspect(&self, entrypoint: &PackagePath, content: ByteStream) -> Result<InspectedPackage, OperationError> {
        let file = tempfile::tempfile_in(&self.directory).map_err(disk)?;
        let (file, size_bytes, checksum) = spool_to_file(file, content, package::MAX_BYTES).await?;
        let wanted = entrypoint.as_str().to_owned();
        let checked = {
            let _turn = self.permits.acquire().await;
            tokio::task::spawn_blocking(move || look_through(file, &wanted))
                .await
                .map_err(|e| disk(io::Error::other(e)))?
        };
        let (file, found) = checked.map_err(|error| match error {
            ArchiveError::Io(error) => disk(error),
            bad => InvalidInput::of("file", InvalidValue::new(FieldCode::InvalidFormat, bad.to_string())).into(),
        })?;
        if !found {
            let missing = InvalidValue::new(FieldCode::ReferenceNotFound, "there is no such file in the package");
            return Err(InvalidInput::of("entrypoint_rel_path", missing).into());
        }
        let content = ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK_BYTES).map_err(disk).boxed();
        Ok(InspectedPackage { size_bytes, checksum, content })
    }
}

fn look_through(file: File, entrypoint: &str) -> Result<(File, bool), ArchiveError> {
    let found = package::inspect(file.try_clone()?, entrypoint)?;
    let mut file = file;
    file.rewind()?;
    Ok((file, found))
}

fn disk(error: io::Error) -> OperationError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            OperationError::DiskFull("the server has no room for another package now".to_owned())
        }
        _ => OperationError::Failed(format!("a package cannot be inspected: {error}")),
    }
}
