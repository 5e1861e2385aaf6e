//! Connections to a session, reported as telemetry events.

use std::{sync::Arc, time::Instant};

use casement_domain::{
    Clock, SessionId,
    telemetry::{Category, Event, Recorder},
};
use serde_json::Value;

use crate::{
    relay::{CloseReason, RelayObserver},
    state::Services,
};

/// The protocol of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Cdp,
    /// WebDriver BiDi. Its events have the types of CDP events, because clients know no other types, and differ in the
    /// source.
    WebDriver,
    LiveView {
        /// The id of the viewer.
        id: String,
    },
}

/// A connection to a session, for which telemetry events are recorded.
pub(crate) struct Connection {
    recorder: Arc<dyn Recorder>,
    clock: Arc<dyn Clock>,
    session: SessionId,
    /// The identifier in the events of the connection.
    id: String,
    kind: Kind,
    started: Instant,
}

impl Connection {
    pub(crate) fn new(services: &Services, session: SessionId, kind: Kind) -> Self {
        let (recorder, clock) = (services.recorder.clone(), services.clock.clone());
        let id = services.ids.next().to_string().to_lowercase();
        Self { recorder, clock, session, id, kind, started: Instant::now() }
    }

    fn note<const N: usize>(&self, kind: &str, data: [(&str, Value); N]) {
        let source = match self.kind {
            Kind::Cdp => Some("cdp"),
            Kind::WebDriver => Some("webdriver"),
            Kind::LiveView { .. } => None,
        };
        let data = data.map(|(name, value)| (name.to_owned(), value));
        let event = Event::ours(Category::Connection, kind, self.clock.now(), source, Some(data));
        self.recorder.note(self.session, event);
    }
}

impl RelayObserver for Connection {
    fn opened(&self) {
        match &self.kind {
            Kind::Cdp | Kind::WebDriver => self.note("cdp_connect", [("connection_id", self.id.as_str().into())]),
            Kind::LiveView { id } => self.note("live_view_connect", [("session_id", id.as_str().into())]),
        }
    }

    fn ended(&self, end: Option<CloseReason>, messages: u64) {
        if !self.recorder.captures(self.session, Category::Connection) {
            return;
        }
        let duration = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).into();
        match &self.kind {
            Kind::Cdp | Kind::WebDriver => {
                let data = [
                    ("connection_id", self.id.as_str().into()),
                    ("reason", reason(end).into()),
                    ("duration_ms", duration),
                    ("message_count", messages.into()),
                ];
                self.note("cdp_disconnect", data);
            }
            Kind::LiveView { id } => {
                let data = [("session_id", id.as_str().into()), ("duration_ms", duration)];
                self.note("live_view_disconnect", data);
            }
        }
    }
}

/// Maps a close reason to the reason in the event: an end by the client, by the browser or by the server.
fn reason(end: Option<CloseReason>) -> &'static str {
    match end {
        None | Some(CloseReason::Normal) => "client_close",
        Some(CloseReason::BrowserRestarted) => "upstream_changed",
        Some(CloseReason::Crashed | CloseReason::Oom | CloseReason::BrowserHung | CloseReason::EngineLost) => {
            "upstream_error"
        }
        Some(_) => "context_cancelled",
    }
}
