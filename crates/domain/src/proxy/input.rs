//! Requests for new proxies, and their checks.

use core::net::IpAddr;
use std::borrow::Cow;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use url::Host;

use super::{BypassHost, CaBundle, Exit, ExitMember, ProxyGateways, ProxyProtocol, ProxyType};
use crate::field::{
    FieldCode, Fields, InvalidValue, check_max_bytes, check_max_length, check_no_control_characters, one_of,
};
use crate::name::LabelName;
use crate::network::is_host_name;
use crate::pattern::{host_name, ipv6, trimmed};
use crate::session::{NotSupported, Refusal};

/// The unchecked fields of a new proxy.
#[derive(Clone, Debug, Default)]
pub struct ProxyRequest {
    /// The type. Required.
    pub kind: Option<String>,
    /// The name. Default: none.
    pub name: Option<String>,
    /// The protocol. Default: `http`; for a rented proxy that of the gateway.
    pub protocol: Option<String>,
    /// The hosts that bypass the proxy. Default: none.
    pub bypass_hosts: Vec<String>,
    /// The configuration. Required for a proxy of the caller's own.
    pub config: Option<ProxyConfigRequest>,
}

/// The unchecked configuration of a proxy, of any type.
#[derive(Clone, Default)]
pub struct ProxyConfigRequest {
    /// The host. Required for a proxy of the caller's own.
    pub host: Option<String>,
    /// The port. Required for a proxy of the caller's own.
    pub port: Option<i64>,
    /// The user name. Default: none.
    pub username: Option<String>,
    /// The password. Default: none; needs a user name.
    pub password: Option<SecretString>,
    /// The authorities of the proxy's certificate, in PEM. Default: those that this machine trusts.
    pub ca_bundle: Option<String>,
    /// The requested exit of a rented proxy.
    pub exit: Exit,
}

impl fmt::Debug for ProxyConfigRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyConfigRequest").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// A checked new proxy.
#[derive(Clone, Debug)]
pub struct NewProxy {
    /// The name, which need not be unique.
    pub name: Option<LabelName>,
    /// The type.
    pub kind: ProxyType,
    /// The protocol.
    pub protocol: ProxyProtocol,
    /// The hosts that bypass the proxy.
    pub bypass: Vec<BypassHost>,
    /// The connection to the proxy.
    pub config: NewProxyConfig,
}

/// The checked connection to a new proxy.
#[derive(Clone)]
pub enum NewProxyConfig {
    /// The caller's own proxy.
    Own {
        /// The host: a name or an IP address.
        host: String,
        /// The port.
        port: u16,
        /// The user name.
        username: Option<String>,
        /// The password, not yet sealed.
        password: Option<SecretString>,
        /// The authorities of the proxy's certificate.
        ca_bundle: Option<CaBundle>,
    },
    /// A rented proxy with this exit.
    Rented(Exit),
}

impl fmt::Debug for NewProxyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own { host, port, .. } => {
                f.debug_struct("Own").field("host", host).field("port", port).finish_non_exhaustive()
            }
            Self::Rented(exit) => f.debug_tuple("Rented").field(exit).finish(),
        }
    }
}

/// The maximum number of bytes of a user name or password, because SOCKS has one byte for the length.
pub const MAX_CREDENTIAL: usize = 255;

pub(super) const NONE_RENTED: NotSupported =
    NotSupported { field: "type", why: Cow::Borrowed("this installation rents no proxies of that type") };

/// The default country of rented proxies in data centres.
const DEFAULT_COUNTRY: &str = "US";

impl ProxyRequest {
    /// Checks the fields of a new proxy.
    ///
    /// # Errors
    /// Returns every field that breaks a rule, or the feature that this installation does not support.
    pub fn parse(self, upstreams: &ProxyGateways) -> Result<NewProxy, Refusal> {
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
                (protocol, NewProxyConfig::Rented(exit))
            }
            _ => {
                let protocol = protocol.unwrap_or_default();
                let config = own(self.config, protocol, kind.is_some(), &mut fields);
                (protocol, fields.finish_with(|| config)?)
            }
        };
        let (Some(kind), Some(bypass)) = (kind, bypass) else { unreachable!("a refused field is an error") };
        Ok(NewProxy { name, kind, protocol, bypass, config })
    }
}

/// Checks a proxy of the caller's own.
fn own(
    config: Option<ProxyConfigRequest>,
    protocol: ProxyProtocol,
    is_custom: bool,
    fields: &mut Fields,
) -> Option<NewProxyConfig> {
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
    let has_ca_bundle = config.ca_bundle.is_some();
    let ca_bundle = fields.take_optional("config.ca_bundle", config.ca_bundle.as_deref(), CaBundle::parse);
    if has_ca_bundle && protocol != ProxyProtocol::Https {
        let why = "needs the protocol https: it is for the proxy's own certificate";
        fields.refuse("config.ca_bundle", InvalidValue::new(FieldCode::NotAllowed, why));
    }
    Some(NewProxyConfig::Own { host: host?, port: port?, username, password, ca_bundle })
}

/// Checks a rented proxy.
fn rented(kind: ProxyType, config: ProxyConfigRequest, fields: &mut Fields) -> Exit {
    let own = [
        ("host", config.host.is_some()),
        ("port", config.port.is_some()),
        ("username", config.username.is_some()),
        ("password", config.password.is_some()),
        ("ca_bundle", config.ca_bundle.is_some()),
    ];
    for (member, _) in own.iter().filter(|(_, given)| *given) {
        let bad = InvalidValue::new(FieldCode::NotAllowed, "belongs to another type of proxy");
        fields.refuse(&format!("config.{member}"), bad);
    }
    config.exit.parse(kind, fields)
}

/// Applies the protocol of the operator's gateway, and refuses options that the gateway does not support.
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
            why: "this installation's proxies of that type speak another one".into(),
        });
    }
    let unheard = |member: &ExitMember| exit.get(*member).is_some() && !upstream.chooses_by(*member);
    if ExitMember::ALL.iter().any(unheard) {
        return Err(NotSupported {
            field: "config",
            why: "this installation's proxies of that type are not chosen by all of that".into(),
        });
    }
    let in_a_centre = matches!(kind, ProxyType::Datacenter | ProxyType::Isp);
    if in_a_centre && upstream.chooses_by(ExitMember::Country) {
        exit.country.get_or_insert_with(|| DEFAULT_COUNTRY.to_owned());
    }
    Ok((upstream.protocol(), exit))
}

/// The pattern of the hosts of proxies. It also accepts malformed addresses, and names that are too long.
pub const HOST_PATTERN: &str = trimmed!(host_name!(), "|", ipv6!(), r"|\[", ipv6!(), r"\]");

/// Parses a host name or an IP address and normalizes it.
fn host(text: &str) -> Result<String, InvalidValue> {
    let text = text.trim();
    check_max_length(text, 253)?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    match Host::parse(text) {
        Ok(Host::Domain(name)) if is_host_name(name.strip_suffix('.').unwrap_or(&name)) => Ok(name),
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
        // In HTTP authentication the user name ends at the first colon.
        return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold a colon, which HTTP cannot carry"));
    }
    Ok(text)
}

fn password(secret: SecretString) -> Result<SecretString, InvalidValue> {
    credential(secret.expose_secret())?;
    Ok(secret)
}

fn credential(text: &str) -> Result<(), InvalidValue> {
    if text.is_empty() {
        return Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 byte"));
    }
    check_max_bytes(text, MAX_CREDENTIAL)?;
    check_no_control_characters(text)
}
