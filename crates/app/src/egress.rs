//! Connects the sandboxes' egress ports to the egress proxy.

use std::collections::HashMap;

use crate::browser_policy::{BrowserPolicy, DeniedLog};
use casement_chromium::EgressPort;
use casement_domain::BrowserId;
use casement_domain::network::Allowlist;
use casement_domain::proxy::{ProxyRoutes, TrafficPolicy};
use casement_egress::{Egress, EgressHandle, Rules, Stats};
use casement_runner::{AppEgressPort, EgressPolicy};
use parking_lot::{Mutex, MutexGuard};
use tokio::net::UnixListener;
use tokio::runtime::Handle;

/// Serves the egress of all sandboxes of this node.
pub(crate) struct SandboxEgress {
    egress: Egress,
    runtime: Handle,
    open: Mutex<HashMap<String, EgressHandle>>,
    /// The policies of browsers, removed when a browser ends for good, because a restarted browser has the same policy.
    policies: Mutex<HashMap<String, BrowserPolicy>>,
    denied: DeniedLog,
    closed: Mutex<Sums>,
}

/// The traffic sums of closed sandboxes.
#[derive(Clone, Copy, Default)]
struct Sums {
    requests: u64,
    refused: u64,
    bytes_from_sessions: u64,
    bytes_to_sessions: u64,
}

impl Sums {
    fn add(&mut self, stats: Stats) {
        self.requests += stats.requests;
        self.refused += stats.refused;
        self.bytes_from_sessions += stats.bytes_from_session;
        self.bytes_to_sessions += stats.bytes_to_session;
    }
}

impl SandboxEgress {
    /// Must be called in the main runtime, which serves the connections. `denied` is the log of `egress`.
    pub(crate) fn new(egress: Egress, denied: DeniedLog) -> Self {
        Self {
            egress,
            runtime: Handle::current(),
            open: Mutex::default(),
            policies: Mutex::default(),
            denied,
            closed: Mutex::default(),
        }
    }

    /// Returns the egress with its rules and limits, for requests of the server itself.
    pub(crate) fn egress(&self) -> Egress {
        self.egress.clone()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, EgressHandle>> {
        self.open.lock()
    }

    fn policies(&self) -> MutexGuard<'_, HashMap<String, BrowserPolicy>> {
        self.policies.lock()
    }

    /// Returns the log of refused requests.
    pub(crate) fn denied(&self) -> DeniedLog {
        self.denied.clone()
    }

    fn closed(&self) -> MutexGuard<'_, Sums> {
        self.closed.lock()
    }

    /// Updates the metrics.
    pub(crate) fn measure(&self) {
        let mut sums = *self.closed();
        let mut connections = 0;
        for stats in self.open().values().map(EgressHandle::stats) {
            connections += stats.connections;
            sums.add(stats);
        }
        metrics::counter!("casement_egress_requests_total").absolute(sums.requests);
        metrics::counter!("casement_egress_refused_total").absolute(sums.refused);
        metrics::counter!("casement_egress_bytes_total", "direction" => "from_sessions")
            .absolute(sums.bytes_from_sessions);
        metrics::counter!("casement_egress_bytes_total", "direction" => "to_sessions").absolute(sums.bytes_to_sessions);
        metrics::gauge!("casement_egress_connections").set(u32::try_from(connections).unwrap_or(u32::MAX));
    }
}

impl EgressPort for SandboxEgress {
    fn serve(&self, session: &str, listener: UnixListener) {
        let _entered = self.runtime.enter();
        // Locked until the egress is open, so that the policy cannot change in between.
        let policies = self.policies();
        let policy = policies.get(session).map(BrowserPolicy::to_session_policy).unwrap_or_default();
        let handle = self.egress.serve_with_policy(session.to_owned(), listener, policy);
        // A previous handle of this id is dropped, which closes it.
        self.open().insert(session.to_owned(), handle);
    }

    fn close(&self, session: &str) {
        let closed = self.open().remove(session);
        if let Some(handle) = closed {
            self.closed().add(handle.stats());
            self.runtime.spawn(handle.close());
        }
    }
}

impl AppEgressPort for SandboxEgress {
    fn serve(&self, sandbox: &str, listener: UnixListener, reach: EgressPolicy) {
        let _entered = self.runtime.enter();
        let allow = |places: Vec<String>| places.into_iter().filter_map(|place| Rules::parse(&place).ok());
        let rules = match reach {
            EgressPolicy::Only(places) => Rules::only(allow(places).collect()),
            EgressPolicy::Web(places) => self.egress.rules().clone().with_exceptions(allow(places)),
        };
        let handle = self.egress.clone().with_rules(rules).serve(sandbox.to_owned(), listener);
        self.open().insert(sandbox.to_owned(), handle);
    }

    fn close(&self, sandbox: &str) {
        EgressPort::close(self, sandbox);
    }
}

impl ProxyRoutes for SandboxEgress {
    fn set(&self, browser: BrowserId, policy: TrafficPolicy) {
        let id = browser.to_string();
        let policy = BrowserPolicy::new(&policy);
        let mut policies = self.policies();
        if let Some(handle) = self.open().get(&id) {
            handle.set_policy(policy.to_session_policy());
        }
        policies.insert(id, policy);
    }

    fn set_allowlist(&self, browser: BrowserId, allowlist: Option<Allowlist>) {
        let id = browser.to_string();
        let mut policies = self.policies();
        // Without a policy the browser has ended meanwhile.
        let Some(policy) = policies.get_mut(&id) else { return };
        policy.set_allowlist(allowlist);
        if let Some(handle) = self.open().get(&id) {
            handle.set_destinations(policy.destinations());
        }
    }

    fn forget(&self, browser: BrowserId) {
        self.policies().remove(&browser.to_string());
        self.denied.forget(browser);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use casement_domain::network::{Destination, Network};
    use casement_domain::proxy::Route;
    use casement_egress::{Limits, SystemResolver};

    use super::*;

    #[tokio::test]
    async fn a_browser_that_has_ended_gets_no_policy_by_a_change_of_its_allowlist() {
        let egress = Egress::new(Rules::default(), Arc::new(SystemResolver::default()), Limits::default());
        let sandboxes = SandboxEgress::new(egress, DeniedLog::default());
        let browser = BrowserId::from_ulid(1.into());
        let list = Allowlist::new(vec![Destination::parse_allowed("a.example").expect("a host")]);
        sandboxes.set_allowlist(browser, Some(list.clone()));
        assert!(sandboxes.policies().is_empty());

        let network = Network { allowlist: Some(list), ..Network::default() };
        let known = TrafficPolicy { network: Some(network), ..Route::Direct.into() };
        sandboxes.set(browser, known);
        sandboxes.set_allowlist(browser, None);
        assert!(sandboxes.policies().values().all(|policy| policy.destinations().is_some()));
        sandboxes.forget(browser);
        sandboxes.set_allowlist(browser, None);
        assert!(sandboxes.policies().is_empty());
    }
}
