//! How events get their numbers.

use time::OffsetDateTime;
use ulid::Ulid;

use super::Event;
use crate::ids::SessionId;

/// How far a session has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The number of its last event; 0: none yet.
    pub last_seq: u64,
    /// The place in time of its last event.
    pub last_at: OffsetDateTime,
    /// The agent's number of the last event of its that was stored; 0: none.
    pub agent_seq: u64,
}

impl Counted {
    /// A session of which nothing was stored yet.
    pub const NOTHING: Self = Self { last_seq: 0, last_at: OffsetDateTime::UNIX_EPOCH, agent_seq: 0 };
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
    /// Whose it is.
    pub session: SessionId,
    /// Says that a batch which may have been stored is stored again.
    pub id: Ulid,
    /// In the order in which they are numbered; those of the agent in the agent's order.
    pub items: Vec<Item>,
}

/// An event with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its number in the session, from 1 on.
    pub seq: u64,
    /// Its place in time: never before that of a lower number, and never in the future.
    pub at: OffsetDateTime,
    /// The event.
    pub event: Event,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Whose it is.
    pub session: SessionId,
    /// The session's last number before the batch. After a batch that was stored before, this is its own last number.
    pub before: u64,
    /// How far the session has counted with it.
    pub counted: Counted,
    /// The events; none if they were stored before.
    pub events: Vec<Numbered>,
}

/// What was lost takes no session's numbers beyond this one, whatever an agent says; of any loss there one event is counted. As many
/// numbers are left for events before those that an [offset](super::Span::offset) can name come to their end.
const LAST_LOST: u64 = 1 << 31;

/// Numbers the items of a batch. What the agent told before is left out, and a gap in the agent's numbers is what it lost.
pub fn number(counted: &mut Counted, items: Vec<Item>, now: OffsetDateTime) -> Vec<Numbered> {
    let mut numbered = Vec::with_capacity(items.len());
    for Item { agent_seq, what } in items {
        let mut lost = 0;
        if let Some(seq) = agent_seq {
            if seq <= counted.agent_seq {
                continue;
            }
            lost = seq - counted.agent_seq - 1;
            counted.agent_seq = seq;
        }
        let event = match what {
            What::Event(event) => Some(event),
            What::Nothing => None,
            What::Lost(more) => {
                lost = lost.saturating_add(more);
                None
            }
        };
        if lost > 0 {
            let first = counted.last_seq + 1;
            counted.last_seq += lost.min(LAST_LOST.saturating_sub(counted.last_seq).max(1));
            numbered.push(counted.next(Event::dropped(now, first, counted.last_seq), now));
        }
        numbered.extend(event.map(|event| counted.next(event, now)));
    }
    numbered
}

impl Counted {
    fn next(&mut self, event: Event, now: OffsetDateTime) -> Numbered {
        self.last_seq = self.last_seq.saturating_add(1);
        // What comes late stands where it became known: whoever reads by time has passed its own.
        self.last_at = event.at.min(now).max(self.last_at);
        Numbered { seq: self.last_seq, at: self.last_at, event }
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

    fn dropped(of: &Numbered) -> Option<(u64, u64, u64)> {
        let body: Value = serde_json::from_str(&of.event.body).expect("JSON");
        let number = |name: &str| body["data"][name].as_u64().expect("a number");
        (body["type"] == "telemetry_dropped").then(|| (number("count"), number("first_seq"), number("last_seq")))
    }

    #[test]
    fn a_number_that_is_told_as_lost_counts_with_the_gap_before_it() {
        let mut counted = Counted::NOTHING;
        let items = vec![agents(1), Item { agent_seq: Some(5), what: What::Lost(1) }, agents(6)];
        let numbered = number(&mut counted, items, NOON);
        // The first, the word of four that were lost, and the last.
        assert_eq!(numbered.iter().map(|one| one.seq).collect::<Vec<_>>(), [1, 6, 7]);
        assert_eq!(counted.agent_seq, 6);
    }

    #[test]
    fn what_the_agent_told_before_is_left_out_and_what_it_lost_is_said() {
        let mut counted = Counted { last_seq: 10, agent_seq: 5, ..Counted::NOTHING };
        let items = vec![agents(4), agents(5), agents(6), own(0), agents(9)];
        let numbered = number(&mut counted, items, NOON);
        assert_eq!(numbered.iter().map(|one| one.seq).collect::<Vec<_>>(), [11, 12, 15, 16]);
        assert_eq!(dropped(&numbered[2]), Some((2, 13, 14)));
        assert_eq!((counted.last_seq, counted.agent_seq), (16, 9));
    }

    #[test]
    fn an_agent_that_counts_beyond_all_bounds_stops_nobody() {
        let mut counted = Counted::NOTHING;
        let more = Item { agent_seq: None, what: What::Lost(u64::MAX) };
        let items = vec![agents(u64::MAX), agents(1), own(0), more];
        let numbered = number(&mut counted, items, NOON);
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
        let mut counted = Counted::NOTHING;
        let items = vec![Item { agent_seq: Some(1), what: What::Nothing }, agents(2)];
        assert_eq!(number(&mut counted, items, NOON).iter().map(|one| one.seq).collect::<Vec<_>>(), [1]);
        assert_eq!(counted.agent_seq, 2);
    }

    #[test]
    fn places_in_time_follow_the_numbers_and_lie_in_the_past() {
        let mut counted = Counted::NOTHING;
        let numbered = number(&mut counted, vec![own(-5), own(-9), own(60), own(-1)], NOON);
        let seconds: Vec<i64> = numbered.iter().map(|one| (one.at - NOON).whole_seconds()).collect();
        assert_eq!(seconds, [-5, -5, 0, 0]);
    }

    proptest! {
        #[test]
        fn numbers_rise_and_every_gap_is_told_of(
            steps in proptest::collection::vec((0_u64..4, any::<bool>(), 0_u64..3), 0..60)
        ) {
            let mut counted = Counted::NOTHING;
            let mut agent = 0;
            let items: Vec<Item> = steps.into_iter().map(|(skip, of_agent, lost)| {
                let what = if lost > 0 { What::Lost(lost) } else { What::Event(event(0)) };
                agent += 1 + skip;
                Item { agent_seq: of_agent.then_some(agent), what }
            }).collect();
            let mut last = 0;
            for one in number(&mut counted, items, NOON) {
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
