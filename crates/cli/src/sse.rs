//! Reads server-sent events.

use anyhow::{Context as _, bail};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

/// The maximum size of an event, in bytes.
const MAX_EVENT_BYTES: usize = 8 << 20;

/// A stream of events.
pub(crate) struct Events {
    body: Incoming,
    unread: Vec<u8>,
}

impl Events {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, unread: Vec::new() }
    }

    /// Returns the next event, or `None` at the end.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.unread.drain(..end + 2).collect();
                match data(&event)? {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                }
            }
            if self.unread.len() > MAX_EVENT_BYTES {
                bail!("the server sends an event without end");
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    let frame = frame.context("the stream was interrupted")?;
                    self.unread.extend(frame.data_ref().into_iter().flatten().filter(|byte| **byte != b'\r'));
                }
            }
        }
    }
}

/// Returns the data of an event; `None` for an event without data.
fn data(event: &[u8]) -> anyhow::Result<Option<Value>> {
    let text = std::str::from_utf8(event).context("the server sends what is not UTF-8")?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let data = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n");
    if data.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&data).context("an event is not JSON")?)) }
}

#[cfg(test)]
mod tests {
    use super::data;

    #[test]
    fn an_event_joins_its_data_lines() {
        let read = |text: &str| data(text.as_bytes()).expect("an event");
        assert_eq!(read("event: log\ndata: {\"a\":\ndata: 1}\n\n"), Some(serde_json::json!({"a": 1})));
        assert_eq!(read(": only a comment\n\n"), None);
        assert!(data(b"data: no json\n\n").is_err());
    }
}
