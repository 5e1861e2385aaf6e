//! The two WebSocket handshakes of a relay: the client's with us, ours with the upstream.

use std::time::Duration;

use actix_web::{
    HttpRequest, HttpResponse, HttpResponseBuilder,
    http::{
        Method, StatusCode, Version,
        header::{self, HeaderMap, HeaderName},
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};

use super::{RelayError, SendBacklog, Upstream};

/// How long the upstream may take for its answer.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest head that an upstream may answer with.
const MAX_HEAD: usize = 16 * 1024;

/// A client's request that is a well-formed WebSocket handshake.
#[derive(Clone, Debug)]
pub struct ClientHandshake {
    accept: String,
    backlog: SendBacklog,
}

/// The request is no WebSocket handshake; it is answered with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHandshake {
    /// An ordinary request: this path speaks WebSocket only.
    #[error("this path wants a WebSocket upgrade")]
    NoUpgrade,
    /// Another version than 13.
    #[error("only WebSocket version 13 is spoken here")]
    Version,
    /// The key is missing, given twice, or not sixteen bytes in base 64.
    #[error("Sec-WebSocket-Key is not sixteen bytes in base 64")]
    Key,
}

impl ClientHandshake {
    /// Reads the handshake of `request`.
    ///
    /// # Errors
    /// [`BadHandshake`] says what is missing.
    pub fn read(request: &HttpRequest) -> Result<Self, BadHandshake> {
        let headers = request.headers();
        let asks = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && has_token(headers, &header::CONNECTION, "upgrade")
            && has_token(headers, &header::UPGRADE, "websocket");
        if !asks {
            return Err(BadHandshake::NoUpgrade);
        }
        if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err(BadHandshake::Version);
        }
        let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY);
        let (Some(key), None) = (keys.next(), keys.next()) else { return Err(BadHandshake::Key) };
        if STANDARD.decode(key).map_or(true, |key| key.len() != 16) {
            return Err(BadHandshake::Key);
        }
        let backlog = request.conn_data::<SendBacklog>().cloned().unwrap_or_default();
        Ok(Self { accept: derive_accept_key(key.as_bytes()), backlog })
    }

    /// Of the connection that it came on.
    pub(crate) fn backlog(&self) -> SendBacklog {
        self.backlog.clone()
    }

    /// The answer that accepts it; no extension and no subprotocol is agreed to.
    #[must_use]
    pub fn accept(&self) -> HttpResponseBuilder {
        let mut response = HttpResponse::build(StatusCode::SWITCHING_PROTOCOLS);
        response.upgrade("websocket").insert_header((header::SEC_WEBSOCKET_ACCEPT, self.accept.as_str()));
        response
    }
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|found| found.trim().eq_ignore_ascii_case(token))
}

/// Our own handshake with the upstream; nothing of the client's request goes into it. Answers what the upstream sent
/// after its head, which is the beginning of the first frame.
pub(crate) async fn with_upstream(upstream: &mut Upstream, host: &str, path: &str) -> Result<BytesMut, RelayError> {
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(RelayError::Path);
    }
    tokio::time::timeout(UPSTREAM_TIMEOUT, shake(upstream, host, path)).await.map_err(|_| RelayError::Timeout)?
}

async fn shake(upstream: &mut Upstream, host: &str, path: &str) -> Result<BytesMut, RelayError> {
    let key = generate_key();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    );
    upstream.write_all(request.as_bytes()).await?;
    let mut buffer = BytesMut::with_capacity(4096);
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if buffer.len() > MAX_HEAD {
            return Err(RelayError::Answer);
        }
        if upstream.read_buf(&mut buffer).await? == 0 {
            return Err(RelayError::Answer);
        }
    };
    check(&buffer.split_to(end).freeze(), &derive_accept_key(key.as_bytes()))?;
    Ok(buffer)
}

fn check(head: &Bytes, accept: &str) -> Result<(), RelayError> {
    let head = std::str::from_utf8(head).map_err(|_| RelayError::Answer)?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    match status {
        Some(101) => {}
        Some(status) => return Err(RelayError::Refused { status }),
        None => return Err(RelayError::Answer),
    }
    let accepted = lines
        .filter_map(|line| line.split_once(':'))
        .any(|(name, value)| name.eq_ignore_ascii_case("sec-websocket-accept") && value.trim() == accept);
    if accepted { Ok(()) } else { Err(RelayError::Answer) }
}
