//! Opens connections to destinations: resolves the name, checks the addresses, and dials a checked address.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use casement_dial::{connect_first, interleaved};
use thiserror::Error;
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::Semaphore,
    time::{Instant, sleep_until, timeout},
};
use url::Host;

use crate::{
    fault::ProxyFault,
    limits::Limits,
    neighbours::{Neighbours, neighbours},
    proxy::{Io, Proxy, Refused, Route},
    resolver::{LookupPermit, Resolver},
    rules::{Allow, Rules, Verdict},
    target::Target,
    trust::Trust,
};

/// The source addresses of connections from sandboxes to this machine itself: to a service that the operator allowed,
/// or to Casement. Everything else on this machine uses other addresses. The exception is IPv6 loopback, which has only
/// one address, so a service that must recognize sandboxes must not use it. A server that trusts a proxy on this
/// machine must not trust these addresses.
pub const SANDBOX_SOURCE_ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(127, 67, 83, 77)), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// A failed lookup is answered at a multiple of this time after its start, because its exact duration would reveal
/// which names the network of this machine knows.
const FAILURE_TIME_STEP: Duration = Duration::from_millis(250);

/// Opens the connections of a session's requests.
///
/// A session's proxy changes the dialled address, never the allowed destinations: the proxy itself is resolved, checked
/// and dialled like any destination, and so are bypassed hosts. The proxy resolves the names of other hosts. An address
/// or a name that can never be reached directly is not reached through a proxy either.
#[derive(Clone)]
pub(crate) struct Upstream {
    /// The rules of destinations.
    rules: Rules,
    /// The rules of the addresses of proxies.
    proxy_rules: Rules,
    resolver: Arc<dyn Resolver>,
    limits: Limits,
    lookups: Arc<Semaphore>,
    neighbours: fn() -> Arc<Neighbours>,
    pub(crate) trust: Trust,
}

/// The reason why no connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum ConnectError {
    /// Refused because of the request itself: a literal address, a name that is never allowed, or a port.
    #[error("refused by the rules")]
    Refused,
    /// Refused because of an address that this machine knows and the session does not. The session gets the same
    /// response as for [`Unreachable`](Self::Unreachable).
    #[error("the egress rules refuse addresses of this machine and its neighbours")]
    RefusedAddress,
    #[error("no such host, or it does not answer")]
    Unreachable,
    #[error("the session's proxy cannot be used: {0}")]
    ProxyDown(ProxyFault),
    #[error("refused by the session's policy")]
    Denied,
}

/// The path of a request, with the addresses that may be dialled for it.
pub(crate) enum UpstreamPath {
    Straight(Vec<SocketAddr>),
    Proxy(Arc<Proxy>, Vec<SocketAddr>),
}

impl UpstreamPath {
    pub(crate) fn candidates(&self) -> &[SocketAddr] {
        match self {
            Self::Straight(candidates) | Self::Proxy(_, candidates) => candidates,
        }
    }

    pub(crate) fn proxy(&self) -> Option<&Arc<Proxy>> {
        match self {
            Self::Straight(_) => None,
            Self::Proxy(proxy, _) => Some(proxy),
        }
    }
}

impl From<Refused> for ConnectError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Proxy(fault) => Self::ProxyDown(fault),
            Refused::Target => Self::Unreachable,
        }
    }
}

impl Upstream {
    pub(crate) fn new(rules: Rules, resolver: Arc<dyn Resolver>, limits: Limits, trust: Trust) -> Self {
        let lookups = Arc::new(Semaphore::new(limits.lookups));
        Self { proxy_rules: rules.clone(), rules, resolver, lookups, limits, neighbours, trust }
    }

    /// Returns an upstream of the same session with other exceptions for destinations.
    pub(crate) fn with_exceptions(&self, exceptions: Option<Vec<Allow>>) -> Self {
        let rules = exceptions.map(|exceptions| self.rules.with_only_exceptions(exceptions));
        Self { rules: rules.unwrap_or_else(|| self.rules.clone()), ..self.clone() }
    }

    /// Returns the addresses of `target` that may be dialled, in the resolver's order; at least one. Resolves a name
    /// once; does not resolve a literal address, or a name that is refused at every address.
    pub(crate) async fn candidates(&self, target: &Target) -> Result<Vec<SocketAddr>, ConnectError> {
        self.candidates_by(&self.rules, target).await
    }

    async fn candidates_by(&self, rules: &Rules, target: &Target) -> Result<Vec<SocketAddr>, ConnectError> {
        let began = Instant::now();
        let checked = self.resolve_and_check(rules, target).await;
        if matches!(checked, Err(ConnectError::Refused | ConnectError::RefusedAddress)) {
            tracing::debug!(host = %target.host, port = target.port, "refused by the rules");
        }
        if matches!(checked, Err(ConnectError::RefusedAddress | ConnectError::Unreachable)) {
            let steps = began.elapsed().as_millis() / FAILURE_TIME_STEP.as_millis() + 1;
            sleep_until(began + FAILURE_TIME_STEP * u32::try_from(steps).unwrap_or(u32::MAX)).await;
        }
        checked
    }

    async fn resolve_and_check(&self, rules: &Rules, target: &Target) -> Result<Vec<SocketAddr>, ConnectError> {
        let found = match &target.host {
            Host::Ipv4(ip) => vec![IpAddr::V4(*ip)],
            Host::Ipv6(ip) => vec![IpAddr::V6(*ip)],
            Host::Domain(name) if !rules.could_reach(name, target.port) => return Err(ConnectError::Refused),
            Host::Domain(name) => self.look_up(name).await?,
        };
        if found.is_empty() {
            return Err(ConnectError::Unreachable);
        }
        let host = target.host.to_string();
        let mut checked = Vec::new();
        for ip in found.into_iter().take(self.limits.addresses) {
            let address = SocketAddr::new(ip.to_canonical(), target.port);
            if self.is_allowed(rules, &host, address) && !checked.contains(&address) {
                checked.push(address);
            }
        }
        match checked.as_slice() {
            [] if refuses_by_rule(rules, target) => Err(ConnectError::Refused),
            [] => Err(ConnectError::RefusedAddress),
            _ => Ok(checked),
        }
    }

    /// Connects to the first of `candidates` that answers, see [`connect_first`].
    pub(crate) async fn dial(&self, candidates: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), ConnectError> {
        let connecting = connect_first(interleaved(candidates), self.limits.attempt_delay, connect);
        match timeout(self.limits.connect_timeout, connecting).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(_)) | Err(_) => Err(ConnectError::Unreachable),
        }
    }

    /// Returns the path of a request for `target`.
    pub(crate) async fn upstream_path(&self, route: &Route, target: &Target) -> Result<UpstreamPath, ConnectError> {
        match route {
            Route::Nowhere => Err(ConnectError::ProxyDown(ProxyFault::Unknown)),
            Route::Through(proxy) if !proxy.bypasses(&target.host) => {
                self.check_proxy_may_connect(target)?;
                let unreachable = |_| ConnectError::ProxyDown(ProxyFault::Unreachable);
                let candidates = self.candidates_by(&self.proxy_rules, &proxy.target).await.map_err(unreachable)?;
                Ok(UpstreamPath::Proxy(Arc::clone(proxy), candidates))
            }
            Route::Direct | Route::Through(_) => Ok(UpstreamPath::Straight(self.candidates(target).await?)),
        }
    }

    /// Checks that a proxy may be requested to connect to `target`.
    pub(crate) fn check_proxy_may_connect(&self, target: &Target) -> Result<(), ConnectError> {
        let may = match address_of(target) {
            Some(address) => self.is_allowed(&self.rules, &target.host.to_string(), address),
            None => self.rules.proxy_may_connect(&target.host.to_string(), target.port),
        };
        if may {
            return Ok(());
        }
        tracing::debug!(host = %target.host, port = target.port, "refused by the rules");
        let is_revealed = address_of(target).is_none() || refuses_by_rule(&self.rules, target);
        Err(if is_revealed { ConnectError::Refused } else { ConnectError::RefusedAddress })
    }

    /// Connects to `target`, through a tunnel if the path has a proxy. Also returns the dialled address.
    pub(crate) async fn open(
        &self,
        upstream_path: &UpstreamPath,
        target: &Target,
    ) -> Result<(Box<dyn Io>, SocketAddr), ConnectError> {
        let (stream, address) = self.connect_next_hop(upstream_path).await?;
        match upstream_path {
            UpstreamPath::Straight(_) => Ok((stream, address)),
            UpstreamPath::Proxy(proxy, _) => {
                Ok((self.with_proxy_timeout(proxy.tunnel(stream, target)).await?, address))
            }
        }
    }

    /// Connects to the next hop: the destination, or the proxy.
    pub(crate) async fn connect_next_hop(
        &self,
        upstream_path: &UpstreamPath,
    ) -> Result<(Box<dyn Io>, SocketAddr), ConnectError> {
        match upstream_path {
            UpstreamPath::Straight(candidates) => {
                let (stream, address) = self.dial(candidates).await?;
                Ok((Box::new(stream), address))
            }
            UpstreamPath::Proxy(proxy, candidates) => {
                let (stream, address) =
                    self.dial(candidates).await.map_err(|_| ConnectError::ProxyDown(ProxyFault::Unreachable))?;
                Ok((self.with_proxy_timeout(proxy.greet(stream, &self.trust)).await?, address))
            }
        }
    }

    /// Runs a step of a proxy's protocol, with a timeout.
    pub(crate) async fn with_proxy_timeout<T>(
        &self,
        step: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        timeout(self.limits.proxy_timeout, step).await.unwrap_or(Err(Refused::Proxy(ProxyFault::Timeout)))
    }

    /// Connects to a proxy.
    pub(crate) async fn connect_to_proxy(&self, proxy: &Arc<Proxy>) -> Result<Box<dyn Io>, ConnectError> {
        let unreachable = |_| ConnectError::ProxyDown(ProxyFault::Unreachable);
        let candidates = self.candidates_by(&self.proxy_rules, &proxy.target).await.map_err(unreachable)?;
        Ok(self.connect_next_hop(&UpstreamPath::Proxy(Arc::clone(proxy), candidates)).await?.0)
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, ConnectError> {
        let lookup = async {
            let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
            self.resolver.resolve(name, LookupPermit::new(permit)).await
        };
        match timeout(self.limits.lookup_timeout, lookup).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot resolve a name");
                Err(ConnectError::Unreachable)
            }
            Err(_) => Err(ConnectError::Unreachable),
        }
    }

    fn is_allowed(&self, rules: &Rules, host: &str, address: SocketAddr) -> bool {
        match rules.check(host, address) {
            Verdict::Allowed => true,
            Verdict::Public => !is_own_address(address) && !(self.neighbours)().has(address.ip()),
            Verdict::Refused => false,
        }
    }
}

/// Returns true if the rules refuse a literal address, independent of this machine's network.
fn refuses_by_rule(rules: &Rules, target: &Target) -> bool {
    address_of(target).is_some_and(|address| rules.check(&target.host.to_string(), address) == Verdict::Refused)
}

/// Returns the literal address, if the host is one.
fn address_of(target: &Target) -> Option<SocketAddr> {
    let ip = match &target.host {
        Host::Ipv4(ip) => IpAddr::V4(*ip),
        Host::Ipv6(ip) => IpAddr::V6(*ip).to_canonical(),
        Host::Domain(_) => return None,
    };
    Some(SocketAddr::new(ip, target.port))
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = match address {
        own if is_own_address(own) => connect_to_this_machine(own).await?,
        _ => TcpStream::connect(address).await?,
    };
    // A connection to a closed port may connect to itself, if the kernel chose that port as its source.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to this machine itself, from the source address that identifies sandboxes.
async fn connect_to_this_machine(address: SocketAddr) -> io::Result<TcpStream> {
    let (socket, source) = match address {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, SANDBOX_SOURCE_ADDRESSES[0]),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, SANDBOX_SOURCE_ADDRESSES[1]),
    };
    let bound = socket.bind((source, 0).into());
    bound.inspect_err(
        |error| tracing::warn!(%source, %error, "sandboxes cannot reach this machine: their source address is missing"),
    )?;
    socket.connect(address).await
}

/// Returns true if this machine has the address. A machine reaches its own services on its public address without any
/// firewall in front of it, so that address is as private as loopback. Sends nothing: it tests binding to the address.
fn is_own_address(address: SocketAddr) -> bool {
    let unassigned: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        SocketAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    // Some machines may bind addresses that they do not have, so that binding proves nothing. Then only the source
    // address that the kernel would choose decides, which covers all but secondary addresses.
    is_source_address(address) || (can_bind(address.ip()) && !can_bind(unassigned))
}

fn can_bind(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

fn is_source_address(address: SocketAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let own = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(address)?;
        socket.local_addr()
    });
    own.is_ok_and(|own| own.ip() == address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neighbours::tests::{V6, v4};

    fn upstream(rules: Rules, limits: Limits) -> Upstream {
        Upstream::new(rules, Arc::new(crate::SystemResolver::default()), limits, Trust::default())
    }

    async fn checked(rules: Rules, address: &str) -> Result<Vec<SocketAddr>, ConnectError> {
        let neighbours = || Arc::new(Neighbours::parse(&v4(), V6));
        let upstream = Upstream { neighbours, ..upstream(rules, Limits::default()) };
        upstream.candidates(&Target::parse(address, None).unwrap()).await
    }

    const NEAR: [&str; 4] = ["51.38.64.254:80", "[2a03:db8::1]:80", "[2a01:db8:0:1::1]:80", "[2a01:db8:0:1::9]:22"];

    #[tokio::test]
    async fn neighbours_with_public_addresses_are_refused_as_unreachable() {
        for address in NEAR {
            assert_eq!(checked(Rules::default(), address).await, Err(ConnectError::RefusedAddress), "{address}");
        }
        assert_eq!(checked(Rules::default(), "10.0.0.1:80").await, Err(ConnectError::Refused));
    }

    #[tokio::test]
    async fn neighbours_do_not_block_their_ipv4_network_or_the_internet() {
        for address in ["51.38.64.1:80", "93.184.215.14:443", "[2606:4700::1]:443"] {
            assert_eq!(checked(Rules::default(), address).await, Ok(vec![address.parse().unwrap()]));
        }
    }

    #[tokio::test]
    async fn an_allowed_neighbour_is_reachable() {
        let allowed = ["51.38.64.254", "2a03:db8::1", "2a01:db8:0:1::/64"].map(|allow| Rules::parse(allow).unwrap());
        for address in NEAR {
            let found = checked(Rules::new(allowed.to_vec()), address).await;
            assert_eq!(found, Ok(vec![address.parse().unwrap()]));
        }
    }

    #[test]
    fn own_addresses_are_recognized() {
        assert!(is_own_address(([127, 0, 0, 1], 80).into()));
        assert!(is_own_address(([127, 8, 8, 8], 80).into()));
        assert!(!is_own_address(([93, 184, 215, 14], 80).into()));
    }

    #[tokio::test]
    async fn connections_to_this_machine_come_from_the_sandbox_address() {
        for (index, bind_address) in ["127.0.0.1:0", "[::1]:0"].into_iter().enumerate() {
            // Skips a machine without IPv6.
            let Ok(listener) = tokio::net::TcpListener::bind(bind_address).await else { continue };
            let upstream = upstream(Rules::default(), Limits::default());
            let (_stream, _) = upstream.dial(&[listener.local_addr().unwrap()]).await.unwrap();
            assert_eq!(listener.accept().await.unwrap().1.ip(), SANDBOX_SOURCE_ADDRESSES[index]);
        }
    }

    #[tokio::test]
    async fn a_dead_address_does_not_block_a_live_one() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let living = listener.local_addr().unwrap();
        // Bound, so that no other test listens on the port meanwhile.
        let bound = tokio::net::TcpSocket::new_v4().unwrap();
        bound.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let closed = bound.local_addr().unwrap();
        let upstream = upstream(Rules::default(), Limits::default());
        let (_stream, dialled) = upstream.dial(&[closed, living]).await.unwrap();
        assert_eq!(dialled, living);
    }
}
