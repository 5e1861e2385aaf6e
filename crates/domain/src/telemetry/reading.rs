//! Requests to read events, and the positions where reading continues.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

use super::{Event, EventCategory};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};
use crate::ids::SessionId;
use crate::page::Page;

/// The default time span of a query, up to now.
const RECENT: Duration = Duration::minutes(5);
/// The bits of an offset that identify its session and filter. With a number of 32 bits an offset has 53 bits, which
/// floating-point numbers represent exactly.
const PROOF_BITS: u32 = 21;

/// The maximum number of types that a filter names, and the longest one, in bytes.
const MAX_TYPES: usize = 100;
const MAX_TYPE_BYTES: usize = 64;

/// The error of an offset that is malformed or belongs to another session or filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an offset of this list, or one of other filters")]
pub struct BadOffset;

/// The direction of reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    #[default]
    Ascending,
    /// Newest first.
    Descending,
}

/// An unchecked query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsQuery {
    /// The maximum number of events, 1 to 100. Default: 20.
    pub limit: Option<i64>,
    /// The offset from the previous page.
    pub offset: Option<i64>,
    /// The start, inclusive. Default: five minutes ago.
    pub since: Option<OffsetDateTime>,
    /// The end, exclusive.
    pub until: Option<OffsetDateTime>,
    /// The order: `asc` or `desc`. Default: `asc`.
    pub order: Option<String>,
    /// The categories. Default: all.
    pub categories: Vec<String>,
    /// The types. Default: all.
    pub types: Vec<String>,
}

/// The types of the events to read. Types that no event has are allowed, because newer versions have more of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeFilter(BTreeSet<String>);

impl TypeFilter {
    /// Parses the types; none selects all events.
    ///
    /// # Errors
    /// `too_many` for more than 100 types; `invalid_format` for a text that is no name of a type.
    pub fn parse(types: Vec<String>) -> Result<Self, InvalidValue> {
        if types.len() > MAX_TYPES {
            return Err(InvalidValue::new(FieldCode::TooMany, format!("must be at most {MAX_TYPES} types")));
        }
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if types.iter().any(|kind| kind.is_empty() || kind.len() > MAX_TYPE_BYTES || !kind.bytes().all(plain)) {
            let rule = "must be the name of a type, such as page_crashed";
            return Err(InvalidValue::new(FieldCode::InvalidFormat, rule));
        }
        Ok(Self(types.into_iter().collect()))
    }

    /// Returns whether all events are selected.
    #[must_use]
    pub fn selects_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the event is selected.
    #[must_use]
    pub fn selects(&self, event: &Event) -> bool {
        self.selects_all() || self.0.contains(event.kind())
    }

    /// Returns the types in order; none if all events are selected.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// The events of a session to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The maximum number of events.
    pub limit: u32,
    /// The direction of reading.
    pub order: Order,
    /// The number of the event after which reading begins, in this direction.
    pub behind: Option<u64>,
    /// The earliest time, inclusive.
    pub since: Option<OffsetDateTime>,
    /// The latest time, exclusive.
    pub until: Option<OffsetDateTime>,
    /// The categories: distinct, in the order of the type, and never empty.
    pub categories: Vec<EventCategory>,
    /// The types.
    pub types: TypeFilter,
}

impl EventsQuery {
    /// Checks the query. Returns the span, and the offset at which it continues.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(self, now: OffsetDateTime) -> Result<(Span, Option<i64>), InvalidInput> {
        let mut fields = Fields::new();
        let limit = fields.take_optional("limit", self.limit, |n| within(n, 1, Page::MAX_LIMIT));
        let order = fields.take_optional("order", self.order, |text| order(&text)).unwrap_or_default();
        if self.since.is_some() && order == Order::Descending {
            fields.refuse("since", InvalidValue::new(FieldCode::MutuallyExclusive, "cannot be given with order=desc"));
        }
        if let (Some(since), Some(until), None) = (self.since, self.until, self.offset)
            && until <= since
        {
            fields.refuse("until", InvalidValue::new(FieldCode::OutOfRange, "must be after since"));
        }
        let categories = fields.take("category", categories(&self.categories)).unwrap_or_default();
        let types = fields.take("type", TypeFilter::parse(self.types)).unwrap_or_default();
        fields.finish()?;
        let from_the_start = order == Order::Ascending && self.offset.is_none();
        let since = from_the_start.then(|| self.since.unwrap_or(now - RECENT));
        let limit = limit.unwrap_or(Page::DEFAULT_LIMIT);
        Ok((Span { limit, order, behind: None, since, until: self.until, categories, types }, self.offset))
    }
}

fn order(text: &str) -> Result<Order, InvalidValue> {
    match text {
        // An empty parameter is an absent one.
        "" | "asc" => Ok(Order::Ascending),
        "desc" => Ok(Order::Descending),
        _ => Err(InvalidValue::new(FieldCode::NotAllowed, "must be asc or desc")),
    }
}

fn categories(texts: &[String]) -> Result<Vec<EventCategory>, InvalidValue> {
    let known = EventCategory::ALL.map(EventCategory::as_str).join(", ");
    let parsed = texts.iter().map(|text| EventCategory::parse(text).ok_or(()));
    let mut parsed: Vec<EventCategory> = parsed
        .collect::<Result<_, ()>>()
        .map_err(|()| InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {known}")))?;
    if parsed.is_empty() {
        parsed = EventCategory::ALL.to_vec();
    }
    parsed.sort_unstable();
    parsed.dedup();
    Ok(parsed)
}

impl Span {
    /// Returns the offset after the event with this number; `None` above 32 bits, which no session reaches.
    #[must_use]
    pub fn offset(&self, session: SessionId, seq: u64) -> Option<u64> {
        let number = u32::try_from(seq).ok()?;
        Some((u64::from(number) << PROOF_BITS) | self.proof(session, number))
    }

    /// Returns the span that continues at an offset.
    ///
    /// # Errors
    /// [`BadOffset`] if the offset is malformed or belongs to another session or filter.
    pub fn from_offset(self, session: SessionId, offset: i64) -> Result<Self, BadOffset> {
        let offset = u64::try_from(offset).map_err(|_| BadOffset)?;
        let number = u32::try_from(offset >> PROOF_BITS).map_err(|_| BadOffset)?;
        if number == 0 || self.offset(session, number.into()) != Some(offset) {
            return Err(BadOffset);
        }
        Ok(Self { behind: Some(number.into()), ..self })
    }

    /// Returns the digest that identifies the session, number, direction, categories and types of an offset. It ignores
    /// `until`, which may change between pages.
    fn proof(&self, session: SessionId, number: u32) -> u64 {
        let mut digest = Sha256::new();
        digest.update(session.ulid().0.to_be_bytes());
        digest.update(number.to_be_bytes());
        digest.update([u8::from(self.order == Order::Descending)]);
        for category in &self.categories {
            digest.update(category.as_str());
            digest.update(b",");
        }
        for kind in self.types.types() {
            digest.update(b";");
            digest.update(kind);
        }
        let digest: [u8; 32] = digest.finalize().into();
        let head = digest.iter().take(4).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        head & ((1 << PROOF_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Category;
    use crate::testing::{NOON, session_id};

    fn filter(types: &[&str]) -> TypeFilter {
        TypeFilter::parse(types.iter().map(|&kind| kind.to_owned()).collect()).expect("types")
    }

    #[test]
    fn a_filter_of_types_selects_these_and_no_type_selects_all() {
        let event = Event::api_call(NOON, "x", "y", 200, 0);
        assert!(filter(&[]).selects(&event) && filter(&["console_log", "api_call"]).selects(&event));
        assert!(!filter(&["console_log", "a_type_of_later"]).selects(&event));
    }

    fn parse(query: EventsQuery) -> Result<Span, String> {
        query.parse(NOON).map(|(span, _)| span).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn the_last_five_minutes_are_read_by_default() {
        let span = parse(EventsQuery::default()).expect("a span");
        assert_eq!((span.limit, span.since, span.until), (20, Some(NOON - Duration::minutes(5)), None));
        assert_eq!(span.categories.len(), 10);
        let empty = EventsQuery { order: Some(String::new()), ..EventsQuery::default() };
        assert_eq!(parse(empty), Ok(span));
        let newest = EventsQuery { order: Some("desc".to_owned()), ..EventsQuery::default() };
        assert_eq!(parse(newest).expect("a span").since, None);
        let further = EventsQuery { since: Some(NOON), offset: Some(1), until: Some(NOON), ..EventsQuery::default() };
        assert_eq!(parse(further).expect("since is ignored").since, None);
    }

    #[test]
    fn what_contradicts_itself_or_is_not_known_is_refused() {
        let query = EventsQuery::default;
        let desc = || Some("desc".to_owned());
        for (bad, field) in [
            (EventsQuery { limit: Some(0), ..query() }, "limit"),
            (EventsQuery { limit: Some(101), ..query() }, "limit"),
            (EventsQuery { order: Some("up".to_owned()), ..query() }, "order"),
            (EventsQuery { order: desc(), since: Some(NOON), ..query() }, "since"),
            (EventsQuery { order: desc(), since: Some(NOON), offset: Some(5), ..query() }, "since"),
            (EventsQuery { since: Some(NOON), until: Some(NOON), ..query() }, "until"),
            (EventsQuery { since: Some(NOON), until: Some(NOON - Duration::HOUR), ..query() }, "until"),
            (EventsQuery { categories: vec!["console".to_owned(), "all".to_owned()], ..query() }, "category"),
            (EventsQuery { types: vec!["api_call".to_owned(), "page crashed".to_owned()], ..query() }, "type"),
            (EventsQuery { types: vec![String::new()], ..query() }, "type"),
            (EventsQuery { types: vec!["x".repeat(65)], ..query() }, "type"),
            (EventsQuery { types: vec!["api_call".to_owned(); 101], ..query() }, "type"),
        ] {
            let refused = bad.clone().parse(NOON).expect_err(field);
            assert!(refused.fields().iter().any(|error| error.field == field), "{bad:?}: {refused}");
        }
    }

    #[test]
    fn an_offset_is_good_for_its_session_direction_and_filters_alone() {
        let span = parse(EventsQuery::default()).expect("a span");
        for seq in [1, 20, 1_000_000, u64::from(u32::MAX)] {
            let offset = span.offset(session_id(1), seq).expect("an offset");
            assert!(offset > 0 && offset < 1 << 53);
            let offset = i64::try_from(offset).expect("small");
            assert_eq!(span.clone().from_offset(session_id(1), offset).expect("ours").behind, Some(seq));
            let other = Span { order: Order::Descending, ..span.clone() };
            let fewer = Span { categories: vec![EventCategory::Captured(Category::Page)], ..span.clone() };
            let typed = Span { types: filter(&["api_call"]), ..span.clone() };
            for (span, session, offset) in [
                (span.clone(), 2, offset),
                (typed, 1, offset),
                (other, 1, offset),
                (fewer, 1, offset),
                (span.clone(), 1, offset + 1),
                (span.clone(), 1, offset ^ (1 << 40)),
                (span.clone(), 1, -offset),
            ] {
                assert_eq!(span.from_offset(session_id(session), offset), Err(BadOffset), "{seq} {session} {offset}");
            }
        }
        for made_up in [0, 1, -1, 7, i64::MAX, i64::MIN, 1 << PROOF_BITS] {
            assert_eq!(span.clone().from_offset(session_id(1), made_up), Err(BadOffset), "{made_up}");
        }
        assert_eq!(span.offset(session_id(1), u64::MAX), None);
    }
}
