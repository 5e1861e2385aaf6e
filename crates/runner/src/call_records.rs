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

/// The records of earlier calls.
pub(crate) struct EarlierCalls {
    pub(crate) records: Vec<(InvocationId, CallRecord)>,
    /// Whether all could be read.
    pub(crate) is_complete: bool,
}

impl CallRecords {
    /// Creates the directory, which only this user can read.
    pub(crate) fn new(directory: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self(directory))
    }

    /// Writes a record atomically. Does not sync it: its processes end at a power failure too, and without a record of
    /// before the boot nothing is concluded.
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
    pub(crate) fn read_all(&self) -> EarlierCalls {
        let mut earlier = EarlierCalls { records: Vec::new(), is_complete: true };
        match self.paths() {
            Ok(paths) => {
                for path in paths {
                    let call = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
                    match call.zip(read(&path)) {
                        Some(record) => earlier.records.push(record),
                        None => earlier.miss(&path, "it cannot be read"),
                    }
                }
            }
            Err(error) => earlier.miss(&self.0, &error.to_string()),
        }
        earlier
    }

    /// Returns the paths of all records.
    fn paths(&self) -> io::Result<Vec<PathBuf>> {
        let paths: io::Result<Vec<PathBuf>> =
            fs::read_dir(&self.0)?.map(|entry| entry.map(|entry| entry.path())).collect();
        Ok(paths?.into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect())
    }

    fn path(&self, call: InvocationId) -> PathBuf {
        self.0.join(format!("{call}.json"))
    }
}

impl EarlierCalls {
    fn miss(&mut self, path: &Path, reason: &str) {
        tracing::error!(path = %path.display(), reason, "cannot read a record of earlier calls");
        self.is_complete = false;
    }
}

fn read(path: &Path) -> Option<CallRecord> {
    use std::io::Read as _;
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_RECORD_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_complete_unless_one_cannot_be_read() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let records = CallRecords::new(directory.path().to_owned())?;
        let call = InvocationId::from_ulid(1.into());
        let record = CallRecord { sandbox: "app-1".to_owned(), output_bytes: 5, base: None, outcome: None };
        records.write(call, &record)?;
        let found = records.read_all();
        assert_eq!(found.records.iter().map(|(id, note)| (*id, note.output_bytes)).collect::<Vec<_>>(), [(call, 5)]);
        assert!(found.is_complete);
        fs::write(directory.path().join(format!("{call}.json")), "{")?;
        let found = records.read_all();
        assert!(found.records.is_empty() && !found.is_complete, "a record that cannot be read may be of any call");
        fs::remove_dir_all(directory.path())?;
        assert!(!records.read_all().is_complete, "neither can the folder");
        Ok(())
    }
}
