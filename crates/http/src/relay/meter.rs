//! What relays tell `/metrics`.

use metrics::{Counter, Gauge, counter, gauge};

use super::CloseReason;

/// Counts one open relay and its bytes.
pub(crate) struct Meter {
    channel: &'static str,
    open: Gauge,
    from_client: Counter,
    to_client: Counter,
}

impl Meter {
    pub(crate) fn open(channel: &'static str) -> Self {
        let open = gauge!("casement_relays_open", "channel" => channel);
        open.increment(1.0);
        Self {
            channel,
            open,
            from_client: counter!("casement_relay_bytes_total", "channel" => channel, "direction" => "from_client"),
            to_client: counter!("casement_relay_bytes_total", "channel" => channel, "direction" => "to_client"),
        }
    }

    pub(crate) fn count_from_client(&self, bytes: usize) {
        self.from_client.increment(bytes as u64);
    }

    pub(crate) fn count_to_client(&self, bytes: usize) {
        self.to_client.increment(bytes as u64);
    }

    /// We ended it. `told`: the client got the close frame.
    pub(crate) fn ended(&self, reason: CloseReason, told: bool) {
        counter!("casement_relays_ended_total", "channel" => self.channel, "reason" => reason.as_str()).increment(1);
        tracing::info!(channel = self.channel, reason = reason.as_str(), told, "relay ended");
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.open.decrement(1.0);
    }
}
