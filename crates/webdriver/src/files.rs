//! The files that the browser of a session downloads.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::client::{Ask, MAX_ANSWER};
use crate::engine::WebDriverEngine;
use crate::error::GridError;
use crate::record::RemoteSession;

const MAX_NAMES: usize = 10_000;
const MAX_LIST: usize = 4 * 1024 * 1024;
/// How long a file may take, in addition to the time of a command.
const TRANSFER: Duration = Duration::from_secs(300);
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A file that the browser has downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// The name.
    pub name: String,
    /// The size in bytes, if the server says it.
    pub bytes: Option<u64>,
    /// When it was last changed, in milliseconds since 1970, if the server says it.
    pub modified_at_ms: Option<u64>,
}

impl WebDriverEngine {
    /// Lists the files that the browser has downloaded, at most 10,000.
    ///
    /// # Errors
    /// [`GridError::Unsupported`] if the node does not hand out downloads, or any other error.
    pub async fn downloads(&self, session: &RemoteSession) -> Result<Vec<Download>, GridError> {
        let path = files(session)?;
        let within = self.client.command_timeout();
        let ask = Ask { method: Method::GET, path: &path, body: None, within, max: MAX_LIST };
        let answer = self.client.call(ask).await?;
        let nonsense = || GridError::nonsense("a list of downloads has no names");
        let names = answer.get("names").and_then(Value::as_array).ok_or_else(nonsense)?;
        let files = answer.get("files").and_then(Value::as_array);
        let described: HashMap<&str, &Value> =
            files.into_iter().flatten().filter_map(|file| Some((file.get("name")?.as_str()?, file))).collect();
        let number = |name: &str, member: &str| described.get(name)?.get(member)?.as_u64();
        let names = names.iter().filter_map(Value::as_str).take(MAX_NAMES);
        let downloads = names.map(|name| Download {
            name: name.to_owned(),
            bytes: number(name, "size"),
            modified_at_ms: number(name, "lastModifiedTime"),
        });
        Ok(downloads.collect())
    }

    /// Reads a file of at most `max` bytes that the browser has downloaded.
    ///
    /// # Errors
    /// [`GridError::Refused`] if there is none of this name, [`GridError::Nonsense`] if it is larger,
    /// [`GridError::Unsupported`] if the node does not hand out downloads, or any other error.
    pub async fn download(&self, session: &RemoteSession, name: &str, max: usize) -> Result<Bytes, GridError> {
        if name.is_empty() || matches!(name, "." | "..") || name.contains(['/', '\\']) {
            let message = "the name of a download is the name of a file without a folder".to_owned();
            return Err(GridError::Refused { code: "invalid argument".to_owned(), message });
        }
        let path = format!("{}/{}", files(session)?, utf8_percent_encode(name, SEGMENT));
        let within = self.client.command_timeout() + TRANSFER;
        // An error is an answer like others, however small the file may be.
        let ask = Ask { method: Method::GET, path: &path, body: None, within, max: max.max(MAX_ANSWER) };
        let (status, body) = self.client.bytes(ask).await?;
        if status == StatusCode::OK {
            let large = || GridError::nonsense(format!("it has more than {max} bytes"));
            return if body.len() <= max { Ok(body) } else { Err(large()) };
        }
        let error = self.client.parse(status, &body).err();
        Err(error.unwrap_or_else(|| GridError::nonsense(format!("{} to a download", status.as_u16()))))
    }
}

fn files(session: &RemoteSession) -> Result<String, GridError> {
    if !session.has_downloads() {
        return Err(GridError::Unsupported { what: "downloads: its nodes need --enable-managed-downloads true" });
    }
    Ok(format!("/session/{}/se/files", session.id))
}
