//! Records of running calls on disk, so that a restarted server finds them.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use casement_domain::ids::InvocationId;
use serde::{Deserialize, Serialize};

use crate::protocol::Outcome;

/// The longest record in bytes: the longest output, escaped as JSON.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// The record of a call that was sent to a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CallRecord {
    /// The name of the call's sandbox.
    pub(crate) sandbox: String,
    /// The longest output, in bytes of JSON.
    pub(crate) output_bytes: u64,
    /// The API's URL, which the sandbox may reach.
    pub(crate) base: Option<String>,
    /// The outcome of the call, once known.
    pub(crate) outcome: Option<Outcome>,
}

/// The call records of one node.
#[derive(Debug)]
pub(crate) struct CallRecords(PathBuf);

impl CallRecords {
    /// Creates the directory, which only this user can read.
    pub(crate) fn new(directory: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self(directory))
    }

    /// Writes a record atomically. Does not sync it, because its processes end at a power failure too.
    pub(crate) fn write(&self, call: InvocationId, note: &CallRecord) -> io::Result<()> {
        let (target, new) = (self.path(call), self.0.join(format!("{call}.new")));
        let mut file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(note)?)?;
        fs::rename(new, target)
    }

    /// Deletes a record.
    pub(crate) fn remove(&self, call: InvocationId) {
        match fs::remove_file(self.path(call)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%call, %error, "cannot delete the record of a call");
            }
            _ => {}
        }
    }

    /// Reads all records.
    pub(crate) fn read_all(&self) -> io::Result<Vec<(InvocationId, CallRecord)>> {
        let named = |entry: fs::DirEntry| {
            let path = entry.path();
            let call = path.file_stem()?.to_str()?.parse().ok()?;
            (path.extension()? == "json").then_some((call, read_all(&path)?))
        };
        Ok(fs::read_dir(&self.0)?.flatten().filter_map(named).collect())
    }

    fn path(&self, call: InvocationId) -> PathBuf {
        self.0.join(format!("{call}.json"))
    }
}

fn read_all(path: &Path) -> Option<CallRecord> {
    use std::io::Read as _;
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_RECORD_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}
