//! The pattern language of hosts.

use core::net::{IpAddr, Ipv4Addr};
use std::fmt;

use ipnet::IpNet;
use url::Host;

use super::address::{is_private, is_public};
use crate::field::{FieldCode, InvalidValue, check_max_length};
use crate::pattern::{host_name, ipv6};

/// The maximum number of characters of a pattern.
pub const MAX_LENGTH: usize = 255;
/// The maximum number of bytes of a host name, and of a label of one.
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// A pattern of hosts. A pattern matches a host as it is written in a request: a name never matches by the addresses
/// that it resolves to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// One host name, in lower case and without a final dot.
    Name(String),
    /// The subdomains of a name, of any depth, without the name itself.
    Subdomains(String),
    /// One address.
    Address(IpAddr),
    /// The addresses of a network.
    Network(IpNet),
}

impl Destination {
    /// The pattern of allowed hosts. It also accepts addresses that are malformed or not public, and names that are too
    /// long.
    pub const ALLOWED_PATTERN: &str = concat!(
        concat!(r"^((\*\.)?", host_name!(), r"|\[", ipv6!(), r"\]"),
        concat!("|([0-9.]+|", ipv6!(), ")/[0-9]{1,3})$")
    );
    /// The pattern of the hosts of proxy routes. It also accepts addresses, and names that are too long.
    pub const ROUTED_PATTERN: &str = concat!(r"^(\*\.)?", host_name!(), "$");

    /// Parses a member of `allowed_hosts`: a host name, `*.` and a host name that is no public suffix, a public IPv4
    /// address, a public IPv6 address in brackets, or a public network as `8.8.4.0/24`.
    ///
    /// # Errors
    /// `too_long`, `invalid_format`; `blocked` for an address that is not public and for the subdomains of a public
    /// suffix.
    pub fn parse_allowed(text: &str) -> Result<Self, InvalidValue> {
        let destination = Self::parse(text)?;
        match destination.network() {
            Some(net) if !is_public(&net) => {
                Err(InvalidValue::new(FieldCode::Blocked, "is not on the public internet"))
            }
            _ => Ok(destination),
        }
    }

    /// Parses a host of a proxy route: a host name, or `*.` and a host name that is no public suffix.
    ///
    /// # Errors
    /// `too_long`, `invalid_format`; `blocked` for the subdomains of a public suffix.
    pub fn parse_routed(text: &str) -> Result<Self, InvalidValue> {
        match Self::parse(text)? {
            name @ (Self::Name(_) | Self::Subdomains(_)) => Ok(name),
            Self::Address(_) | Self::Network(_) => {
                Err(InvalidValue::new(FieldCode::InvalidFormat, "must be a host name, or *. and a host name"))
            }
        }
    }

    /// Parses a private host without a port: as an allowed host, with private addresses in place of public ones.
    pub(super) fn parse_private(text: &str) -> Result<Self, InvalidValue> {
        let destination = Self::parse(text)?;
        match destination.network() {
            Some(net) if !is_private(&net) => {
                let ranges = "is in none of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10 and fc00::/7";
                Err(InvalidValue::new(FieldCode::Blocked, ranges))
            }
            _ => Ok(destination),
        }
    }

    /// Parses a pattern that was accepted before: the form only, because the public suffixes and the special networks
    /// may be others today.
    ///
    /// # Errors
    /// `too_long`, `invalid_format`.
    pub fn parse_stored(text: &str) -> Result<Self, InvalidValue> {
        check_max_length(text, MAX_LENGTH)?;
        if text.contains('/') {
            return network(text).map(Self::Network);
        }
        let stem = text.strip_prefix("*.");
        match (Host::parse(stem.unwrap_or(text)).map_err(|_| malformed())?, stem) {
            (Host::Domain(name), stem) => {
                let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
                match stem {
                    _ if !is_host_name(&name) => Err(malformed()),
                    None => Ok(Self::Name(name)),
                    Some(_) => Ok(Self::Subdomains(name)),
                }
            }
            // A browser reads other spellings as addresses too. A list that people read has the usual one.
            (Host::Ipv4(address), None) if text.parse::<Ipv4Addr>().is_ok() => Ok(Self::Address(address.into())),
            (Host::Ipv6(address), None) => Ok(Self::Address(IpAddr::V6(address).to_canonical())),
            _ => Err(malformed()),
        }
    }

    fn parse(text: &str) -> Result<Self, InvalidValue> {
        match Self::parse_stored(text)? {
            Self::Subdomains(name) if is_public_suffix(&name) => {
                Err(InvalidValue::new(FieldCode::Blocked, "stands for every site of a public suffix"))
            }
            destination => Ok(destination),
        }
    }

    /// Returns whether the pattern matches the host of a request.
    #[must_use]
    pub fn matches(&self, host: &Host<&str>) -> bool {
        match (self, host) {
            (Self::Name(own), Host::Domain(name)) => own.eq_ignore_ascii_case(without_final_dot(name)),
            (Self::Subdomains(parent), Host::Domain(name)) => is_below(without_final_dot(name), parent),
            (Self::Address(own), host) => address_of(host) == Some(*own),
            (Self::Network(net), host) => address_of(host).is_some_and(|address| net.contains(&address)),
            (Self::Name(_) | Self::Subdomains(_), _) => false,
        }
    }

    /// Returns whether every host that `other` matches is matched by this pattern too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(own), Self::Name(name)) => own == name,
            (Self::Subdomains(parent), Self::Name(name)) => is_below(name, parent),
            (Self::Subdomains(parent), Self::Subdomains(other)) => parent == other || is_below(other, parent),
            (own, other) => match (own.network(), other.network()) {
                (Some(own), Some(other)) => own.contains(&other),
                _ => false,
            },
        }
    }

    /// Returns the rank among the patterns that match a host name: an exact name is higher than a wildcard, and a
    /// longer wildcard is higher than a shorter one.
    pub(super) fn rank(&self) -> usize {
        match self {
            Self::Subdomains(parent) => parent.len(),
            Self::Name(_) | Self::Address(_) | Self::Network(_) => usize::MAX,
        }
    }

    fn network(&self) -> Option<IpNet> {
        match self {
            Self::Address(address) => Some(IpNet::from(*address)),
            Self::Network(net) => Some(*net),
            Self::Name(_) | Self::Subdomains(_) => None,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Subdomains(parent) => write!(f, "*.{parent}"),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Network(net) => write!(f, "{net}"),
        }
    }
}

/// Parses a network whose address has no bits beyond its length.
fn network(text: &str) -> Result<IpNet, InvalidValue> {
    let net: IpNet = text.parse().map_err(|_| malformed())?;
    if net != net.trunc() {
        let canonical = format!("has bits beyond its length; write it as {}", net.trunc());
        return Err(InvalidValue::new(FieldCode::InvalidFormat, canonical));
    }
    Ok(net)
}

fn malformed() -> InvalidValue {
    let forms = "must be a host name, *. and a host name, an IPv4 address, an IPv6 address in brackets or a network, \
                 without scheme and path";
    InvalidValue::new(FieldCode::InvalidFormat, forms)
}

/// Returns whether a text is a host name without a final dot.
pub(crate) fn is_host_name(name: &str) -> bool {
    let good = |label: &str| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= MAX_NAME_BYTES && name.split('.').all(good)
}

fn is_public_suffix(name: &str) -> bool {
    psl::suffix_str(name).is_none_or(|suffix| suffix == name)
}

fn without_final_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn is_below(name: &str, parent: &str) -> bool {
    let start = name.len().checked_sub(parent.len() + 1);
    let end = start.filter(|start| *start > 0).and_then(|start| name.get(start..));
    end.and_then(|end| end.strip_prefix('.')).is_some_and(|end| end.eq_ignore_ascii_case(parent))
}

fn address_of(host: &Host<&str>) -> Option<IpAddr> {
    match host {
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(IpAddr::V6(*address).to_canonical()),
        Host::Domain(_) => None,
    }
}
