//! Telemetry on its way: from callers' connections and from the agents beside browsers, into the store, and on to whoever follows.
//!
//! - [`EventCollector`] knows which sessions of this node capture what. It takes the server's own events, and for each session follows its
//!   agent: nothing is polled, and a session without telemetry costs nothing.
//! - [`writer`] stores what comes, many sessions' events in one commit, and tells agents and followers when that is done.
//! - [`EventHubs`] wakes the followers of a session. Events are numbered by the store, so whoever follows sees them once they are durable.

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

/// Returns how many client connections are open into a session.
pub type OpenConnections = Arc<dyn Fn(SessionId) -> usize + Send + Sync>;

/// Starts to collect events.
///
/// Agents are followed until `stop`, which must not be cancelled before the sessions that are to end have ended. Other events are taken
/// until [`EventWriter::finish`]. Stored events go on to the `exporter`.
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
