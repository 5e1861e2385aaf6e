//! The log file of the private cluster. PostgreSQL appends to it, and this module bounds its size.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::guarded::open_regular;

/// The size beyond which the log is moved to `postgres.log.1`, so that both together have about twice this size.
const LIMIT_BYTES: u64 = 4 * 1024 * 1024;
/// The size of the end of the log that an error message quotes.
const TAIL_BYTES: u64 = 2 * 1024;

/// Shortens the log once a minute until it is aborted.
pub(super) async fn keep_short(path: PathBuf) {
    let mut ticks = tokio::time::interval(Duration::from_secs(60));
    loop {
        ticks.tick().await;
        let path = path.clone();
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || shorten(&path)).await {
            tracing::warn!(%error, "the log of the private PostgreSQL could not be rotated");
        }
    }
}

/// Copies the end of a long log to `postgres.log.1` and empties the log. PostgreSQL has it open, so it can't be
/// renamed.
pub(super) fn shorten(path: &Path) -> io::Result<()> {
    let mut source = match open_regular(path, OFlags::RDWR) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    if source.metadata()?.len() <= LIMIT_BYTES {
        return Ok(());
    }
    let mut old = path.as_os_str().to_owned();
    old.push(".1");
    match fs::remove_file(&old) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut aside = open_regular(Path::new(&old), OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
    source.seek(SeekFrom::End(-i64::try_from(LIMIT_BYTES).unwrap_or(0)))?;
    io::copy(&mut (&source).take(LIMIT_BYTES), &mut aside)?;
    source.set_len(0)
}

/// The last lines, for an error message.
pub(super) fn tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = open_regular(path, OFlags::RDONLY)?;
        let from = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    read().unwrap_or_else(|error| format!("(unreadable: {error})"))
}

#[cfg(test)]
mod tests {
    use super::{LIMIT_BYTES, shorten, tail};

    #[test]
    fn a_long_log_keeps_its_end_aside_and_starts_anew() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let log = dir.path().join("postgres.log");
        let mut text = vec![b'x'; usize::try_from(LIMIT_BYTES).unwrap_or(0)];
        text.extend_from_slice(b"the end\n");
        std::fs::write(&log, text)?;
        shorten(&log)?;
        assert_eq!(std::fs::metadata(&log)?.len(), 0);
        assert!(tail(&dir.path().join("postgres.log.1")).ends_with("the end"));
        Ok(())
    }

    #[test]
    fn the_log_stored_aside_is_not_written_through_a_link() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let (log, other) = (dir.path().join("postgres.log"), dir.path().join("other"));
        std::fs::write(&log, vec![b'x'; usize::try_from(LIMIT_BYTES).unwrap_or(0) + 1])?;
        std::fs::write(&other, "untouched")?;
        std::os::unix::fs::symlink(&other, dir.path().join("postgres.log.1"))?;
        shorten(&log)?;
        assert_eq!(std::fs::read_to_string(&other)?, "untouched");
        assert_eq!(std::fs::metadata(dir.path().join("postgres.log.1"))?.len(), LIMIT_BYTES);
        Ok(())
    }
}
