//! What is written down about calls, so that a later life of the server finds them.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use casement_domain::ids::InvocationId;
use serde::{Deserialize, Serialize};

use crate::protocol::Outcome;

/// The longest note: the longest result, as JSON may write it.
const LONGEST: u64 = 16 << 20;

/// One call that was given to a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallRecord {
    /// In which sandbox.
    pub(crate) sandbox: String,
    /// The longest result it may have.
    pub(crate) output_bytes: u64,
    /// Where the API is that its sandbox may reach.
    pub(crate) base: Option<String>,
    /// How it ended, once that is known.
    pub(crate) outcome: Option<Outcome>,
}

/// The notes of one node.
#[derive(Debug)]
pub(crate) struct CallRecords(PathBuf);

impl CallRecords {
    /// In a directory that is made, for us alone.
    pub(crate) fn new(directory: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self(directory))
    }

    /// Writes one down, whole or not at all. Not synced: the processes it names do not survive what a sync protects from.
    pub(crate) fn write(&self, call: InvocationId, note: &CallRecord) -> io::Result<()> {
        let (target, new) = (self.path(call), self.0.join(format!("{call}.new")));
        let mut file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(note)?)?;
        fs::rename(new, target)
    }

    /// Forgets one.
    pub(crate) fn forget(&self, call: InvocationId) {
        match fs::remove_file(self.path(call)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%call, %error, "the note of a call cannot be removed");
            }
            _ => {}
        }
    }

    /// All of them.
    pub(crate) fn read(&self) -> io::Result<Vec<(InvocationId, CallRecord)>> {
        let named = |entry: fs::DirEntry| {
            let path = entry.path();
            let call = path.file_stem()?.to_str()?.parse().ok()?;
            (path.extension()? == "json").then_some((call, read(&path)?))
        };
        Ok(fs::read_dir(&self.0)?.flatten().filter_map(named).collect())
    }

    fn path(&self, call: InvocationId) -> PathBuf {
        self.0.join(format!("{call}.json"))
    }
}

fn read(path: &Path) -> Option<CallRecord> {
    use std::io::Read as _;
    let mut text = String::new();
    fs::File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}
