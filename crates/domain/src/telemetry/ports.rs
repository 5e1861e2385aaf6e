//! The ports of telemetry.

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use time::OffsetDateTime;

use super::{Batch, Capture, Category, Event, Item, NumberedEvent, SequenceState, Span, StoredBatch};
use crate::browser::EngineError;
use crate::ids::{BrowserId, SessionId};
use crate::session::Session;
use crate::session_operation::OperationError;
use crate::store_error::StoreError;

/// Where events are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait TelemetryStore: Send + Sync {
    /// Numbers what the batches hold, as [`number`](super::number) says, within the store's bounds, and stores it all or nothing; of each
    /// session one batch at most. A batch that was the last one stored of its session is not stored again. The numbers of a session become visible in
    /// their order.
    async fn append(&self, batches: &[Batch], now: OffsetDateTime) -> Result<Vec<StoredBatch>, StoreError>;

    /// The events of a session, in the direction of the span, and whether there are more. Fewer than the span's limit, but one at
    /// least, if they would be very long.
    async fn page(&self, session: SessionId, span: &Span) -> Result<(Vec<NumberedEvent>, bool), StoreError>;

    /// How far the session has counted; [`SequenceState::NOTHING`] if nothing was stored, or nothing is kept any more.
    async fn counted(&self, session: SessionId) -> Result<SequenceState, StoreError>;

    /// Makes room for events up to some days from `now` on, and drops those of days that ended before `oldest`.
    async fn tidy(&self, now: OffsetDateTime, oldest: OffsetDateTime) -> Result<(), StoreError>;
}

/// Where stored events go on to, outside of this service.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait TelemetryExporter: Send + Sync {
    /// Takes over what has just been stored. Never waits: what finds no room is lost there, and counted.
    fn take(&self, stored: &StoredBatch);
}

/// What an agent tells: its events in its order, each with its number. See [`TelemetryTap::follow`].
pub type AgentEvents = BoxStream<'static, Result<Item, OperationError>>;

/// The agents beside browsers, which capture what happens there.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait TelemetryTap: Send + Sync {
    /// From now on what `capture` names is captured, as far as it is for the agent to capture, and nothing else. Returns once what is
    /// opened afterwards is captured from its beginning on.
    async fn configure(&self, browser: BrowserId, capture: Option<Capture>) -> Result<(), OperationError>;

    /// The agent's events behind its number `after`, each as it happens, with its number, until the browser ends. Those up to `after`
    /// are let go.
    async fn follow(&self, browser: BrowserId, after: u64) -> Result<AgentEvents, OperationError>;

    /// The events up to the agent's number `through` are stored; the agent lets them go.
    async fn confirm(&self, browser: BrowserId, through: u64) -> Result<(), OperationError>;

    /// Nothing is captured any more. Returns the agent's number of the last event that there will be; 0: there was none.
    async fn finish(&self, browser: BrowserId) -> Result<u64, OperationError>;
}

/// Takes note of what happens in this node's sessions.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Recorder: Send + Sync {
    /// From now on what the session names is captured, and nothing else. Returns once that holds in its browser, too.
    ///
    /// # Errors
    /// The browser's failure. The recorder goes on trying by itself.
    async fn capture(&self, session: &Session) -> Result<(), EngineError>;

    /// Goes on capturing what the session names, unless it is being captured already. For sessions of an earlier life of this node.
    fn take_up(&self, session: &Session);

    /// Whether events of that category are noted.
    fn captures(&self, session: SessionId, category: Category) -> bool;

    /// Notes an event of the session if its category is captured. Never waits.
    fn note(&self, session: SessionId, event: Event);

    /// As [`note`](Self::note), of a session that may have ended a while ago.
    fn note_late(&self, session: &Session, event: Event);

    /// The session has ended. Its last events are still taken.
    fn ended(&self, session: SessionId);

    /// Whether the browser of an ended session may hold events that are not stored.
    fn is_owed(&self, ended: &Session) -> bool;

    /// Returns once the events that the browser of an ended session holds are stored, or, where that takes longer than it may, counted
    /// as lost.
    async fn collect(&self, ended: &Session, browser: BrowserId);
}

/// Takes note of nothing: where sessions have no telemetry.
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

/// Where following begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With what happens from now on.
    Now,
    /// With the oldest event that can still be followed.
    Oldest,
    /// Behind the event of this number.
    After(u64),
}

/// What a follower gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// An event.
    Event(NumberedEvent),
    /// Nothing more: it was so far behind that what it needs next is not held any more.
    TooSlow,
}

/// See [`Feed::follow`].
pub type FollowedEvents = BoxStream<'static, Followed>;

/// Events as they become visible.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Feed: Send + Sync {
    /// The events of a session in the order of their numbers, without a gap or a duplicate, until the session ends.
    async fn follow(&self, session: SessionId, start: Start) -> Result<FollowedEvents, StoreError>;
}
