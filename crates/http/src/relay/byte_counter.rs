//! What relays tell `/metrics` and the log.

use std::{cell::Cell, time::Duration};

use metrics::{Counter, Gauge, counter, gauge};
use tracing::Span;

use super::{CloseReason, SendBacklog};

/// A client whose connection ends after it took nothing for so long was a slow reader; a shorter pause is common.
const SLOW: Duration = Duration::from_secs(3);

/// Is told when a connection has opened, and when and why it ended.
pub trait RelayObserver {
    /// It has opened.
    fn opened(&self);

    /// It has ended: for our reason, or without one when its client ended it. So many messages had passed, both ways together.
    fn ended(&self, why: Option<CloseReason>, messages: u64);
}

/// Counts one open relay and its bytes, and reports its end in the span that it was opened in.
pub(crate) struct ByteCounter {
    channel: &'static str,
    span: Span,
    backlog: SendBacklog,
    reported: Cell<bool>,
    open: Gauge,
    from_client: Counter,
    to_client: Counter,
    observer: Option<Box<dyn RelayObserver>>,
    messages: Cell<u64>,
    why: Cell<Option<CloseReason>>,
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
            span: Span::current(),
            backlog,
            reported: Cell::new(false),
            open,
            from_client: counter!("casement_relay_bytes_total", "channel" => channel, "direction" => "from_client"),
            to_client: counter!("casement_relay_bytes_total", "channel" => channel, "direction" => "to_client"),
            observer,
            messages: Cell::default(),
            why: Cell::default(),
        }
    }

    pub(crate) fn count_from_client(&self, bytes: usize) {
        self.from_client.increment(bytes as u64);
    }

    pub(crate) fn count_to_client(&self, bytes: usize) {
        self.to_client.increment(bytes as u64);
    }

    /// One more message has passed.
    pub(crate) fn count_message(&self) {
        self.messages.set(self.messages.get() + 1);
    }

    /// So many messages have passed until now.
    pub(crate) fn count_messages(&self, messages: u64) {
        self.messages.set(messages);
    }

    /// How many messages have passed until now.
    pub(crate) fn messages(&self) -> u64 {
        self.messages.get()
    }

    /// We ended it. `told`: the client got the close frame.
    pub(crate) fn ended(&self, reason: CloseReason, told: bool) {
        self.why.set(Some(reason));
        counter!("casement_relays_ended_total", "channel" => self.channel, "reason" => reason.as_str()).increment(1);
        self.report(reason.as_str(), told);
    }

    /// Both sides had said goodbye.
    pub(crate) fn closed(&self) {
        self.report("closed", true);
    }

    fn report(&self, reason: &'static str, told: bool) {
        self.reported.set(true);
        tracing::info!(parent: &self.span, channel = self.channel, reason, told, "relay ended");
    }
}

impl Drop for ByteCounter {
    fn drop(&mut self) {
        self.open.decrement(1.0);
        match self.reported.get() {
            true => {}
            false if self.backlog.stuck_for() >= SLOW => self.ended(CloseReason::SlowReader, false),
            false => self.report("client_gone", false),
        }
        if let Some(observer) = &self.observer {
            observer.ended(self.why.get(), self.messages.get());
        }
    }
}
