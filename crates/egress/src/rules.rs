//! The egress rules: the destinations that a sandbox may reach, and the operator's exceptions.

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

/// The port of SMTP between servers. Its abuse gets a whole network blocklisted.
const SMTP: u16 = 25;

/// Names of this machine or its cloud, which are refused independent of their addresses.
const REFUSED_NAMES: [&str; 5] =
    ["localhost", "localhost.localdomain", "metadata.google.internal", "metadata.goog", "instance-data"];

/// The destinations that a session may reach: the public internet, unless closed, and the operator's exceptions.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    allow: Vec<Allow>,
    /// If true, only exceptions are reachable, not the public internet.
    closed: bool,
}

/// One exception of the operator, in the form `CIDR`, `HOST[:PORT]` or `*.SUFFIX[:PORT]`.
///
/// A network or an address allows every destination with such an address, by any name; a name allows that name, at any
/// address. An exception with a port allows that port only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    what: AllowTarget,
    port: Option<u16>,
    /// If true, a network does not allow names that resolve to its addresses.
    literal: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AllowTarget {
    Net(IpNet),
    Name(String),
    /// A suffix of host names, with the leading dot.
    Suffix(String),
}

/// An exception that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseAllowError {
    /// The text is empty.
    #[error("empty")]
    Empty,
    /// The text has a slash but is not a network.
    #[error("{0:?} is no network: write it like 10.1.0.0/16 or fd12::/48")]
    Network(String),
    /// The host is neither an address nor a name.
    #[error("{0:?} is no host: write it like app.internal, *.app.internal, 127.0.0.1:8080 or [::1]:8080")]
    Host(String),
    /// The port is not between 1 and 65535.
    #[error("{0:?} has no valid port after the colon")]
    Port(String),
}

/// The decision about one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed as a part of the public internet.
    Public,
    /// Allowed by an exception.
    Allowed,
    /// Must not be dialled.
    Refused,
}

impl Rules {
    /// Allows the public internet and these exceptions. `Rules::default()` has no exceptions.
    pub fn new(allow: Vec<Allow>) -> Self {
        Self { allow, closed: false }
    }

    /// Allows these destinations and nothing else.
    pub fn only(allow: Vec<Allow>) -> Self {
        Self { allow, closed: true }
    }

    /// Replaces the exceptions.
    #[must_use]
    pub fn with_only_exceptions(&self, allow: Vec<Allow>) -> Self {
        Self { allow, closed: self.closed }
    }

    /// Adds exceptions.
    #[must_use]
    pub fn with_exceptions(mut self, more: impl IntoIterator<Item = Allow>) -> Self {
        self.allow.extend(more);
        self
    }

    /// Parses one exception.
    ///
    /// # Errors
    /// [`ParseAllowError`] names the mistake.
    pub fn parse(text: &str) -> Result<Allow, ParseAllowError> {
        text.parse()
    }

    /// Checks `address`, the destination of a request for `host`. `host` is a name or the address as text.
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

    /// Returns true if a proxy may be requested to resolve `name` and connect to it. Only exceptions by name apply,
    /// because the address is unknown here.
    pub(crate) fn proxy_may_connect(&self, name: &str, port: u16) -> bool {
        let name = without_final_dot(name);
        let excepted = |allow: &&Allow| allow.allows_port(port) && allow.matches_name(name);
        let mut exceptions = self.allow.iter().filter(excepted);
        if port == SMTP {
            return exceptions.any(|allow| allow.port == Some(SMTP));
        }
        (!self.closed && !is_refused_name(name)) || exceptions.next().is_some()
    }

    /// Returns false if `name` is refused at every address, so that it need not be looked up.
    pub(crate) fn could_reach(&self, name: &str, port: u16) -> bool {
        let name = without_final_dot(name);
        let excepted = |allow: &Allow| match &allow.what {
            AllowTarget::Net(_) => !allow.literal && allow.allows_port(port),
            AllowTarget::Name(_) | AllowTarget::Suffix(_) => allow.allows_port(port) && allow.matches_name(name),
        };
        if port == SMTP {
            return self.allow.iter().any(|allow| allow.port == Some(SMTP) && excepted(allow));
        }
        (!self.closed && !is_refused_name(name)) || self.allow.iter().any(excepted)
    }
}

impl Allow {
    /// Returns the same exception, which for a network allows requests for literal addresses only, and no names that
    /// resolve to them.
    #[must_use]
    pub fn for_literal_addresses(self) -> Self {
        Self { literal: true, ..self }
    }

    fn matches(&self, host: &str, ip: IpAddr, port: u16) -> bool {
        let target_matches = match &self.what {
            AllowTarget::Net(net) => net.contains(&ip) && (!self.literal || is_address(host)),
            AllowTarget::Name(_) | AllowTarget::Suffix(_) => self.matches_name(host),
        };
        target_matches && self.allows_port(port)
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
            return Ok(Self { what: AllowTarget::Net(net.trunc()), port: None, literal: false });
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self { what: AllowTarget::Net(ip.to_canonical().into()), port: None, literal: false });
        }
        let bad_host = || ParseAllowError::Host(text.to_owned());
        let (host, port) = split_port(text).ok_or_else(bad_host)?;
        let port = match port {
            None => None,
            Some(digits) => Some(parse_port(digits).ok_or_else(|| ParseAllowError::Port(text.to_owned()))?),
        };
        Ok(Self { what: AllowTarget::parse(host).ok_or_else(bad_host)?, port, literal: false })
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

fn is_address(host: &str) -> bool {
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
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
