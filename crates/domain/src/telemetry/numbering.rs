//! The numbering of events.

use time::{Duration, OffsetDateTime};
use ulid::Ulid;

use super::{Delivery, Event};
use crate::ids::SessionId;
use crate::storage::{ROW_BYTES, StorageLimit, StorageRoom};

/// The state of the sequence of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceState {
    /// The number of the last event; 0 if there is none.
    pub last_seq: u64,
    /// The time of the last event in the sequence; see [`NumberedEvent::at`].
    pub last_at: OffsetDateTime,
    /// The agent's number of its last processed event; 0 if there is none.
    pub agent_seq: u64,
    /// The stored bytes of the session.
    pub bytes: u64,
    /// The number of lost events that have no number yet, because losses to a limit are reported at intervals.
    pub untold: u64,
    /// The limit that refused the latest event; `None` if that was stored.
    pub limit: Option<StorageLimit>,
    /// The time of the last report of losses to a limit.
    pub reported_at: OffsetDateTime,
}

/// The minimum interval of reports while a storage limit refuses events: reports are stored beyond the limit too.
const REPORT_INTERVAL: Duration = Duration::MINUTE;

impl SequenceState {
    /// The state of a session without stored events.
    pub const NOTHING: Self = Self {
        last_seq: 0,
        last_at: OffsetDateTime::UNIX_EPOCH,
        agent_seq: 0,
        bytes: 0,
        untold: 0,
        limit: None,
        reported_at: OffsetDateTime::UNIX_EPOCH,
    };
}

/// The content of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An event to store.
    Event(Event),
    /// An event of a category that is no longer captured. It gets no number.
    Nothing,
    /// The number of events that were lost.
    Lost(u64),
    /// The end of the session: losses that have no number yet are reported.
    End,
}

/// An item to number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The agent's number of the item; `None` if the item is not from the agent.
    pub agent_seq: Option<u64>,
    /// The content.
    pub what: What,
}

/// The items of one session that are stored together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The session.
    pub session: SessionId,
    /// The identifier, by which the store recognizes a batch that is sent again after an uncertain write.
    pub id: Ulid,
    /// The items in the order of numbering; those of the agent are in the agent's order.
    pub items: Vec<Item>,
}

/// An event with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedEvent {
    /// The number of the event in the session, from 1 on.
    pub seq: u64,
    /// The time of the event in the sequence: never before that of a lower number, and never in the future.
    pub at: OffsetDateTime,
    /// The event.
    pub event: Event,
}

/// The result of storing a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// The session.
    pub session: SessionId,
    /// The last number of the session before the batch; the current last number if the batch was stored before.
    pub before: u64,
    /// The state of the sequence after the batch.
    pub counted: SequenceState,
    /// The stored events; empty if the batch was stored before.
    pub events: Vec<NumberedEvent>,
    /// The delivery of the session's events. Events that are not stored are numbered like all others.
    pub delivery: Delivery,
}

/// The maximum number that losses may use up, whatever an agent reports; beyond it every report of losses uses up one
/// number. This leaves as many numbers for events, until the maximum of an [offset](super::Span::offset).
const LAST_LOST: u64 = 1 << 31;

/// Numbers the items of a batch and returns the events to store. Items that the agent sent before are skipped. Gaps in
/// the agent's numbers and events without storage room count as lost. `room` is reduced by the returned events.
pub fn number(
    counted: &mut SequenceState,
    items: Vec<Item>,
    now: OffsetDateTime,
    room: &mut StorageRoom,
) -> Vec<NumberedEvent> {
    let mut numbered = Vec::with_capacity(items.len());
    let mut is_end = false;
    for Item { agent_seq, what } in items {
        if let Some(seq) = agent_seq {
            if seq <= counted.agent_seq {
                continue;
            }
            counted.lose(seq - counted.agent_seq - 1);
            counted.agent_seq = seq;
        }
        match what {
            What::Event(event) => match room.take(size(&event)) {
                Ok(()) => {
                    numbered.extend(counted.report(now, room));
                    counted.limit = None;
                    numbered.push(counted.next(event, now));
                }
                Err(limit) => {
                    counted.lose(1);
                    counted.limit = Some(limit);
                }
            },
            What::Lost(more) => counted.lose(more),
            What::Nothing => {}
            What::End => is_end = true,
        }
    }
    if is_end || counted.is_due(now) {
        numbered.extend(counted.report(now, room));
    }
    numbered
}

/// Returns the bytes that a stored event takes.
fn size(event: &Event) -> u64 {
    ROW_BYTES + event.body.len() as u64
}

impl SequenceState {
    fn lose(&mut self, events: u64) {
        self.untold = self.untold.saturating_add(events);
    }

    /// Returns whether losses may be reported now. A clock that was set back does not delay reports.
    fn is_due(&self, now: OffsetDateTime) -> bool {
        self.limit.is_none() || now < self.reported_at || now - self.reported_at >= REPORT_INTERVAL
    }

    /// Numbers the lost events and returns the event that reports them, if there are any.
    fn report(&mut self, now: OffsetDateTime, room: &mut StorageRoom) -> Option<NumberedEvent> {
        if self.untold == 0 {
            return None;
        }
        let first = self.last_seq + 1;
        self.last_seq += self.untold.min(LAST_LOST.saturating_sub(self.last_seq).max(1));
        self.untold = 0;
        if self.limit.is_some() {
            self.reported_at = now;
        }
        let event = Event::dropped(now, first, self.last_seq, self.limit);
        room.spend(size(&event));
        Some(self.next(event, now))
    }

    fn next(&mut self, event: Event, now: OffsetDateTime) -> NumberedEvent {
        self.last_seq = self.last_seq.saturating_add(1);
        self.bytes = self.bytes.saturating_add(size(&event));
        // A late event gets the time of the previous one, because readers by time may have passed its own time.
        self.last_at = event.at.min(now).max(self.last_at);
        NumberedEvent { seq: self.last_seq, at: self.last_at, event }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;
    use time::Duration;

    use super::*;
    use crate::telemetry::EventsQuery;
    use crate::testing::{NOON, session_id};

    fn event(seconds: i64) -> Event {
        Event::api_call(NOON + Duration::seconds(seconds), "x", "y", 200, 0)
    }

    fn own(seconds: i64) -> Item {
        Item { agent_seq: None, what: What::Event(event(seconds)) }
    }

    fn agents(seq: u64) -> Item {
        Item { agent_seq: Some(seq), what: What::Event(event(0)) }
    }

    fn dropped(of: &NumberedEvent) -> Option<(u64, u64, u64)> {
        let body: Value = serde_json::from_str(&of.event.body).expect("JSON");
        let number = |name: &str| body["data"][name].as_u64().expect("a number");
        (body["type"] == "telemetry_dropped").then(|| (number("count"), number("first_seq"), number("last_seq")))
    }

    #[test]
    fn a_number_reported_as_lost_counts_with_the_gap_before_it() {
        let mut counted = SequenceState::NOTHING;
        let items = vec![agents(1), Item { agent_seq: Some(5), what: What::Lost(1) }, agents(6)];
        let numbered = number(&mut counted, items, NOON, &mut StorageRoom::unbounded());
        // The first event, the report of four lost ones, and the last event.
        assert_eq!(numbered.iter().map(|one| one.seq).collect::<Vec<_>>(), [1, 6, 7]);
        assert_eq!(counted.agent_seq, 6);
    }

    #[test]
    fn repeated_events_are_skipped_and_lost_events_are_reported() {
        let mut counted = SequenceState { last_seq: 10, agent_seq: 5, ..SequenceState::NOTHING };
        let items = vec![agents(4), agents(5), agents(6), own(0), agents(9)];
        let numbered = number(&mut counted, items, NOON, &mut StorageRoom::unbounded());
        assert_eq!(numbered.iter().map(|one| one.seq).collect::<Vec<_>>(), [11, 12, 15, 16]);
        assert_eq!(dropped(&numbered[2]), Some((2, 13, 14)));
        assert_eq!((counted.last_seq, counted.agent_seq), (16, 9));
    }

    #[test]
    fn an_agent_that_counts_beyond_all_limits_stops_no_other_session() {
        let mut counted = SequenceState::NOTHING;
        let more = Item { agent_seq: None, what: What::Lost(u64::MAX) };
        let items = vec![agents(u64::MAX), agents(1), own(0), more];
        let numbered = number(&mut counted, items, NOON, &mut StorageRoom::unbounded());
        assert_eq!(dropped(&numbered[0]), Some((LAST_LOST, 1, LAST_LOST)));
        assert_eq!(numbered.iter().map(|one| one.seq - LAST_LOST).collect::<Vec<_>>(), [1, 2, 3, 5]);
        let (span, _) = EventsQuery::default().parse(NOON).expect("a span");
        assert!(
            numbered.iter().all(|one| span.offset(session_id(1), one.seq).is_some()),
            "one can be paged behind all of them"
        );
    }

    #[test]
    fn events_that_are_not_captured_any_more_use_up_no_number() {
        let mut counted = SequenceState::NOTHING;
        let items = vec![Item { agent_seq: Some(1), what: What::Nothing }, agents(2)];
        assert_eq!(
            number(&mut counted, items, NOON, &mut StorageRoom::unbounded())
                .iter()
                .map(|one| one.seq)
                .collect::<Vec<_>>(),
            [1]
        );
        assert_eq!(counted.agent_seq, 2);
    }

    #[test]
    fn places_in_time_follow_the_numbers_and_lie_in_the_past() {
        let mut counted = SequenceState::NOTHING;
        let numbered =
            number(&mut counted, vec![own(-5), own(-9), own(60), own(-1)], NOON, &mut StorageRoom::unbounded());
        let seconds: Vec<i64> = numbered.iter().map(|one| (one.at - NOON).whole_seconds()).collect();
        assert_eq!(seconds, [-5, -5, 0, 0]);
    }

    fn agents_up_to(first: u64, last: u64) -> Vec<Item> {
        (first..=last).map(agents).collect()
    }

    fn limit(of: &NumberedEvent) -> Option<String> {
        let body: Value = serde_json::from_str(&of.event.body).expect("JSON");
        body["data"]["limit"].as_str().map(str::to_owned)
    }

    #[test]
    fn refused_events_are_reported_once_a_minute_and_the_agent_may_drop_them() {
        let mut counted = SequenceState::NOTHING;
        let mut room = StorageRoom { session: 3 * size(&event(0)), ..StorageRoom::unbounded() };
        let first = number(&mut counted, agents_up_to(1, 10), NOON, &mut room);
        assert_eq!(first.iter().map(|one| one.seq).collect::<Vec<_>>(), [1, 2, 3, 11]);
        assert_eq!((dropped(&first[3]), limit(&first[3])), (Some((7, 4, 10)), Some("session".to_owned())));
        assert_eq!((counted.agent_seq, counted.untold, counted.limit), (10, 0, Some(StorageLimit::Session)));

        let soon = NOON + Duration::seconds(59);
        assert!(number(&mut counted, agents_up_to(11, 20), soon, &mut room).is_empty());
        assert_eq!((counted.agent_seq, counted.untold), (20, 10));
        let later = number(&mut counted, agents_up_to(21, 21), NOON + Duration::MINUTE, &mut room);
        assert_eq!(later.iter().map(dropped).collect::<Vec<_>>(), [Some((11, 12, 22))]);
    }

    #[test]
    fn refused_events_are_reported_before_the_next_stored_one_and_at_the_end() {
        let mut counted = SequenceState::NOTHING;
        let full = || StorageRoom { project: 0, ..StorageRoom::unbounded() };
        number(&mut counted, vec![own(0)], NOON, &mut full());
        assert!(number(&mut counted, vec![own(0), own(0)], NOON, &mut full()).is_empty());
        let again = number(&mut counted, vec![own(0)], NOON, &mut StorageRoom::unbounded());
        assert_eq!(again.iter().map(dropped).collect::<Vec<_>>(), [Some((2, 3, 4)), None]);
        assert_eq!(limit(&again[0]).as_deref(), Some("project"));
        assert_eq!(counted.limit, None);

        number(&mut counted, vec![own(0)], NOON, &mut full());
        let end = Item { agent_seq: None, what: What::End };
        let ended = number(&mut counted, vec![end.clone()], NOON, &mut full());
        assert_eq!(ended.iter().map(dropped).collect::<Vec<_>>(), [Some((1, 7, 7))]);
        assert!(number(&mut counted, vec![end], NOON, &mut full()).is_empty());
    }

    #[test]
    fn stored_bytes_are_counted_with_their_rows() {
        let mut counted = SequenceState::NOTHING;
        let mut room = StorageRoom { project: 10_000, ..StorageRoom::unbounded() };
        let stored = number(&mut counted, vec![own(0), agents(3)], NOON, &mut room);
        let bytes: u64 = stored.iter().map(|one| size(&one.event)).sum();
        assert_eq!((counted.bytes, room.project), (bytes, 10_000 - bytes));
    }

    proptest! {
        #[test]
        fn numbers_rise_and_every_gap_is_reported(
            steps in proptest::collection::vec((0_u64..4, any::<bool>(), 0_u64..3), 0..60),
            session in 0_u64..10_000,
        ) {
            let mut counted = SequenceState::NOTHING;
            let mut agent = 0;
            let items: Vec<Item> = steps.into_iter().map(|(skip, of_agent, lost)| {
                let what = if lost > 0 { What::Lost(lost) } else { What::Event(event(0)) };
                agent += 1 + skip;
                Item { agent_seq: of_agent.then_some(agent), what }
            }).collect();
            let mut last = 0;
            for one in number(&mut counted, items, NOON, &mut StorageRoom { session, ..StorageRoom::unbounded() }) {
                match dropped(&one) {
                    Some((count, first, until)) => {
                        prop_assert_eq!((first, until, until - first + 1), (last + 1, one.seq - 1, count));
                    }
                    None => prop_assert_eq!(one.seq, last + 1),
                }
                last = one.seq;
            }
            prop_assert_eq!(last, counted.last_seq);
        }
    }
}
