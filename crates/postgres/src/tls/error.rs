//! Why a connection has no TLS. Each message names the parameter of the database URL and what to do.

use std::io;
use std::path::PathBuf;

use tokio_rustls::rustls::{self, CertificateError};

/// The parameters of the database URL that concern TLS can't be used.
#[derive(Debug, thiserror::Error)]
pub enum BadTls {
    /// A value of `sslmode` that does not exist, or `allow`.
    #[error("sslmode of the database URL must be disable, prefer, require, verify-ca or verify-full")]
    Mode,
    /// TLS without the question of PostgreSQL's protocol before it.
    #[error("sslnegotiation of the database URL must be postgres; leave it out")]
    Negotiation,
    /// A parameter of libpq that has no meaning here.
    #[error("{0} of the database URL is not supported; leave it out")]
    Unsupported(&'static str),
    /// The mode does not do what another parameter demands.
    #[error("{parameter} of the database URL has no effect with this sslmode; it needs sslmode={mode}")]
    TooWeak {
        /// The other parameter.
        parameter: &'static str,
        /// The mode that it needs.
        mode: &'static str,
    },
    /// `verify-ca` without a file.
    #[error(
        "sslmode=verify-ca of the database URL needs sslrootcert, the file with the certificate of the database's authority: \
         without it, any public authority could vouch for any host"
    )]
    NoRoots,
    /// One half of an identity.
    #[error("sslcert and sslkey of the database URL belong together: give both or none")]
    HalfIdentity,
    /// Some of the hosts can have no TLS.
    #[error("the database URL demands TLS and names a unix socket beside other hosts; leave the socket out")]
    SomeSockets,
    /// A file can't be used.
    #[error(transparent)]
    Files(#[from] TlsError),
}

/// A connection with TLS could not be established.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TlsError {
    /// The connection is one without TLS.
    #[error("sslmode=disable")]
    Off,
    /// A file can't be used.
    #[error("{parameter} of the database URL: {}: {reason}", path.display())]
    File {
        /// The parameter that names it.
        parameter: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it, without any of its content.
        reason: String,
    },
    /// The system knows no authorities.
    #[error(
        "this system has no certificates of authorities: install ca-certificates, or give sslrootcert=FILE in the database URL"
    )]
    NoSystemRoots,
    /// The key and the certificate of this client don't fit together.
    #[error("sslcert and sslkey of the database URL cannot be used together: {0}")]
    Identity(String),
    /// The library refuses its configuration.
    #[error("TLS can't be set up: {0}")]
    Setup(String),
    /// The name of the host can't be in a certificate.
    #[error("{0} is no host name that TLS can check")]
    BadHost(String),
    /// No known authority has signed the certificate.
    #[error(
        "the certificate of {host} is not signed by an authority in {roots}; give the file of its authority as sslrootcert in \
         the database URL"
    )]
    Untrusted {
        /// The host of the database URL.
        host: String,
        /// Where the known authorities are.
        roots: String,
    },
    /// The certificate is for other names.
    #[error(
        "the certificate of {host} is for {names}; name such a host in the database URL, or check only the authority with \
         sslmode=verify-ca"
    )]
    OtherName {
        /// The host of the database URL.
        host: String,
        /// The names in the certificate.
        names: String,
    },
    /// The certificate has expired, or is not valid yet.
    #[error("the certificate of {host} is not valid today; renew it at the database, or set the clock of this machine")]
    NotValidNow {
        /// The host of the database URL.
        host: String,
    },
    /// Anything else.
    #[error("no TLS with {host}: {reason}")]
    Handshake {
        /// The host of the database URL.
        host: String,
        /// The reason.
        reason: String,
    },
}

impl TlsError {
    /// The meaning of a failed handshake.
    pub(crate) fn of_handshake(error: &io::Error, host: &str, roots: &str) -> Self {
        let (host, roots) = (host.to_owned(), roots.to_owned());
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::InvalidCertificate(refused)) => match refused {
                CertificateError::UnknownIssuer => Self::Untrusted { host, roots },
                CertificateError::NotValidForName => Self::OtherName { host, names: names(&[]) },
                CertificateError::NotValidForNameContext { presented, .. } => {
                    Self::OtherName { host, names: names(presented) }
                }
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::NotValidNow { host },
                other => Self::Handshake { host, reason: format!("its certificate: {other}") },
            },
            Some(other) => Self::Handshake { host, reason: other.to_string() },
            None => Self::Handshake { host, reason: error.to_string() },
        }
    }
}

fn names(presented: &[String]) -> String {
    match presented {
        [] => "no host (it has no subjectAltName)".to_owned(),
        names => names.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", "),
    }
}

/// Removes what the library writes around a name: `DnsName("db.example.com")`.
fn plain(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.map_or(name, |inner| inner.trim_matches('"'))
}
