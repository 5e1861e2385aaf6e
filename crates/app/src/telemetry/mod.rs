//! Telemetry on its way: from callers' connections and from the agents beside browsers, into the store, and on to whoever follows.
//!
//! - [`Collector`] knows which sessions of this node capture what. It takes the server's own events, and for each session follows its
//!   agent: nothing is polled, and a session without telemetry costs nothing.
//! - [`writer`] stores what comes, many sessions' events in one commit, and tells agents and followers when that is done.
//! - [`Hubs`] wakes the followers of a session. Events are numbered by the store, so whoever follows sees them once they are durable.

mod agent;
mod collector;
mod hub;
mod writer;

use std::sync::Arc;

use casement_domain::telemetry::{Outlet, TelemetryStore, TelemetryTap};
use casement_http::ConnectionRegistry;
use tokio_util::sync::CancellationToken;

pub(crate) use collector::Collector;
pub(crate) use hub::Hubs;
pub(crate) use writer::EventWriter;

/// Starts to collect. Agents are followed until `stop`, which is not before the sessions that are to end have ended; what comes otherwise is taken until the writer is told to finish. What is
/// stored goes on to the `outlet`.
pub(crate) fn start(
    store: Arc<dyn TelemetryStore>,
    tap: Arc<dyn TelemetryTap>,
    connections: ConnectionRegistry,
    outlet: Option<Arc<dyn Outlet>>,
    stop: CancellationToken,
) -> (Collector, Hubs, EventWriter) {
    let hubs = Hubs::new(store.clone());
    let (queue, writer) = EventWriter::start(store.clone(), hubs.clone(), outlet);
    let collector = Collector::new(store, tap, connections, queue, stop);
    (collector, hubs, writer)
}
