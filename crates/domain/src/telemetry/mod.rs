//! Telemetry of a session: its events, reported by the agent beside its browser and by this service.
//!
//! **One sequence per session.** Whatever happens in a session gets its number when it is stored, so that the order of the numbers is
//! the order in which events become visible: who has read up to a number misses nothing before it. See [`number`].
//!
//! **Each event once.** The agent counts its own events and keeps those that it is not told are stored. The store keeps, in the
//! transaction that stores events, the agent's number of the last one, and asks for those after it, however it was interrupted.
//!
//! **No loss without a word.** What is lost to a bound uses up its numbers, and a `telemetry_dropped` event says which.

mod config;
mod event;
mod numbering;
mod ports;
mod reading;
mod service;

pub use config::{Capture, Category, ConfigRequest, on_change, on_create};
pub use event::{Event, EventCategory, MAX_EVENT, SourceKind};
pub use numbering::{Batch, Item, NumberedEvent, SequenceState, StoredBatch, What, number};
pub use ports::{
    AgentEvents, Feed, Followed, FollowedEvents, NoRecorder, Recorder, Start, TelemetryExporter, TelemetryStore,
    TelemetryTap,
};
#[cfg(feature = "mocks")]
pub use ports::{MockFeed, MockRecorder, MockTelemetryExporter, MockTelemetryStore, MockTelemetryTap};
pub use reading::{BadOffset, EventsQuery, Order, Span};
pub use service::{EventsPage, ReadEventsError, TelemetryEvents};
