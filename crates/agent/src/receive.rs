//! Stores a request's body in a file without a name, and removes directories.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use rustix::fs::{Mode, OFlags};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

use crate::reply::Refusal;
use casement_agent_protocol::ErrorCode;

/// Stores `body`, of at most `max_bytes`, in an unnamed file on the disk of `directory`, which is deleted with its last
/// descriptor. `description` names the content in errors.
pub(crate) async fn receive(
    directory: &Path,
    mut body: Incoming,
    max_bytes: u64,
    description: &'static str,
) -> Result<File, Refusal> {
    let refused = |error| disk_refusal(error, description);
    let unnamed = || {
        fs::create_dir_all(directory)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?))
    };
    let mut file = tokio::fs::File::from_std(unnamed().map_err(refused)?);
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::new(ErrorCode::BrokenBody, error))?;
        let Ok(data) = frame.into_data() else { continue };
        received += data.len() as u64;
        if received > max_bytes {
            return Err(Refusal::new(ErrorCode::TooLarge, format_args!("{description} has at most {max_bytes} bytes")));
        }
        file.write_all(&data).await.map_err(refused)?;
    }
    file.flush().await.map_err(refused)?;
    file.rewind().await.map_err(refused)?;
    Ok(file.into_std().await)
}

/// Creates the refusal for content that could not be stored.
pub(crate) fn disk_refusal(error: io::Error, description: &str) -> Refusal {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::DiskFull,
        _ => ErrorCode::Internal,
    };
    Refusal::new(code, format_args!("{description} cannot be kept: {error}"))
}

/// Removes a directory with its content, if it exists.
pub(crate) fn remove_directory(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
