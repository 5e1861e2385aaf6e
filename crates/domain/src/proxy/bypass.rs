//! Hosts that bypass a session's proxy.

use core::net::IpAddr;
use std::fmt;

use url::Host;

use crate::field::{FieldCode, InvalidValue, check_max_length};
use crate::network::is_host_name;
use crate::pattern::{host_name, ipv6, trimmed};

/// The maximum number of bypass hosts per proxy.
pub const MAX_BYPASS_HOSTS: usize = 100;
/// The maximum number of characters of a bypass host.
const MAX_LENGTH: usize = 253;

/// A host name, `*.` and a host name for all of its subdomains, an address, or a network. Names are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BypassHost(String);

impl BypassHost {
    /// The pattern of bypass hosts. It also accepts malformed addresses, and names that are too long.
    pub const PATTERN: &str = trimmed!(
        concat!(r"(\*\.)?", host_name!(), "|", ipv6!(), r"|\[", ipv6!(), r"\]"),
        concat!("|([0-9.]+|", ipv6!(), ")/0*[0-9]{1,3}")
    );

    /// Parses a bypass host and normalizes it.
    ///
    /// # Errors
    /// `too_long`; `invalid_format`, also for `*` alone, which would disable the proxy.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let text = text.trim();
        check_max_length(text, MAX_LENGTH)?;
        let bad = || {
            let forms = "must be a host name, *. and a host name, an address or a network as 10.0.0.0/8";
            InvalidValue::new(FieldCode::InvalidFormat, forms)
        };
        let plain = if let Some((address, length)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| bad())?;
            let longest = if address.is_ipv4() { 32 } else { 128 };
            let digits = length.bytes().all(|byte| byte.is_ascii_digit());
            let length: u8 = length.parse().ok().filter(|length| digits && *length <= longest).ok_or_else(bad)?;
            format!("{address}/{length}")
        } else if let Ok(address) = text.parse::<IpAddr>() {
            address.to_string()
        } else {
            let (stem, below) = text.strip_prefix("*.").map_or((text, false), |stem| (stem, true));
            match Host::parse(stem).map_err(|_| bad())? {
                // A star is allowed only in the prefix `*.`.
                Host::Domain(name) if is_host_name(name.strip_suffix('.').unwrap_or(&name)) => {
                    format!("{}{}", if below { "*." } else { "" }, name.trim_end_matches('.'))
                }
                Host::Ipv4(address) if !below => address.to_string(),
                Host::Ipv6(address) if !below => address.to_string(),
                _ => return Err(bad()),
            }
        };
        Ok(Self(plain))
    }

    /// Parses a list.
    ///
    /// # Errors
    /// `too_many`, or the error of each invalid member.
    pub fn parse_all(texts: &[String]) -> Result<Vec<Self>, InvalidValue> {
        if texts.len() > MAX_BYPASS_HOSTS {
            return Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_BYPASS_HOSTS}")));
        }
        let (mut hosts, mut refused) = (Vec::new(), Vec::new());
        for (n, text) in texts.iter().enumerate() {
            match Self::parse(text) {
                Ok(host) => hosts.push(host),
                Err(bad) => refused.push(bad.of(n)),
            }
        }
        InvalidValue::any(refused)?;
        Ok(hosts)
    }

    /// Returns the normalized text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BypassHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_suffixes_addresses_and_networks_are_read() {
        for (text, plain) in [
            ("Example.COM", "example.com"),
            (" a.example. ", "a.example"),
            ("*.Example.com", "*.example.com"),
            ("localhost", "localhost"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("fd12::/48", "fd12::/48"),
            ("192.0.2.1", "192.0.2.1"),
            ("::1", "::1"),
            ("[::1]", "::1"),
            ("0x7f.1", "127.0.0.1"),
        ] {
            assert_eq!(BypassHost::parse(text).expect(text).as_str(), plain);
        }
    }

    #[test]
    fn what_is_none_of_them_is_refused() {
        for text in [
            "",
            "*",
            "*.",
            "*.*.a",
            "a*",
            "**.a",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0/8",
            "::/129",
            "/8",
            "*.10.0.0.1",
            "a b",
            "http://a",
            "a:80",
            "a/b",
            "a..b",
            "a\nb",
            "<all>",
            "<local>",
            "a,b",
        ] {
            assert_eq!(BypassHost::parse(text).expect_err(text).code, FieldCode::InvalidFormat, "{text:?}");
        }
        assert_eq!(BypassHost::parse(&"a".repeat(254)).expect_err("long").code, FieldCode::TooLong);
        let many = vec!["a".to_owned(); MAX_BYPASS_HOSTS + 1];
        assert_eq!(BypassHost::parse_all(&many).expect_err("many").code, FieldCode::TooMany);
        assert_eq!(BypassHost::parse_all(&many[1..]).expect("as many as may be").len(), MAX_BYPASS_HOSTS);
    }
}
