//! Access to files and directories whose names the unprivileged account may replace at any time. As root, no link is
//! followed there, and an open file is not changed by its name.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The maximum number of bytes read from a small file, far above what PostgreSQL writes.
const SMALL: u64 = 16 * 1024;

/// Opens a directory, without following a link.
pub(super) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a regular file that has no other name: a link of either kind could lead to a file of another account, and a
/// pipe would never end.
pub(super) fn open_regular(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    let meta = file.metadata()?;
    if meta.is_file() && meta.nlink() == 1 { Ok(file) } else { Err(io::Error::other("it is not a file of its own")) }
}

/// The text of a small file.
pub(super) fn read_small(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_regular(path, OFlags::RDONLY)?.take(SMALL).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_that_may_be_somebody_elses_is_not_opened() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let [secret, link, twin, pipe] = ["secret", "link", "twin", "pipe"].map(|name| dir.path().join(name));
        fs::write(&secret, "15\n")?;
        assert_eq!(read_small(&secret)?, "15\n");
        symlink(&secret, &link)?;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0)?;
        for path in [&link, &pipe] {
            assert!(read_small(path).is_err(), "{}", path.display());
        }
        fs::hard_link(&secret, &twin)?;
        assert!(read_small(&twin).is_err());
        Ok(())
    }
}
