//! Private hosts, and those that the operator lends to projects.

use std::fmt;
use std::str::FromStr;

use url::Host;

use super::Destination;
use crate::field::{FieldCode, InvalidValue};
use crate::ids::ProjectId;
use crate::pattern::{host_name, ipv6};

/// The port of SMTP between servers, which only a setting that names it opens.
const SMTP: u16 = 25;
/// The maximum number of digits of a port.
const MAX_PORT_DIGITS: usize = 5;

/// A private host: a host name, `*.` and a host name, a private address or a private network; with a port, except for a
/// network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrivateHost {
    destination: Destination,
    port: Option<u16>,
}

impl PrivateHost {
    /// The pattern of private hosts. It also accepts addresses that are malformed or not private, ports above 65535, and
    /// names that are too long.
    pub const PATTERN: &str = concat!(
        concat!(r"^(((\*\.)?", host_name!(), r"|\[", ipv6!(), r"\])(:[0-9]{1,5})?"),
        concat!("|([0-9.]+|", ipv6!(), ")/[0-9]{1,3})$")
    );
    /// The maximum number of characters, with a port.
    pub const MAX_LENGTH: usize = super::destination::MAX_LENGTH + 1 + MAX_PORT_DIGITS;

    /// Parses a private host.
    ///
    /// # Errors
    /// `too_long`, `invalid_format`; `blocked` for an address that is not private and for the subdomains of a public
    /// suffix.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        Self::parse_by(text, Destination::parse_private)
    }

    /// Parses a private host that was accepted before: the form only, as [`Destination::parse_stored`].
    ///
    /// # Errors
    /// `too_long`, `invalid_format`.
    pub fn parse_stored(text: &str) -> Result<Self, InvalidValue> {
        Self::parse_by(text, Destination::parse_stored)
    }

    fn parse_by(text: &str, destination: fn(&str) -> Result<Destination, InvalidValue>) -> Result<Self, InvalidValue> {
        let (host, port) = match text.rsplit_once(':') {
            // The last colon of an IPv6 address in brackets is inside of them, and a network has no port.
            Some((host, port)) if !port.contains(']') && !text.contains('/') => {
                let digits = port.len() <= MAX_PORT_DIGITS && port.bytes().all(|byte| byte.is_ascii_digit());
                let number = port.parse::<u16>().ok().filter(|number| digits && *number != 0);
                let bad = || InvalidValue::new(FieldCode::InvalidFormat, "must have a port from 1 to 65535 or none");
                (host, Some(number.ok_or_else(bad)?))
            }
            _ => (text, None),
        };
        Ok(Self { destination: destination(host)?, port })
    }

    /// Returns the pattern of the host.
    #[must_use]
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Returns the port; `None`: every port.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns whether the pattern matches the destination of a request.
    #[must_use]
    pub fn matches(&self, host: &Host<&str>, port: u16) -> bool {
        self.port.is_none_or(|own| own == port) && self.destination.matches(host)
    }

    fn covers(&self, other: &Self) -> bool {
        let has_port = self.port == other.port || (self.port.is_none() && other.port != Some(SMTP));
        self.destination.covers(&other.destination) && has_port
    }
}

impl fmt::Display for PrivateHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.destination),
            None => write!(f, "{}", self.destination),
        }
    }
}

/// One private host that the operator lends to a project: `PROJECT=HOST`, with the id of the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentHost {
    project: ProjectId,
    host: PrivateHost,
}

/// The error of a text that lends no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LentHostError {
    /// The part before `=` is missing or is no id of a project.
    #[error("must be the id of a project, =, and a host: 01jz…=wiki.internal:8080")]
    Project,
    /// The part after `=` is no private host.
    #[error("the host {0}")]
    Host(String),
}

impl FromStr for LentHost {
    type Err = LentHostError;

    fn from_str(text: &str) -> Result<Self, LentHostError> {
        let (project, host) = text.split_once('=').ok_or(LentHostError::Project)?;
        let project = project.trim().parse().map_err(|_| LentHostError::Project)?;
        let host = PrivateHost::parse(host.trim()).map_err(|bad| LentHostError::Host(bad.message))?;
        Ok(Self { project, host })
    }
}

/// The private hosts that the operator lends to projects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LentHosts(Vec<LentHost>);

impl FromIterator<LentHost> for LentHosts {
    fn from_iter<I: IntoIterator<Item = LentHost>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl LentHosts {
    /// Returns whether the operator lends everything that `host` matches to the project by one setting.
    #[must_use]
    pub fn lends(&self, project: ProjectId, host: &PrivateHost) -> bool {
        self.0.iter().any(|lent| lent.project == project && lent.host.covers(host))
    }
}
