//! Telemetry of a session: its events, reported by the agent in its sandbox and by this service.
//!
//! **One sequence per session.** An event gets its number when it is stored, so that events become visible in the order
//! of their numbers: a reader that has read up to a number misses nothing before it. See [`number`].
//!
//! **Each event once.** The agent numbers its own events and buffers them until the server acknowledges that they are
//! stored. The transaction that stores events also stores the agent's number of the last one, from which reading
//! continues after any interruption.
//!
//! **Reported losses.** Lost events use up numbers, which a `telemetry_dropped` event reports.

mod config;
mod delivery;
mod event;
mod numbering;
mod ports;
mod reading;
mod service;

pub use config::{Capture, Category, ConfigRequest, check_change, on_change, on_create};
pub use delivery::{Delivery, ExportRequest, check_storage_unchanged};
pub use event::{Event, EventCategory, MAX_EVENT, SourceKind};
pub use numbering::{Batch, Item, NumberedEvent, SequenceState, StoredBatch, What, number};
pub use ports::{
    AgentEvents, Feed, Followed, FollowedEvents, NoRecorder, Recorder, Start, TelemetryExporter, TelemetryStore,
    TelemetryTap, Unexported,
};
#[cfg(feature = "mocks")]
pub use ports::{MockFeed, MockRecorder, MockTelemetryExporter, MockTelemetryStore, MockTelemetryTap};
pub use reading::{BadOffset, EventsQuery, Order, Span, TypeFilter};
pub use service::{EventsPage, ReadEventsError, TelemetryEvents};
