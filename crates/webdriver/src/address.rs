//! The address of a WebDriver server.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::config::{ConfigError, Credentials};

const MAX_LENGTH: usize = 2048;

/// The address of a WebDriver server, without credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) secure: bool,
    host: Host,
    pub(crate) port: u16,
    /// The path before `/session`: empty, or begins with a slash and ends without one.
    pub(crate) prefix: String,
}

impl Address {
    /// Parses the URL of a server, and takes the credentials out of it.
    pub(crate) fn parse(text: &str) -> Result<(Self, Option<Credentials>), ConfigError> {
        let bad = |why: &'static str| ConfigError { setting: "url", why: why.into() };
        if text.len() > MAX_LENGTH {
            return Err(bad("must have at most 2048 characters"));
        }
        let url = Url::parse(text).map_err(|_| bad("is not a URL"))?;
        let secure = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(bad("must begin with http:// or https://")),
        };
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("must have no query and no fragment"));
        }
        let host = url.host().ok_or_else(|| bad("has no host"))?.to_owned();
        let port = url.port_or_known_default().unwrap_or(if secure { 443 } else { 80 });
        let prefix = url.path().trim_end_matches('/').to_owned();
        let decoded = |part: &str| {
            let text = percent_decode_str(part).decode_utf8().map_err(|_| bad("has credentials that are not UTF-8"))?;
            Ok::<_, ConfigError>(text.into_owned())
        };
        let credentials = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => Some(Credentials::new(decoded(user)?, decoded(password.unwrap_or_default())?)),
        };
        Ok((Self { secure, host, port, prefix }, credentials))
    }

    /// Returns the host as a name or an IP address, without the brackets of IPv6.
    pub(crate) fn host(&self) -> String {
        match &self.host {
            Host::Domain(name) => name.clone(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        }
    }

    /// Returns the value of the header `Host`.
    pub(crate) fn authority(&self) -> String {
        match (self.secure, self.port) {
            (false, 80) | (true, 443) => self.host.to_string(),
            (_, port) => format!("{}:{port}", self.host),
        }
    }

    /// Returns whether the server runs on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn an_address_is_shown_without_its_credentials() {
        let (address, credentials) = Address::parse("https://me:p%40ss@grid.example:4444/wd/hub/").expect("valid");
        assert_eq!(address.to_string(), "https://grid.example:4444/wd/hub");
        let credentials = credentials.expect("taken out of the URL");
        assert_eq!((credentials.user(), credentials.password().expose_secret()), ("me", "p@ss"));
        assert!(!format!("{address:?} {credentials:?}").contains("p@ss"));
    }

    #[test]
    fn the_host_header_has_a_port_unless_it_is_the_default_one() {
        for (url, authority) in [
            ("http://grid", "grid"),
            ("http://grid:443", "grid:443"),
            ("https://grid:443/", "grid"),
            ("http://[::1]:4444", "[::1]:4444"),
        ] {
            assert_eq!(Address::parse(url).expect("valid").0.authority(), authority);
        }
    }

    #[test]
    fn an_address_that_is_no_server_is_refused() {
        for bad in ["", "grid:4444", "ftp://grid", "ws://grid", "http://grid?x=1", "http://grid#x", "http://"] {
            assert_eq!(Address::parse(bad).expect_err(bad).setting, "url");
        }
    }
}
