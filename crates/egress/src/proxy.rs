//! A session's own proxy: what goes through it, and the words it is spoken to in.

use std::{fmt, net::IpAddr, sync::Arc};

use http::HeaderValue;
use ipnet::IpNet;
use secrecy::{ExposeSecret as _, SecretString};
use thiserror::Error;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_socks::{Error as SocksError, TargetAddr, tcp::Socks5Stream};
use url::Host;

use crate::{
    fault::ProxyFault,
    target::{Target, parse_host, without_final_dot},
    trust::Trust,
};

/// A proxy's head of an answer, in bytes.
const LONGEST_HEAD: u64 = 16 * 1024;

/// A connection out, whatever it goes through.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// What a proxy is spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// HTTP in the clear.
    Http,
    /// HTTP over TLS; the proxy's certificate must be one that this machine trusts.
    Https,
    /// SOCKS, version 5.
    Socks5,
}

/// The proxy cannot be read. It says nothing of the credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a proxy that can be dialled")]
pub struct InvalidProxy;

/// A proxy, with its credentials.
pub struct Proxy {
    pub(crate) protocol: ProxyProtocol,
    pub(crate) target: Target,
    credentials: Option<(String, SecretString)>,
    /// What HTTP calls them; marked, so that nobody prints it.
    authorization: Option<HeaderValue>,
    bypass: Vec<Bypass>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// How a session's requests leave.
#[derive(Debug, Clone, Default)]
pub enum Route {
    /// Straight to where they go.
    #[default]
    Direct,
    /// Through a proxy, but for what bypasses it.
    Through(Arc<Proxy>),
    /// Not at all: the proxy that they should go through is not known.
    Nowhere,
}

/// What does not go through the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Bypass {
    Net(IpNet),
    Name(String),
    /// With the dot in front.
    Suffix(String),
}

impl Bypass {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(net) = text.parse::<IpNet>() {
            return Some(Self::Net(net.trunc()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Net(address.to_canonical().into()));
        }
        let stem = text.strip_prefix("*.");
        match (parse_host(stem.unwrap_or(text))?, stem) {
            (Host::Domain(name), None) => Some(Self::Name(without_final_dot(&name).to_owned())),
            (Host::Domain(name), Some(_)) => Some(Self::Suffix(format!(".{}", without_final_dot(&name)))),
            _ => None,
        }
    }

    fn matches(&self, host: &Host<String>) -> bool {
        match (self, host) {
            (Self::Net(net), Host::Ipv4(ip)) => net.contains(&IpAddr::V4(*ip)),
            (Self::Net(net), Host::Ipv6(ip)) => net.contains(&IpAddr::V6(*ip).to_canonical()),
            (Self::Name(name), Host::Domain(asked)) => name == without_final_dot(asked),
            (Self::Suffix(suffix), Host::Domain(asked)) => {
                let asked = without_final_dot(asked);
                asked.len() > suffix.len() && asked.ends_with(suffix.as_str())
            }
            _ => false,
        }
    }
}

/// Why a proxy led nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The proxy itself.
    Proxy(ProxyFault),
    /// What lies behind it: the proxy says that it cannot or will not go there.
    Target,
}

impl Proxy {
    /// A proxy at that name or address. Each of `bypass` is a host name, `*.` and a host name, an address or a network.
    ///
    /// # Errors
    /// [`InvalidProxy`] if the host, the port, the credentials or a bypass cannot be read.
    pub fn new(
        protocol: ProxyProtocol,
        (host, port): (&str, u16),
        credentials: Option<(String, SecretString)>,
        bypass: &[String],
    ) -> Result<Self, InvalidProxy> {
        let bracketed = host.parse::<std::net::Ipv6Addr>().map(|address| format!("[{address}]"));
        let target = Target {
            host: parse_host(bracketed.as_deref().unwrap_or(host)).ok_or(InvalidProxy)?,
            port: Some(port).filter(|port| *port != 0).ok_or(InvalidProxy)?,
        };
        let authorization = credentials.as_ref().map(|(name, password)| basic(name, password)).transpose()?;
        let bypass = bypass.iter().map(|text| Bypass::parse(text)).collect::<Option<_>>().ok_or(InvalidProxy)?;
        Ok(Self { protocol, target, credentials, authorization, bypass })
    }

    /// Whether requests for that host go straight.
    pub(crate) fn bypasses(&self, host: &Host<String>) -> bool {
        self.bypass.iter().any(|bypass| bypass.matches(host))
    }

    /// Whether it takes whole requests, and not tunnels alone.
    pub(crate) fn is_http(&self) -> bool {
        self.protocol != ProxyProtocol::Socks5
    }

    /// What a request to it carries.
    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// A connection to the proxy itself, over one that reaches it.
    pub(crate) async fn greet(&self, stream: TcpStream, trust: &Trust) -> Result<Box<dyn Io>, Refused> {
        if self.protocol != ProxyProtocol::Https {
            return Ok(Box::new(stream));
        }
        let name = self.target.host.to_string();
        let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned())
            .map_err(|_| Refused::Proxy(ProxyFault::Tls))?;
        let connector = trust.connector().map_err(|_| Refused::Proxy(ProxyFault::Tls))?;
        match connector.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => {
                tracing::debug!(%error, "a proxy is not who it should be, or speaks no TLS");
                Err(Refused::Proxy(ProxyFault::Tls))
            }
        }
    }

    /// A tunnel to `target`, through a connection to the proxy. The name is the proxy's to look up.
    pub(crate) async fn tunnel(&self, stream: Box<dyn Io>, target: &Target) -> Result<Box<dyn Io>, Refused> {
        match self.protocol {
            ProxyProtocol::Http | ProxyProtocol::Https => self.connect(stream, target).await,
            ProxyProtocol::Socks5 => self.socks(stream, target).await,
        }
    }

    async fn connect(&self, mut stream: Box<dyn Io>, target: &Target) -> Result<Box<dyn Io>, Refused> {
        let place = format!("{}:{}", target.host, target.port);
        let mut head = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n").into_bytes();
        if let Some(authorization) = &self.authorization {
            head.extend_from_slice(b"Proxy-Authorization: ");
            head.extend_from_slice(authorization.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        let broke = |error: std::io::Error| Refused::Proxy(ProxyFault::of_io(&error));
        stream.write_all(&head).await.map_err(broke)?;
        stream.flush().await.map_err(broke)?;
        // What comes right behind the head belongs to the tunnel, and stays in the reader.
        let mut reader = BufReader::new(stream);
        let status = answered(&mut reader).await.map_err(Refused::Proxy)?;
        match status {
            200..=299 => Ok(Box::new(reader)),
            // Some say 401 of credentials that are wrong; to this question nobody answers but the proxy.
            401 | 407 => Err(Refused::Proxy(ProxyFault::Authentication)),
            _ => Err(Refused::Target),
        }
    }

    async fn socks(&self, stream: Box<dyn Io>, target: &Target) -> Result<Box<dyn Io>, Refused> {
        let place = match &target.host {
            Host::Ipv4(ip) => TargetAddr::Ip((*ip, target.port).into()),
            Host::Ipv6(ip) => TargetAddr::Ip((*ip, target.port).into()),
            Host::Domain(name) => TargetAddr::Domain(without_final_dot(name).to_owned().into(), target.port),
        };
        let connected = match &self.credentials {
            None => Socks5Stream::connect_with_socket(stream, place).await,
            Some((name, password)) => {
                Socks5Stream::connect_with_password_and_socket(stream, place, name, password.expose_secret()).await
            }
        };
        match connected {
            Ok(stream) => Ok(Box::new(stream.into_inner())),
            Err(
                SocksError::GeneralSocksServerFailure
                | SocksError::ConnectionNotAllowedByRuleset
                | SocksError::NetworkUnreachable
                | SocksError::HostUnreachable
                | SocksError::ConnectionRefused
                | SocksError::TtlExpired
                | SocksError::AddressTypeNotSupported,
            ) => Err(Refused::Target),
            Err(error) => Err(Refused::Proxy(ProxyFault::of_socks(&error))),
        }
    }
}

/// The status of an answer's head, read to its end.
///
/// # Errors
/// How the proxy failed, if there is no such head.
async fn answered(reader: &mut BufReader<Box<dyn Io>>) -> Result<u16, ProxyFault> {
    let mut head = reader.take(LONGEST_HEAD);
    let mut line = Vec::new();
    head.read_until(b'\n', &mut line).await.map_err(|error| ProxyFault::of_io(&error))?;
    if line.is_empty() {
        return Err(ProxyFault::Closed);
    }
    let status = status_of(&line).ok_or(ProxyFault::Protocol)?;
    loop {
        line.clear();
        head.read_until(b'\n', &mut line).await.map_err(|error| ProxyFault::of_io(&error))?;
        match line.as_slice() {
            b"\r\n" | b"\n" => return Ok(status),
            [.., b'\n'] => {}
            _ => return Err(ProxyFault::Protocol),
        }
    }
}

fn status_of(line: &[u8]) -> Option<u16> {
    let first = std::str::from_utf8(line).ok()?.strip_prefix("HTTP/1.")?;
    first.get(2..5)?.parse().ok()
}

fn basic(name: &str, password: &SecretString) -> Result<HeaderValue, InvalidProxy> {
    use base64::Engine as _;

    let pair = SecretString::from(format!("{name}:{}", password.expose_secret()));
    let encoded = base64::engine::general_purpose::STANDARD.encode(pair.expose_secret());
    let mut value = HeaderValue::try_from(format!("Basic {encoded}")).map_err(|_| InvalidProxy)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(bypass: &[&str]) -> Proxy {
        let bypass: Vec<_> = bypass.iter().map(ToString::to_string).collect();
        let credentials = Some(("me".to_owned(), SecretString::from("p:@/%")));
        Proxy::new(ProxyProtocol::Http, ("proxy.example", 3128), credentials, &bypass).unwrap()
    }

    #[test]
    fn a_bypass_is_a_name_a_suffix_an_address_or_a_network() {
        let proxy = proxy(&["a.example", "*.b.example", "10.0.0.0/8", "192.0.2.1", "fd12::/48"]);
        for host in [
            "a.example",
            "A.example.",
            "x.b.example",
            "x.y.b.example",
            "10.1.2.3",
            "0x0a000001",
            "192.0.2.1",
            "[fd12::1]",
            "[::ffff:10.0.0.1]",
        ] {
            assert!(proxy.bypasses(&parse_host(host).unwrap()), "{host}");
        }
        for host in ["x.a.example", "b.example", "xb.example", "a.example.org", "11.0.0.1", "[fd13::1]", "ten.example"]
        {
            assert!(!proxy.bypasses(&parse_host(host).unwrap()), "{host}");
        }
    }

    #[test]
    fn nothing_prints_the_credentials() {
        let proxy = proxy(&[]);
        let printed = format!("{proxy:?} {:?}", proxy.authorization());
        assert!(!printed.contains("p:@") && !printed.contains("bWU6"), "{printed}");
        assert_eq!(proxy.authorization().unwrap(), "Basic bWU6cDpALyU=");
    }
}
