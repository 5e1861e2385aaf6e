//! The egress of one session: its socket, its connections and its end.

use std::{fmt, io, sync::Arc, time::Duration};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::sleep,
};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};
use tracing::Instrument as _;

use crate::{
    connection,
    fault::ProxyFault,
    limits::Limits,
    policy::{CurrentPolicy, Denial, Destinations, SessionPolicy},
    proxy::Route,
    resolver::Resolver,
    rules::Rules,
    stats::{Counters, Stats},
    trust::Trust,
    upstream::Upstream,
};

/// The pause after a failed accept, which usually means that there are no free file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// The callback for a proxy that could not be used for a request. Gets the session and the reason. Must not block.
pub type OnProxyDown = Arc<dyn Fn(&str, ProxyFault) + Send + Sync>;

/// The callback for a request that a session's policy refused. Gets the session and the request. Must not block.
pub type OnDenied = Arc<dyn Fn(&str, Denial) + Send + Sync>;

/// The egress of all sessions of a node. Clones share everything.
#[derive(Clone)]
pub struct Egress {
    rules: Rules,
    resolver: Arc<dyn Resolver>,
    limits: Limits,
    trust: Trust,
    on_proxy_down: Option<OnProxyDown>,
    on_denied: Option<OnDenied>,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("rules", &self.rules).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Egress {
    /// Creates an egress whose sessions may reach the destinations that `rules` allow, at the addresses that `resolver`
    /// returns. `limits` apply to each session.
    pub fn new(rules: Rules, resolver: Arc<dyn Resolver>, limits: Limits) -> Self {
        Self { rules, resolver, limits, trust: Trust::default(), on_proxy_down: None, on_denied: None }
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Returns the rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Trusts only these certificates (in DER), instead of those of this machine, for the TLS connections of this side.
    #[must_use]
    pub fn with_trusted_certificates(self, certificates: Vec<Vec<u8>>) -> Self {
        Self { trust: Trust::only(certificates), ..self }
    }

    /// Calls `on_proxy_down` for each request for which a session's proxy could not be used.
    #[must_use]
    pub fn with_proxy_down_callback(self, on_proxy_down: OnProxyDown) -> Self {
        Self { on_proxy_down: Some(on_proxy_down), ..self }
    }

    /// Calls `on_denied` for each request that a session's policy refuses.
    #[must_use]
    pub fn with_denied_callback(self, on_denied: OnDenied) -> Self {
        Self { on_denied: Some(on_denied), ..self }
    }

    /// Returns an upstream with the rules and limits of this egress.
    pub(crate) fn upstream(&self) -> Upstream {
        Upstream::new(self.rules.clone(), Arc::clone(&self.resolver), self.limits.clone(), self.trust.clone())
    }

    /// Serves the egress of `session` (a name for the log) on `listener` until the handle is closed or dropped.
    ///
    /// Must be called within a tokio runtime, which runs the connections.
    pub fn serve(&self, session: String, listener: UnixListener) -> EgressHandle {
        self.serve_with_policy(session, listener, SessionPolicy::default())
    }

    /// Like [`serve`](Self::serve), with an initial policy.
    pub fn serve_with_policy(&self, session: String, listener: UnixListener, policy: SessionPolicy) -> EgressHandle {
        let span = tracing::info_span!(parent: None, "egress", %session);
        let upstream = self.upstream();
        let session = Arc::new(Session {
            policy: watch::Sender::new(CurrentPolicy::new(policy, &upstream)),
            upstream,
            limits: self.limits.clone(),
            counters: Arc::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            name: session,
            on_proxy_down: self.on_proxy_down.clone(),
            on_denied: self.on_denied.clone(),
            span,
        });
        drop(session.tasks.spawn(accept(Arc::clone(&session), listener).instrument(session.span.clone())));
        EgressHandle { session }
    }
}

/// The open egress of one session. Dropping it closes it without waiting.
#[must_use = "dropping the handle closes the session's egress"]
pub struct EgressHandle {
    session: Arc<Session>,
}

impl EgressHandle {
    /// Ends the listener, every connection and every tunnel, and returns when they have ended.
    pub async fn close(self) {
        self.session.closing.cancel();
        self.session.tasks.close();
        self.session.tasks.wait().await;
    }

    /// Sends the session's requests by `route` from now on, and without decisions about destinations.
    pub fn set_route(&self, route: Route) {
        self.set_policy(route.into());
    }

    /// Applies `policy` to the session's requests from now on.
    ///
    /// Closes open tunnels and restarts those that are being opened, because the boundaries of requests in a tunnel are
    /// not visible here. Plain requests that have begun continue to their end, except those that the policy denies.
    pub fn set_policy(&self, policy: SessionPolicy) {
        let next = CurrentPolicy::new(policy, &self.session.upstream);
        self.session.policy.send_replace(next).replaced.cancel();
    }

    /// Replaces the decisions about destinations by some that select the same routes. Closes the connections to
    /// destinations that are denied now, and no others.
    pub fn set_destinations(&self, destinations: Option<Arc<dyn Destinations>>) {
        self.session.policy.send_modify(|policy| policy.destinations = destinations);
    }

    /// Returns the current counters.
    pub fn stats(&self) -> Stats {
        self.session.counters.snapshot()
    }
}

impl Drop for EgressHandle {
    fn drop(&mut self) {
        self.session.closing.cancel();
    }
}

impl fmt::Debug for EgressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressHandle").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// The shared state of the connections of one session.
pub(crate) struct Session {
    /// The upstream with the rules of all sessions.
    upstream: Upstream,
    policy: watch::Sender<CurrentPolicy>,
    pub(crate) limits: Limits,
    pub(crate) counters: Arc<Counters>,
    tasks: TaskTracker,
    closing: CancellationToken,
    name: String,
    on_proxy_down: Option<OnProxyDown>,
    on_denied: Option<OnDenied>,
    span: tracing::Span,
}

impl Session {
    /// Returns the current policy.
    pub(crate) fn policy(&self) -> CurrentPolicy {
        self.policy.borrow().clone()
    }

    /// Returns a receiver of the changes of the policy from now on.
    pub(crate) fn policy_changes(&self) -> watch::Receiver<CurrentPolicy> {
        self.policy.subscribe()
    }

    /// Reports a request that the session's policy refused.
    pub(crate) fn report_denied(&self, denial: Denial) {
        if let Some(notify) = &self.on_denied {
            notify(&self.name, denial);
        }
    }

    /// Reports that the session's proxy could not be used for a request.
    pub(crate) fn report_proxy_down(&self, fault: ProxyFault) {
        if let Some(notify) = &self.on_proxy_down {
            notify(&self.name, fault);
        }
    }

    /// Runs `work` until it ends, the handle is dropped or the session's egress is closed.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
        let closing = self.closing.clone();
        let work = async move {
            closing.run_until_cancelled(work).await;
        };
        AbortOnDropHandle::new(self.tasks.spawn(work.instrument(self.span.clone())))
    }
}

async fn accept(session: Arc<Session>, listener: UnixListener) {
    let slots = Arc::new(Semaphore::new(session.limits.connections));
    loop {
        let accepted = session.closing.run_until_cancelled(next(&slots, &listener)).await;
        match accepted {
            None => return,
            Some(Ok((stream, slot))) => {
                let serving = connection::serve(Arc::clone(&session), stream);
                let connection = session.spawn(async move {
                    serving.await;
                    drop(slot);
                });
                drop(connection.detach());
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                session.closing.run_until_cancelled(sleep(ACCEPT_BACKOFF)).await;
            }
        }
    }
}

/// Accepts the next connection once a slot is free. Until then, connections wait in the kernel's backlog.
async fn next(slots: &Arc<Semaphore>, listener: &UnixListener) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}
