//! Answers that are, or begin with, lines of JSON.

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use casement_agent::client::Download;
use casement_domain::browser::EngineFault;
use casement_domain::inside::{ByteStream, InsideError};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use serde::de::DeserializeOwned;

use super::stream as bytes;
use crate::fault::failed;
use crate::running::Running;

/// Lines as they come, none longer than `longest`.
pub(super) struct Lines {
    content: ByteStream,
    buffer: BytesMut,
    longest: usize,
}

impl Lines {
    pub(super) fn new(running: Arc<Running>, download: Download, longest: usize) -> Self {
        Self { content: bytes(running, download), buffer: BytesMut::new(), longest }
    }

    /// The next one; none at the end.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, InsideError> {
        let nonsense =
            |why: String| failed(EngineFault::AgentError, format!("a line of the agent is not readable: {why}"));
        // What was searched before is not searched again.
        let mut searched = 0;
        loop {
            if let Some(end) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(searched + end);
                self.buffer.advance(1);
                return Ok(Some(serde_json::from_slice(&line).map_err(|error| nonsense(error.to_string()))?));
            }
            searched = self.buffer.len();
            if searched > self.longest {
                return Err(nonsense("too long".to_owned()).into());
            }
            match self.content.next().await.transpose()? {
                Some(part) => self.buffer.extend_from_slice(&part),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(nonsense("it broke off".to_owned()).into()),
            }
        }
    }

    /// The one that has to come now.
    pub(super) async fn first<T: DeserializeOwned>(&mut self) -> Result<T, InsideError> {
        let missing = || failed(EngineFault::AgentError, "the agent's answer is empty");
        Ok(self.next().await?.ok_or_else(missing)?)
    }

    /// The bytes after the lines that were taken.
    pub(super) fn rest(self) -> ByteStream {
        let begun = (!self.buffer.is_empty()).then(|| Ok(self.buffer.freeze()));
        stream::iter(begun).chain(self.content).boxed()
    }

    /// All that come, in the domain's words. Ends after the first that cannot be told.
    pub(super) fn told<L, T>(
        self,
        tell: impl Fn(L) -> Result<T, InsideError> + Send + Sync + 'static,
    ) -> BoxStream<'static, Result<T, InsideError>>
    where
        L: DeserializeOwned + Send + 'static,
        T: Send + 'static,
    {
        let tell = Arc::new(tell);
        let told = stream::unfold(Some(self), move |lines| {
            let tell = Arc::clone(&tell);
            async move {
                let mut lines = lines?;
                match lines.next::<L>().await.transpose()?.and_then(|line| tell(line)) {
                    Ok(told) => Some((Ok(told), Some(lines))),
                    Err(error) => Some((Err(error), None)),
                }
            }
        });
        told.boxed()
    }
}

/// A moment that the agent told, in milliseconds since 1970.
pub(super) fn moment(ms: u64) -> Result<time::OffsetDateTime, InsideError> {
    let nonsense = |_| failed(EngineFault::AgentError, "the agent told of a moment that cannot be");
    Ok(time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).map_err(nonsense)?)
}

/// Bytes that the agent told in base64.
pub(super) fn decoded(text: &str) -> Result<Bytes, InsideError> {
    use base64::Engine as _;
    let nonsense = |_| failed(EngineFault::AgentError, "the agent told of bytes that are none");
    Ok(base64::engine::general_purpose::STANDARD.decode(text).map_err(nonsense)?.into())
}

/// Bytes for the agent, in base64.
pub(super) fn encoded(data: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(data)
}
