//! Telemetry events: from connections and agents to the store, and to followers.
//!
//! - [`EventCollector`] knows which sessions of this node capture which events. It takes the server's own events, and
//!   follows the agent of each session: nothing is polled, and a session without telemetry costs nothing.
//! - [`writer`] stores events of many sessions in one commit, and notifies agents and followers.
//! - [`EventHubs`] wakes the followers of a session. The store numbers the events, so followers see them once they are
//!   durable.

mod agent;
mod collector;
mod hub;
mod writer;

use std::sync::Arc;

use casement_domain::telemetry::{TelemetryExporter, TelemetryStore, TelemetryTap};
use casement_domain::{Clock, IdSource, SessionId};
use tokio_util::sync::CancellationToken;

pub use collector::EventCollector;
pub use hub::EventHubs;
pub use writer::EventWriter;

/// Returns the number of open client connections into a session.
pub type OpenConnections = Arc<dyn Fn(SessionId) -> usize + Send + Sync>;

/// Starts to collect events.
///
/// Agents are followed until `stop`, which must not be cancelled before the ending sessions have ended. Other events
/// are taken until [`EventWriter::finish`]. Stored events are passed to the exporter.
pub fn start(
    system: (Arc<dyn Clock>, Arc<dyn IdSource>),
    store: Arc<dyn TelemetryStore>,
    tap: Arc<dyn TelemetryTap>,
    connections: OpenConnections,
    exporter: Option<Arc<dyn TelemetryExporter>>,
    stop: CancellationToken,
) -> (EventCollector, EventHubs, EventWriter) {
    let hubs = EventHubs::new(store.clone());
    let (queue, writer) = EventWriter::start(system, store.clone(), hubs.clone(), exporter);
    let collector = EventCollector::new(store, tap, connections, queue, stop);
    (collector, hubs, writer)
}
