//! A client with a persistent connection, like the public clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::Answer;
use casement_test_support::program::{Cdp, Server, Session};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(60);

/// One connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
    key: String,
}

impl Client {
    /// Connects, and sends a request, so that the first measured request is not the first of the connection.
    pub(crate) fn of(server: &Server) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(server.address())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut client =
            Self { stream: BufReader::new(stream), address: server.address(), key: server.key().to_owned() };
        client.call("GET", "/browser_pools", None)?.expect(200)?;
        Ok(client)
    }

    pub(crate) fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let request = request(self.address, &self.key, method, path, body);
        self.stream.get_mut().write_all(&request)?;
        let mut bytes = Vec::new();
        let mut length = 0;
        while !bytes.ends_with(b"\r\n\r\n") {
            let from = bytes.len();
            ensure!(self.stream.read_until(b'\n', &mut bytes)? > 0, "{method} {path}: the connection was closed");
            let line = String::from_utf8_lossy(&bytes[from..]).to_ascii_lowercase();
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().context("a length that is none")?;
            }
        }
        let head = bytes.len();
        bytes.resize(head + length, 0);
        self.stream.read_exact(&mut bytes[head..])?;
        Answer::read(&bytes, false).with_context(|| format!("{method} {path}"))
    }

    /// Acquires a browser of the pool, which must have one ready.
    pub(crate) fn acquire(&mut self, pool: &str) -> anyhow::Result<Session> {
        let body = json!({ "acquire_timeout_seconds": 0 });
        let answer = self.call("POST", &format!("/browser_pools/{pool}/acquire"), Some(&body))?;
        Ok(Session(answer.expect(200)?.json()?))
    }

    /// Creates a headless session outside of any pool.
    pub(crate) fn create(&mut self) -> anyhow::Result<Session> {
        Ok(Session(self.call("POST", "/browsers", Some(&json!({ "headless": true })))?.expect(201)?.json()?))
    }

    pub(crate) fn delete(&mut self, session: &Session) -> anyhow::Result<()> {
        self.call("DELETE", &format!("/browsers/{}", session.id()), None)?.expect(204).map(drop)
    }
}

/// Returns the bytes of a request for a persistent connection.
pub(crate) fn request(address: SocketAddr, key: &str, method: &str, path: &str, body: Option<&Value>) -> Vec<u8> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Performs the first steps of a client: connects to the browser, attaches to the open page, and evaluates an
/// expression.
pub(crate) fn first_answer(session: &Session) -> anyhow::Result<()> {
    let mut browser = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = browser.page()?;
    let value = browser.evaluate(&page, "6 * 7")?;
    ensure!(value == 42, "the page cannot count: {value}");
    Ok(())
}
