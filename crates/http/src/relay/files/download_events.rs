//! The events of downloads for a Playwright on another machine.
//!
//! Playwright opens a download as a file of its own machine, whose name is the download's id. Such a file does not
//! exist: `saveAs` would name a path that nobody knows, and `createReadStream` would end without bytes and without an
//! error. An id with a NUL makes each of them fail, with a text that contains the path and thereby the id.

use bytes::{Bytes, BytesMut};
use serde_json::Value;

use super::FilesLocation;
use crate::relay::wire::{self, Header};

/// The beginning of the events, as Chromium serializes them.
const EVENT: &[u8] = br#"{"method":"Browser.download"#;
/// The maximum payload of an event that is rewritten, in bytes. It contains the URL of a download.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;
/// The beginning of a marked id. Node shows 128 characters of a refused path, of which the directory takes 30 to 80.
const MARK: &str = "\0in the session below /home/casement/downloads: GET fs/read_file #";
/// The same for a remote browser.
const REMOTE_MARK: &str = "\0on the machine of the remote browser, which gives no files #";

fn mark(location: FilesLocation) -> &'static str {
    match location {
        FilesLocation::Session => MARK,
        FilesLocation::Remote => REMOTE_MARK,
    }
}

/// What can be forwarded of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// This many bytes at its beginning.
    Bytes(usize),
    /// The event at its beginning, a whole frame.
    Event,
    /// Nothing before more bytes are there.
    Nothing,
}

/// Finds the first event in `buffer`, which begins with `rest` bytes of a frame that is partly forwarded already.
pub(super) fn cut(buffer: &[u8], rest: usize) -> Cut {
    let mut at = rest;
    while at < buffer.len() {
        let seen = match look(&buffer[at..]) {
            Look::Other { length } => {
                at = at.saturating_add(length).min(buffer.len());
                continue;
            }
            Look::Event => Cut::Event,
            Look::Undecided => Cut::Nothing,
        };
        return if at == 0 { seen } else { Cut::Bytes(at) };
    }
    Cut::Bytes(at)
}

enum Look {
    /// A frame of this length that is no event.
    Other {
        length: usize,
    },
    Event,
    Undecided,
}

/// Looks at the frame at the beginning of `bytes`.
fn look(bytes: &[u8]) -> Look {
    let Some((header, start)) = Header::first(bytes) else { return Look::Undecided };
    let payload = usize::try_from(header.payload).unwrap_or(usize::MAX);
    let length = start.saturating_add(payload);
    let seen = &bytes[start..bytes.len().min(length)];
    let is_other = header.opcode != wire::TEXT
        || !header.fin
        || !(EVENT.len()..=MAX_EVENT_BYTES).contains(&payload)
        || !seen.iter().zip(EVENT).all(|(seen, event)| seen == event);
    match is_other {
        true => Look::Other { length },
        false if bytes.len() < length => Look::Undecided,
        false => Look::Event,
    }
}

/// Takes the event at the beginning of `buffer`, and returns it with a marked id.
pub(super) fn take_event(buffer: &mut BytesMut, location: FilesLocation) -> Bytes {
    let payload = match wire::decode(buffer, u64::MAX) {
        Ok(Some(frame)) => frame.payload.freeze(),
        // Not a whole frame: it passes as it is.
        Ok(None) | Err(_) => return buffer.split().freeze(),
    };
    match marked(&payload, location) {
        Some(event) => wire::encode(wire::TEXT, event.as_bytes(), None),
        None => wire::encode(wire::TEXT, &payload, None),
    }
}

/// Returns an event of the root session with a marked id.
fn marked(event: &[u8], location: FilesLocation) -> Option<String> {
    let mut event: Value = serde_json::from_slice(event).ok()?;
    if event.get("sessionId").is_some() {
        return None;
    }
    let guid = event.get_mut("params")?.get_mut("guid")?;
    *guid = format!("{}{}", mark(location), guid.as_str()?).into();
    Some(event.to_string())
}

/// Returns Chromium's id of a marked one.
pub(super) fn unmarked(guid: &str) -> Option<&str> {
    guid.strip_prefix(MARK).or_else(|| guid.strip_prefix(REMOTE_MARK))
}

#[cfg(test)]
#[path = "download_events_tests.rs"]
mod tests;
