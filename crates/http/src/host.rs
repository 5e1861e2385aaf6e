//! Checks `Host` and `Origin`, so that a page of another site cannot reach the API through DNS rebinding.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
};

use actix_web::{
    dev::ServiceRequest,
    http::{
        Uri,
        header::{self, HeaderMap, HeaderValue},
        uri::Authority,
    },
};
use url::Url;

use crate::error::{ApiError, Code};

/// The host names that this server accepts.
pub(crate) struct Hosts {
    /// `name:port` in lower case.
    exact: HashSet<String>,
    /// Names that are accepted with any port.
    any_port: HashSet<String>,
    /// The port on which every IP address literal is accepted, when the server listens on all addresses.
    all_addresses: Option<u16>,
}

impl Hosts {
    pub(crate) fn new(public: &Url, local: SocketAddr, extra: &[String]) -> Self {
        let mut hosts = Self { exact: HashSet::new(), any_port: HashSet::new(), all_addresses: None };
        if let (Some(host), Some(port)) = (public.host_str(), public.port_or_known_default()) {
            hosts.exact.insert(key(host, port));
        }
        hosts.exact.insert(local.to_string());
        if local.ip().is_loopback() || local.ip().is_unspecified() {
            hosts.exact.insert(key("localhost", local.port()));
        }
        if local.ip().is_unspecified() {
            hosts.all_addresses = Some(local.port());
        }
        for text in extra {
            let text = text.to_ascii_lowercase();
            match text.parse::<Authority>().ok().and_then(|name| name.port_u16()) {
                Some(_) => hosts.exact.insert(text),
                None => hosts.any_port.insert(text),
            };
        }
        hosts
    }

    /// Returns whether `text`, a name with or without a port, is accepted.
    pub(crate) fn accepts(&self, text: &str) -> bool {
        let Ok(name) = text.parse::<Authority>() else { return false };
        if name.as_str().contains('@') {
            return false;
        }
        let host = name.host().to_ascii_lowercase();
        let ports = match name.port_u16() {
            Some(port) => vec![port],
            // The name alone does not tell whether a proxy terminated TLS.
            None if !name.as_str().ends_with(':') => vec![80, 443],
            None => return false,
        };
        let literal = literal(&host);
        self.any_port.contains(&host)
            || ports
                .iter()
                .any(|port| self.exact.contains(&key(&host, *port)) || (literal && self.all_addresses == Some(*port)))
    }

    /// Checks a request. `trusted`: the operator has listed the origin of the page. `is_probe`: it is one of a load balancer,
    /// which may name no host, or any address.
    ///
    /// # Errors
    /// `bad_request` for another host; `forbidden` for a page of another site that sends no explicit credential.
    pub(crate) fn admit(&self, request: &ServiceRequest, trusted: bool, is_probe: bool) -> Result<(), ApiError> {
        let head = request.head();
        if !(is_probe && names_no_host(&head.uri, head.headers())) {
            self.check_host(&head.uri, head.headers())?;
        }
        if trusted { Ok(()) } else { self.check_origin(&head.uri, head.headers()) }
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let refused = || ApiError::new(Code::BadRequest, "this server does not go by that Host");
        if uri.authority().is_some_and(|authority| !self.accepts(authority.as_str())) {
            return Err(refused());
        }
        let mut named = headers.get_all(header::HOST);
        match (named.next().map(HeaderValue::to_str), named.next()) {
            (Some(Ok(host)), None) if self.accepts(host) => Ok(()),
            _ => Err(refused()),
        }
    }

    fn check_origin(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let own = |origin: &HeaderValue| {
            let origin = origin.to_str().ok().and_then(|text| Url::parse(text).ok());
            origin.is_some_and(|url| match (url.scheme(), url.host_str(), url.port_or_known_default()) {
                ("http" | "https", Some(host), Some(port)) => self.accepts(&key(host, port)),
                _ => false,
            })
        };
        if headers.get_all(header::ORIGIN).all(own) || has_explicit_credential(uri, headers) {
            return Ok(());
        }
        Err(ApiError::new(Code::Forbidden, "a page of another site needs a credential of its own"))
    }
}

/// Returns whether a request names no host, or one address.
fn names_no_host(uri: &Uri, headers: &HeaderMap) -> bool {
    let is_address = |text: &str| {
        let name = text.parse::<Authority>().ok().filter(|name| !name.as_str().contains('@'));
        name.is_some_and(|name| literal(name.host()))
    };
    let mut named = headers.get_all(header::HOST);
    let host = match (named.next().map(HeaderValue::to_str), named.next()) {
        (None, _) => "",
        (Some(Ok(host)), None) => host,
        _ => return false,
    };
    uri.authority().is_none() && (host.is_empty() || is_address(host))
}

/// Returns whether the host of an authority is an IP address.
fn literal(host: &str) -> bool {
    host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

fn key(host: &str, port: u16) -> String {
    format!("{}:{port}", host.to_ascii_lowercase())
}

/// Returns whether the request has a bearer key, a token or a connect token. Basic credentials do not count, because a
/// browser sends them automatically.
fn has_explicit_credential(uri: &Uri, headers: &HeaderMap) -> bool {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer ")));
    bearer || has_token(uri)
}

/// Returns whether the query has a token or a connect token.
pub(crate) fn has_token(uri: &Uri) -> bool {
    let token = |pair: &str| ["jwt=", "connect_token="].iter().any(|name| pair.starts_with(name));
    uri.query().is_some_and(|query| query.split('&').any(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(public: &str, local: &str, extra: &[&str]) -> Hosts {
        let extra: Vec<String> = extra.iter().map(|text| (*text).to_owned()).collect();
        Hosts::new(&public.parse().expect("a URL"), local.parse().expect("an address"), &extra)
    }

    #[test]
    fn the_public_name_the_listening_address_and_extra_names_are_accepted() {
        let hosts = hosts("https://Casement.example", "127.0.0.1:8080", &["other.example", "third.example:99"]);
        for accepted in [
            "casement.example",
            "CASEMENT.example:443",
            "127.0.0.1:8080",
            "localhost:8080",
            "other.example:1",
            "other.example",
            "third.example:99",
        ] {
            assert!(hosts.accepts(accepted), "{accepted}");
        }
        for refused in [
            "attacker.test",
            "casement.example:8080",
            "127.0.0.1",
            "127.0.0.1:8081",
            "third.example",
            "x@casement.example",
            "casement.example:",
            "192.168.0.1:8080",
            "",
            "a b",
        ] {
            assert!(!hosts.accepts(refused), "{refused}");
        }
    }

    #[test]
    fn a_server_on_all_addresses_accepts_address_literals_but_no_other_names() {
        let hosts = hosts("http://casement.example", "0.0.0.0:8080", &[]);
        assert!(hosts.accepts("192.168.0.1:8080") && hosts.accepts("[fd00::1]:8080"));
        assert!(!hosts.accepts("192.168.0.1:80") && !hosts.accepts("attacker.test:8080"));
    }
}
