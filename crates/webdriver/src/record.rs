//! The record of a session on a WebDriver server.

use std::str::FromStr as _;

use casement_domain::ids::BrowserId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::capabilities::DOWNLOADS;

/// The version of the record.
const VERSION: u8 = 1;

/// A text that is not the record of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the record of a session on a WebDriver server")]
pub struct BadRecord;

/// A session on a WebDriver server. It holds no credentials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct RemoteSession {
    pub(crate) id: String,
    pub(crate) browser: BrowserId,
    pub(crate) browser_version: String,
    pub(crate) cdp: Cdp,
    /// The path of the `BiDi` WebSocket at the configured URL, if the server has one.
    pub(crate) bidi: Option<String>,
    pub(crate) capabilities: Map<String, Value>,
    /// The capabilities that were requested by the client for whom the session was started.
    pub(crate) requested: Map<String, Value>,
}

/// Where the CDP of a session is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cdp {
    /// The path at the configured URL.
    Path(String),
    /// A port of this machine, where a chromedriver of this machine has started the browser.
    Debugger { port: u16, path: String },
}

impl Cdp {
    fn path(&self) -> &str {
        match self {
            Self::Path(path) | Self::Debugger { path, .. } => path,
        }
    }
}

/// The stored form.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    version: u8,
    id: String,
    browser: String,
    browser_version: String,
    cdp: Cdp,
    bidi: Option<String>,
    capabilities: Map<String, Value>,
    #[serde(default)]
    requested: Map<String, Value>,
}

impl RemoteSession {
    /// The maximum size of a record, in bytes of JSON.
    pub const MAX_RECORD: usize = 16 * 1024;
    const MAX_PATH: usize = 512;

    /// Returns the id of the session on the server.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the browser that the session is.
    #[must_use]
    pub const fn browser(&self) -> BrowserId {
        self.browser
    }

    /// Returns the version of the browser, as the server says it.
    #[must_use]
    pub fn browser_version(&self) -> &str {
        &self.browser_version
    }

    /// Returns the capabilities that the server returned. Addresses in them name the server's own nodes.
    #[must_use]
    pub const fn capabilities(&self) -> &Map<String, Value> {
        &self.capabilities
    }

    /// Returns the capabilities that a client requested at the start. The server matched them, but need not return them.
    #[must_use]
    pub const fn requested(&self) -> &Map<String, Value> {
        &self.requested
    }

    /// Returns whether files that the browser downloads can be read.
    #[must_use]
    pub fn has_downloads(&self) -> bool {
        self.capabilities.get(DOWNLOADS) == Some(&Value::Bool(true))
    }

    /// Returns the record as JSON of at most [`Self::MAX_RECORD`] bytes.
    #[must_use]
    pub fn to_record(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses a record.
    ///
    /// # Errors
    /// [`BadRecord`] if the text is no record of this version.
    pub fn parse_record(text: &str) -> Result<Self, BadRecord> {
        if text.len() > Self::MAX_RECORD {
            return Err(BadRecord);
        }
        serde_json::from_str(text).map_err(|_| BadRecord)
    }

    /// Returns whether the session can be recorded.
    pub(crate) fn is_recordable(&self) -> bool {
        Self::parse_record(&self.to_record()).is_ok()
    }
}

/// Returns whether a text can be the id of a session, which is a part of paths.
pub(crate) fn is_session_id(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && !text.bytes().all(|b| b == b'.')
}

/// Returns whether a text is an absolute path that can stand in a request.
pub(crate) fn is_request_path(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_graphic() && !b"\"<>\\^`{}#".contains(&b);
    text.len() <= RemoteSession::MAX_PATH && text.starts_with('/') && text.bytes().all(is_plain)
}

impl From<RemoteSession> for Record {
    fn from(session: RemoteSession) -> Self {
        let RemoteSession { id, browser, browser_version, cdp, bidi, capabilities, requested } = session;
        let browser = browser.to_string();
        Self { version: VERSION, id, browser, browser_version, cdp, bidi, capabilities, requested }
    }
}

impl TryFrom<Record> for RemoteSession {
    type Error = BadRecord;

    fn try_from(record: Record) -> Result<Self, BadRecord> {
        let Record { version, id, browser, browser_version, cdp, bidi, capabilities, requested } = record;
        let browser = BrowserId::from_str(&browser).map_err(|_| BadRecord)?;
        let are_paths = is_request_path(cdp.path()) && bidi.as_deref().is_none_or(is_request_path);
        if version != VERSION || !is_session_id(&id) || browser_version.len() > 128 || !are_paths {
            return Err(BadRecord);
        }
        Ok(Self { id, browser, browser_version, cdp, bidi, capabilities, requested })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn session() -> RemoteSession {
        RemoteSession {
            id: "4899a0504c494e11".to_owned(),
            browser: BrowserId::from_ulid(ulid::Ulid::from_parts(1, 2)),
            browser_version: "156.0".to_owned(),
            cdp: Cdp::Path("/session/4899a0504c494e11/se/cdp".to_owned()),
            bidi: Some("/session/4899a0504c494e11/se/bidi".to_owned()),
            capabilities: Map::from_iter([("browserName".to_owned(), json!("chrome"))]),
            requested: Map::from_iter([("pageLoadStrategy".to_owned(), json!("eager"))]),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let session = session();
        assert_eq!(RemoteSession::parse_record(&session.to_record()), Ok(session));
    }

    #[test]
    fn a_record_that_leads_elsewhere_is_refused() {
        let good: Value = serde_json::from_str(&session().to_record()).expect("JSON");
        for (member, bad) in [
            ("version", json!(2)),
            ("id", json!("../other")),
            ("id", json!("..")),
            ("browser", json!("x")),
            ("bidi", json!("/a b")),
            ("bidi", json!("//x\r\nHost: y")),
            ("cdp", json!({ "path": "http://other/" })),
            ("other", json!(1)),
        ] {
            let mut record = good.clone();
            record[member] = bad.clone();
            assert_eq!(RemoteSession::parse_record(&record.to_string()), Err(BadRecord), "{member}: {bad}");
        }
        let long = format!("{}{}", " ".repeat(RemoteSession::MAX_RECORD), session().to_record());
        assert_eq!(RemoteSession::parse_record(&long), Err(BadRecord));
    }
}
