//! The policy of one session: its route, and what it may reach within the rules of all sessions.

use std::{fmt, sync::Arc};

use tokio_util::sync::CancellationToken;
use url::Host;

use crate::{
    proxy::Route,
    rules::Allow,
    target::Target,
    upstream::{ConnectError, Upstream},
};

/// The decision about the destination of a request.
#[derive(Debug, Clone)]
pub enum Decision {
    /// The session may not reach it.
    Denied,
    /// It is reached directly.
    Direct,
    /// It is reached by this route.
    By(Route),
    /// It is reached by the session's route.
    Default,
}

/// Decides about the destinations of a session's requests, by their hosts as written in the requests.
pub trait Destinations: Send + Sync {
    /// Decides about a destination. Must not block.
    fn decide(&self, host: &Host<&str>, port: u16) -> Decision;
}

/// The policy of a session.
#[derive(Clone, Default)]
pub struct SessionPolicy {
    /// The route of requests for which `destinations` selects none.
    pub route: Route,
    /// The decisions about destinations; `None`: the rules of all sessions decide alone.
    pub destinations: Option<Arc<dyn Destinations>>,
    /// The exceptions for destinations that replace those of the rules of all sessions; `None`: these remain. The
    /// addresses of proxies are always checked under the rules of all sessions.
    pub exceptions: Option<Vec<Allow>>,
}

impl From<Route> for SessionPolicy {
    fn from(route: Route) -> Self {
        Self { route, ..Self::default() }
    }
}

impl fmt::Debug for SessionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPolicy").field("route", &self.route).finish_non_exhaustive()
    }
}

/// A request that was refused because of the session's policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The host, as names and addresses are written in URLs.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The method of a plain request; `CONNECT` for a tunnel.
    pub method: String,
}

/// The policy of a session as it is applied now.
#[derive(Clone)]
pub(crate) struct CurrentPolicy {
    route: Route,
    pub(crate) destinations: Option<Arc<dyn Destinations>>,
    pub(crate) upstream: Arc<Upstream>,
    /// Cancelled when the routes are replaced.
    pub(crate) replaced: CancellationToken,
}

impl CurrentPolicy {
    /// `upstream` has the rules of all sessions.
    pub(crate) fn new(policy: SessionPolicy, upstream: &Upstream) -> Self {
        let SessionPolicy { route, destinations, exceptions } = policy;
        let upstream = Arc::new(upstream.with_exceptions(exceptions));
        Self { route, destinations, upstream, replaced: CancellationToken::new() }
    }

    /// Returns the route of a request.
    ///
    /// # Errors
    /// [`ConnectError::Denied`].
    pub(crate) fn route_to(&self, target: &Target) -> Result<Route, ConnectError> {
        let Some(destinations) = &self.destinations else { return Ok(self.route.clone()) };
        match destinations.decide(&target.borrowed_host(), target.port) {
            Decision::Denied => Err(ConnectError::Denied),
            Decision::Direct => Ok(Route::Direct),
            Decision::By(route) => Ok(route),
            Decision::Default => Ok(self.route.clone()),
        }
    }
}
