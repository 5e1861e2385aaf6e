//! The ports of telemetry.

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use time::OffsetDateTime;

use super::{Batch, Capture, Category, Event, Item, NumberedEvent, SequenceState, Span, StoredBatch};
use crate::browser::EngineError;
use crate::ids::{BrowserId, NodeId, SessionId, TelemetryDestinationId};
use crate::session::Session;
use crate::session_operation::OperationError;
use crate::store_error::StoreError;

/// The port to the stored events.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait TelemetryStore: Send + Sync {
    /// Numbers the events of the batches with [`number`](super::number) within the bounds of the store, and stores all
    /// or none of them; events of sessions that are [not stored](super::Delivery::stored) are only numbered. There is at
    /// most one batch per session. A batch that is the last stored one of its session is
    /// not stored again. The numbers of a session become visible in order.
    async fn append(&self, batches: &[Batch], now: OffsetDateTime) -> Result<Vec<StoredBatch>, StoreError>;

    /// Returns the events of a session in the direction of the span, and whether there are more. If events are very
    /// long, the number is below the limit, but at least one.
    async fn page(&self, session: SessionId, span: &Span) -> Result<(Vec<NumberedEvent>, bool), StoreError>;

    /// Returns the state of the sequence; [`SequenceState::NOTHING`] if nothing is stored.
    async fn counted(&self, session: SessionId) -> Result<SequenceState, StoreError>;

    /// Returns the export of a session's stored events; `None` if they are not exported.
    async fn unexported(&self, session: SessionId) -> Result<Option<Unexported>, StoreError>;

    /// Stores that the events up to the number `through` are exported.
    async fn set_exported(&self, session: SessionId, through: u64) -> Result<(), StoreError>;

    /// Returns the node's sessions with stored events that are not exported, and their destinations.
    /// For one of the living nodes, those of lost nodes too.
    async fn with_unexported(&self, node: NodeId) -> Result<Vec<(SessionId, TelemetryDestinationId)>, StoreError>;

    /// Creates the partitions of the days after `now`, and drops those of days that ended before `oldest`.
    async fn tidy(&self, now: OffsetDateTime, oldest: OffsetDateTime) -> Result<(), StoreError>;
}

/// The export of a session's stored events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexported {
    /// The destination.
    pub destination: TelemetryDestinationId,
    /// The number of the last exported event.
    pub after: u64,
}

/// The port to telemetry exporters.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait TelemetryExporter: Send + Sync {
    /// Receives events that were just stored. Never waits: events without room in the queue are dropped and counted.
    fn take(&self, stored: &StoredBatch);
}

/// The events of an agent in order, each with its number. See [`TelemetryTap::follow`].
pub type AgentEvents = BoxStream<'static, Result<Item, OperationError>>;

/// The port to the agents, which capture the events of browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait TelemetryTap: Send + Sync {
    /// Sets the captured categories, as far as the agent captures them. Pages that are opened after the return are
    /// captured from their beginning on.
    async fn configure(&self, browser: BrowserId, capture: Option<Capture>) -> Result<(), OperationError>;

    /// Returns the agent's events after its number `after` as they happen, until the browser ends. The agent discards
    /// the events up to `after`.
    async fn follow(&self, browser: BrowserId, after: u64) -> Result<AgentEvents, OperationError>;

    /// Acknowledges that the events up to the agent's number `through` are stored; the agent discards them.
    async fn confirm(&self, browser: BrowserId, through: u64) -> Result<(), OperationError>;

    /// Stops the capture. Returns the agent's number of the last event; 0 if there was none.
    async fn finish(&self, browser: BrowserId) -> Result<u64, OperationError>;
}

/// The port that records the events of this node's sessions.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Recorder: Send + Sync {
    /// Sets the captured categories to those of the session. Returns when the browser captures them.
    ///
    /// # Errors
    /// Returns the error of the browser. The recorder retries by itself.
    async fn capture(&self, session: &Session) -> Result<(), EngineError>;

    /// Resumes the capture of a session from before a restart of this node, unless it is running.
    fn take_up(&self, session: &Session);

    /// Returns whether events of this category are recorded.
    fn captures(&self, session: SessionId, category: Category) -> bool;

    /// Records an event of the session if its category is captured. Never waits.
    fn note(&self, session: SessionId, event: Event);

    /// Like [`note`](Self::note), for a session that may have ended before.
    fn note_late(&self, session: &Session, event: Event);

    /// Marks the session as ended. Its last events are still recorded.
    fn ended(&self, session: SessionId);

    /// Returns whether the browser of an ended session may hold events that are not stored.
    fn is_owed(&self, ended: &Session) -> bool;

    /// Waits until the remaining events of an ended session's browser are stored, or lost after a timeout.
    async fn collect(&self, ended: &Session, browser: BrowserId);
}

/// A recorder that records nothing, for installations without telemetry.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecorder;

#[async_trait]
impl Recorder for NoRecorder {
    async fn capture(&self, _: &Session) -> Result<(), EngineError> {
        Ok(())
    }

    fn take_up(&self, _: &Session) {}

    fn captures(&self, _: SessionId, _: Category) -> bool {
        false
    }

    fn note(&self, _: SessionId, _: Event) {}

    fn note_late(&self, _: &Session, _: Event) {}

    fn ended(&self, _: SessionId) {}

    fn is_owed(&self, _: &Session) -> bool {
        false
    }

    async fn collect(&self, _: &Session, _: BrowserId) {}
}

/// The position at which following begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The next event.
    Now,
    /// The oldest event that is still available.
    Oldest,
    /// The event after this number.
    After(u64),
}

/// An item of a followed sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// An event.
    Event(NumberedEvent),
    /// The end: the reader was too slow, and its next event is no longer available.
    TooSlow,
}

/// The followed events; see [`Feed::follow`].
pub type FollowedEvents = BoxStream<'static, Followed>;

/// The port that follows events as they become visible.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Feed: Send + Sync {
    /// Returns the events of a session in order, without gaps or duplicates, until the session ends.
    async fn follow(&self, session: SessionId, start: Start) -> Result<FollowedEvents, StoreError>;
}
