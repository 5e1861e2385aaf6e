//! The numbering of events.

use time::{Duration, OffsetDateTime};
use ulid::Ulid;

use super::Event;
use crate::ids::SessionId;
use crate::storage::{ROW_BYTES, StorageLimit, StorageRoom};

/// How far a session has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceState {
    /// The number of its last event; 0: none yet.
    pub last_seq: u64,
    /// The place in time of its last event.
    pub last_at: OffsetDateTime,
    /// The agent's number of the last event of its that was stored; 0: none.
    pub agent_seq: u64,
    /// How many bytes are kept of it.
    pub bytes: u64,
    /// Events that are lost and have no number yet: while a limit refuses events, readers are told now and then.
    pub untold: u64,
    /// The limit that refused its latest event; nothing if that was stored.
    pub limit: Option<StorageLimit>,
    /// When readers were last told of what a limit refused.
    pub reported_at: OffsetDateTime,
}

/// How often readers are told, at most, of what a storage limit goes on refusing: what tells them is stored in any case.
const REPORT_INTERVAL: Duration = Duration::MINUTE;

impl SequenceState {
    /// A session of which nothing was stored yet.
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

/// What is to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An event that is kept.
    Event(Event),
    /// Nothing: an event of a category that is not captured any more.
    Nothing,
    /// So many events that could not be kept.
    Lost(u64),
    /// Nothing: the session has ended, and what is lost and has no number yet gets it.
    End,
}

/// One thing to count, and the agent's number of it if it is the agent's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The agent's number.
    pub agent_seq: Option<u64>,
    /// What it is.
    pub what: What,
}

/// What is stored for one session at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The project that owns it.
    pub session: SessionId,
    /// Says that a batch which may have been stored is stored again.
    pub id: Ulid,
    /// In the order in which they are numbered; those of the agent in the agent's order.
    pub items: Vec<Item>,
}

/// An event with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedEvent {
    /// Its number in the session, from 1 on.
    pub seq: u64,
    /// Its place in time: never before that of a lower number, and never in the future.
    pub at: OffsetDateTime,
    /// The event.
    pub event: Event,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// The project that owns it.
    pub session: SessionId,
    /// The session's last number before the batch. After a batch that was stored before, this is its own last number.
    pub before: u64,
    /// How far the session has counted with it.
    pub counted: SequenceState,
    /// The events; none if they were stored before.
    pub events: Vec<NumberedEvent>,
}

/// What was lost takes no session's numbers beyond this one, whatever an agent says; of any loss there one event is counted. As many
/// numbers are left for events before those that an [offset](super::Span::offset) can name come to their end.
const LAST_LOST: u64 = 1 << 31;

/// Numbers the items of a batch. What the agent told before is left out, a gap in the agent's numbers is what it lost, and events for which
/// there is no room are lost, too. `room` is what is left of it afterwards.
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

/// How many bytes a stored event takes.
fn size(event: &Event) -> u64 {
    ROW_BYTES + event.body.len() as u64
}

impl SequenceState {
    fn lose(&mut self, events: u64) {
        self.untold = self.untold.saturating_add(events);
    }

    /// A clock that was set back makes nobody wait.
    fn is_due(&self, now: OffsetDateTime) -> bool {
        self.limit.is_none() || now < self.reported_at || now - self.reported_at >= REPORT_INTERVAL
    }

    /// Gives those that are lost their numbers.
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
        // What comes late stands where it became known: whoever reads by time has passed its own.
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
        // The first, the word of four that were lost, and the last.
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
