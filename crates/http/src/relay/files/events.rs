//! Finds the browser's events that are rewritten for a client.

use bytes::{Bytes, BytesMut};

use super::{FilesLocation, download_events, request_headers};
use crate::relay::wire::{self, Header};

/// The maximum payload of an event that is rewritten, in bytes. It contains the URL of a download, or the headers of a request.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// The events that are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Download,
    RequestHeaders,
}

impl Kind {
    /// Returns the beginning of the events, as Chromium serializes them.
    fn beginning(self) -> &'static [u8] {
        match self {
            Self::Download => br#"{"method":"Browser.download"#,
            Self::RequestHeaders => br#"{"method":"Network.requestWillBeSentExtraInfo"#,
        }
    }

    /// Returns whether a payload is such an event, as far as it is seen.
    fn may_be(self, seen: &[u8], payload: usize) -> bool {
        let beginning = self.beginning();
        payload >= beginning.len() && seen.iter().zip(beginning).all(|(seen, byte)| seen == byte)
    }
}

/// What can be forwarded of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// This many bytes at its beginning.
    Bytes(usize),
    /// The event at its beginning, a whole frame.
    Event(Kind),
    /// Nothing before more bytes are there.
    Nothing,
}

/// Finds the first event of `kinds` in `buffer`, which begins with `rest` bytes of a frame that is partly forwarded already.
pub(super) fn cut(buffer: &[u8], rest: usize, kinds: &[Kind]) -> Cut {
    let mut at = rest;
    while at < buffer.len() {
        let seen = match look(&buffer[at..], kinds) {
            Look::Other { length } => {
                at = at.saturating_add(length).min(buffer.len());
                continue;
            }
            Look::Event(kind) => Cut::Event(kind),
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
    Event(Kind),
    Undecided,
}

/// Looks at the frame at the beginning of `bytes`.
fn look(bytes: &[u8], kinds: &[Kind]) -> Look {
    let Some((header, start)) = Header::first(bytes) else { return Look::Undecided };
    let payload = usize::try_from(header.payload).unwrap_or(usize::MAX);
    let length = start.saturating_add(payload);
    let seen = &bytes[start..bytes.len().min(length)];
    let may_be_event = header.opcode == wire::TEXT && header.fin && payload <= MAX_EVENT_BYTES;
    match kinds.iter().find(|kind| may_be_event && kind.may_be(seen, payload)) {
        None => Look::Other { length },
        Some(_) if bytes.len() < length => Look::Undecided,
        Some(kind) => Look::Event(*kind),
    }
}

/// Takes the event at the beginning of `buffer`, and returns it as the client gets it.
pub(super) fn take_event(buffer: &mut BytesMut, kind: Kind, location: FilesLocation) -> Bytes {
    let payload = match wire::decode(buffer, u64::MAX) {
        Ok(Some(frame)) => frame.payload.freeze(),
        // Not a whole frame: it passes as it is.
        Ok(None) | Err(_) => return buffer.split().freeze(),
    };
    let rewritten = match kind {
        Kind::Download => download_events::marked(&payload, location).map(String::into_bytes),
        Kind::RequestHeaders => request_headers::as_received(&payload),
    };
    wire::encode(wire::TEXT, rewritten.as_deref().unwrap_or(&payload), None)
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
