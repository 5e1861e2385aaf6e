//! A session's own proxy: its configuration and its protocols.

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

/// The longest response head of a proxy, in bytes.
const MAX_HEAD_BYTES: u64 = 16 * 1024;

/// An outgoing connection, direct or through a proxy.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS; this machine must trust the proxy's certificate.
    Https,
    /// SOCKS, version 5.
    Socks5,
}

/// The proxy configuration is invalid. The error does not repeat the credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a proxy that can be dialled")]
pub struct InvalidProxy;

/// A proxy, with its credentials.
pub struct Proxy {
    pub(crate) protocol: ProxyProtocol,
    pub(crate) target: Target,
    credentials: Option<(String, SecretString)>,
    /// The credentials as the value of an HTTP header, marked as sensitive.
    authorization: Option<HeaderValue>,
    bypass: Vec<Bypass>,
    /// The trusted certificates; `None`: those of the egress.
    trust: Option<Trust>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// The route of a session's requests.
#[derive(Debug, Clone, Default)]
pub enum Route {
    /// Directly to the destination.
    #[default]
    Direct,
    /// Through the proxy, except for bypassed hosts.
    Through(Arc<Proxy>),
    /// No requests are possible, because the session's proxy is unknown.
    Nowhere,
}

/// A destination that does not go through the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Bypass {
    Net(IpNet),
    Name(String),
    /// A suffix of host names, with the leading dot.
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
            (Self::Name(name), Host::Domain(request)) => name == without_final_dot(request),
            (Self::Suffix(suffix), Host::Domain(request)) => {
                let request = without_final_dot(request);
                request.len() > suffix.len() && request.ends_with(suffix.as_str())
            }
            _ => false,
        }
    }
}

/// The reason why a proxy did not provide a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The proxy itself failed.
    Proxy(ProxyFault),
    /// The proxy reports that it cannot or will not connect to the target.
    Target,
}

impl Proxy {
    /// Creates a proxy at a host name or address, with a port. Each of `bypass` is a host name, `*.` and a host name,
    /// an address or a network.
    ///
    /// # Errors
    /// [`InvalidProxy`] if the host, the port, the credentials or a bypass cannot be parsed.
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
        Ok(Self { protocol, target, credentials, authorization, bypass, trust: None })
    }

    /// Trusts only these certificates (in DER) for the TLS connection to the proxy, instead of those of the egress. If
    /// none of them can be read, no connection is possible.
    #[must_use]
    pub fn with_trusted_certificates(self, certificates: Vec<Vec<u8>>) -> Self {
        Self { trust: Some(Trust::only(certificates)), ..self }
    }

    /// Returns true if requests for `host` do not go through the proxy.
    pub(crate) fn bypasses(&self, host: &Host<String>) -> bool {
        self.bypass.iter().any(|bypass| bypass.matches(host))
    }

    /// Returns true if the proxy supports plain requests, not only tunnels.
    pub(crate) fn is_http(&self) -> bool {
        self.protocol != ProxyProtocol::Socks5
    }

    /// Returns the value of `Proxy-Authorization` for requests to the proxy, if it has credentials.
    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Performs the TLS handshake with the proxy, if its protocol requires TLS. `trust` applies if the proxy has no
    /// trusted certificates of its own.
    pub(crate) async fn greet(&self, stream: TcpStream, trust: &Trust) -> Result<Box<dyn Io>, Refused> {
        if self.protocol != ProxyProtocol::Https {
            return Ok(Box::new(stream));
        }
        let name = self.target.host.to_string();
        let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned())
            .map_err(|_| Refused::Proxy(ProxyFault::Tls))?;
        let connector =
            self.trust.as_ref().unwrap_or(trust).connector().map_err(|_| Refused::Proxy(ProxyFault::Tls))?;
        match connector.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => {
                tracing::debug!(%error, "the TLS handshake with a proxy failed");
                Err(Refused::Proxy(ProxyFault::Tls))
            }
        }
    }

    /// Opens a tunnel to `target` through a connection to the proxy. The proxy resolves the name.
    pub(crate) async fn tunnel(&self, stream: Box<dyn Io>, target: &Target) -> Result<Box<dyn Io>, Refused> {
        match self.protocol {
            ProxyProtocol::Http | ProxyProtocol::Https => self.connect(stream, target).await,
            ProxyProtocol::Socks5 => self.socks(stream, target).await,
        }
    }

    async fn connect(&self, mut stream: Box<dyn Io>, target: &Target) -> Result<Box<dyn Io>, Refused> {
        let authority = format!("{}:{}", target.host, target.port);
        let mut head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n").into_bytes();
        if let Some(authorization) = &self.authorization {
            head.extend_from_slice(b"Proxy-Authorization: ");
            head.extend_from_slice(authorization.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        let broke = |error: std::io::Error| Refused::Proxy(ProxyFault::from_io(&error));
        stream.write_all(&head).await.map_err(broke)?;
        stream.flush().await.map_err(broke)?;
        // Bytes after the head belong to the tunnel, and stay in the reader.
        let mut reader = BufReader::new(stream);
        let status = read_status(&mut reader).await.map_err(Refused::Proxy)?;
        match status {
            200..=299 => Ok(Box::new(reader)),
            // Some proxies answer 401 for wrong credentials; the response to a CONNECT is always the proxy's own.
            401 | 407 => Err(Refused::Proxy(ProxyFault::Authentication)),
            _ => Err(Refused::Target),
        }
    }

    async fn socks(&self, stream: Box<dyn Io>, target: &Target) -> Result<Box<dyn Io>, Refused> {
        let authority = match &target.host {
            Host::Ipv4(ip) => TargetAddr::Ip((*ip, target.port).into()),
            Host::Ipv6(ip) => TargetAddr::Ip((*ip, target.port).into()),
            Host::Domain(name) => TargetAddr::Domain(without_final_dot(name).to_owned().into(), target.port),
        };
        let connected = match &self.credentials {
            None => Socks5Stream::connect_with_socket(stream, authority).await,
            Some((name, password)) => {
                Socks5Stream::connect_with_password_and_socket(stream, authority, name, password.expose_secret()).await
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
            Err(error) => Err(Refused::Proxy(ProxyFault::from_socks(&error))),
        }
    }
}

/// Reads a response head to its end and returns the status.
///
/// # Errors
/// The proxy's fault, if there is no complete HTTP/1 head.
async fn read_status(reader: &mut BufReader<Box<dyn Io>>) -> Result<u16, ProxyFault> {
    let mut head = reader.take(MAX_HEAD_BYTES);
    let mut line = Vec::new();
    head.read_until(b'\n', &mut line).await.map_err(|error| ProxyFault::from_io(&error))?;
    if line.is_empty() {
        return Err(ProxyFault::Closed);
    }
    let status = status_of(&line).ok_or(ProxyFault::Protocol)?;
    loop {
        line.clear();
        head.read_until(b'\n', &mut line).await.map_err(|error| ProxyFault::from_io(&error))?;
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
    fn a_bypass_is_a_name_suffix_address_or_network() {
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
    fn debug_output_hides_the_credentials() {
        let proxy = proxy(&[]);
        let printed = format!("{proxy:?} {:?}", proxy.authorization());
        assert!(!printed.contains("p:@") && !printed.contains("bWU6"), "{printed}");
        assert_eq!(proxy.authorization().unwrap(), "Basic bWU6cDpALyU=");
    }
}
