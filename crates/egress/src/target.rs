//! The destination of a request, parsed as a browser parses it.

use thiserror::Error;
use url::{Host, Url};

/// The longest DNS name in bytes, without the final dot.
const MAX_NAME_BYTES: usize = 253;

/// The host and port of a request's target.
///
/// The host is parsed by the URL standard's host parser: `2130706433`, `0x7f.1`, `127.1` and full-width digits become
/// the address that they denote, names become lower-case ASCII.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
}

/// The text is not a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a host with a port")]
pub(crate) struct InvalidTarget;

impl Target {
    /// Parses `[user@]host[:port]` and ignores the user.
    ///
    /// # Errors
    /// [`InvalidTarget`] if the host does not parse, the port is 0 or invalid, or is missing without a default.
    pub(crate) fn parse(authority: &str, default_port: Option<u16>) -> Result<Self, InvalidTarget> {
        let text = authority.rsplit_once('@').map_or(authority, |(_, text)| text);
        let (host, port) = split_port(text).ok_or(InvalidTarget)?;
        let port = match port {
            None | Some("") => default_port.ok_or(InvalidTarget)?,
            Some(digits) => parse_port(digits).ok_or(InvalidTarget)?,
        };
        Ok(Self { host: parse_host(host).ok_or(InvalidTarget)?, port })
    }

    /// Returns the host without copying its name.
    pub(crate) fn borrowed_host(&self) -> Host<&str> {
        match &self.host {
            Host::Domain(name) => Host::Domain(name.as_str()),
            Host::Ipv4(address) => Host::Ipv4(*address),
            Host::Ipv6(address) => Host::Ipv6(*address),
        }
    }

    /// Returns the `Host` header of a plain HTTP request.
    pub(crate) fn to_host_header(&self) -> String {
        if self.port == 80 { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }

    /// Returns the `Host` header and the path with the query of a request for `url`, whose target this is.
    pub(crate) fn host_and_path(&self, url: &Url) -> (String, String) {
        let host = if url.port().is_none() { self.host.to_string() } else { format!("{}:{}", self.host, self.port) };
        let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        (host, path)
    }
}

/// Splits a text into the host and the text of the port, which is `None` if there is no colon after the host.
pub(crate) fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    let end_of_host = if text.starts_with('[') { text.find(']')? + 1 } else { text.find(':').unwrap_or(text.len()) };
    let (host, rest) = text.split_at(end_of_host);
    match rest.strip_prefix(':') {
        Some(port) => Some((host, Some(port))),
        None => rest.is_empty().then_some((host, None)),
    }
}

pub(crate) fn parse_port(digits: &str) -> Option<u16> {
    let only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    only_digits.then(|| digits.parse().ok()).flatten().filter(|port| *port != 0)
}

pub(crate) fn parse_host(text: &str) -> Option<Host<String>> {
    let host = Host::parse(text).ok()?;
    if let Host::Domain(name) = &host {
        let name = without_final_dot(name);
        let labels_fit = name.split('.').all(|label| (1..=63).contains(&label.len()));
        if name.len() > MAX_NAME_BYTES || !labels_fit {
            return None;
        }
    }
    Some(host)
}

/// Removes the final dot: `name` and `name.` are the same host.
pub(crate) fn without_final_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(authority: &str) -> Option<String> {
        Target::parse(authority, Some(80)).ok().map(|target| target.to_host_header())
    }

    #[test]
    fn a_target_parses_like_a_url() {
        assert_eq!(parse("Example.COM:8080").as_deref(), Some("example.com:8080"));
        assert_eq!(parse("example.com.").as_deref(), Some("example.com."));
        assert_eq!(parse("user:pass@example.com:80").as_deref(), Some("example.com"));
        assert_eq!(parse("[2606:4700::1111]:81").as_deref(), Some("[2606:4700::1111]:81"));
        assert_eq!(parse("0x7f.1").as_deref(), Some("127.0.0.1"));
        assert_eq!(parse("bücher.example").as_deref(), Some("xn--bcher-kva.example"));
    }

    #[test]
    fn every_spelling_of_an_address_is_the_address() {
        for host in [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "017700000001",
            "0177.0.0.1",
            "0x7F.0x0.0x0.0x1",
            "127.0.0.1.",
            "127。0。0。1",
            "127．0．0．1",
            "１２７.０.０.１",
            "①②⑦.0.0.1",
            "%31%32%37.0.0.1",
            "127%2e0%2e0%2e1",
        ] {
            assert_eq!(parse(host).as_deref(), Some("127.0.0.1"), "{host}");
        }
        for name in ["LOCALHOST", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "loc%61lhost", "ｌｏｃａｌｈｏｓｔ"] {
            assert_eq!(parse(name).as_deref(), Some("localhost"), "{name}");
        }
    }

    #[test]
    fn text_that_does_not_parse_is_no_target() {
        for bad in [
            "",
            ":80",
            "a:0",
            "a:65536",
            "a:+80",
            "a:80:80",
            "a:8 0",
            "[::1",
            "[::1]x",
            "[::1%25eth0]",
            "[fe80::1%eth0]",
            "::1",
            "a b",
            "a/b",
            "a..b",
            ".",
            "256.256.256.256",
            "1.2.3.4.5",
            "a@",
            "%00",
            "a%2fb",
            "0x1ffffffff",
        ] {
            assert_eq!(parse(bad), None, "{bad:?} was taken for a target");
        }
        assert_eq!(parse(&"a.".repeat(127)), Some("a.".repeat(127)));
        assert_eq!(parse(&"a.".repeat(128)), None);
        assert_eq!(Target::parse("example.com", None), Err(InvalidTarget));
    }
}
