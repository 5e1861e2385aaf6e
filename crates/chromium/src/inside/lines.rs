//! Answers that are, or begin with, lines of JSON.

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

/// How much is kept of the beginning of a line that is too long, in bytes.
const BEGINNING: usize = 64;

fn nonsense(why: &dyn std::fmt::Display) -> EngineError {
    failed(EngineFault::AgentError, format!("a line of the agent is not readable: {why}"))
}

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
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, OperationError> {
        match self.raw(false).await? {
            Some(line) => Ok(Some(serde_json::from_slice(&line).map_err(|error| nonsense(&error))?)),
            None => Ok(None),
        }
    }

    /// The next one as it came; none at the end. Of one that is too long, the beginning, if such are passed over.
    async fn raw(&mut self, passes_over: bool) -> Result<Option<Bytes>, OperationError> {
        let mut beginning: Option<Bytes> = None;
        // What was searched before is not searched again.
        let mut searched = 0;
        loop {
            if let Some(end) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(searched + end).freeze();
                self.buffer.advance(1);
                return Ok(Some(beginning.unwrap_or(line)));
            }
            searched = self.buffer.len();
            if searched > self.longest {
                if !passes_over {
                    return Err(nonsense(&"too long").into());
                }
                beginning.get_or_insert_with(|| Bytes::copy_from_slice(&self.buffer[..BEGINNING.min(searched)]));
                self.buffer.clear();
                searched = 0;
            }
            match self.content.next().await.transpose()? {
                Some(part) => self.buffer.extend_from_slice(&part),
                None if self.buffer.is_empty() && beginning.is_none() => return Ok(None),
                None => return Err(nonsense(&"it broke off").into()),
            }
        }
    }

    /// What `tell` makes of each that comes, of those that are too long from their beginnings; it may leave some out.
    pub(super) fn each<T: Send + 'static>(
        self,
        tell: impl Fn(&[u8]) -> Option<T> + Send + Sync + 'static,
    ) -> BoxStream<'static, Result<T, OperationError>> {
        let lines =
            stream::try_unfold(self, |mut lines| async move { Ok(lines.raw(true).await?.map(|line| (line, lines))) });
        lines.try_filter_map(move |line| std::future::ready(Ok(tell(&line)))).boxed()
    }

    /// The one that has to come now.
    pub(super) async fn first<T: DeserializeOwned>(&mut self) -> Result<T, OperationError> {
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
        tell: impl Fn(L) -> Result<T, OperationError> + Send + Sync + 'static,
    ) -> BoxStream<'static, Result<T, OperationError>>
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
pub(super) fn moment(ms: u64) -> Result<time::OffsetDateTime, OperationError> {
    let nonsense = |_| failed(EngineFault::AgentError, "the agent told of a moment that cannot be");
    Ok(time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).map_err(nonsense)?)
}

/// Bytes that the agent told in base64.
pub(super) fn decoded(text: &str) -> Result<Bytes, OperationError> {
    use base64::Engine as _;
    let nonsense = |_| failed(EngineFault::AgentError, "the agent told of bytes that are none");
    Ok(base64::engine::general_purpose::STANDARD.decode(text).map_err(nonsense)?.into())
}

/// Bytes for the agent, in base64.
pub(super) fn encoded(data: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(parts: &[&str]) -> Lines {
        let parts: Vec<_> = parts.iter().map(|part| Ok(Bytes::copy_from_slice(part.as_bytes()))).collect();
        Lines { content: stream::iter(parts).boxed(), buffer: BytesMut::new(), longest: 200 }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_or_not_readable_hides_none_of_those_behind_it() {
        let long = format!("long{}", "x".repeat(1000));
        let parts = ["1\nno", "ne\n", &long, &long, "\n", "2\n3", "\n"];
        let number = |line: &[u8]| {
            let text = String::from_utf8_lossy(line).into_owned();
            (text != "none").then(|| text.chars().take(4).collect::<String>())
        };
        let told: Vec<_> = lines(&parts).each(number).try_collect().await.expect("lines");
        assert_eq!(told, ["1", "long", "2", "3"]);
        let mut lines = lines(&parts);
        assert_eq!(lines.next::<u32>().await.expect("a line"), Some(1));
        assert!(lines.next::<u32>().await.is_err(), "elsewhere it is an error");
    }

    #[tokio::test]
    async fn a_line_that_breaks_off_is_an_error() {
        for parts in [vec!["1\n2"], vec!["1\n", &"x".repeat(1000)]] {
            let told: Vec<_> = lines(&parts).each(|line| Some(line.len())).collect().await;
            assert!(matches!(told[..], [Ok(1), Err(_)]), "{told:?}");
        }
    }
}
