//! The rules: what may be reached from inside, what the operator opened on top.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use ipnet::IpNet;
use thiserror::Error;
use url::Host;

use crate::{
    address::is_public,
    target::{parse_host, parse_port, split_port, without_final_dot},
};

/// Mail submission between servers: the one port whose abuse gets a whole network listed.
const SMTP: u16 = 25;

/// Names that mean this machine or its cloud, whatever they resolve to.
const REFUSED_NAMES: [&str; 5] =
    ["localhost", "localhost.localdomain", "metadata.google.internal", "metadata.goog", "instance-data"];

/// What a session may reach: the public internet, unless it is closed, and what the operator allowed.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    allow: Vec<Allow>,
    /// Whether nothing else is reachable, the public internet neither.
    closed: bool,
}

/// One exception of the operator, written `CIDR`, `HOST[:PORT]` or `*.SUFFIX[:PORT]`.
///
/// A network or an address allows whatever has such an address, however it was named; a name allows that name, whatever
/// address it has. With a port it allows that port only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    what: AllowTarget,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AllowTarget {
    Net(IpNet),
    Name(String),
    /// With the dot in front.
    Suffix(String),
}

/// An exception that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseAllowError {
    /// There is nothing.
    #[error("empty")]
    Empty,
    /// It has a slash but is no network.
    #[error("{0:?} is no network: write it like 10.1.0.0/16 or fd12::/48")]
    Network(String),
    /// The host is no address and no name.
    #[error("{0:?} is no host: write it like app.internal, *.app.internal, 127.0.0.1:8080 or [::1]:8080")]
    Host(String),
    /// The port is not between 1 and 65535.
    #[error("{0:?} has no valid port after the colon")]
    Port(String),
}

/// What the rules say of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The public internet.
    Public,
    /// Reachable because the operator said so.
    Allowed,
    /// Must not be dialled.
    Refused,
}

impl Rules {
    /// The public internet and these exceptions. `Rules::default()` has none.
    pub fn new(allow: Vec<Allow>) -> Self {
        Self { allow, closed: false }
    }

    /// These places and nothing else.
    pub fn only(allow: Vec<Allow>) -> Self {
        Self { allow, closed: true }
    }

    /// The same, and these exceptions too.
    #[must_use]
    pub fn and(mut self, more: impl IntoIterator<Item = Allow>) -> Self {
        self.allow.extend(more);
        self
    }

    /// Reads one exception.
    ///
    /// # Errors
    /// [`ParseAllowError`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<Allow, ParseAllowError> {
        text.parse()
    }

    /// Judges `address`, which a request for `host` would be sent to. `host` is a name or the address as text.
    pub fn check(&self, host: &str, address: SocketAddr) -> Verdict {
        let host = without_final_dot(host);
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let mut matching = self.allow.iter().filter(|allow| allow.matches(host, ip, port));
        if port == SMTP {
            let named = matching.any(|allow| allow.port == Some(SMTP));
            return if named { Verdict::Allowed } else { Verdict::Refused };
        }
        if matching.next().is_some() {
            Verdict::Allowed
        } else if !self.closed && port != 0 && is_public(ip) && !is_refused_name(host) {
            Verdict::Public
        } else {
            Verdict::Refused
        }
    }

    /// Whether somebody else may be asked to look up `name` and go there. Without its address, only exceptions by name count.
    pub(crate) fn proxy_may_connect(&self, name: &str, port: u16) -> bool {
        let name = without_final_dot(name);
        let excepted = |allow: &&Allow| allow.allows_port(port) && allow.matches_name(name);
        let mut exceptions = self.allow.iter().filter(excepted);
        if port == SMTP {
            return exceptions.any(|allow| allow.port == Some(SMTP));
        }
        (!self.closed && !is_refused_name(name)) || exceptions.next().is_some()
    }

    /// False if no address that `name` could have would be reachable, so that it need not be looked up.
    pub(crate) fn could_reach(&self, name: &str, port: u16) -> bool {
        let name = without_final_dot(name);
        let excepted = |allow: &Allow| match &allow.what {
            AllowTarget::Net(_) => allow.allows_port(port),
            AllowTarget::Name(_) | AllowTarget::Suffix(_) => allow.allows_port(port) && allow.matches_name(name),
        };
        if port == SMTP {
            return self.allow.iter().any(|allow| allow.port == Some(SMTP) && excepted(allow));
        }
        (!self.closed && !is_refused_name(name)) || self.allow.iter().any(excepted)
    }
}

impl Allow {
    fn matches(&self, host: &str, ip: IpAddr, port: u16) -> bool {
        let place = match &self.what {
            AllowTarget::Net(net) => net.contains(&ip),
            AllowTarget::Name(_) | AllowTarget::Suffix(_) => self.matches_name(host),
        };
        place && self.allows_port(port)
    }

    fn allows_port(&self, port: u16) -> bool {
        self.port.is_none_or(|allowed| allowed == port)
    }

    fn matches_name(&self, host: &str) -> bool {
        match &self.what {
            AllowTarget::Net(_) => false,
            AllowTarget::Name(name) => host.eq_ignore_ascii_case(name),
            AllowTarget::Suffix(suffix) => ends_with_ignoring_case(host, suffix),
        }
    }
}

impl FromStr for Allow {
    type Err = ParseAllowError;

    fn from_str(text: &str) -> Result<Self, ParseAllowError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ParseAllowError::Empty);
        }
        if text.contains('/') {
            let net: IpNet = text.parse().map_err(|_| ParseAllowError::Network(text.to_owned()))?;
            return Ok(Self { what: AllowTarget::Net(net.trunc()), port: None });
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self { what: AllowTarget::Net(ip.to_canonical().into()), port: None });
        }
        let bad_host = || ParseAllowError::Host(text.to_owned());
        let (host, port) = split_port(text).ok_or_else(bad_host)?;
        let port = match port {
            None => None,
            Some(digits) => Some(parse_port(digits).ok_or_else(|| ParseAllowError::Port(text.to_owned()))?),
        };
        Ok(Self { what: AllowTarget::parse(host).ok_or_else(bad_host)?, port })
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.what, self.port) {
            (AllowTarget::Net(net), None) => write!(f, "{net}"),
            (AllowTarget::Net(net), Some(port)) => write!(f, "{}", SocketAddr::new(net.addr(), port)),
            (AllowTarget::Name(name), None) => f.write_str(name),
            (AllowTarget::Name(name), Some(port)) => write!(f, "{name}:{port}"),
            (AllowTarget::Suffix(suffix), None) => write!(f, "*{suffix}"),
            (AllowTarget::Suffix(suffix), Some(port)) => write!(f, "*{suffix}:{port}"),
        }
    }
}

impl AllowTarget {
    fn parse(host: &str) -> Option<Self> {
        let parent = host.strip_prefix("*.").or_else(|| host.strip_prefix('.'));
        match (parse_host(parent.unwrap_or(host))?, parent) {
            (Host::Domain(name), _) if name.contains('*') => None,
            (Host::Domain(name), None) => Some(Self::Name(without_final_dot(&name).to_owned())),
            (Host::Domain(name), Some(_)) => Some(Self::Suffix(format!(".{}", without_final_dot(&name)))),
            (Host::Ipv4(ip), None) => Some(Self::Net(IpAddr::V4(ip).into())),
            (Host::Ipv6(ip), None) => Some(Self::Net(IpAddr::V6(ip).to_canonical().into())),
            (Host::Ipv4(_) | Host::Ipv6(_), Some(_)) => None,
        }
    }
}

fn is_refused_name(name: &str) -> bool {
    REFUSED_NAMES.iter().any(|refused| name.eq_ignore_ascii_case(refused))
        || ends_with_ignoring_case(name, ".localhost")
}

fn ends_with_ignoring_case(name: &str, suffix: &str) -> bool {
    let start = name.len().checked_sub(suffix.len());
    start
        .filter(|start| *start > 0)
        .and_then(|start| name.get(start..))
        .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
