//! Metrics, log lines and events of relays.

use std::{cell::Cell, time::Duration};

use metrics::{Counter, Gauge, counter, gauge};
use tracing::Span;

use super::{CloseReason, SendBacklog};

/// A client whose connection ends after it has read no data for this time counts as a slow reader. Shorter pauses are
/// common.
const SLOW_READER_TIMEOUT: Duration = Duration::from_secs(3);

/// Observes the opening and the end of a connection.
pub trait RelayObserver {
    /// Called when the connection has opened.
    fn opened(&self);

    /// Called when the connection has ended. `reason` is the server's reason, or `None` if the client ended the
    /// connection. `messages` counts both directions.
    fn ended(&self, reason: Option<CloseReason>, messages: u64);
}

/// Counts one open relay and its bytes, and logs its end in the span in which the relay was opened.
pub(crate) struct ByteCounter {
    channel: &'static str,
    span: Span,
    backlog: SendBacklog,
    is_logged: Cell<bool>,
    open: Gauge,
    from_client: Counter,
    to_client: Counter,
    observer: Option<Box<dyn RelayObserver>>,
    messages: Cell<u64>,
    reason: Cell<Option<CloseReason>>,
}

impl ByteCounter {
    pub(crate) fn open(channel: &'static str, backlog: SendBacklog, observer: Option<Box<dyn RelayObserver>>) -> Self {
        let open = gauge!("casement_relays_open", "channel" => channel);
        open.increment(1.0);
        if let Some(observer) = &observer {
            observer.opened();
        }
        Self {
            channel,
            span: tracing::info_span!("relay", channel),
            backlog,
            is_logged: Cell::new(false),
            open,
            from_client: counter!("casement_relay_bytes_total", "channel" => channel, "direction" => "from_client"),
            to_client: counter!("casement_relay_bytes_total", "channel" => channel, "direction" => "to_client"),
            observer,
            messages: Cell::default(),
            reason: Cell::default(),
        }
    }

    pub(crate) fn count_from_client(&self, bytes: usize) {
        self.from_client.increment(bytes as u64);
    }

    pub(crate) fn count_to_client(&self, bytes: usize) {
        self.to_client.increment(bytes as u64);
    }

    /// Counts one more message.
    pub(crate) fn count_message(&self) {
        self.messages.set(self.messages.get() + 1);
    }

    /// Sets the number of messages.
    pub(crate) fn set_messages(&self, messages: u64) {
        self.messages.set(messages);
    }

    /// Returns the number of messages.
    pub(crate) fn messages(&self) -> u64 {
        self.messages.get()
    }

    /// Notes that the server ended the relay. `frame_sent`: whether a close frame was sent to the client.
    pub(crate) fn ended(&self, reason: CloseReason, frame_sent: bool) {
        self.reason.set(Some(reason));
        counter!("casement_relays_ended_total", "channel" => self.channel, "reason" => reason.as_str()).increment(1);
        self.log_end(reason.as_str(), frame_sent);
    }

    /// Notes that the relay ended with a close frame of either side.
    pub(crate) fn closed(&self) {
        self.log_end("closed", true);
    }

    fn log_end(&self, reason: &'static str, frame_sent: bool) {
        self.is_logged.set(true);
        tracing::info!(parent: &self.span, channel = self.channel, reason, frame_sent, "relay ended");
    }
}

impl Drop for ByteCounter {
    fn drop(&mut self) {
        self.open.decrement(1.0);
        match self.is_logged.get() {
            true => {}
            false if self.backlog.stuck_for() >= SLOW_READER_TIMEOUT => self.ended(CloseReason::SlowReader, false),
            false => self.log_end("client_gone", false),
        }
        if let Some(observer) = &self.observer {
            observer.ended(self.reason.get(), self.messages.get());
        }
    }
}
