//! One session's way out: its socket, its connections, its end.

use std::{
    fmt, io, mem,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
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
    proxy::Route,
    resolver::Resolver,
    rules::Rules,
    stats::{Counters, Stats},
    trust::Trust,
    upstream::Upstream,
};

/// How long accepting rests after a failure, which is mostly that files have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Is told which session's proxy could not be used for a request, and why. Must not wait.
pub type OnProxyDown = Arc<dyn Fn(&str, ProxyFault) + Send + Sync>;

/// The way out for all sessions of a node. Clones share everything.
#[derive(Clone)]
pub struct Egress {
    rules: Rules,
    resolver: Arc<dyn Resolver>,
    limits: Limits,
    trust: Trust,
    on_proxy_down: Option<OnProxyDown>,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("rules", &self.rules).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Egress {
    /// Sessions may reach what `rules` let through, by the addresses that `resolver` gives, each within `limits`.
    pub fn new(rules: Rules, resolver: Arc<dyn Resolver>, limits: Limits) -> Self {
        Self { rules, resolver, limits, trust: Trust::default(), on_proxy_down: None }
    }

    /// The same, under other rules.
    #[must_use]
    pub fn under(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// What may be reached.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The same, with only these certificates (in DER) trusted where this side speaks TLS, in place of what this machine trusts.
    #[must_use]
    pub fn with_trusted_certificates(self, certificates: Vec<Vec<u8>>) -> Self {
        Self { trust: Trust::only(certificates), ..self }
    }

    /// The same, with somebody who is told of each request for which a session's proxy could not be used.
    #[must_use]
    pub fn with_proxy_down_callback(self, on_proxy_down: OnProxyDown) -> Self {
        Self { on_proxy_down: Some(on_proxy_down), ..self }
    }

    /// How requests leave this machine under these rules.
    pub(crate) fn upstream(&self) -> Upstream {
        Upstream::new(self.rules.clone(), Arc::clone(&self.resolver), self.limits.clone(), self.trust.clone())
    }

    /// Serves the way out of `session` (a name for the log) on `listener` until the handle is closed or dropped.
    ///
    /// Must be called within a tokio runtime, which the connections then belong to.
    pub fn serve(&self, session: String, listener: UnixListener) -> EgressHandle {
        self.serve_with_route(session, listener, Route::Direct)
    }

    /// As [`serve`](Self::serve), by another way than straight.
    pub fn serve_with_route(&self, session: String, listener: UnixListener, route: Route) -> EgressHandle {
        let span = tracing::info_span!(parent: None, "egress", %session);
        let session = Arc::new(Session {
            upstream: self.upstream(),
            route: RwLock::new(CurrentRoute::new(route)),
            limits: self.limits.clone(),
            counters: Arc::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            name: session,
            on_proxy_down: self.on_proxy_down.clone(),
            span,
        });
        drop(session.tasks.spawn(accept(Arc::clone(&session), listener).instrument(session.span.clone())));
        EgressHandle { session }
    }
}

/// One session's open way out. Dropping it closes it without waiting.
#[must_use = "dropping the handle closes the session's way out"]
pub struct EgressHandle {
    session: Arc<Session>,
}

impl EgressHandle {
    /// Ends the listener, every connection and every tunnel at once; returns when nothing of them is left.
    pub async fn close(self) {
        self.session.closing.cancel();
        self.session.tasks.close();
        self.session.tasks.wait().await;
    }

    /// Sends the session's requests that way from now on.
    ///
    /// Tunnels that stand are cut, and those under way are begun anew: what goes through a tunnel cannot be seen from here, and so
    /// neither where a request in it begins. Plain requests that were begun go on to their ends.
    pub fn set_route(&self, route: Route) {
        let next = CurrentRoute::new(route);
        let last = mem::replace(&mut *self.session.route.write().unwrap_or_else(PoisonError::into_inner), next);
        last.replaced.cancel();
    }

    /// What went through so far.
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

/// A session's route, until there is another one.
#[derive(Clone)]
pub(crate) struct CurrentRoute {
    pub(crate) route: Route,
    /// Cancelled when there is another one.
    pub(crate) replaced: CancellationToken,
}

impl CurrentRoute {
    fn new(route: Route) -> Self {
        Self { route, replaced: CancellationToken::new() }
    }
}

/// What the connections of one session share.
pub(crate) struct Session {
    pub(crate) upstream: Upstream,
    route: RwLock<CurrentRoute>,
    pub(crate) limits: Limits,
    pub(crate) counters: Arc<Counters>,
    tasks: TaskTracker,
    closing: CancellationToken,
    name: String,
    on_proxy_down: Option<OnProxyDown>,
    span: tracing::Span,
}

impl Session {
    /// Which way requests go now.
    pub(crate) fn route(&self) -> CurrentRoute {
        self.route.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its proxy could not be used for a request.
    pub(crate) fn proxy_is_down(&self, fault: ProxyFault) {
        if let Some(tell) = &self.on_proxy_down {
            tell(&self.name, fault);
        }
    }

    /// Runs `work` until it ends, the handle is dropped or the session's way out is closed.
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
                session.closing.run_until_cancelled(sleep(ACCEPT_PAUSE)).await;
            }
        }
    }
}

/// The next connection once there is room for it; until then it waits in the kernel's queue.
async fn next(slots: &Arc<Semaphore>, listener: &UnixListener) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}
