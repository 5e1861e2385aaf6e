//! How a session's proxy fails.

use std::{error::Error, fmt, io};

use tokio_socks::Error as SocksError;

/// Why a session's proxy could not be used for a request.
///
/// A proxy that may not be dialled, one whose name is not known and one that does not listen are one kind: who names a proxy must not
/// learn from it what stands in the network of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyFault {
    /// No connection to it comes to be.
    Unreachable,
    /// It did not answer in time.
    Timeout,
    /// It closed the connection without an answer.
    Closed,
    /// It reset the connection.
    Reset,
    /// What it answered is not its protocol.
    Protocol,
    /// No TLS with it comes to be: its certificate is not trusted, or it speaks none.
    Tls,
    /// It does not take the credentials, or wants some.
    Authentication,
    /// It is not known here any more, or cannot be opened.
    Unknown,
}

impl ProxyFault {
    /// One word for programs: the `details` of `Proxy-Status`, `failure` in telemetry.
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

    /// The error type of RFC 9209, and the whole text of the answer.
    pub(crate) fn told(self) -> (&'static str, &'static str) {
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

    /// What a failure to read or write means.
    pub(crate) fn of_io(error: &io::Error) -> Self {
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

    /// What a failure of SOCKS means, where it is the proxy's own.
    pub(crate) fn of_socks(error: &SocksError) -> Self {
        match error {
            SocksError::Io(error) => Self::of_io(error),
            SocksError::PasswordAuthFailure(_)
            | SocksError::NoAcceptableAuthMethods
            | SocksError::AuthorizationRequired
            | SocksError::InvalidAuthValues(_) => Self::Authentication,
            SocksError::ProxyServerUnreachable => Self::Unreachable,
            _ => Self::Protocol,
        }
    }

    /// What it means that a whole request got no answer.
    pub(crate) fn of_http(error: &hyper::Error) -> Self {
        if error.is_parse() {
            return Self::Protocol;
        }
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        source.map_or(Self::Closed, Self::of_io)
    }
}

impl fmt::Display for ProxyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
