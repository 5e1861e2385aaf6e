//! Close frames of a remote browser's server.
//!
//! The server closes its WebSockets with codes of its own when a browser ends. Clients are told why the session ended
//! instead, as with a browser of this program. So such a frame is held back, unless it answers one of the client.

use super::{FrameTracker, wire, wire::Header};

/// Returns how many bytes of `buffer` come before a close frame and before an incomplete header; `None` if a close
/// frame is next. `tracker` has never seen a part of a header.
pub(super) fn before_close(buffer: &[u8], tracker: &FrameTracker) -> Option<usize> {
    let mut at = tracker.rest_of_frame(buffer);
    while let Some(first) = buffer.get(at) {
        if first & 0x0f == wire::CLOSE {
            return (at > 0).then_some(at);
        }
        let Some((header, length)) = Header::first(&buffer[at..]) else { break };
        let payload = usize::try_from(header.payload).unwrap_or(usize::MAX);
        at = at.saturating_add(length).saturating_add(payload).min(buffer.len());
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
        wire::encode(opcode, payload, None).to_vec()
    }

    #[test]
    fn a_close_frame_is_found_and_nothing_in_a_payload_is_one() {
        let tracker = FrameTracker::new(u64::MAX);
        let text = frame(wire::TEXT, &[0x88; 300]);
        assert_eq!(before_close(&text, &tracker), Some(text.len()));
        assert_eq!(before_close(&frame(wire::CLOSE, b""), &tracker), None);
        let both = [text.clone(), frame(wire::CLOSE, b"")].concat();
        assert_eq!(before_close(&both, &tracker), Some(text.len()));
        // The header of the second frame is incomplete.
        let cut = [text.clone(), text[..3].to_vec()].concat();
        assert_eq!(before_close(&cut, &tracker), Some(text.len()));
        assert_eq!(before_close(&text[..1], &tracker), Some(0));
    }

    #[test]
    fn a_frame_that_has_begun_ends_before_a_close_frame_is_looked_for() {
        let mut tracker = FrameTracker::new(u64::MAX);
        let text = frame(wire::TEXT, &[0x88; 100]);
        tracker.feed(&text[..50]).expect("no limit");
        let rest = [text[50..].to_vec(), frame(wire::CLOSE, b"")].concat();
        assert_eq!(before_close(&rest, &tracker), Some(text.len() - 50));
    }
}
