//! The description of the DevTools protocol of this machine's Chromium. It is read from a browser that was never handed out:
//! programs of a caller could answer in the place of theirs.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use casement_agent_protocol::Channel;
use casement_agent_protocol::client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::engine::Engine;
use crate::running::{DIAL_SOCKET, Running};

/// The timeout of the browser, which has just answered.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of the response in bytes. Chromium's is 1.6 MB.
const MAX_BYTES: usize = 16 << 20;
const REQUEST: &[u8] = b"GET /json/protocol HTTP/1.1\r\nHost: 127.0.0.1:9222\r\nConnection: close\r\n\r\n";

/// The description, and the version of the browser that has it.
#[derive(Debug)]
pub(crate) struct Protocol {
    version: String,
    description: Bytes,
}

impl Engine {
    /// Returns the description of the DevTools protocol as JSON; `None` until a browser has started.
    #[must_use]
    pub fn protocol(&self) -> Option<Bytes> {
        self.0.protocol.lock().as_ref().map(|protocol| protocol.description.clone())
    }

    /// Reads the description from a new browser, if none of this version was read. A failure leaves the former one.
    pub(crate) async fn read_protocol(&self, running: &Running, version: &str) {
        if self.0.protocol.lock().as_ref().is_some_and(|protocol| protocol.version == version) {
            return;
        }
        let read = tokio::time::timeout(TIMEOUT, read(running)).await.map_err(io::Error::from).flatten();
        match read {
            Ok(description) => {
                let protocol = Protocol { version: version.to_owned(), description };
                *self.0.protocol.lock() = Some(protocol);
            }
            Err(error) => tracing::warn!(%error, "cannot read the description of the DevTools protocol"),
        }
    }
}

async fn read(running: &Running) -> io::Result<Bytes> {
    let path = running.sandbox.listener_path(DIAL_SOCKET);
    let stream = client::dial(path, Channel::Cdp).await.map_err(io::Error::other)?;
    let mut stream = TcpStream::from_std(stream)?;
    stream.write_all(REQUEST).await?;
    let mut response = Vec::new();
    loop {
        if let Some(description) = body(&response)? {
            return Ok(description);
        }
        if stream.read_buf(&mut response).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Returns the body of a response if it is complete.
fn body(response: &[u8]) -> io::Result<Option<Bytes>> {
    let invalid = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    let Some(end) = response.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return if response.len() > 64 << 10 { Err(invalid("the head does not end")) } else { Ok(None) };
    };
    let (head, body) = (String::from_utf8_lossy(&response[..end]), &response[end + 4..]);
    if !head.starts_with("HTTP/1.1 200") {
        return Err(invalid("the browser refuses"));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.filter(|length| *length <= MAX_BYTES).ok_or_else(|| invalid("no length, or too long"))?;
    let Some(body) = body.get(..length) else { return Ok(None) };
    let description: serde_json::Value = serde_json::from_slice(body)?;
    if !description["domains"].is_array() {
        return Err(invalid("there are no domains in it"));
    }
    Ok(Some(description.to_string().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_description_is_taken() {
        let whole = "HTTP/1.1 200 OK\r\ncontent-length:16\r\n\r\n{\"domains\": [ ]}";
        assert_eq!(body(whole.as_bytes()).expect("valid").expect("complete"), "{\"domains\":[]}");
        assert!(body(&whole.as_bytes()[..whole.len() - 1]).expect("valid").is_none());
        for other in
            [whole.replace("200", "404"), whole.replace("16", "99999999999"), whole.replace("domains", "domain_")]
        {
            assert!(body(other.as_bytes()).is_err(), "{other}");
        }
    }
}
