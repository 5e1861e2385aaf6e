//! One HTTP/1.1 request on a connection of its own, written and read without a library, so that tests see all bytes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

/// The timeout of a read or write: longer than any operation of a test on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// A request. `Host` is the address unless `headers` has another; `Content-Length` is added if there is a body.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path and the query, as in the request line.
    pub path: String,
    /// The headers in order.
    pub headers: Vec<(String, String)>,
    /// The body, if there is one.
    pub body: Option<Vec<u8>>,
}

impl Request {
    /// Returns a request without headers and body.
    pub fn new(method: &str, path: &str) -> Self {
        Self { method: method.to_owned(), path: path.to_owned(), ..Self::default() }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an API key or a session token.
    pub fn bearer(self, key: &str) -> Self {
        self.header("Authorization", &format!("Bearer {key}"))
    }

    /// Sets a JSON body.
    pub fn json(mut self, body: &Value) -> Self {
        self.body = Some(body.to_string().into_bytes());
        self.header("Content-Type", "application/json")
    }

    /// Sends the request and reads the whole response.
    pub fn send(&self, to: SocketAddr) -> anyhow::Result<Answer> {
        self.send_within(to, TEST_TIMEOUT)
    }

    /// Sends the request and reads the whole response, with a timeout of each read and write.
    pub fn send_within(&self, to: SocketAddr, limit: Duration) -> anyhow::Result<Answer> {
        let mut stream = self.start_within(to, limit)?;
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        read.with_context(|| format!("{} {}: no whole answer, only {bytes:?}", self.method, self.path))?;
        Answer::read(&bytes, self.method == "HEAD").with_context(|| format!("{} {}", self.method, self.path))
    }

    /// Sends the request and returns the connection, for a client that disconnects or reads slowly.
    pub fn start(&self, to: SocketAddr) -> anyhow::Result<TcpStream> {
        self.start_within(to, TEST_TIMEOUT)
    }

    fn start_within(&self, to: SocketAddr, limit: Duration) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(to).with_context(|| format!("nobody listens on {to}"))?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.write_all(&self.bytes(to))?;
        Ok(stream)
    }

    fn bytes(&self, to: SocketAddr) -> Vec<u8> {
        let named = |name: &str| self.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !named("host") {
            head += &format!("Host: {to}\r\n");
        }
        if !named("connection") {
            head += "Connection: close\r\n";
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if let (Some(body), false) = (&self.body, named("content-length")) {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        [head.as_bytes(), b"\r\n", self.body.as_deref().unwrap_or_default()].concat()
    }
}

/// A response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers in order, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Parses the bytes of a connection that was read to its end.
    pub fn read(bytes: &[u8], head_only: bool) -> anyhow::Result<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").context("the answer has no whole head")?;
        let head = std::str::from_utf8(&bytes[..end]).context("the head is not text")?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).context("no status")?;
        let headers: Vec<_> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut answer = Self { status, headers, body: bytes[end + 4..].to_vec() };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = unchunked(&answer.body)?;
        } else if let (Some(length), false) = (answer.header("content-length"), head_only) {
            ensure!(length.parse() == Ok(answer.body.len()), "{length} bytes announced, {} came", answer.body.len());
        }
        Ok(answer)
    }

    /// Returns the first header of this name, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("no JSON: {} {}", self.status, self.text()))
    }

    /// Returns the response if it has this status.
    ///
    /// # Errors
    /// The response as text, if it has another status.
    pub fn expect(self, status: u16) -> anyhow::Result<Self> {
        ensure!(self.status == status, "{status} expected, but: {} {}", self.status, self.text());
        Ok(self)
    }
}

fn unchunked(mut rest: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n").context("a chunk has no whole size line")?;
        let size = std::str::from_utf8(&rest[..line])?.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).context("a chunk's size is no number")?;
        rest = &rest[line + 2..];
        if size == 0 {
            return Ok(body);
        }
        if rest.len() < size + 2 {
            bail!("the response was interrupted inside a chunk");
        }
        body.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
}
