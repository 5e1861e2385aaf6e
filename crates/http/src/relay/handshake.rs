//! The two WebSocket handshakes of a relay: the client's with the server, and the server's with the upstream.

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

use super::{Channel, RelayError, RemoteEndpoint, SendBacklog, Upstream};

/// The time that the upstream has to respond.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of the head of an upstream's response, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// A well-formed WebSocket handshake of a client.
#[derive(Clone, Debug)]
pub struct ClientHandshake {
    accept: String,
    backlog: SendBacklog,
}

/// The request is not a WebSocket handshake; the response is 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHandshake {
    /// The request is an ordinary one, but the path serves WebSockets only.
    #[error("this path wants a WebSocket upgrade")]
    NoUpgrade,
    /// The version is not 13.
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
    /// [`BadHandshake`] if a part of the handshake is missing or invalid.
    pub fn read(request: &HttpRequest) -> Result<Self, BadHandshake> {
        let headers = request.headers();
        let is_upgrade = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && has_token(headers, &header::CONNECTION, "upgrade")
            && has_token(headers, &header::UPGRADE, "websocket");
        if !is_upgrade {
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

    /// Returns the backlog of the connection that carried the handshake.
    pub(crate) fn backlog(&self) -> SendBacklog {
        self.backlog.clone()
    }

    /// Starts the response that accepts the handshake, without extensions and subprotocols.
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

/// What the server's handshake with the upstream asks for.
pub(crate) struct Target<'a> {
    host: &'a str,
    path: &'a str,
    endpoint: Option<&'a RemoteEndpoint>,
}

impl<'a> Target<'a> {
    /// Returns the target of a connection; `path` is that of a browser of this program.
    pub(crate) fn of(endpoint: Option<&'a RemoteEndpoint>, channel: Channel, path: &'a str) -> Self {
        match endpoint {
            Some(remote) => Self { host: &remote.host, path: &remote.path, endpoint },
            None => Self { host: channel.local_host(), path, endpoint },
        }
    }

    fn is_valid(&self) -> bool {
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        self.path.starts_with('/') && is_plain(self.path) && is_plain(self.host)
    }

    fn request(&self, key: &str) -> Vec<u8> {
        let Self { host, path, endpoint } = self;
        let mut request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        )
        .into_bytes();
        for (name, value) in endpoint.iter().flat_map(|endpoint| endpoint.further_headers()) {
            request.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        request.extend_from_slice(b"\r\n");
        request
    }
}

/// Performs the server's handshake with the upstream, which contains no part of the client's request. Returns the bytes
/// after the head of the upstream's response, which are the beginning of the first frame.
pub(crate) async fn upgrade_upstream(upstream: &mut Upstream, target: &Target<'_>) -> Result<BytesMut, RelayError> {
    if !target.is_valid() {
        return Err(RelayError::Path);
    }
    tokio::time::timeout(UPSTREAM_TIMEOUT, perform(upstream, target)).await.map_err(|_| RelayError::Timeout)?
}

async fn perform(upstream: &mut Upstream, target: &Target<'_>) -> Result<BytesMut, RelayError> {
    let key = generate_key();
    upstream.write_all(&target.request(&key)).await?;
    // A stream with TLS buffers what its socket did not take.
    upstream.flush().await?;
    let mut buffer = BytesMut::with_capacity(4096);
    let head_end = loop {
        if let Some(position) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break position + 4;
        }
        if buffer.len() > MAX_HEAD_BYTES {
            return Err(RelayError::Handshake);
        }
        if upstream.read_buf(&mut buffer).await? == 0 {
            return Err(RelayError::Handshake);
        }
    };
    check_response(&buffer.split_to(head_end).freeze(), &derive_accept_key(key.as_bytes()))?;
    Ok(buffer)
}

fn check_response(head: &Bytes, accept: &str) -> Result<(), RelayError> {
    let head = std::str::from_utf8(head).map_err(|_| RelayError::Handshake)?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    match status {
        Some(101) => {}
        Some(status) => return Err(RelayError::Refused { status }),
        None => return Err(RelayError::Handshake),
    }
    let accepted = lines
        .filter_map(|line| line.split_once(':'))
        .any(|(name, value)| name.eq_ignore_ascii_case("sec-websocket-accept") && value.trim() == accept);
    if accepted { Ok(()) } else { Err(RelayError::Handshake) }
}
