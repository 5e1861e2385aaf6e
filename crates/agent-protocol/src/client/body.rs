//! Responses of the agent that are read as they arrive: a download and the events.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use http_body_util::{BodyExt, BodyStream};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use tokio::time::timeout;

use super::{ClientError, RequestBody};
use crate::{Event, HEARTBEAT_SECONDS};

/// The longest line of the event stream, in bytes.
const MAX_LINE: usize = 64 << 10;

/// The streamed response of an operation.
#[derive(Debug)]
pub struct Download {
    /// The number of bytes, if the agent knows it.
    pub length: Option<u64>,
    body: BodyStream<Incoming>,
    _connection: SendRequest<RequestBody>,
}

impl Download {
    pub(super) fn new(length: Option<u64>, body: Incoming, connection: SendRequest<RequestBody>) -> Self {
        Self { length, body: BodyStream::new(body), _connection: connection }
    }

    /// Reads the whole response.
    ///
    /// # Errors
    /// [`ClientError::TooLong`] if it exceeds `max_bytes`, and any error of the stream.
    pub async fn collect(mut self, max_bytes: usize) -> Result<Bytes, ClientError> {
        let expected = self.length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        let mut all = BytesMut::with_capacity(expected.min(max_bytes));
        while let Some(part) = self.next().await.transpose()? {
            if all.len() + part.len() > max_bytes {
                return Err(ClientError::TooLong);
            }
            all.extend_from_slice(&part);
        }
        Ok(all.freeze())
    }
}

impl Stream for Download {
    type Item = Result<Bytes, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(self.body.poll_next_unpin(context)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(None),
            }
        }
    }
}

/// The agent's events, in order.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    buffer: BytesMut,
    /// The length of the beginning of the buffer that is known to contain no line end.
    searched: usize,
    _connection: SendRequest<RequestBody>,
}

impl Events {
    pub(super) fn new(body: Incoming, connection: SendRequest<RequestBody>) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0, _connection: connection }
    }

    /// Returns the next event; `None` at the end of the stream. Heartbeats are events too.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if three heartbeats are missing: the agent hangs, is frozen or has ended.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        let within = Duration::from_secs(HEARTBEAT_SECONDS * 3);
        timeout(within, self.line()).await.map_err(|_| ClientError::Timeout(within))?
    }

    async fn line(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.searched + end);
                self.buffer.advance(1);
                self.searched = 0;
                return serde_json::from_slice(&line).map(Some).map_err(|e| ClientError::Malformed(e.to_string()));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE {
                return Err(ClientError::TooLong);
            }
            let Some(frame) = self.body.frame().await.transpose()? else { return Ok(None) };
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}
