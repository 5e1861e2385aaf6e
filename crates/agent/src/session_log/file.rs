//! Reads the lines of a file that may grow, be truncated, be replaced and be hostile.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;

use crate::path_text::from_text;
use crate::reply::Refusal;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::session_log::MAX_MESSAGE;

/// The size of one read, in bytes.
const CHUNK: usize = 32 << 10;
/// The interval of checks for changes that the kernel does not report, for example of a symbolic link in the path.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The kinds of file systems whose files are refused even if they are regular: reading them may block or never end.
const UNREAL: [u64; 8] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6367_7270, // cgroup2
    0x0027_e0eb, // cgroup
    0x1cd1,      // devpts
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
];

/// A file that is read from its beginning to its end, and then as it grows.
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    position: u64,
    /// The beginning of a line whose end is not read yet.
    rest: Vec<u8>,
    /// True if the current line is longer than a message, so that the rest of it is skipped.
    cut: bool,
}

impl LogFile {
    /// Opens the file at `path`.
    pub(crate) fn open(path: &str) -> Result<Self, Refusal> {
        let path = from_text(path);
        let file = open(&path)?;
        Ok(Self { path, file, position: 0, rest: Vec::new(), cut: false })
    }

    /// Reads the next bytes. Returns the lines that are complete now; `None` at the end of the file.
    pub(crate) fn read(&mut self) -> io::Result<Option<Vec<String>>> {
        let mut chunk = vec![0; CHUNK];
        let read = self.file.read(&mut chunk)?;
        self.position += read as u64;
        Ok((read > 0).then(|| self.split(chunk.get(..read).unwrap_or_default())))
    }

    fn split(&mut self, chunk: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            if !self.cut {
                let room = MAX_MESSAGE - self.rest.len();
                self.rest.extend_from_slice(&text[..text.len().min(room)]);
                if text.len() > room {
                    self.cut = true;
                    lines.extend(self.take_rest());
                }
            }
            if ended {
                if !self.cut {
                    lines.push(self.take_rest().unwrap_or_default());
                }
                self.cut = false;
            }
        }
        lines
    }

    /// Takes the incomplete last line.
    pub(crate) fn take_rest(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.rest);
        let text = rest.strip_suffix(b"\r").unwrap_or(&rest);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Checks whether the file was truncated or replaced. Returns the incomplete last line of the earlier content, if
    /// there was one, and true if there is something to read now.
    pub(crate) fn look(&mut self) -> io::Result<(Option<String>, bool)> {
        let mine = self.file.metadata()?;
        // The old file is read to its end first.
        if mine.len() > self.position {
            return Ok((None, true));
        }
        if mine.len() < self.position {
            self.file.seek(SeekFrom::Start(0))?;
            return Ok((self.begin_anew(), true));
        }
        let same = |other: &Metadata| (other.dev(), other.ino()) == (mine.dev(), mine.ino());
        if std::fs::metadata(&self.path).is_ok_and(|now| !same(&now))
            && let Ok(file) = open(&self.path)
        {
            self.file = file;
            return Ok((self.begin_anew(), true));
        }
        Ok((None, false))
    }

    fn begin_anew(&mut self) -> Option<String> {
        self.position = 0;
        self.cut = false;
        self.take_rest()
    }

    /// Creates a watch of the file.
    pub(crate) fn watch(&self) -> io::Result<Watch> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut watch = Watch { events: Receiver::from_owned_fd_unchecked(fd.try_clone()?)?, fd };
        watch.renew(self)?;
        Ok(watch)
    }
}

/// Reports that the file, or another file at its path, may have changed.
pub(crate) struct Watch {
    events: Receiver,
    fd: OwnedFd,
}

impl Watch {
    /// Watches the current file, and its directory.
    pub(crate) fn renew(&mut self, log: &LogFile) -> io::Result<()> {
        // By descriptor, because the path may belong to another file by now.
        let mine = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&log.file));
        inotify::add_watch(&self.fd, mine, WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::MOVE_SELF)?;
        let parent = log.path.parent().unwrap_or(Path::new("/"));
        let around = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        // If the directory may not be read, only the checks at `CHECK_INTERVAL` remain.
        inotify::add_watch(&self.fd, parent, around).ok();
        Ok(())
    }

    /// Waits for a change, at most for `CHECK_INTERVAL`.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        match tokio::time::timeout(CHECK_INTERVAL, self.events.readable()).await {
            Ok(ready) => ready?,
            Err(_) => return Ok(()),
        }
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.fd, &mut space);
        loop {
            match events.next() {
                Ok(_) => {}
                Err(Errno::WOULDBLOCK) => break,
                Err(error) => return Err(error.into()),
            }
        }
        // This read clears the readiness of the descriptor.
        match self.events.try_read(&mut [0; 1]) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock && error.kind() != io::ErrorKind::InvalidInput => {
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

/// Opens a regular file without blocking. Refuses everything else.
fn open(path: &Path) -> Result<File, Refusal> {
    let refuse = |code, why: &str| Err(Refusal::new(code, why).of_field("path"));
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::ACCESS | Errno::PERM) => {
            return refuse(ErrorCode::PathForbidden, "the session's user may not read this file");
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP) => {
            return refuse(ErrorCode::Missing, "there is no such file in the session");
        }
        // A socket, or a device without a driver.
        Err(Errno::NXIO | Errno::NODEV) => return refuse(ErrorCode::NotAllowed, "is no regular file"),
        Err(error) => return Err(Refusal::new(ErrorCode::Failed, error)),
    };
    let about = file.metadata().map_err(|error| Refusal::new(ErrorCode::Failed, error))?;
    if about.is_dir() {
        return refuse(ErrorCode::IsADirectory, "is a directory");
    }
    let kind = rustix::fs::fstatfs(&file).map_err(|error| Refusal::new(ErrorCode::Failed, error))?.f_type;
    if !about.is_file() || u64::try_from(kind).is_ok_and(|kind| UNREAL.contains(&kind)) {
        return refuse(ErrorCode::NotAllowed, "is no regular file");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn all(log: &mut LogFile) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(more) = log.read().unwrap() {
            lines.extend(more);
        }
        lines
    }

    fn numbered(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn lines_are_cut_at_their_bound_and_odd_bytes_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let long = "x".repeat(100_000);
        std::fs::write(&path, [b"a\r\n\n\xff\x1b[31m\n".as_slice(), long.as_bytes(), b"\nlast"].concat()).unwrap();
        let mut log = LogFile::open(path.to_str().unwrap()).unwrap();
        let lines = all(&mut log);
        assert_eq!(lines[..3], numbered(&["a", "", "\u{fffd}\u{1b}[31m"]));
        assert_eq!(lines[3..].iter().map(String::len).collect::<Vec<_>>(), [MAX_MESSAGE]);
        assert_eq!(log.take_rest().as_deref(), Some("last"));
    }

    #[test]
    fn a_file_that_is_cut_or_replaced_is_read_from_its_new_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "one\ntwo\nthr").unwrap();
        let mut log = LogFile::open(path.to_str().unwrap()).unwrap();
        assert_eq!(all(&mut log), numbered(&["one", "two"]));
        assert_eq!(log.look().unwrap(), (None, false));

        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(log.look().unwrap(), (Some("thr".to_owned()), true));
        assert_eq!(all(&mut log), numbered(&["new"]));

        let mut old = std::fs::File::options().append(true).open(&path).unwrap();
        std::fs::rename(&path, directory.path().join("log.1")).unwrap();
        assert_eq!(log.look().unwrap(), (None, false));
        std::fs::write(&path, "rotated\n").unwrap();
        old.write_all(b"still\n").unwrap();
        assert_eq!(log.look().unwrap(), (None, true));
        assert_eq!(all(&mut log), numbered(&["still"]));
        assert_eq!(log.look().unwrap(), (None, true));
        assert_eq!(all(&mut log), numbered(&["rotated"]));
    }

    #[test]
    fn only_regular_files_of_real_file_systems_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in
            [fifo.to_str().unwrap(), "/dev/zero", "/dev/tty", "/proc/1/environ", "/proc/self/mem", "/tmp", "/no"]
        {
            assert!(LogFile::open(path).is_err(), "{path}");
        }
    }
}
