//! From a destination to a connection: look up, check, dial what was checked.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use thiserror::Error;
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::Semaphore,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use url::Host;

use crate::{
    fault::ProxyFault,
    limits::Limits,
    neighbours::{Neighbours, neighbours},
    proxy::{Io, Proxy, Refused, Route},
    resolver::{LookupPermit, Resolver},
    rules::{Rules, Verdict},
    target::Target,
    trust::Trust,
};

/// Where connections come from that a sandbox makes to this machine itself: to a service here that the operator allowed, or to Casement.
/// Everything else on this machine speaks from other addresses (of IPv6 the loopback has but one, so nothing that is to be told from a
/// sandbox may speak from that). Whoever believes a proxy on this machine must not believe these.
pub const SANDBOX_SOURCE_ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(127, 67, 83, 77)), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// A failure that a lookup ends in comes at a multiple of this time after its beginning: how long the lookup took would tell names that
/// this machine's network knows from those that nobody knows.
const FAILURE_STEP: Duration = Duration::from_millis(250);

/// How a session's requests leave this machine.
///
/// A session's own proxy changes what is connected to, never what may be: the proxy itself is looked up, checked and dialled as any
/// destination, and so is what bypasses it. Of what goes through it the name is the proxy's to look up; an address or a name that
/// could never be reached straight is not reached through it either.
pub(crate) struct Upstream {
    rules: Rules,
    resolver: Arc<dyn Resolver>,
    limits: Limits,
    lookups: Arc<Semaphore>,
    neighbours: fn() -> Arc<Neighbours>,
    pub(crate) trust: Trust,
}

/// Why there is nothing to dial. It says nothing that the session must not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum ConnectError {
    /// For what was asked alone: a spelled-out address, a name that is never let through, a port.
    #[error("refused by the rules")]
    Refused,
    /// For an address that this machine knows and the session does not. The session is told of it as of [`Unreachable`](Self::Unreachable).
    #[error("refused by the rules for what this machine knows")]
    RefusedAddress,
    #[error("no such host, or it does not answer")]
    Unreachable,
    #[error("the session's proxy cannot be used: {0}")]
    ProxyDown(ProxyFault),
}

/// Which way a request goes, with what may be dialled for it.
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
        Self { rules, resolver, lookups: Arc::new(Semaphore::new(limits.lookups)), limits, neighbours, trust }
    }

    /// The addresses of `target` that may be dialled, in the resolver's order; at least one. Asks the resolver once, and
    /// not at all for an address or for a name that could not be allowed anyway.
    pub(crate) async fn candidates(&self, target: &Target) -> Result<Vec<SocketAddr>, ConnectError> {
        let began = Instant::now();
        let checked = self.resolve_and_check(target).await;
        if matches!(checked, Err(ConnectError::Refused | ConnectError::RefusedAddress)) {
            tracing::debug!(host = %target.host, port = target.port, "refused by the rules");
        }
        if matches!(checked, Err(ConnectError::RefusedAddress | ConnectError::Unreachable)) {
            let steps = began.elapsed().as_millis() / FAILURE_STEP.as_millis() + 1;
            sleep_until(began + FAILURE_STEP * u32::try_from(steps).unwrap_or(u32::MAX)).await;
        }
        checked
    }

    async fn resolve_and_check(&self, target: &Target) -> Result<Vec<SocketAddr>, ConnectError> {
        let found = match &target.host {
            Host::Ipv4(ip) => vec![IpAddr::V4(*ip)],
            Host::Ipv6(ip) => vec![IpAddr::V6(*ip)],
            Host::Domain(name) if !self.rules.could_reach(name, target.port) => return Err(ConnectError::Refused),
            Host::Domain(name) => self.look_up(name).await?,
        };
        if found.is_empty() {
            return Err(ConnectError::Unreachable);
        }
        let host = target.host.to_string();
        let mut checked = Vec::new();
        for ip in found.into_iter().take(self.limits.addresses) {
            let address = SocketAddr::new(ip.to_canonical(), target.port);
            if self.may_dial(&host, address) && !checked.contains(&address) {
                checked.push(address);
            }
        }
        match checked.as_slice() {
            [] if self.refuses_by_rule(target) => Err(ConnectError::Refused),
            [] => Err(ConnectError::RefusedAddress),
            _ => Ok(checked),
        }
    }

    /// Connects to the first of `candidates` that answers.
    pub(crate) async fn dial(&self, candidates: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), ConnectError> {
        let deadline = Instant::now() + self.limits.connect_timeout;
        for (tried, address) in candidates.iter().enumerate() {
            let last = tried + 1 == candidates.len();
            let patience = if last { self.limits.connect_timeout } else { self.limits.attempt_timeout };
            match timeout_at(deadline.min(Instant::now() + patience), connect(*address)).await {
                Ok(Ok(stream)) => return Ok((stream, *address)),
                Ok(Err(error)) => tracing::debug!(%error, "an address does not answer"),
                Err(_) => tracing::debug!("an address does not answer in time"),
            }
        }
        Err(ConnectError::Unreachable)
    }

    /// Which way a request for `target` goes.
    pub(crate) async fn way(&self, route: &Route, target: &Target) -> Result<UpstreamPath, ConnectError> {
        match route {
            Route::Nowhere => Err(ConnectError::ProxyDown(ProxyFault::Unknown)),
            Route::Through(proxy) if !proxy.bypasses(&target.host) => {
                self.check_proxy_may_connect(target)?;
                let unreachable = |_| ConnectError::ProxyDown(ProxyFault::Unreachable);
                let candidates = self.candidates(&proxy.target).await.map_err(unreachable)?;
                Ok(UpstreamPath::Proxy(Arc::clone(proxy), candidates))
            }
            Route::Direct | Route::Through(_) => Ok(UpstreamPath::Straight(self.candidates(target).await?)),
        }
    }

    /// Whether a proxy may be asked to go there.
    pub(crate) fn check_proxy_may_connect(&self, target: &Target) -> Result<(), ConnectError> {
        let may = match address_of(target) {
            Some(address) => self.may_dial(&target.host.to_string(), address),
            None => self.rules.proxy_may_connect(&target.host.to_string(), target.port),
        };
        if may {
            return Ok(());
        }
        tracing::debug!(host = %target.host, port = target.port, "refused by the rules");
        let told = address_of(target).is_none() || self.refuses_by_rule(target);
        Err(if told { ConnectError::Refused } else { ConnectError::RefusedAddress })
    }

    /// Whether the rules refuse a spelled-out address for what it is, wherever this machine stands.
    fn refuses_by_rule(&self, target: &Target) -> bool {
        address_of(target)
            .is_some_and(|address| self.rules.check(&target.host.to_string(), address) == Verdict::Refused)
    }

    /// A connection to `target`, by a tunnel where it goes through a proxy; and what was dialled.
    pub(crate) async fn open(
        &self,
        way: &UpstreamPath,
        target: &Target,
    ) -> Result<(Box<dyn Io>, SocketAddr), ConnectError> {
        let (stream, address) = self.reach(way).await?;
        match way {
            UpstreamPath::Straight(_) => Ok((stream, address)),
            UpstreamPath::Proxy(proxy, _) => {
                Ok((self.with_proxy_timeout(proxy.tunnel(stream, target)).await?, address))
            }
        }
    }

    /// A connection to what is dialled: the destination, or the proxy on the way to it.
    pub(crate) async fn reach(&self, way: &UpstreamPath) -> Result<(Box<dyn Io>, SocketAddr), ConnectError> {
        match way {
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

    /// A step of a proxy, which may keep silent for so long.
    pub(crate) async fn with_proxy_timeout<T>(
        &self,
        step: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        timeout(self.limits.proxy_timeout, step).await.unwrap_or(Err(Refused::Proxy(ProxyFault::Timeout)))
    }

    /// A connection to a proxy.
    pub(crate) async fn connect_to_proxy(&self, proxy: &Arc<Proxy>) -> Result<Box<dyn Io>, ConnectError> {
        let unreachable = |_| ConnectError::ProxyDown(ProxyFault::Unreachable);
        let candidates = self.candidates(&proxy.target).await.map_err(unreachable)?;
        Ok(self.reach(&UpstreamPath::Proxy(Arc::clone(proxy), candidates)).await?.0)
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, ConnectError> {
        let lookup = async {
            let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
            self.resolver.resolve(name, LookupPermit::new(permit)).await
        };
        match timeout(self.limits.lookup_timeout, lookup).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a name does not resolve");
                Err(ConnectError::Unreachable)
            }
            Err(_) => Err(ConnectError::Unreachable),
        }
    }

    fn may_dial(&self, host: &str, address: SocketAddr) -> bool {
        match self.rules.check(host, address) {
            Verdict::Allowed => true,
            Verdict::Public => !is_own_address(address) && !(self.neighbours)().have(address.ip()),
            Verdict::Refused => false,
        }
    }
}

/// The address that is spelled out, if one is.
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
        own if is_own_address(own) => from_inside(own).await?,
        _ => TcpStream::connect(address).await?,
    };
    // A closed port that happens to be the one the kernel chose for us answers with ourselves.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection to this machine itself, from the address by which what listens there can tell it.
async fn from_inside(address: SocketAddr) -> io::Result<TcpStream> {
    let (socket, source) = match address {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, SANDBOX_SOURCE_ADDRESSES[0]),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, SANDBOX_SOURCE_ADDRESSES[1]),
    };
    let bound = socket.bind((source, 0).into());
    bound.inspect_err(
        |error| tracing::warn!(%source, %error, "sandboxes cannot reach this machine: their address is missing"),
    )?;
    socket.connect(address).await
}

/// True if the address is one of this machine's. A machine with a public address reaches its own services on it past any
/// firewall in front, so that the address is as private to it as loopback. Nothing is sent: the kernel only says whether
/// it would listen there.
fn is_own_address(address: SocketAddr) -> bool {
    let nobody: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        SocketAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    // Some machines may listen on addresses that they do not have; there the question has no answer, and the address
    // that the kernel would speak from must do, which it names for all but secondary addresses.
    speaks_from(address) || (can_bind(address.ip()) && !can_bind(nobody))
}

fn can_bind(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

fn speaks_from(address: SocketAddr) -> bool {
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
    async fn a_gateway_or_a_neighbour_with_a_public_address_is_refused_and_the_session_is_not_told_for_what() {
        for address in NEAR {
            assert_eq!(checked(Rules::default(), address).await, Err(ConnectError::RefusedAddress), "{address}");
        }
        assert_eq!(checked(Rules::default(), "10.0.0.1:80").await, Err(ConnectError::Refused));
    }

    #[tokio::test]
    async fn neither_a_neighbours_network_of_ipv4_nor_the_internet_is_refused_for_it() {
        for address in ["51.38.64.1:80", "93.184.215.14:443", "[2606:4700::1]:443"] {
            assert_eq!(checked(Rules::default(), address).await, Ok(vec![address.parse().unwrap()]));
        }
    }

    #[tokio::test]
    async fn a_neighbour_that_the_operator_allowed_is_reached() {
        let allowed = ["51.38.64.254", "2a03:db8::1", "2a01:db8:0:1::/64"].map(|allow| Rules::parse(allow).unwrap());
        for address in NEAR {
            let found = checked(Rules::new(allowed.to_vec()), address).await;
            assert_eq!(found, Ok(vec![address.parse().unwrap()]));
        }
    }

    #[test]
    fn a_machine_knows_its_own_addresses() {
        assert!(is_own_address(([127, 0, 0, 1], 80).into()));
        assert!(is_own_address(([127, 8, 8, 8], 80).into()));
        assert!(!is_own_address(([93, 184, 215, 14], 80).into()));
    }

    #[tokio::test]
    async fn a_service_of_this_machine_can_tell_a_sandbox_from_its_neighbours() {
        for (index, place) in ["127.0.0.1:0", "[::1]:0"].into_iter().enumerate() {
            // A machine without IPv6 has nothing to tell apart there.
            let Ok(listener) = tokio::net::TcpListener::bind(place).await else { continue };
            let upstream = upstream(Rules::default(), Limits::default());
            let (_stream, _) = upstream.dial(&[listener.local_addr().unwrap()]).await.unwrap();
            assert_eq!(listener.accept().await.unwrap().1.ip(), SANDBOX_SOURCE_ADDRESSES[index]);
        }
    }

    #[tokio::test]
    async fn a_dead_address_does_not_keep_a_living_one_from_being_used() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let living = listener.local_addr().unwrap();
        // Taken, so that no other test listens there meanwhile.
        let taken = tokio::net::TcpSocket::new_v4().unwrap();
        taken.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let closed = taken.local_addr().unwrap();
        let limits = Limits { attempt_timeout: Duration::from_millis(500), ..Limits::default() };
        let upstream = upstream(Rules::default(), limits);
        let (_stream, dialled) = upstream.dial(&[closed, living]).await.unwrap();
        assert_eq!(dialled, living);
    }
}
