//! Collects the events of this node's sessions, by the categories that each session captures.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::session::Session;
use casement_domain::session_operation::OperationError;
use casement_domain::telemetry::{Capture, Category, Event, EventCategory, Recorder, TelemetryStore, TelemetryTap};
use casement_domain::{BrowserId, SessionId};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::writer::{Queue, WriterMessage};
use super::{OpenConnections, agent};

/// The timeout for the last events of a session's agent and connections. Events that are not stored by then are lost,
/// and counted.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(10);
/// The part of that timeout for the agent to report the number of its events.
const FINISH_TIMEOUT: Duration = Duration::from_secs(6);
/// The timeout of waiting until the number of lost events is stored. Storing continues after it.
const STORE_LOST_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which the open connections of an ended session are counted.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Collects the events of this node's sessions. Clones share their state.
#[derive(Clone)]
pub struct EventCollector(Arc<Inner>);

struct Inner {
    store: Arc<dyn TelemetryStore>,
    tap: Arc<dyn TelemetryTap>,
    connections: OpenConnections,
    queue: Queue,
    sessions: Mutex<HashMap<SessionId, Arc<SessionCapture>>>,
    /// The main runtime, because the runtime of a web worker may end.
    runtime: Handle,
    stop: CancellationToken,
}

/// The capture state of a session whose telemetry is on, or was.
pub(super) struct SessionCapture {
    pub(super) session: SessionId,
    pub(super) browser: BrowserId,
    capture: Mutex<Option<Capture>>,
    /// Locked during a configuration, because configurations must reach the agent in order.
    configuring: tokio::sync::Mutex<()>,
    /// The number of events dropped since the last one that fitted into the queue.
    lost: AtomicU64,
    /// The progress of following the agent.
    pub(super) progress: watch::Sender<Progress>,
    /// True once the session has ended and its last events are being stored.
    ended: AtomicBool,
    ending: AtomicBool,
    /// Cancelled when everything is stored, or counted as lost.
    done: CancellationToken,
    /// Cancelled when the agent has sent everything.
    pub(super) all_received: CancellationToken,
    /// Cancelled to end the wait for the last events.
    pub(super) abandoned: CancellationToken,
}

/// The progress of following an agent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// The agent's number up to which events are stored.
    pub(super) through: u64,
    /// True while the agent sends events, or some are not stored yet.
    pub(super) is_open: bool,
}

impl SessionCapture {
    fn capture(&self) -> MutexGuard<'_, Option<Capture>> {
        self.capture.lock()
    }

    /// Returns true if the category is captured.
    pub(super) fn wants(&self, category: EventCategory) -> bool {
        match (category, self.capture().as_ref()) {
            (EventCategory::Captured(category), Some(capture)) => capture.includes(category),
            (EventCategory::Monitor, capture) => capture.is_some(),
            (_, None) => false,
        }
    }

    /// Configures the agent's capture.
    pub(super) async fn configure(&self, tap: &dyn TelemetryTap) -> Result<(), OperationError> {
        let _alone = self.configuring.lock().await;
        if self.ending.load(Ordering::Relaxed) {
            // The agent has reported its last number, and sends nothing more.
            return Ok(());
        }
        let capture = self.capture().clone();
        tap.configure(self.browser, capture).await
    }

    /// Confirms stored events to the agent.
    pub(super) async fn confirm(&self, tap: &dyn TelemetryTap, through: u64) -> Result<(), OperationError> {
        tap.confirm(self.browser, through).await
    }

    /// Finishes the agent's capture, and returns its last number; `None` if it does not answer.
    async fn finish(&self, tap: &dyn TelemetryTap) -> Option<u64> {
        let finished = async {
            let _alone = self.configuring.lock().await;
            self.ending.store(true, Ordering::Relaxed);
            tap.finish(self.browser).await
        };
        tokio::time::timeout(FINISH_TIMEOUT, finished).await.ok()?.ok()
    }

    /// Waits until all events up to the agent's last number are stored or, if that is unknown, all that the agent sent.
    async fn stored(&self, last: Option<u64>) {
        let mut progress = self.progress.subscribe();
        let enough = progress.wait_for(|progress| match last {
            Some(last) => progress.through >= last,
            None => !progress.is_open,
        });
        tokio::select! {
            // Never fails: the sender is in `self`.
            _ = enough => {}
            () = self.all_received.cancelled() => {}
        }
    }
}

impl EventCollector {
    pub(super) fn new(
        store: Arc<dyn TelemetryStore>,
        tap: Arc<dyn TelemetryTap>,
        connections: OpenConnections,
        queue: Queue,
        stop: CancellationToken,
    ) -> Self {
        let runtime = Handle::current();
        Self(Arc::new(Inner { store, tap, connections, queue, sessions: Mutex::default(), runtime, stop }))
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<SessionCapture>>> {
        self.0.sessions.lock()
    }

    fn find(&self, session: SessionId) -> Option<Arc<SessionCapture>> {
        self.sessions().get(&session).cloned()
    }

    /// Returns the capture state of the session; creates it and starts to read from the agent if it is new. `None` for
    /// a session without a browser.
    fn get_or_start(&self, session: &Session) -> Option<Arc<SessionCapture>> {
        Some(self.get_or_start_with(session, session.browser?))
    }

    fn get_or_start_with(&self, session: &Session, browser: BrowserId) -> Arc<SessionCapture> {
        let mut sessions = self.sessions();
        if let Some(known) = sessions.get(&session.id) {
            return Arc::clone(known);
        }
        let captured = Arc::new(SessionCapture {
            session: session.id,
            browser,
            capture: Mutex::new(session.telemetry.clone()),
            configuring: tokio::sync::Mutex::default(),
            lost: AtomicU64::new(0),
            progress: watch::Sender::default(),
            ended: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            done: CancellationToken::new(),
            all_received: CancellationToken::new(),
            abandoned: self.0.stop.child_token(),
        });
        sessions.insert(session.id, Arc::clone(&captured));
        let inner = &self.0;
        let following = agent::follow(captured.clone(), inner.store.clone(), inner.tap.clone(), inner.queue.clone());
        inner.runtime.spawn(following);
        captured
    }

    /// Stores the last events of a session, once.
    fn end(&self, captured: &Arc<SessionCapture>) {
        if !captured.ended.swap(true, Ordering::Relaxed) {
            self.0.runtime.spawn(self.clone().store_last_events(captured.clone()));
        }
    }

    async fn store_last_events(self, captured: Arc<SessionCapture>) {
        let session = captured.session;
        let mut last = None;
        let all = async {
            last = captured.finish(self.0.tap.as_ref()).await;
            captured.stored(last).await;
            // Open connections still record the events of their end.
            while (self.0.connections)(session) > 0 {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let _ = tokio::time::timeout(LAST_EVENTS_TIMEOUT, all).await;
        captured.abandoned.cancel();
        self.sessions().remove(&session);
        let lost = captured.lost.swap(0, Ordering::Relaxed);
        let (stored, counted) = oneshot::channel();
        // The queue keeps the order: when this message is stored, the agent's earlier events are stored too.
        self.0.queue.send(WriterMessage::Ended { session, lost, agent_last: last, stored: Some(stored) }).await;
        let _ = tokio::time::timeout(STORE_LOST_TIMEOUT, counted).await;
        captured.done.cancel();
    }
}

#[async_trait]
impl Recorder for EventCollector {
    async fn capture(&self, session: &Session) -> Result<(), EngineError> {
        if session.telemetry.is_none() && self.find(session.id).is_none() {
            return Ok(());
        }
        let Some(captured) = self.get_or_start(session) else { return Ok(()) };
        captured.capture().clone_from(&session.telemetry);
        captured.configure(self.0.tap.as_ref()).await.map_err(|error| match error {
            OperationError::Engine(error) => error,
            other => EngineError::Failed { fault: EngineFault::AgentError, message: other.to_string() },
        })
    }

    fn take_up(&self, session: &Session) {
        // The follower task configures the agent.
        let _ = self.get_or_start(session);
    }

    fn captures(&self, session: SessionId, category: Category) -> bool {
        self.find(session).is_some_and(|captured| captured.wants(EventCategory::Captured(category)))
    }

    fn note(&self, session: SessionId, event: Event) {
        let Some(captured) = self.find(session).filter(|captured| captured.wants(event.category)) else { return };
        let lost = captured.lost.swap(0, Ordering::Relaxed);
        if !self.0.queue.offer(WriterMessage::ServerEvent { session, lost, event }) {
            captured.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }

    fn note_late(&self, session: &Session, event: Event) {
        if self.find(session.id).is_some() {
            return self.note(session.id, event);
        }
        let EventCategory::Captured(category) = event.category else { return };
        if session.telemetry.as_ref().is_some_and(|capture| capture.includes(category))
            && !self.0.queue.offer(WriterMessage::ServerEvent { session: session.id, lost: 0, event })
        {
            metrics::counter!("casement_telemetry_events_lost_total").increment(1);
        }
    }

    fn ended(&self, session: SessionId) {
        match self.find(session) {
            Some(captured) => self.end(&captured),
            // The session may have followers nevertheless.
            None => drop(self.0.queue.offer(WriterMessage::Ended { session, lost: 0, agent_last: None, stored: None })),
        }
    }

    fn is_owed(&self, ended: &Session) -> bool {
        ended.telemetry.is_some() || self.find(ended.id).is_some()
    }

    async fn collect(&self, ended: &Session, browser: BrowserId) {
        // A previous server process may have started the capture.
        let captured = self.get_or_start_with(ended, browser);
        self.end(&captured);
        captured.done.cancelled().await;
    }
}

#[cfg(test)]
mod tests;
