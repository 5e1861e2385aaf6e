//! The proxy.

use time::OffsetDateTime;

use super::{BypassHost, Exit};
use crate::ids::{ProjectId, ProxyId};
use crate::name::LabelName;

/// Where a proxy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyType {
    /// Rented, in a data centre.
    Datacenter,
    /// Rented, in a provider's network.
    Isp,
    /// Rented, in a household.
    Residential,
    /// Rented, in a mobile network.
    Mobile,
    /// The caller's own.
    Custom,
}

impl ProxyType {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Datacenter, Self::Isp, Self::Residential, Self::Mobile, Self::Custom];

    /// As it is stored and said.
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

/// What a proxy is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// HTTP in the clear.
    #[default]
    Http,
    /// HTTP over TLS.
    Https,
    /// SOCKS, version 5.
    Socks5,
}

impl ProxyProtocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Http, Self::Https, Self::Socks5];

    /// As it is stored and said.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks5 => "socks5",
        }
    }
}

/// What the last check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyStatus {
    /// It answered and took the credentials.
    Available,
    /// It did not.
    Unavailable,
}

impl ProxyStatus {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Available, Self::Unavailable];

    /// As it is stored and said.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Why a proxy cannot be used.
///
/// One that may not be dialled, one whose name is not known and one that does not listen are one kind, so that nobody learns from a proxy
/// of his own what stands in the network of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFailure {
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
    /// This server does not know it any more, cannot open its password, or nobody rents proxies of its type.
    Unknown,
    /// It works as far as can be seen, but the address could not be read through it.
    Target,
}

impl ProxyFailure {
    /// All of them.
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

    /// As it is stored and said.
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

/// How a proxy is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyConfig {
    /// The caller's own.
    Own(OwnProxy),
    /// One that the operator rents, whose traffic comes out there.
    Rented(Exit),
}

/// A proxy of the caller's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnProxy {
    /// Where it stands: a name or an address.
    pub host: String,
    /// On which port.
    pub port: u16,
    /// Who it is told to be spoken to by.
    pub username: Option<String>,
    /// With what password, sealed in [`Proxy::place`].
    pub password: Option<Vec<u8>>,
}

/// A proxy that is kept. Its password is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// The identifier.
    pub id: ProxyId,
    /// The project that owns it.
    pub project: ProjectId,
    /// For people; several may bear the same.
    pub name: Option<LabelName>,
    /// Where it comes from.
    pub kind: ProxyType,
    /// What it is spoken to in.
    pub protocol: ProxyProtocol,
    /// How it is reached.
    pub config: ProxyConfig,
    /// What does not go through it.
    pub bypass: Vec<BypassHost>,
    /// What the last check found.
    pub status: ProxyStatus,
    /// Why it cannot be used, where that is known.
    pub failure: Option<ProxyFailure>,
    /// When that was.
    pub last_checked: Option<OffsetDateTime>,
    /// The address that others saw at the last good check.
    pub ip_address: Option<String>,
    /// The time of its creation.
    pub created_at: OffsetDateTime,
}

impl Proxy {
    /// Where the password of that proxy is sealed.
    #[must_use]
    pub fn place(id: ProxyId) -> String {
        format!("proxies/{id}/password")
    }
}
