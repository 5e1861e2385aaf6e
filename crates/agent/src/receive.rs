//! A body that is kept whole, in a file without a name, before anything is done with it.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use rustix::fs::{Mode, OFlags};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

use crate::reply::Refusal;
use casement_agent_protocol::ErrorCode;

/// Puts `body`, of at most `most` bytes, into a file on the disk of `directory` that nobody else knows and that goes with its last
/// descriptor. `what` it is, for people.
pub(crate) async fn receive(
    directory: &Path,
    mut body: Incoming,
    most: u64,
    what: &'static str,
) -> Result<File, Refusal> {
    let refused = |error| disk(error, what);
    let nameless = || {
        fs::create_dir_all(directory)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?))
    };
    let mut file = tokio::fs::File::from_std(nameless().map_err(refused)?);
    let mut came = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::new(ErrorCode::BrokenBody, error))?;
        let Ok(data) = frame.into_data() else { continue };
        came += data.len() as u64;
        if came > most {
            return Err(Refusal::new(ErrorCode::TooLarge, format_args!("{what} has at most {most} bytes")));
        }
        file.write_all(&data).await.map_err(refused)?;
    }
    file.flush().await.map_err(refused)?;
    file.rewind().await.map_err(refused)?;
    Ok(file.into_std().await)
}

/// It could not be kept.
pub(crate) fn disk(error: io::Error, what: &str) -> Refusal {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::DiskFull,
        _ => ErrorCode::Internal,
    };
    Refusal::new(code, format_args!("{what} cannot be kept: {error}"))
}
