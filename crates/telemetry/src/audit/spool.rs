//! Audit intents on the disk of this node, for calls with a session's token while the database is away.
//!
//! The file has a line of JSON for each intent. It is emptied when all of its calls are recorded in the database; what an
//! earlier process left is given to the database before its abandoned calls are recorded. Lines are written without waiting for
//! the disk, as intents in the database are: they survive the end of the server.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use casement_domain::audit::{AuditEntry, AuditService, AuthStrategy, NodeRun};
use casement_domain::{AuditRecordId, NodeRunId};
use parking_lot::Mutex;
use serde_json::{Value, json};
use time::OffsetDateTime;

/// The maximum size of the file: some 100,000 calls.
const MAX_BYTES: u64 = 64 << 20;

/// The intents of earlier runs.
pub(super) type LeftIntents = BTreeMap<NodeRunId, Vec<AuditEntry>>;

/// The file with intents of this run and of earlier ones.
pub struct IntentSpool {
    run: NodeRunId,
    content: Mutex<Content>,
}

struct Content {
    file: File,
    /// The calls of this run in the file.
    open: HashSet<AuditRecordId>,
    /// Whether the file has intents of earlier runs.
    has_left: bool,
}

impl Content {
    /// Empties the file if none of its intents is needed any more.
    fn tidy(&self) -> io::Result<()> {
        if self.open.is_empty() && !self.has_left { self.file.set_len(0) } else { Ok(()) }
    }
}

impl IntentSpool {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn open(path: PathBuf, run: NodeRun) -> io::Result<Self> {
        let file = fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let has_left = file.metadata()?.len() > 0;
        Ok(Self { run: run.run, content: Mutex::new(Content { file, open: HashSet::new(), has_left }) })
    }

    /// Appends intents. On return they survive the end of this process.
    pub(super) fn append(&self, entries: &[AuditEntry]) -> io::Result<()> {
        let mut content = self.content.lock();
        // The last line of an earlier process may not be whole.
        let mut lines = if content.has_left { "\n".to_owned() } else { String::new() };
        for entry in entries {
            lines.push_str(&to_json(self.run, entry).to_string());
            lines.push('\n');
        }
        let before = content.file.metadata()?.len();
        if before + lines.len() as u64 > MAX_BYTES {
            return Err(io::Error::other("the file of audit intents is full"));
        }
        if let Err(error) = content.file.write_all(lines.as_bytes()) {
            // A line that is not whole would join the next one.
            content.file.set_len(before)?;
            return Err(error);
        }
        content.open.extend(entries.iter().map(|entry| entry.id));
        Ok(())
    }

    /// Returns whether the file has intents of calls of this run.
    pub(super) fn is_used(&self) -> bool {
        !self.content.lock().open.is_empty()
    }

    /// Removes the intents of calls that are recorded or did not proceed.
    pub(super) fn close(&self, calls: &[AuditRecordId]) -> io::Result<()> {
        let mut content = self.content.lock();
        for call in calls {
            content.open.remove(call);
        }
        content.tidy()
    }

    /// Returns the intents of earlier runs. What is not whole, or not readable after a power loss, is left out.
    pub(super) fn left(&self) -> io::Result<LeftIntents> {
        let mut content = self.content.lock();
        let mut left = LeftIntents::new();
        if content.has_left {
            let mut bytes = Vec::new();
            content.file.rewind()?;
            (&mut content.file).take(MAX_BYTES).read_to_end(&mut bytes)?;
            let lines = bytes.split(|byte| *byte == b'\n').filter_map(from_json);
            for (run, entry) in lines.filter(|(run, _)| *run != self.run) {
                left.entry(run).or_default().push(entry);
            }
        }
        Ok(left)
    }

    /// Removes the intents of earlier runs, which the database has now.
    pub(super) fn forget_left(&self) -> io::Result<()> {
        let mut content = self.content.lock();
        if std::mem::take(&mut content.has_left) { content.tidy() } else { Ok(()) }
    }
}

fn to_json(run: NodeRunId, entry: &AuditEntry) -> Value {
    json!({
        "run": run.to_string(),
        "id": entry.id.to_string(),
        "at": entry.at.unix_timestamp_nanos().to_string(),
        "auth_strategy": entry.auth_strategy.as_str(),
        "service": entry.service.as_str(),
        "api_key": entry.api_key.map(|key| key.to_string()),
        "project": entry.project.map(|project| project.to_string()),
        "client_ip": entry.client_ip,
        "domain": entry.domain,
        "method": entry.method,
        "path": entry.path,
        "route": entry.route,
        "user_agent": entry.user_agent,
        "request_id": entry.request_id,
    })
}

fn from_json(line: &[u8]) -> Option<(NodeRunId, AuditEntry)> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let entry = AuditEntry {
        id: text("id")?.parse().ok()?,
        at: OffsetDateTime::from_unix_timestamp_nanos(text("at")?.parse().ok()?).ok()?,
        auth_strategy: AuthStrategy::ALL.into_iter().find(|one| value["auth_strategy"] == one.as_str())?,
        service: AuditService::ALL.into_iter().find(|one| value["service"] == one.as_str())?,
        api_key: text("api_key").and_then(|key| key.parse().ok()),
        project: text("project").and_then(|project| project.parse().ok()),
        client_ip: text("client_ip")?,
        domain: text("domain")?,
        method: text("method")?,
        path: text("path")?,
        route: text("route")?,
        status: AuditEntry::UNKNOWN,
        duration_ms: 0,
        user_agent: text("user_agent")?,
        request_id: text("request_id")?,
        count: 1,
    };
    Some((text("run")?.parse().ok()?, entry))
}
