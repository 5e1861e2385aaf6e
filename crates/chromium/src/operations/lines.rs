//! Responses that are, or begin with, lines of JSON.

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use casement_agent_protocol::client::Download;
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::de::DeserializeOwned;

use super::stream as bytes;
use crate::fault::failed;
use crate::running::Running;

/// The length of the retained beginning of a too long line, in bytes.
const MAX_BUFFERED_START: usize = 64;

fn invalid(why: &dyn std::fmt::Display) -> EngineError {
    failed(EngineFault::AgentError, format!("a line of the agent is not readable: {why}"))
}

/// A stream of lines, none longer than `max_bytes`.
pub(super) struct Lines {
    content: ByteStream,
    buffer: BytesMut,
    max_bytes: usize,
}

impl Lines {
    pub(super) fn new(running: Arc<Running>, download: Download, max_bytes: usize) -> Self {
        Self { content: bytes(running, download), buffer: BytesMut::new(), max_bytes }
    }

    /// Returns the next line; `None` at the end.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, OperationError> {
        match self.raw(false).await? {
            Some(line) => Ok(Some(serde_json::from_slice(&line).map_err(|error| invalid(&error))?)),
            None => Ok(None),
        }
    }

    /// Returns the next raw line; `None` at the end. With `skips_long`, it returns the beginning of a too long line.
    async fn raw(&mut self, skips_long: bool) -> Result<Option<Bytes>, OperationError> {
        let mut beginning: Option<Bytes> = None;
        // The length of the part without a line end, which is not searched again.
        let mut searched = 0;
        loop {
            if let Some(end) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(searched + end).freeze();
                self.buffer.advance(1);
                return Ok(Some(beginning.unwrap_or(line)));
            }
            searched = self.buffer.len();
            if searched > self.max_bytes {
                if !skips_long {
                    return Err(invalid(&"too long").into());
                }
                beginning
                    .get_or_insert_with(|| Bytes::copy_from_slice(&self.buffer[..MAX_BUFFERED_START.min(searched)]));
                self.buffer.clear();
                searched = 0;
            }
            match self.content.next().await.transpose()? {
                Some(part) => self.buffer.extend_from_slice(&part),
                None if self.buffer.is_empty() && beginning.is_none() => return Ok(None),
                None => return Err(invalid(&"the stream was interrupted").into()),
            }
        }
    }

    /// Converts each line with `convert`, which gets only the beginning of a too long line. Skips lines for which it
    /// returns `None`.
    pub(super) fn each<T: Send + 'static>(
        self,
        convert: impl Fn(&[u8]) -> Option<T> + Send + Sync + 'static,
    ) -> BoxStream<'static, Result<T, OperationError>> {
        let lines =
            stream::try_unfold(self, |mut lines| async move { Ok(lines.raw(true).await?.map(|line| (line, lines))) });
        lines.try_filter_map(move |line| std::future::ready(Ok(convert(&line)))).boxed()
    }

    /// Returns the first line, which is required.
    pub(super) async fn first<T: DeserializeOwned>(&mut self) -> Result<T, OperationError> {
        let missing = || failed(EngineFault::AgentError, "the agent's answer is empty");
        Ok(self.next().await?.ok_or_else(missing)?)
    }

    /// Returns the bytes after the lines that were read.
    pub(super) fn rest(self) -> ByteStream {
        let begun = (!self.buffer.is_empty()).then(|| Ok(self.buffer.freeze()));
        stream::iter(begun).chain(self.content).boxed()
    }

    /// Converts all lines to domain values. Ends after the first invalid line.
    pub(super) fn converted<L, T>(
        self,
        convert: impl Fn(L) -> Result<T, OperationError> + Send + Sync + 'static,
    ) -> BoxStream<'static, Result<T, OperationError>>
    where
        L: DeserializeOwned + Send + 'static,
        T: Send + 'static,
    {
        let convert = Arc::new(convert);
        let converted = stream::unfold(Some(self), move |lines| {
            let convert = Arc::clone(&convert);
            async move {
                let mut lines = lines?;
                match lines.next::<L>().await.transpose()?.and_then(|line| convert(line)) {
                    Ok(converted) => Some((Ok(converted), Some(lines))),
                    Err(error) => Some((Err(error), None)),
                }
            }
        });
        converted.boxed()
    }
}

/// Converts a timestamp of the agent, in milliseconds since 1970.
pub(super) fn parse_timestamp(ms: u64) -> Result<time::OffsetDateTime, OperationError> {
    let invalid = |_| failed(EngineFault::AgentError, "the agent sent an invalid time");
    Ok(time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).map_err(invalid)?)
}

/// Decodes base64 of the agent.
pub(super) fn decoded(text: &str) -> Result<Bytes, OperationError> {
    use base64::Engine as _;
    let invalid = |_| failed(EngineFault::AgentError, "the agent sent invalid Base64");
    Ok(base64::engine::general_purpose::STANDARD.decode(text).map_err(invalid)?.into())
}

/// Encodes bytes for the agent as base64.
pub(super) fn encoded(data: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(parts: &[&str]) -> Lines {
        let parts: Vec<_> = parts.iter().map(|part| Ok(Bytes::copy_from_slice(part.as_bytes()))).collect();
        Lines { content: stream::iter(parts).boxed(), buffer: BytesMut::new(), max_bytes: 200 }
    }

    #[tokio::test]
    async fn an_invalid_line_does_not_hide_later_lines() {
        let long = format!("long{}", "x".repeat(1000));
        let parts = ["1\nno", "ne\n", &long, &long, "\n", "2\n3", "\n"];
        let number = |line: &[u8]| {
            let text = String::from_utf8_lossy(line).into_owned();
            (text != "none").then(|| text.chars().take(4).collect::<String>())
        };
        let converted: Vec<_> = lines(&parts).each(number).try_collect().await.expect("lines");
        assert_eq!(converted, ["1", "long", "2", "3"]);
        let mut lines = lines(&parts);
        assert_eq!(lines.next::<u32>().await.expect("a line"), Some(1));
        assert!(lines.next::<u32>().await.is_err(), "elsewhere it is an error");
    }

    #[tokio::test]
    async fn a_truncated_last_line_is_an_error() {
        for parts in [vec!["1\n2"], vec!["1\n", &"x".repeat(1000)]] {
            let converted: Vec<_> = lines(&parts).each(|line| Some(line.len())).collect().await;
            assert!(matches!(converted[..], [Ok(1), Err(_)]), "{converted:?}");
        }
    }
}
