//! The proxy.

use time::OffsetDateTime;

use super::{BypassHost, Exit};
use crate::ids::{ProjectId, ProxyId};
use crate::name::LabelName;
use crate::text_enum::text_enum;

text_enum! {
    /// Where a proxy comes from.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProxyType {
        /// Rented, in a data centre.
        Datacenter => "datacenter",
        /// Rented, in a provider's network.
        Isp => "isp",
        /// Rented, in a household.
        Residential => "residential",
        /// Rented, in a mobile network.
        Mobile => "mobile",
        /// The caller's own.
        Custom => "custom",
    }
}

text_enum! {
    /// What a proxy is spoken to in.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum ProxyProtocol {
        /// HTTP in the clear.
        #[default]
        Http => "http",
        /// HTTP over TLS.
        Https => "https",
        /// SOCKS, version 5.
        Socks5 => "socks5",
    }
}

text_enum! {
    /// What the last check found.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProxyStatus {
        /// It answered and took the credentials.
        Available => "available",
        /// It did not.
        Unavailable => "unavailable",
    }
}

text_enum! {
    /// Why a proxy cannot be used.
    ///
    /// One that may not be dialled, one whose name is not known and one that does not listen are one kind, so that nobody learns from a proxy
    /// of his own what stands in the network of this machine.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProxyFailure {
        /// No connection to it comes to be.
        Unreachable => "unreachable",
        /// It did not answer in time.
        Timeout => "timeout",
        /// It closed the connection without an answer.
        Closed => "closed",
        /// It reset the connection.
        Reset => "reset",
        /// What it answered is not its protocol.
        Protocol => "protocol",
        /// No TLS with it comes to be: its certificate is not trusted, or it speaks none.
        Tls => "tls",
        /// It does not take the credentials, or wants some.
        Authentication => "authentication",
        /// This server does not know it any more, cannot open its password, or nobody rents proxies of its type.
        Unknown => "unknown",
        /// It works as far as can be seen, but the address could not be read through it.
        Target => "target",
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
