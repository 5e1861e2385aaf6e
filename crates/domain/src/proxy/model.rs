//! Proxies and the results of their checks.

use time::OffsetDateTime;

use super::{BypassHost, CaBundle, Exit};
use crate::ids::{ProjectId, ProxyId};
use crate::name::LabelName;
use crate::text_enum::text_enum;

text_enum! {
    /// The type of a proxy.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProxyType {
        /// Rented: in a data centre.
        Datacenter => "datacenter",
        /// Rented: in the network of an internet provider.
        Isp => "isp",
        /// Rented: in a household.
        Residential => "residential",
        /// Rented: in a mobile network.
        Mobile => "mobile",
        /// The caller's own.
        Custom => "custom",
    }
}

text_enum! {
    /// The protocol of a proxy.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum ProxyProtocol {
        /// HTTP without TLS.
        #[default]
        Http => "http",
        /// HTTP over TLS.
        Https => "https",
        /// SOCKS version 5.
        Socks5 => "socks5",
    }
}

text_enum! {
    /// The result of the last check.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProxyStatus {
        /// The proxy answered and accepted the credentials.
        Available => "available",
        /// The proxy cannot be used.
        Unavailable => "unavailable",
    }
}

text_enum! {
    /// The reason why a proxy cannot be used.
    ///
    /// A forbidden address, an unknown name and a closed port are all [`Unreachable`](Self::Unreachable), so that
    /// callers cannot use proxies of their own to explore the network of this machine.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProxyFailure {
        /// The connection failed.
        Unreachable => "unreachable",
        /// The proxy did not answer in time.
        Timeout => "timeout",
        /// The proxy closed the connection without an answer.
        Closed => "closed",
        /// The proxy reset the connection.
        Reset => "reset",
        /// The answer does not follow the protocol.
        Protocol => "protocol",
        /// The TLS handshake failed: the certificate is not trusted, or the proxy does not support TLS.
        Tls => "tls",
        /// The proxy refused the credentials, or requires some.
        Authentication => "authentication",
        /// This server no longer knows the proxy, cannot open its password, or rents no proxies of its type.
        Unknown => "unknown",
        /// The proxy answers, but the requested URL could not be read through it.
        Target => "target",
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
    /// The only authorities that the certificate of a proxy with the protocol `https` may be from; `None`: those that
    /// this machine trusts.
    pub ca_bundle: Option<CaBundle>,
}

/// A stored proxy. Its password is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// The identifier.
    pub id: ProxyId,
    /// The project.
    pub project: ProjectId,
    /// The name, which need not be unique.
    pub name: Option<LabelName>,
    /// The type.
    pub kind: ProxyType,
    /// The protocol.
    pub protocol: ProxyProtocol,
    /// The configuration.
    pub config: ProxyConfig,
    /// The hosts that bypass the proxy.
    pub bypass: Vec<BypassHost>,
    /// The result of the last check.
    pub status: ProxyStatus,
    /// The reason why the proxy cannot be used, if known.
    pub failure: Option<ProxyFailure>,
    /// The time of the last check.
    pub last_checked: Option<OffsetDateTime>,
    /// The exit address at the last successful check.
    pub ip_address: Option<String>,
    /// The time of the creation.
    pub created_at: OffsetDateTime,
}

impl Proxy {
    /// Returns the place for which the password of a proxy is sealed.
    #[must_use]
    pub fn place(id: ProxyId) -> String {
        format!("proxies/{id}/password")
    }
}
