//! The failures of a session's proxy.

use std::{error::Error, fmt, io};

use tokio_socks::Error as SocksError;

/// The reason why a session's proxy could not be used for a request.
///
/// A proxy that may not be dialled, whose name is unknown or that does not listen has the same fault: a caller that
/// configures a proxy must not learn about the network of this machine from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyFault {
    /// No connection to the proxy can be made.
    Unreachable,
    /// The proxy did not answer in time.
    Timeout,
    /// The proxy closed the connection without an answer.
    Closed,
    /// The proxy reset the connection.
    Reset,
    /// The proxy's answer does not follow its protocol.
    Protocol,
    /// The TLS handshake failed: the proxy's certificate is not trusted, or it does not support TLS.
    Tls,
    /// The proxy rejects the credentials, or requires credentials.
    Authentication,
    /// The stored proxy no longer exists, or cannot be unsealed.
    Unknown,
}

impl ProxyFault {
    /// Returns the code for programs: `details` in `Proxy-Status`, `failure` in telemetry.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Protocol => "protocol",
            Self::Tls => "tls",
            Self::Authentication => "authentication",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the value of `Proxy-Status` (RFC 9209), and the response text.
    pub(crate) fn response_parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Unreachable => (
                "casement; error=destination_unavailable; details=\"unreachable\"",
                "The session's proxy could not be used: no connection to it could be made.\n",
            ),
            Self::Timeout => (
                "casement; error=connection_read_timeout; details=\"timeout\"",
                "The session's proxy could not be used: it did not answer in time.\n",
            ),
            Self::Closed => (
                "casement; error=connection_terminated; details=\"closed\"",
                "The session's proxy could not be used: it closed the connection without an answer.\n",
            ),
            Self::Reset => (
                "casement; error=connection_terminated; details=\"reset\"",
                "The session's proxy could not be used: it reset the connection.\n",
            ),
            Self::Protocol => (
                "casement; error=http_protocol_error; details=\"protocol\"",
                "The session's proxy could not be used: its answer is not in the proxy's protocol.\n",
            ),
            Self::Tls => (
                "casement; error=tls_protocol_error; details=\"tls\"",
                "The session's proxy could not be used: no trusted TLS connection to it could be made.\n",
            ),
            Self::Authentication => (
                "casement; error=http_request_denied; details=\"authentication\"",
                "The session's proxy could not be used: it does not accept the credentials.\n",
            ),
            Self::Unknown => (
                "casement; error=proxy_configuration_error; details=\"unknown\"",
                "The session's proxy could not be used: the server does not know it any more.\n",
            ),
        }
    }

    /// Classifies a read or write error.
    pub(crate) fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => {
                Self::Reset
            }
            io::ErrorKind::UnexpectedEof => Self::Closed,
            io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::InvalidData => Self::Protocol,
            _ => Self::Closed,
        }
    }

    /// Classifies a SOCKS error of the proxy itself, not of the destination.
    pub(crate) fn from_socks(error: &SocksError) -> Self {
        match error {
            SocksError::Io(error) => Self::from_io(error),
            SocksError::PasswordAuthFailure(_)
            | SocksError::NoAcceptableAuthMethods
            | SocksError::AuthorizationRequired
            | SocksError::InvalidAuthValues(_) => Self::Authentication,
            SocksError::ProxyServerUnreachable => Self::Unreachable,
            _ => Self::Protocol,
        }
    }

    /// Classifies the failure of a plain request to the proxy.
    pub(crate) fn from_http(error: &hyper::Error) -> Self {
        if error.is_parse() {
            return Self::Protocol;
        }
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        source.map_or(Self::Closed, Self::from_io)
    }
}

impl fmt::Display for ProxyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
