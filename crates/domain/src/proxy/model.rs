//! Proxies and the results of their checks.

use time::OffsetDateTime;

use super::{BypassHost, Exit};
use crate::ids::{ProjectId, ProxyId};
use crate::name::LabelName;

/// The type of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyType {
    /// Rented: in a data centre.
    Datacenter,
    /// Rented: in the network of an internet provider.
    Isp,
    /// Rented: in a household.
    Residential,
    /// Rented: in a mobile network.
    Mobile,
    /// The caller's own proxy.
    Custom,
}

impl ProxyType {
    /// All values.
    pub const ALL: [Self; 5] = [Self::Datacenter, Self::Isp, Self::Residential, Self::Mobile, Self::Custom];

    /// Returns the stored and shown form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Datacenter => "datacenter",
            Self::Isp => "isp",
            Self::Residential => "residential",
            Self::Mobile => "mobile",
            Self::Custom => "custom",
        }
    }
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// HTTP without TLS.
    #[default]
    Http,
    /// HTTP over TLS.
    Https,
    /// SOCKS version 5.
    Socks5,
}

impl ProxyProtocol {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Http, Self::Https, Self::Socks5];

    /// Returns the stored and shown form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks5 => "socks5",
        }
    }
}

/// The result of the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyStatus {
    /// The proxy answered and accepted the credentials.
    Available,
    /// The proxy cannot be used.
    Unavailable,
}

impl ProxyStatus {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Available, Self::Unavailable];

    /// Returns the stored and shown form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The reason why a proxy cannot be used.
///
/// A forbidden address, an unknown host name and a refused connection are one reason, so that callers cannot scan the network
/// of this machine with a proxy of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFailure {
    /// The connection failed.
    Unreachable,
    /// The proxy did not answer in time.
    Timeout,
    /// The proxy closed the connection without an answer.
    Closed,
    /// The proxy reset the connection.
    Reset,
    /// The answer does not follow the protocol.
    Protocol,
    /// The TLS handshake failed: the certificate is not trusted, or the proxy does not support TLS.
    Tls,
    /// The proxy refused the credentials, or requires some.
    Authentication,
    /// This server does not know the proxy any more, cannot open its password, or rents no proxies of its type.
    Unknown,
    /// The proxy answers, but the requested URL could not be read through it.
    Target,
}

impl ProxyFailure {
    /// All values.
    pub const ALL: [Self; 9] = [
        Self::Unreachable,
        Self::Timeout,
        Self::Closed,
        Self::Reset,
        Self::Protocol,
        Self::Tls,
        Self::Authentication,
        Self::Unknown,
        Self::Target,
    ];

    /// Returns the stored and shown form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Protocol => "protocol",
            Self::Tls => "tls",
            Self::Authentication => "authentication",
            Self::Unknown => "unknown",
            Self::Target => "target",
        }
    }
}

/// The configuration of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyConfig {
    /// The caller's own proxy.
    Own(OwnProxy),
    /// A rented proxy with this exit.
    Rented(Exit),
}

/// The caller's own proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnProxy {
    /// The host: a name or an IP address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user name.
    pub username: Option<String>,
    /// The password, sealed for [`Proxy::place`].
    pub password: Option<Vec<u8>>,
}

/// A stored proxy. Its password is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// The identifier.
    pub id: ProxyId,
    /// The project that owns it.
    pub project: ProjectId,
    /// The name, which need not be unique.
    pub name: Option<LabelName>,
    /// The type.
    pub kind: ProxyType,
    /// The protocol.
    pub protocol: ProxyProtocol,
    /// The configuration.
    pub config: ProxyConfig,
    /// The hosts that are reached without it.
    pub bypass: Vec<BypassHost>,
    /// The result of the last check.
    pub status: ProxyStatus,
    /// The reason why it cannot be used, if known.
    pub failure: Option<ProxyFailure>,
    /// The time of the last check.
    pub last_checked: Option<OffsetDateTime>,
    /// The exit address at the last successful check.
    pub ip_address: Option<String>,
    /// The time of its creation.
    pub created_at: OffsetDateTime,
}

impl Proxy {
    /// Returns the place that the password of a proxy is sealed for.
    #[must_use]
    pub fn place(id: ProxyId) -> String {
        format!("proxies/{id}/password")
    }
}
