//! The classic WebDriver sessions that are open. Their clients hold no connection into the browser: each command comes on its own. So that
//! somebody who drives it is seen all the same, such a session is told as a connection.

use std::{collections::HashMap, sync::Arc};

use casement_domain::SessionId;
use parking_lot::{Mutex, MutexGuard};
use tokio::{runtime::Handle, task::AbortHandle};

use super::WebDriverSessionId;
use crate::{
    connections::Registered,
    relay::{CloseReason, EndSignal, RelayObserver as _},
    telemetry::Connection,
};

/// Those of one browser that are told of; whoever makes more is not.
const MAX_COUNT: usize = 100;

type Open = HashMap<SessionId, HashMap<WebDriverSessionId, AnnouncedSession>>;

/// One that is open, and was told of.
struct AnnouncedSession {
    connection: Connection,
    /// Commands and answers.
    messages: u64,
    /// Waits for the end of the browser.
    waits: AbortHandle,
}

/// Those of this server; clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct ClassicSessions(Arc<Mutex<Open>>);

impl ClassicSessions {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock()
    }

    /// One was made. It ends with its browser, if nobody ends it before.
    pub(crate) fn made(
        &self,
        session: SessionId,
        id: WebDriverSessionId,
        connection: Connection,
        (end, registered): (EndSignal, Registered),
        runtime: &Handle,
    ) {
        let mut open = self.open();
        let of_session = open.entry(session).or_default();
        if of_session.len() >= MAX_COUNT || of_session.contains_key(&id) {
            return;
        }
        connection.opened();
        let (sessions, ending) = (self.clone(), id.clone());
        let waits = runtime.spawn(async move {
            let why = end.ended().await;
            sessions.ended(session, &ending, Some(why));
            drop(registered);
        });
        of_session.insert(id, AnnouncedSession { connection, messages: 2, waits: waits.abort_handle() });
    }

    /// A command of one was answered.
    pub(crate) fn answered(&self, session: SessionId, id: &WebDriverSessionId) {
        if let Some(told) = self.open().get_mut(&session).and_then(|of_session| of_session.get_mut(id)) {
            told.messages += 2;
        }
    }

    /// One has ended: for our reason, or by its client.
    pub(crate) fn ended(&self, session: SessionId, id: &WebDriverSessionId, why: Option<CloseReason>) {
        let mut open = self.open();
        let Some(of_session) = open.get_mut(&session) else { return };
        let told = of_session.remove(id);
        if of_session.is_empty() {
            open.remove(&session);
        }
        drop(open);
        if let Some(AnnouncedSession { connection, messages, waits }) = told {
            connection.ended(why, messages);
            waits.abort();
        }
    }
}
