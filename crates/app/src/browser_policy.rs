//! The policies of browsers' traffic: converts network configurations for the egress, and logs the requests that they
//! refuse.

use std::collections::HashMap;
use std::sync::Arc;

use casement_domain::BrowserId;
use casement_domain::network::{Allowlist, DeniedRequest, DeniedRequestLog, DeniedRequests, Network, Verdict};
use casement_domain::proxy::{self, TrafficPolicy};
use casement_egress::{Allow, Decision, Denial, Destinations, Route, Rules, SessionPolicy};
use parking_lot::Mutex;
use url::Host;

use crate::proxies::to_egress_proxy;

/// The policy of one browser's traffic.
#[derive(Clone, Default)]
pub(crate) struct BrowserPolicy {
    route: Route,
    network: Option<NetworkPolicy>,
}

/// A network configuration with the routes of its proxies, in their order.
#[derive(Clone)]
struct NetworkPolicy {
    network: Network,
    routes: Vec<Route>,
}

impl BrowserPolicy {
    pub(crate) fn new(policy: &TrafficPolicy) -> Self {
        let routes = policy.proxy_routes.iter().map(to_egress_route).collect();
        let network = policy.network.clone().map(|network| NetworkPolicy { network, routes });
        Self { route: to_egress_route(&policy.route), network }
    }

    /// Replaces the allowlist. A policy without a network configuration, as of a browser without connections, remains.
    pub(crate) fn set_allowlist(&mut self, allowlist: Option<Allowlist>) {
        if let Some(policy) = &mut self.network {
            policy.network.allowlist = allowlist;
        }
    }

    /// Returns the decisions about destinations.
    pub(crate) fn destinations(&self) -> Option<Arc<dyn Destinations>> {
        self.network.clone().map(|network| Arc::new(network) as Arc<dyn Destinations>)
    }

    /// Returns the policy for the egress.
    pub(crate) fn to_session_policy(&self) -> SessionPolicy {
        let private = self.network.as_ref().and_then(|policy| policy.network.private_hosts.as_ref());
        let exceptions = private.map(|private| {
            // A private host whose text the egress cannot read opens nothing.
            let hosts = private.hosts.iter().filter_map(|host| Rules::parse(&host.to_string()).ok());
            hosts.map(Allow::for_literal_addresses).collect()
        });
        SessionPolicy { route: self.route.clone(), destinations: self.destinations(), exceptions }
    }
}

impl Destinations for NetworkPolicy {
    fn decide(&self, host: &Host<&str>, port: u16) -> Decision {
        match self.network.decide(host, port) {
            Verdict::Denied => Decision::Denied,
            Verdict::Private => Decision::Direct,
            Verdict::Routed(index) => Decision::By(self.routes.get(index).cloned().unwrap_or(Route::Nowhere)),
            Verdict::Default => Decision::Default,
        }
    }
}

fn to_egress_route(route: &proxy::Route) -> Route {
    match route {
        proxy::Route::Direct => Route::Direct,
        proxy::Route::Through(proxy) => to_egress_proxy(proxy).map_or(Route::Nowhere, Route::Through),
        proxy::Route::Nowhere => Route::Nowhere,
    }
}

/// Converts a refused request to the domain's type.
pub(crate) fn denied_request(denial: Denial) -> DeniedRequest {
    DeniedRequest::new(denial.host, denial.port, denial.method)
}

/// The requests of running browsers that their network configurations refused. Clones share the log.
#[derive(Clone, Default)]
pub(crate) struct DeniedLog(Arc<Mutex<HashMap<String, DeniedRequests>>>);

impl DeniedLog {
    pub(crate) fn note(&self, browser: &str, denied: &DeniedRequest) {
        self.0.lock().entry(browser.to_owned()).or_default().note(denied);
    }

    pub(crate) fn forget(&self, browser: BrowserId) {
        self.0.lock().remove(&browser.to_string());
    }
}

impl DeniedRequestLog for DeniedLog {
    fn of(&self, browser: BrowserId) -> DeniedRequests {
        self.0.lock().get(&browser.to_string()).cloned().unwrap_or_default()
    }
}
