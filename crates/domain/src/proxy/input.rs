//! The inputs of callers, unchecked, and their checks.

use core::net::IpAddr;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use url::Host;

use super::{BypassHost, Exit, ExitMember, ProxyGateways, ProxyProtocol, ProxyType};
use crate::field::{FieldCode, Fields, InvalidValue};
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

/// The members of `config`, of whatever type.
#[derive(Clone, Default)]
pub struct ProxyConfigInput {
    /// Required for one of the caller's own.
    pub host: Option<String>,
    /// Required for one of the caller's own.
    pub port: Option<i64>,
    /// Default: none.
    pub username: Option<String>,
    /// Default: none; needs a user name.
    pub password: Option<SecretString>,
    /// Where the traffic of a rented one is to come out.
    pub exit: Exit,
}

impl fmt::Debug for ProxyConfigInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyConfigInput").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// A proxy as asked for, checked.
#[derive(Clone, Debug)]
pub struct ProxyRequest {
    /// See [`Proxy`](super::Proxy).
    pub name: Option<LabelName>,
    /// See [`Proxy`](super::Proxy).
    pub kind: ProxyType,
    /// See [`Proxy`](super::Proxy).
    pub protocol: ProxyProtocol,
    /// See [`Proxy`](super::Proxy).
    pub bypass: Vec<BypassHost>,
    /// How it is reached.
    pub config: ConfigRequest,
}

/// How a proxy is reached, as asked for and checked.
#[derive(Clone)]
pub enum ConfigRequest {
    /// See [`OwnProxy`](super::OwnProxy).
    Own {
        /// A name or an address.
        host: String,
        /// On which port.
        port: u16,
        /// Default: none.
        username: Option<String>,
        /// Not yet sealed.
        password: Option<SecretString>,
    },
    /// One that the operator rents.
    Rented(Exit),
}

impl fmt::Debug for ConfigRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own { host, port, .. } => {
                f.debug_struct("Own").field("host", host).field("port", port).finish_non_exhaustive()
            }
            Self::Rented(exit) => f.debug_tuple("Rented").field(exit).finish(),
        }
    }
}

/// SOCKS has one byte for the length of either.
pub(super) const MAX_CREDENTIAL: usize = 255;

pub(super) const NONE_RENTED: NotSupported =
    NotSupported { field: "type", why: "this installation rents no proxies of that type" };

/// Where rented proxies in data centres come out unless it is said.
const DEFAULT_COUNTRY: &str = "US";

impl CreateProxy {
    /// # Errors
    /// The fields that break a rule, or what cannot be done here.
    pub fn parse(self, upstreams: &ProxyGateways) -> Result<ProxyRequest, Refusal> {
        let mut fields = Fields::new();
        let kind =
            fields.take_required("type", self.kind.as_deref(), |text| one_of(text, &ProxyType::ALL, ProxyType::as_str));
        let name = fields.take_optional("name", self.name.as_deref(), LabelName::parse);
        let protocol = fields.take_optional("protocol", self.protocol.as_deref(), |text| {
            one_of(text, &ProxyProtocol::ALL, ProxyProtocol::as_str)
        });
        let bypass = fields.take("bypass_hosts", BypassHost::parse_all(&self.bypass_hosts));
        let (protocol, config) = match kind {
            Some(kind) if kind != ProxyType::Custom => {
                let exit = rented(kind, self.config.unwrap_or_default(), &mut fields);
                fields.finish()?;
                let (protocol, exit) = by_upstream(upstreams, kind, protocol, exit)?;
                (protocol, ConfigRequest::Rented(exit))
            }
            _ => {
                let protocol = protocol.unwrap_or_default();
                let config = own(self.config, protocol, kind.is_some(), &mut fields);
                fields.finish()?;
                let Some(config) = config else { unreachable!("a refused field is an error") };
                (protocol, config)
            }
        };
        let (Some(kind), Some(bypass)) = (kind, bypass) else { unreachable!("a refused field is an error") };
        Ok(ProxyRequest { name, kind, protocol, bypass, config })
    }
}

/// One of the caller's own. Nothing if a field was refused.
fn own(
    config: Option<ProxyConfigInput>,
    protocol: ProxyProtocol,
    is_custom: bool,
    fields: &mut Fields,
) -> Option<ConfigRequest> {
    let config = fields.take_required("config", config, Ok).unwrap_or_default();
    if is_custom {
        config.exit.parse(ProxyType::Custom, fields);
    }
    let host = fields.take_required("config.host", config.host.as_deref(), host);
    let port = fields.take_required("config.port", config.port, port);
    let has_username = config.username.is_some();
    let username = fields.take_optional("config.username", config.username, |text| username(text, protocol));
    let has_password = config.password.is_some();
    let password = fields.take_optional("config.password", config.password, password);
    if has_password && !has_username {
        fields.refuse("config.username", InvalidValue::new(FieldCode::Required, "is required beside a password"));
    }
    if username.is_some() && !has_password && protocol == ProxyProtocol::Socks5 {
        let bad =
            InvalidValue::new(FieldCode::Required, "is required beside a user name, which SOCKS never sends alone");
        fields.refuse("config.password", bad);
    }
    Some(ConfigRequest::Own { host: host?, port: port?, username, password })
}

/// One that the operator rents.
fn rented(kind: ProxyType, config: ProxyConfigInput, fields: &mut Fields) -> Exit {
    let own = [
        ("host", config.host.is_some()),
        ("port", config.port.is_some()),
        ("username", config.username.is_some()),
        ("password", config.password.is_some()),
    ];
    for (member, _) in own.iter().filter(|(_, given)| *given) {
        let bad = InvalidValue::new(FieldCode::NotAllowed, "belongs to another type of proxy");
        fields.refuse(&format!("config.{member}"), bad);
    }
    config.exit.parse(kind, fields)
}

/// What the operator's gateway makes of it. What it is not told of cannot be chosen.
fn by_upstream(
    upstreams: &ProxyGateways,
    kind: ProxyType,
    protocol: Option<ProxyProtocol>,
    mut exit: Exit,
) -> Result<(ProxyProtocol, Exit), NotSupported> {
    let Some(upstream) = upstreams.of(kind) else {
        return Err(NONE_RENTED);
    };
    if protocol.is_some_and(|protocol| protocol != upstream.protocol()) {
        return Err(NotSupported {
            field: "protocol",
            why: "this installation's proxies of that type speak another one",
        });
    }
    let unheard = |member: &ExitMember| exit.get(*member).is_some() && !upstream.chooses_by(*member);
    if ExitMember::ALL.iter().any(unheard) {
        return Err(NotSupported {
            field: "config",
            why: "this installation's proxies of that type are not chosen by all of that",
        });
    }
    let in_a_centre = matches!(kind, ProxyType::Datacenter | ProxyType::Isp);
    if in_a_centre && upstream.chooses_by(ExitMember::Country) {
        exit.country.get_or_insert_with(|| DEFAULT_COUNTRY.to_owned());
    }
    Ok((upstream.protocol(), exit))
}

fn one_of<T: Copy>(text: &str, all: &[T], text_of: fn(T) -> &'static str) -> Result<T, InvalidValue> {
    all.iter().copied().find(|one| text_of(*one) == text).ok_or_else(|| {
        let words: Vec<_> = all.iter().map(|one| text_of(*one)).collect();
        InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {}", words.join(", ")))
    })
}

/// A name or an address, as it is shown.
fn host(text: &str) -> Result<String, InvalidValue> {
    let text = text.trim();
    if text.chars().nth(253).is_some() {
        return Err(InvalidValue::new(FieldCode::TooLong, "must have at most 253 characters"));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    match Host::parse(text) {
        Ok(Host::Domain(name)) if BypassHost::parse(&name).is_ok() => Ok(name),
        Ok(Host::Ipv4(address)) => Ok(address.to_string()),
        Ok(Host::Ipv6(address)) => Ok(address.to_string()),
        _ => Err(InvalidValue::new(FieldCode::InvalidFormat, "must be a host name or an address")),
    }
}

fn port(number: i64) -> Result<u16, InvalidValue> {
    let in_range = u16::try_from(number).ok().filter(|port| *port != 0);
    in_range.ok_or_else(|| InvalidValue::new(FieldCode::OutOfRange, "must be from 1 to 65535"))
}

fn username(text: String, protocol: ProxyProtocol) -> Result<String, InvalidValue> {
    credential(&text)?;
    if protocol != ProxyProtocol::Socks5 && text.contains(':') {
        // Whoever reads it ends the name there.
        return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold a colon, which HTTP cannot carry"));
    }
    Ok(text)
}

fn password(secret: SecretString) -> Result<SecretString, InvalidValue> {
    credential(secret.expose_secret())?;
    Ok(secret)
}

fn credential(text: &str) -> Result<(), InvalidValue> {
    match text.len() {
        0 => Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 byte")),
        1..=MAX_CREDENTIAL if text.chars().any(char::is_control) => {
            Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold control characters"))
        }
        1..=MAX_CREDENTIAL => Ok(()),
        _ => Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {MAX_CREDENTIAL} bytes"))),
    }
}
