//! The end of the TCP connection of a WebSocket.
//!
//! RFC 6455 §7.1.1: after both close frames the server closes the connection at once. Clients wait for that. actix keeps a
//! connection with an unfinished request open for some seconds after the response, and the request of a WebSocket never
//! finishes. So the connection itself follows the frames of both directions, whichever part of the server sends them, and
//! reports to actix that the client has disconnected.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use actix_web::{
    body::{BodySize, BoxBody, MessageBody},
    dev::ServiceResponse,
    http::StatusCode,
    web::Bytes,
};

use crate::relay::FrameTracker;

/// The end of the head of a response.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Whether the body of the response that switched protocols has ended. Clones belong to the same connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpgradedBodyEnd(Rc<Cell<bool>>);

/// The frames of a connection that was upgraded to a WebSocket, from the head of the response on.
#[derive(Debug)]
pub(crate) struct WebSocketFrames {
    /// The number of bytes of [`HEAD_END`] that the written part of the head ends with.
    head_end_matched: usize,
    to_client: FrameTracker,
    from_client: FrameTracker,
    body_end: UpgradedBodyEnd,
}

impl WebSocketFrames {
    pub(crate) fn new(body_end: UpgradedBodyEnd) -> Self {
        let (to_client, from_client) = (FrameTracker::new(u64::MAX), FrameTracker::new(u64::MAX));
        Self { head_end_matched: 0, to_client, from_client, body_end }
    }

    /// Follows bytes that were written: the head of the response, then frames.
    pub(crate) fn written(&mut self, bytes: &[u8]) {
        let mut frames_start = 0;
        while self.head_end_matched < HEAD_END.len() {
            let Some(byte) = bytes.get(frames_start) else { return };
            self.head_end_matched = match *byte == HEAD_END[self.head_end_matched] {
                true => self.head_end_matched + 1,
                false => usize::from(*byte == HEAD_END[0]),
            };
            frames_start += 1;
        }
        // No message exceeds the limit.
        let _ = self.to_client.feed(&bytes[frames_start..]);
    }

    /// Follows bytes of the client that were read.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        let _ = self.from_client.feed(bytes);
    }

    /// Returns whether the connection is to be closed now: both sides have sent a close frame, or the server sends nothing
    /// more, not even a close frame.
    pub(crate) fn is_over(&self) -> bool {
        let is_closed = |tracker: &FrameTracker| tracker.close_seen() && tracker.between_frames();
        let is_cut = self.body_end.0.get() && !self.to_client.close_seen();
        is_cut || (is_closed(&self.to_client) && is_closed(&self.from_client))
    }
}

/// Marks the end of the body if the response switches protocols.
pub(crate) fn mark_end(response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    let end = response.request().conn_data::<UpgradedBodyEnd>().cloned().unwrap_or_default();
    response.map_body(|_, body| BoxBody::new(MarkedBody { body, end }))
}

/// A body whose end is marked.
struct MarkedBody {
    body: BoxBody,
    end: UpgradedBodyEnd,
}

impl MessageBody for MarkedBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}

impl Drop for MarkedBody {
    fn drop(&mut self) {
        // actix drops a body at its end.
        self.end.0.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::{CloseReason, wire};

    const HEAD: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n";

    fn close_of_client() -> Bytes {
        wire::encode(wire::CLOSE, &1000_u16.to_be_bytes(), Some([1, 2, 3, 4]))
    }

    #[test]
    fn the_connection_is_over_after_both_close_frames_in_either_order_and_in_any_parts() {
        let to_client = [HEAD, &wire::encode(wire::TEXT, &[0x88; 300], None), &CloseReason::Deleted.frame()].concat();
        let from_client = [wire::encode(wire::TEXT, b"x", Some([0x88; 4])), close_of_client()].concat();
        for size in [1, 3, 1000] {
            for client_is_first in [true, false] {
                let mut frames = WebSocketFrames::new(UpgradedBodyEnd::default());
                let written =
                    |frames: &mut WebSocketFrames| to_client.chunks(size).for_each(|part| frames.written(part));
                let read = |frames: &mut WebSocketFrames| from_client.chunks(size).for_each(|part| frames.read(part));
                if client_is_first {
                    read(&mut frames)
                } else {
                    written(&mut frames)
                }
                assert!(!frames.is_over(), "one close frame, by {size}");
                if client_is_first {
                    written(&mut frames)
                } else {
                    read(&mut frames)
                }
                assert!(frames.is_over(), "both close frames, by {size}");
            }
        }
    }

    #[test]
    fn a_close_frame_of_which_a_part_is_missing_does_not_count() {
        let mut frames = WebSocketFrames::new(UpgradedBodyEnd::default());
        let last = CloseReason::Deleted.frame();
        frames.written(&[HEAD, &last[..last.len() - 1]].concat());
        frames.read(&close_of_client());
        assert!(!frames.is_over());
        frames.written(&last[last.len() - 1..]);
        assert!(frames.is_over());
    }

    #[test]
    fn a_server_that_ends_without_a_close_frame_waits_for_nothing() {
        let end = UpgradedBodyEnd::default();
        let mut frames = WebSocketFrames::new(end.clone());
        frames.written(&[HEAD, &wire::encode(wire::TEXT, b"cut", None)[..3]].concat());
        assert!(!frames.is_over());
        end.0.set(true);
        assert!(frames.is_over());
    }

    #[test]
    fn a_server_that_ends_with_a_close_frame_waits_for_that_of_the_client() {
        let end = UpgradedBodyEnd::default();
        let mut frames = WebSocketFrames::new(end.clone());
        frames.written(&[HEAD, &CloseReason::Deleted.frame()].concat());
        end.0.set(true);
        assert!(!frames.is_over());
        frames.read(&close_of_client());
        assert!(frames.is_over());
    }
}
