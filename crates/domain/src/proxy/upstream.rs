//! The gateways of rented proxy services, set by the operator. The exit location is encoded in the credentials.

use std::fmt;

use percent_encoding::percent_decode_str;
use secrecy::SecretString;
use url::{Host, Url};

use super::exit::{Exit, ExitMember};
use super::input::MAX_CREDENTIAL;
use super::{OpenProxy, ProxyProtocol, ProxyType};
use crate::ids::ProxyId;

/// The error of a configured gateway. The messages do not repeat the URL, because it may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUpstream {
    /// The text is no URL of a proxy.
    #[error("must be http://, https:// or socks5://, a host and a port, with or without credentials, and nothing else")]
    Address,
    /// The user name or password is no valid template.
    #[error(
        "user name or password: a part in braces must be one of country, state, city, zip, asn, os and id, or these in capitals; \
         brackets stand around what is left out where nothing is chosen, and hold no others; a brace or a bracket itself is doubled"
    )]
    Template,
    /// The protocol cannot transport the credentials.
    #[error("the user name may hold no colon, and neither it nor the password a control character")]
    UnsupportedCharacters,
    /// SOCKS requires a user name and a password, or neither.
    #[error("SOCKS sends a user name and a password, or neither")]
    HalfCredentials,
}

/// The gateway of a rented proxy service.
#[derive(Clone)]
pub struct Upstream {
    protocol: ProxyProtocol,
    host: String,
    port: u16,
    credentials: Option<(Template, Template)>,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// The gateways of this installation, at most one per type of rented proxy.
#[derive(Clone, Debug, Default)]
pub struct ProxyGateways(Vec<(ProxyType, Upstream)>);

impl FromIterator<(ProxyType, Upstream)> for ProxyGateways {
    fn from_iter<I: IntoIterator<Item = (ProxyType, Upstream)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl ProxyGateways {
    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn of(&self, kind: ProxyType) -> Option<&Upstream> {
        self.0.iter().find(|(of, _)| *of == kind).map(|(_, upstream)| upstream)
    }
}

impl Upstream {
    /// Parses the URL of a gateway, for example `http://user[-country-{country}]:password@gate.example:7000`. User name
    /// and password may contain `{country}` and the other fields of [`Exit`], in upper case for upper case values, and
    /// `{id}`, which is unique for each stored proxy. Parts in brackets are omitted if a field in them is not set.
    ///
    /// # Errors
    /// See [`BadUpstream`].
    pub fn parse(url: &Url) -> Result<Self, BadUpstream> {
        let protocol = ProxyProtocol::ALL.into_iter().find(|one| one.as_str() == url.scheme());
        let protocol = protocol.ok_or(BadUpstream::Address)?;
        let host = match url.host().ok_or(BadUpstream::Address)? {
            Host::Ipv6(address) => address.to_string(),
            host => host.to_string(),
        };
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or(BadUpstream::Address)?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(BadUpstream::Address);
        }
        let username = Template::parse(&decoded(url.username())?)?;
        let password = url.password().map(|text| Template::parse(&decoded(text)?)).transpose()?;
        let colon = protocol != ProxyProtocol::Socks5 && username.holds(|c| c == ':');
        if colon || username.holds(char::is_control) || password.as_ref().is_some_and(|it| it.holds(char::is_control)) {
            return Err(BadUpstream::UnsupportedCharacters);
        }
        let half = username.0.is_empty() != password.is_none();
        if (protocol == ProxyProtocol::Socks5 && half) || (username.0.is_empty() && password.is_some()) {
            return Err(BadUpstream::HalfCredentials);
        }
        let credentials = (!username.0.is_empty()).then(|| (username, password.unwrap_or_default()));
        Ok(Self { protocol, host, port, credentials })
    }

    pub(super) fn protocol(&self) -> ProxyProtocol {
        self.protocol
    }

    /// Returns whether the credentials contain this field.
    pub(super) fn chooses_by(&self, member: ExitMember) -> bool {
        let says = |template: &Template| template.says(Value::Member(member));
        self.credentials.as_ref().is_some_and(|(username, password)| says(username) || says(password))
    }

    /// Returns the gateway with the credentials for a proxy; `None` if they are too long for the protocols.
    pub(super) fn open(&self, id: ProxyId, exit: &Exit, bypass: Vec<String>) -> Option<OpenProxy> {
        let credentials = match &self.credentials {
            None => None,
            Some((username, password)) => {
                let (username, password) = (username.filled(id, exit), password.filled(id, exit));
                if username.len().max(password.len()) > MAX_CREDENTIAL {
                    return None;
                }
                Some((username, SecretString::from(password)))
            }
        };
        Some(OpenProxy {
            protocol: self.protocol,
            host: self.host.clone(),
            port: self.port,
            credentials,
            bypass,
            ca_bundle: None,
        })
    }
}

fn decoded(text: &str) -> Result<String, BadUpstream> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| BadUpstream::Template)?;
    Ok(text.into_owned())
}

/// A placeholder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Member(ExitMember),
    Id,
}

#[derive(Clone)]
enum Part {
    Text(String),
    Put { value: Value, capitals: bool },
    Optional(Vec<Part>),
}

/// A user name or password with placeholders.
#[derive(Clone, Default)]
struct Template(Vec<Part>);

impl Template {
    fn parse(text: &str) -> Result<Self, BadUpstream> {
        let mut rest = text;
        let parts = parts(&mut rest, false)?;
        if rest.is_empty() { Ok(Self(parts)) } else { Err(BadUpstream::Template) }
    }

    fn says(&self, wanted: Value) -> bool {
        any(&self.0, &|part| matches!(part, Part::Put { value, .. } if *value == wanted))
    }

    fn holds(&self, bad: fn(char) -> bool) -> bool {
        any(&self.0, &|part| matches!(part, Part::Text(text) if text.contains(bad)))
    }

    fn filled(&self, id: ProxyId, exit: &Exit) -> String {
        self.0.iter().filter_map(|part| part.filled(id, exit)).collect()
    }
}

fn any(parts: &[Part], test: &dyn Fn(&Part) -> bool) -> bool {
    parts.iter().any(|part| match part {
        Part::Optional(inner) => any(inner, test),
        part => test(part),
    })
}

impl Part {
    /// Returns the text; `None` if a field in it is not set.
    fn filled(&self, id: ProxyId, exit: &Exit) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Optional(parts) => parts.iter().map(|part| part.filled(id, exit)).collect(),
            Self::Put { value, capitals } => {
                let text = match value {
                    Value::Id => id.to_string(),
                    // Services expect the number without the prefix `AS`.
                    Value::Member(ExitMember::Asn) => exit.asn.as_deref()?.trim_start_matches("AS").to_owned(),
                    Value::Member(member) => exit.get(*member)?.to_owned(),
                };
                Some(if *capitals { text.to_ascii_uppercase() } else { text.to_ascii_lowercase() })
            }
        }
    }
}

/// Parses parts up to the end, or to the closing bracket.
fn parts(rest: &mut &str, in_brackets: bool) -> Result<Vec<Part>, BadUpstream> {
    let mut parts = Vec::new();
    while let Some(next) = rest.chars().next() {
        let doubled = rest[next.len_utf8()..].starts_with(next);
        match next {
            '{' | '}' | '[' | ']' if doubled => {
                parts.push(Part::Text(next.to_string()));
                *rest = &rest[2..];
            }
            '{' => {
                let (name, after) = rest[1..].split_once('}').ok_or(BadUpstream::Template)?;
                parts.push(place(name)?);
                *rest = after;
            }
            '[' if !in_brackets => {
                *rest = &rest[1..];
                parts.push(Part::Optional(self::parts(rest, true)?));
                *rest = rest.strip_prefix(']').ok_or(BadUpstream::Template)?;
            }
            ']' if in_brackets => return Ok(parts),
            '}' | '[' | ']' => return Err(BadUpstream::Template),
            _ => {
                let end = rest.find(['{', '}', '[', ']']).unwrap_or(rest.len());
                parts.push(Part::Text(rest[..end].to_owned()));
                *rest = &rest[end..];
            }
        }
    }
    Ok(parts)
}

fn place(name: &str) -> Result<Part, BadUpstream> {
    let lower = name.to_ascii_lowercase();
    let capitals = name == name.to_ascii_uppercase();
    let value = match ExitMember::ALL.into_iter().find(|member| member.as_str() == lower) {
        Some(member) => Value::Member(member),
        None if lower == "id" => Value::Id,
        None => return Err(BadUpstream::Template),
    };
    if capitals || name == lower { Ok(Part::Put { value, capitals }) } else { Err(BadUpstream::Template) }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;
    use ulid::Ulid;

    use super::*;

    fn upstream(url: &str) -> Result<Upstream, BadUpstream> {
        Upstream::parse(&Url::parse(url).expect("a URL"))
    }

    fn reported(url: &str, exit: &Exit) -> (String, String) {
        let opened = upstream(url).expect("good").open(ProxyId::from_ulid(Ulid(1)), exit, Vec::new()).expect("short");
        let (username, password) = opened.credentials.expect("credentials");
        (username, password.expose_secret().to_owned())
    }

    fn paris() -> Exit {
        let given = |text: &str| Some(text.to_owned());
        Exit { country: given("FR"), city: given("paris"), asn: given("AS3215"), ..Exit::default() }
    }

    #[test]
    fn the_gateways_credentials_contain_the_chosen_exit() {
        let url = "http://me-zone-a[-country-{country}][-city-{city}][-zip-{zip}]:p%40ss[_asn-{asn}]@gate.example:7000";
        assert_eq!(reported(url, &paris()), ("me-zone-a-country-fr-city-paris".into(), "p@ss_asn-3215".into()));
        assert_eq!(reported(url, &Exit::default()), ("me-zone-a".into(), "p@ss".into()));
        let url = "socks5://u-cc-{COUNTRY}-sid-{id}:x{{y}}[[z]]@gate.example:1080";
        let id = ProxyId::from_ulid(Ulid(1));
        assert_eq!(reported(url, &paris()), (format!("u-cc-FR-sid-{id}"), "x{y}[z]".into()));
    }

    #[test]
    fn a_gateway_says_what_it_is_chosen_by() {
        let upstream = upstream("https://me[-{country}]:a[{CITY}]@gate.example").expect("good");
        let by: Vec<_> = ExitMember::ALL.into_iter().filter(|member| upstream.chooses_by(*member)).collect();
        assert_eq!(by, [ExitMember::Country, ExitMember::City]);
        assert_eq!((upstream.port, upstream.protocol()), (443, ProxyProtocol::Https));
    }

    #[test]
    fn what_is_no_gateway_is_refused_without_being_repeated() {
        for url in [
            "ftp://a.example:1",
            "http://a.example:0",
            "socks5://a.example",
            "http://a.example/path",
            "http://a.example:1?x",
            "http://{colour}:x@a.example",
            "http://{Country}:x@a.example",
            "http://{country:x@a.example",
            "http://a[b:x@a.example",
            "http://a]b:x@a.example",
            "http://[a[b]]c]:x@a.example",
            "http://a%3Ab:x@a.example",
            "http://a%0Ab:x@a.example",
            "http://:s3cret@a.example",
            "socks5://me@a.example:1080",
        ] {
            let refused = upstream(url).expect_err(url).to_string();
            assert!(!refused.contains("s3cret") && !refused.contains("a.example"), "{refused}");
        }
    }

    #[test]
    fn what_no_protocol_carries_is_not_opened() {
        let long = format!("http://{}:x@a.example", "u".repeat(MAX_CREDENTIAL + 1));
        assert!(
            upstream(&long).expect("good").open(ProxyId::from_ulid(Ulid(1)), &Exit::default(), Vec::new()).is_none()
        );
    }
}
