//! What callers ask for, before and after it was checked.

use core::net::IpAddr;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use url::Host;

use super::{BypassHost, ProxyProtocol, ProxyType};
use crate::field::{Bad, FieldCode, Fields};
use crate::name::LabelName;
use crate::session::{NotSupported, Refusal};

/// A proxy as asked for.
#[derive(Clone, Debug, Default)]
pub struct CreateProxy {
    /// Required.
    pub kind: Option<String>,
    /// Default: none.
    pub name: Option<String>,
    /// Default: `http`.
    pub protocol: Option<String>,
    /// Default: none.
    pub bypass_hosts: Vec<String>,
    /// Required for one of the caller's own.
    pub config: Option<ProxyConfigInput>,
}

/// The members of `config` of a proxy of the caller's own.
#[derive(Clone, Default)]
pub struct ProxyConfigInput {
    /// Required.
    pub host: Option<String>,
    /// Required.
    pub port: Option<i64>,
    /// Default: none.
    pub username: Option<String>,
    /// Default: none; needs a user name.
    pub password: Option<SecretString>,
    /// Members that belong to other types.
    pub others: Vec<&'static str>,
}

impl fmt::Debug for ProxyConfigInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyConfigInput").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// A proxy as asked for, checked.
#[derive(Clone)]
pub struct ProxyWish {
    /// See [`Proxy`](super::Proxy).
    pub name: Option<LabelName>,
    /// See [`Proxy`](super::Proxy).
    pub protocol: ProxyProtocol,
    /// See [`Proxy`](super::Proxy).
    pub bypass: Vec<BypassHost>,
    /// See [`Proxy`](super::Proxy).
    pub host: String,
    /// See [`Proxy`](super::Proxy).
    pub port: u16,
    /// See [`Proxy`](super::Proxy).
    pub username: Option<String>,
    /// Not yet sealed.
    pub password: Option<SecretString>,
}

impl fmt::Debug for ProxyWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyWish").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// SOCKS has one byte for the length of either.
const LONGEST_CREDENTIAL: usize = 255;

impl CreateProxy {
    /// # Errors
    /// The fields that break a rule, or what cannot be done here.
    pub fn parse(self) -> Result<ProxyWish, Refusal> {
        let mut fields = Fields::new();
        let kind =
            fields.take_required("type", self.kind.as_deref(), |text| one_of(text, &ProxyType::ALL, ProxyType::as_str));
        let name = fields.take_optional("name", self.name.as_deref(), LabelName::parse);
        let protocol = fields.take_optional("protocol", self.protocol.as_deref(), |text| {
            one_of(text, &ProxyProtocol::ALL, ProxyProtocol::as_str)
        });
        let bypass = fields.take("bypass_hosts", BypassHost::parse_all(&self.bypass_hosts));
        if kind.is_some_and(|kind| kind != ProxyType::Custom) {
            fields.finish()?;
            return Err(NotSupported { field: "type", why: "this installation rents no proxies; use custom" }.into());
        }
        let protocol = protocol.unwrap_or_default();
        let config = fields.take_required("config", self.config, Ok).unwrap_or_default();
        if kind.is_some() {
            for other in &config.others {
                let bad = Bad::new(FieldCode::NotAllowed, "belongs to another type of proxy");
                fields.refuse(&format!("config.{other}"), bad);
            }
        }
        let host = fields.take_required("config.host", config.host.as_deref(), host);
        let port = fields.take_required("config.port", config.port, port);
        let has_username = config.username.is_some();
        let username = fields.take_optional("config.username", config.username, |text| username(text, protocol));
        let has_password = config.password.is_some();
        let password = fields.take_optional("config.password", config.password, password);
        if has_password && !has_username {
            fields.refuse("config.username", Bad::new(FieldCode::Required, "is required beside a password"));
        }
        if username.is_some() && !has_password && protocol == ProxyProtocol::Socks5 {
            let bad = Bad::new(FieldCode::Required, "is required beside a user name, which SOCKS never sends alone");
            fields.refuse("config.password", bad);
        }
        fields.finish()?;
        let (Some(host), Some(port), Some(bypass)) = (host, port, bypass) else {
            unreachable!("a refused field is an error")
        };
        Ok(ProxyWish { name, protocol, bypass, host, port, username, password })
    }
}

fn one_of<T: Copy>(text: &str, all: &[T], text_of: fn(T) -> &'static str) -> Result<T, Bad> {
    all.iter().copied().find(|one| text_of(*one) == text).ok_or_else(|| {
        let words: Vec<_> = all.iter().map(|one| text_of(*one)).collect();
        Bad::new(FieldCode::NotAllowed, format!("must be one of {}", words.join(", ")))
    })
}

/// A name or an address, as it is shown.
fn host(text: &str) -> Result<String, Bad> {
    let text = text.trim();
    if text.chars().nth(253).is_some() {
        return Err(Bad::new(FieldCode::TooLong, "must have at most 253 characters"));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    match Host::parse(text) {
        Ok(Host::Domain(name)) if BypassHost::parse(&name).is_ok() => Ok(name),
        Ok(Host::Ipv4(address)) => Ok(address.to_string()),
        Ok(Host::Ipv6(address)) => Ok(address.to_string()),
        _ => Err(Bad::new(FieldCode::InvalidFormat, "must be a host name or an address")),
    }
}

fn port(number: i64) -> Result<u16, Bad> {
    let in_range = u16::try_from(number).ok().filter(|port| *port != 0);
    in_range.ok_or_else(|| Bad::new(FieldCode::OutOfRange, "must be from 1 to 65535"))
}

fn username(text: String, protocol: ProxyProtocol) -> Result<String, Bad> {
    credential(&text)?;
    if protocol != ProxyProtocol::Socks5 && text.contains(':') {
        // Whoever reads it ends the name there.
        return Err(Bad::new(FieldCode::InvalidFormat, "may not hold a colon, which HTTP cannot carry"));
    }
    Ok(text)
}

fn password(secret: SecretString) -> Result<SecretString, Bad> {
    credential(secret.expose_secret())?;
    Ok(secret)
}

fn credential(text: &str) -> Result<(), Bad> {
    match text.len() {
        0 => Err(Bad::new(FieldCode::TooShort, "must have at least 1 byte")),
        1..=LONGEST_CREDENTIAL if text.chars().any(char::is_control) => {
            Err(Bad::new(FieldCode::InvalidFormat, "may not hold control characters"))
        }
        1..=LONGEST_CREDENTIAL => Ok(()),
        _ => Err(Bad::new(FieldCode::TooLong, format!("must have at most {LONGEST_CREDENTIAL} bytes"))),
    }
}
