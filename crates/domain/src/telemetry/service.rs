//! The use cases of telemetry.

use std::sync::Arc;

use super::{BadOffset, EventsQuery, Feed, FollowedEvents, NumberedEvent, Start, TelemetryStore};
use crate::clock::Clock;
use crate::error::{SpecificError, UseCaseError};
use crate::page::Listed;
use crate::session::Session;
use crate::store_error::StoreError;

/// One page of events.
pub type EventsPage = Listed<NumberedEvent>;

/// The error of reading events.
pub type ReadEventsError = UseCaseError<BadOffset>;

impl SpecificError for BadOffset {}

/// The use cases of telemetry.
#[derive(Clone)]
pub struct TelemetryEvents {
    store: Arc<dyn TelemetryStore>,
    feed: Arc<dyn Feed>,
    clock: Arc<dyn Clock>,
}

impl TelemetryEvents {
    /// Creates the use cases.
    #[must_use]
    pub fn new(store: Arc<dyn TelemetryStore>, feed: Arc<dyn Feed>, clock: Arc<dyn Clock>) -> Self {
        Self { store, feed, clock }
    }

    /// Returns a page of events: empty if nothing was captured or is stored any longer, or if the store is unavailable.
    ///
    /// # Errors
    /// See [`ReadEventsError`].
    pub async fn page(&self, session: &Session, query: EventsQuery) -> Result<EventsPage, ReadEventsError> {
        let (mut span, offset) = query.parse(self.clock.now())?;
        if let Some(offset) = offset {
            span = span.from_offset(session.id, offset)?;
        }
        let (found, more) = match self.store.page(session.id, &span).await {
            Err(StoreError::Unavailable { .. }) => (Vec::new(), false),
            other => other?,
        };
        let next_offset = found.last().filter(|_| more).and_then(|last| span.offset(session.id, last.seq));
        Ok(Listed { items: found, next_offset })
    }

    /// Returns the events of an active session as they happen.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn follow(&self, session: &Session, start: Start) -> Result<FollowedEvents, StoreError> {
        self.feed.follow(session.id, start).await
    }
}

#[cfg(all(test, feature = "mocks"))]
mod tests {
    use super::*;
    use crate::telemetry::{Event, MockFeed, MockTelemetryStore};
    use crate::testing::{FixedClock, NOON, session};

    fn numbered(seq: u64) -> NumberedEvent {
        NumberedEvent { seq, at: NOON, event: Event::api_call(NOON, "x", "y", 200, 0) }
    }

    fn events(store: MockTelemetryStore) -> TelemetryEvents {
        TelemetryEvents::new(Arc::new(store), Arc::new(MockFeed::new()), Arc::new(FixedClock::default()))
    }

    #[tokio::test]
    async fn pages_lead_to_one_another_until_the_last() {
        let mut store = MockTelemetryStore::new();
        store.expect_page().returning(|_, span| {
            let first = span.behind.unwrap_or(0) + 1;
            let last = (first + u64::from(span.limit) - 1).min(5);
            Ok(((first..=last).map(numbered).collect(), last < 5))
        });
        let events = events(store);
        let query = EventsQuery { limit: Some(2), ..EventsQuery::default() };
        let (mut seen, mut offset) = (Vec::new(), None);
        loop {
            let page = events.page(&session(1), EventsQuery { offset, ..query.clone() }).await.expect("a page");
            seen.push(page.items.iter().map(|one| one.seq).collect::<Vec<_>>());
            let Some(next) = page.next_offset else { break };
            offset = Some(i64::try_from(next).expect("small"));
        }
        assert_eq!(seen, [vec![1, 2], vec![3, 4], vec![5]]);
    }

    #[tokio::test]
    async fn while_the_store_is_away_nothing_is_there() {
        let mut store = MockTelemetryStore::new();
        store.expect_page().returning(|_, _| Err(StoreError::unavailable("telemetry.page", "away")));
        let page = events(store).page(&session(1), EventsQuery::default()).await.expect("a page");
        assert_eq!(page, Listed { items: Vec::new(), next_offset: None });
    }
}
