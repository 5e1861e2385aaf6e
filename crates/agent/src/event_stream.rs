//! The status of the browser as a stream of events, and the wait for its start.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::Response;
use tokio::sync::watch;

use crate::reply::{self, Body, line};
use crate::server_contact::ServerContact;
use crate::status::StatusPublisher;
use casement_agent_protocol::{
    Event, ExitReason, HEARTBEAT_SECONDS, PROTOCOL_VERSION, READY_WAIT_SECONDS, State, Status,
};

/// The operations that report the status.
#[derive(Debug)]
pub(crate) struct StatusReports {
    pub(crate) status: StatusPublisher,
    pub(crate) contact: Arc<ServerContact>,
}

impl StatusReports {
    /// Waits until the browser is ready or has failed, at most a minute, and returns the status.
    pub(crate) async fn wait_until_ready(&self) -> Status {
        let mut status = self.status.subscribe();
        let settled = status.wait_for(|status| status.state != State::Starting);
        drop(tokio::time::timeout(Duration::from_secs(READY_WAIT_SECONDS), settled).await);
        let status = status.borrow().clone();
        if is_end(&status.state) {
            self.contact.record_end_report();
        }
        status
    }

    /// Returns one line per event: a greeting, each change, heartbeats by which either side detects a lost connection,
    /// and the end.
    pub(crate) fn events(&self) -> Response<Body> {
        let hello = Event::Hello { version: PROTOCOL_VERSION, nonce: self.status.current().nonce };
        let events = EventSource {
            publisher: self.status.clone(),
            contact: Arc::clone(&self.contact),
            status: self.status.subscribe(),
            hello: Some(hello),
            reported: None,
            browser_path: String::new(),
        };
        reply::stream("application/x-ndjson", events.lines())
    }
}

struct EventSource {
    publisher: StatusPublisher,
    contact: Arc<ServerContact>,
    status: watch::Receiver<Status>,
    hello: Option<Event>,
    /// The last reported state. `Starting` is not reported.
    reported: Option<State>,
    /// The debugging path at the last report: after a restart the browser is reported as ready again.
    browser_path: String,
}

impl EventSource {
    fn lines(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        let guard = self.contact.open_event_stream();
        stream::unfold((self, guard), |(mut source, guard)| async move {
            let event = source.next().await?;
            Some((Ok(line(&event)), (source, guard)))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        if let Some(hello) = self.hello.take() {
            return Some(hello);
        }
        loop {
            let (state, path) = {
                let status = self.status.borrow_and_update();
                (status.state.clone(), status.browser_ws_path.clone())
            };
            let has_moved = state == State::Ready && path != self.browser_path;
            if state != State::Starting && (has_moved || self.reported.as_ref() != Some(&state)) {
                self.browser_path = path;
                if self.reported.as_ref().is_some_and(is_end) {
                    return None;
                }
                self.reported = Some(state.clone());
                return Some(self.event(state));
            }
            if self.reported.as_ref().is_some_and(is_end) {
                self.contact.record_end_report();
                return None;
            }
            match tokio::time::timeout(Duration::from_secs(HEARTBEAT_SECONDS), self.status.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some(Event::Heartbeat),
            }
        }
    }

    fn event(&self, state: State) -> Event {
        match state {
            State::Starting | State::Closed => Event::Heartbeat,
            State::Ready => Event::Ready,
            State::Failed { message, .. } => Event::Exited { reason: ExitReason::Failed, detail: message },
            State::Exited { reason } => Event::Exited { reason, detail: self.publisher.detail() },
        }
    }
}

fn is_end(state: &State) -> bool {
    matches!(state, State::Failed { .. } | State::Exited { .. })
}
