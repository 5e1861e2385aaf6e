//! The open classic WebDriver sessions. Each command is a request of its own, so their clients have no permanent
//! connection to the browser; telemetry therefore reports each session as a connection.

use std::{collections::HashMap, sync::Arc};

use casement_domain::SessionId;
use parking_lot::Mutex;
use tokio::{runtime::Handle, task::AbortHandle};

use super::WebDriverSessionId;
use crate::{
    connections::Registration,
    relay::{CloseReason, EndSignal, RelayObserver as _},
    telemetry::Connection,
};

/// The maximum number of reported sessions of one browser.
const MAX_REPORTED: usize = 100;

type OpenSessions = HashMap<SessionId, HashMap<WebDriverSessionId, ReportedSession>>;

/// An open session that telemetry reports.
struct ReportedSession {
    connection: Connection,
    /// The number of commands and responses.
    messages: u64,
    /// The task that waits for the end of the browser.
    end_task: AbortHandle,
}

/// The open classic sessions of this server. Clones share one registry.
#[derive(Clone, Default)]
pub(crate) struct ClassicSessions(Arc<Mutex<OpenSessions>>);

impl ClassicSessions {
    /// Registers a created session. It ends when its browser ends, if not earlier.
    pub(crate) fn created(
        &self,
        session: SessionId,
        id: WebDriverSessionId,
        connection: Connection,
        (end, registration): (EndSignal, Registration),
        runtime: &Handle,
    ) {
        let mut open = self.0.lock();
        let by_id = open.entry(session).or_default();
        if by_id.len() >= MAX_REPORTED || by_id.contains_key(&id) {
            return;
        }
        connection.opened();
        let (sessions, ending) = (self.clone(), id.clone());
        let end_task = runtime.spawn(async move {
            let reason = end.ended().await;
            sessions.ended(session, &ending, Some(reason));
            drop(registration);
        });
        by_id.insert(id, ReportedSession { connection, messages: 2, end_task: end_task.abort_handle() });
    }

    /// Counts a command of a session and its response.
    pub(crate) fn answered(&self, session: SessionId, id: &WebDriverSessionId) {
        if let Some(reported) = self.0.lock().get_mut(&session).and_then(|by_id| by_id.get_mut(id)) {
            reported.messages += 2;
        }
    }

    /// Removes a session that has ended: for the server's `reason`, or by its client if `reason` is `None`.
    pub(crate) fn ended(&self, session: SessionId, id: &WebDriverSessionId, reason: Option<CloseReason>) {
        let mut open = self.0.lock();
        let Some(by_id) = open.get_mut(&session) else { return };
        let reported = by_id.remove(id);
        if by_id.is_empty() {
            open.remove(&session);
        }
        drop(open);
        if let Some(ReportedSession { connection, messages, end_task }) = reported {
            connection.ended(reason, messages);
            end_task.abort();
        }
    }
}
