//! Tests of reading audit records: queries, continuation, and chunks.

use std::sync::Arc;

use casement_domain::audit::{
    AuditEntry, AuditFilter, AuditLogs, AuditQuery, AuditRange, AuditRecord, AuditService, AuthStrategy, BadCursor,
    MockAuditRepository, MockAuditTrail, Position, RangeMeasurement, ReadAuditError, Reading,
};
use casement_domain::testing::{NOON, organization_id};
use casement_domain::{AuditRecordId, OrganizationId, StoreError};
use pretty_assertions::assert_eq;
use time::Duration;
use ulid::Ulid;

fn record(n: u32) -> AuditRecord {
    let entry = AuditEntry {
        id: AuditRecordId::from_ulid(Ulid::from_parts(1, u128::from(n))),
        at: NOON + Duration::seconds(i64::from(n)),
        auth_strategy: AuthStrategy::ApiKey,
        service: AuditService::Api,
        api_key: None,
        project: None,
        client_ip: "127.0.0.1".to_owned(),
        domain: "casement.test".to_owned(),
        method: "GET".to_owned(),
        path: "/browsers".to_owned(),
        route: "/browsers".to_owned(),
        status: 200,
        duration_ms: 1,
        user_agent: String::new(),
        request_id: String::new(),
        count: 1,
    };
    AuditRecord { organization: organization_id(), user: None, email: String::new(), entry }
}

/// Returns a trail without pending records.
fn whole() -> Arc<MockAuditTrail> {
    let mut trail = MockAuditTrail::new();
    trail.expect_whole_until().returning(Ok);
    Arc::new(trail)
}

fn query() -> AuditQuery {
    AuditQuery { start: Some(NOON), end: Some(NOON + Duration::days(1)), ..AuditQuery::default() }
}

fn refused(query: AuditQuery, reading: Reading) -> Vec<String> {
    let refused = query.parse(reading).expect_err("a refusal");
    refused.fields().iter().map(|field| format!("{} {}", field.field, field.code.as_str())).collect()
}

#[test]
fn every_field_that_breaks_a_rule_is_named() {
    let many = |n: usize| (0..n).map(|n| n.to_string()).collect::<Vec<_>>();
    let bad = AuditQuery {
        end: Some(NOON),
        exclude_methods: many(11),
        search: Some("x".repeat(257)),
        search_users: many(101),
        limit: Some(50_001),
        ..query()
    };
    let named = [
        "end out_of_range",
        "exclude_method too_many",
        "search too_long",
        "search_user_id too_many",
        "limit out_of_range",
    ];
    assert_eq!(refused(bad, Reading::Export), named);
    assert_eq!(refused(AuditQuery::default(), Reading::List), ["start required", "end required"]);
    assert_eq!(refused(AuditQuery { limit: Some(0), ..query() }, Reading::Export), ["limit out_of_range"]);
}

#[test]
fn people_page_through_30_days_and_machines_through_any_span() {
    let long = || AuditQuery { end: Some(NOON + Duration::days(31)), ..query() };
    assert_eq!(refused(long(), Reading::List), ["end out_of_range"]);
    let (_, limit) = long().parse(Reading::Export).expect("any span");
    assert_eq!(limit, 50_000);
    assert_eq!(query().parse(Reading::List).expect("a day").1, 100);
}

fn filter() -> AuditFilter {
    query().parse(Reading::Export).expect("a filter").0
}

#[test]
fn a_token_leads_back_to_its_place_and_is_good_for_its_own_question_alone() {
    let place = record(7).position();
    let token = place.token(organization_id(), &filter());
    assert_eq!(Position::parse(&token, organization_id(), &filter()), Ok(place));

    let other = OrganizationId::from_ulid(Ulid::from_parts(99, 1));
    assert_eq!(Position::parse(&token, other, &filter()), Err(BadCursor));
    let others = AuditFilter { method: Some("GET".to_owned()), ..filter() };
    assert_eq!(Position::parse(&token, organization_id(), &others), Err(BadCursor));
    for cut in [&token[1..], &token[..token.len() - 1], "", "!", &token.repeat(100)] {
        assert_eq!(Position::parse(cut, organization_id(), &filter()), Err(BadCursor), "{cut}");
    }
}

#[test]
fn filters_that_differ_only_in_where_a_value_stands_have_different_tokens() {
    let of = |filter: AuditFilter| record(1).position().token(organization_id(), &filter);
    let search = of(AuditFilter { search: Some("a".into()), ..filter() });
    let service = of(AuditFilter { service: Some("a".into()), ..filter() });
    let excluded = of(AuditFilter { exclude_methods: vec!["A".into()], ..filter() });
    let user = of(AuditFilter { search_users: vec!["A".into()], ..filter() });
    let all = [search, service, excluded, user];
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
}

#[tokio::test]
async fn a_page_is_followed_by_a_token_only_if_there_is_more() {
    let mut store = MockAuditRepository::new();
    store.expect_page().returning(|_, _, stretch, limit| {
        let from = stretch.after.map_or(3, |after| (after.at - NOON).whole_seconds() as u32 - 1);
        Ok((1..=from).rev().map(record).take(limit as usize).collect())
    });
    let logs = AuditLogs::new(Arc::new(store), whole());
    let two = || AuditQuery { limit: Some(2), ..query() };
    let first = logs.list(organization_id(), two(), None).await.expect("a page");
    assert_eq!(first.records, [record(3), record(2)]);
    let token = first.next.expect("one more");
    let second = logs.list(organization_id(), two(), Some(&token)).await.expect("a page");
    assert_eq!((second.records, second.next), (vec![record(1)], None));
}

fn measured(count: u32, first: u32, last: u32, more: bool) -> RangeMeasurement {
    RangeMeasurement { count, ends: Some((record(first).position(), record(last).position())), more }
}

/// Returns whether a record is in a range.
fn within(n: u32, stretch: AuditRange) -> bool {
    let place = |place: Position| (place.at, place.id);
    let here = place(record(n).position());
    stretch.after.is_none_or(|after| here < place(after)) && stretch.through.is_none_or(|last| here >= place(last))
}

#[tokio::test]
async fn a_record_that_comes_after_a_chunk_was_measured_is_not_part_of_it() {
    let mut store = MockAuditRepository::new();
    store.expect_measure().returning(|_, _, _, _| Ok(measured(2, 2, 1, false)));
    // Records 2 and 1 were measured; then 4 and 3 were added.
    store.expect_page().returning(|_, _, stretch, _| {
        Ok([4, 3, 2, 1].into_iter().filter(|n| within(*n, stretch)).map(record).collect())
    });
    let logs = AuditLogs::new(Arc::new(store), whole());
    let mut chunk = logs.export(organization_id(), query(), None).await.expect("a chunk");
    assert_eq!((chunk.count, chunk.next_batch().await.expect("records")), (2, [2, 1].map(record).into()));
    assert_eq!(chunk.next_batch().await.expect("the end"), []);
}

#[tokio::test]
async fn an_export_ends_where_the_records_are_complete_and_says_so() {
    let (noon, end) = (NOON, NOON + Duration::days(1));
    let mut trail = MockAuditTrail::new();
    trail.expect_whole_until().withf(move |until| *until == end).times(1).returning(move |_| Ok(noon + Duration::HOUR));
    let mut store = MockAuditRepository::new();
    store.expect_measure().times(1).returning(move |_, filter, _, _| {
        assert_eq!((filter.start, filter.end), (noon, noon + Duration::HOUR));
        Ok(measured(2, 30, 10, true))
    });
    store.expect_measure().times(1).returning(|_, _, _, _| Ok(RangeMeasurement::default()));
    let logs = AuditLogs::new(Arc::new(store), Arc::new(trail));
    let first = logs.export(organization_id(), query(), None).await.expect("a chunk");
    assert_eq!(first.until, Some(NOON + Duration::HOUR));
    // The same query continues, even if its range ends elsewhere now.
    let second = logs.export(organization_id(), query(), first.next.as_deref()).await.expect("a chunk");
    assert_eq!((second.until, second.count), (None, 0));
}

#[tokio::test]
async fn an_export_whose_records_wait_to_be_stored_is_refused_and_a_list_is_not() {
    let mut trail = MockAuditTrail::new();
    trail.expect_whole_until().returning(|_| Err(StoreError::unavailable("audit.settle", "records wait")));
    let mut store = MockAuditRepository::new();
    store.expect_page().times(1).returning(|_, _, _, _| Ok(vec![record(1)]));
    let logs = AuditLogs::new(Arc::new(store), Arc::new(trail));
    let refused = logs.export(organization_id(), query(), None).await;
    assert!(matches!(refused.err(), Some(ReadAuditError::Store(StoreError::Unavailable { .. }))));
    assert_eq!(logs.list(organization_id(), query(), None).await.expect("a page").records, [record(1)]);
}

#[test]
fn the_place_ahead_of_a_record_is_before_it_and_behind_the_one_before() {
    let (here, before) = (record(7).position(), record(8).position());
    let order = |place: Position| (place.at, place.id);
    assert!(order(here) < order(here.ahead()) && order(here.ahead()) <= order(before));
    let last = Position { id: AuditRecordId::from_ulid(Ulid(u128::MAX)), ..here };
    assert!(order(last) < order(last.ahead()));
}

#[tokio::test]
async fn a_chunk_that_is_cut_is_continued_after_its_last_record() {
    let mut store = MockAuditRepository::new();
    store.expect_measure().returning(|_, _, _, _| Ok(measured(3, 30, 10, false)));
    let logs = AuditLogs::new(Arc::new(store), whole());
    let mut chunk = logs.export(organization_id(), query(), None).await.expect("a chunk");
    assert_eq!(chunk.next, None);
    chunk.cut(record(20).position());
    assert_eq!(chunk.next_batch().await.expect("the end"), []);
    let next = chunk.next.expect("records remain");
    let from = Position::parse(&next, organization_id(), &chunk.requested).expect("ours");
    assert_eq!(from, record(20).position());
}

#[tokio::test]
async fn a_record_that_arrives_late_pushes_none_out_of_its_chunk() {
    let mut store = MockAuditRepository::new();
    store.expect_measure().returning(|_, _, _, _| Ok(measured(2, 30, 10, true)));
    // Records 30 and 10 were measured; then 20 was added.
    store.expect_page().returning(|_, _, stretch, _| {
        let after = Some(record(30).position().ahead());
        assert_eq!(stretch, AuditRange { after, through: Some(record(10).position()) });
        Ok([30, 20, 10].map(record).into())
    });
    let logs = AuditLogs::new(Arc::new(store), whole());
    let mut chunk = logs.export(organization_id(), query(), None).await.expect("a chunk");
    assert_eq!(chunk.next_batch().await.expect("records"), [30, 20, 10].map(record));
    assert_eq!(chunk.next_batch().await.expect("the end"), []);
    let next = chunk.next.expect("older records remain");
    let from = Position::parse(&next, organization_id(), &chunk.requested).expect("ours");
    assert_eq!(from, record(10).position());
}

/// Returns a store with records from 1,000,000 down to 1, of which one in 300,000 matches.
fn few_among_many() -> MockAuditRepository {
    let number = |place: Option<Position>| {
        place.map(|place| u32::try_from((place.at - NOON).whole_seconds()).expect("below a million and one"))
    };
    let found = |stretch: AuditRange, limit: u32| -> Vec<AuditRecord> {
        let matching = [900_000, 600_000, 300_000].into_iter().filter(|n| within(*n, stretch));
        matching.map(record).take(limit as usize).collect()
    };
    let mut store = MockAuditRepository::new();
    store.expect_position_after().returning(move |_, _, after, count| {
        let from = number(after).unwrap_or(1_000_001);
        Ok((from > count).then(|| record(from - count).position()))
    });
    store.expect_page().returning(move |_, _, stretch, limit| Ok(found(stretch, limit)));
    store.expect_measure().returning(move |_, _, stretch, limit| {
        let all = found(stretch, u32::MAX);
        let held = all.len().min(limit as usize);
        let ends = held.checked_sub(1).map(|last| (all[0].position(), all[last].position()));
        Ok(RangeMeasurement { count: u32::try_from(held).expect("few"), ends, more: all.len() > held })
    });
    store
}

#[tokio::test]
async fn a_text_is_looked_for_in_steps_and_all_of_it_is_found() {
    let logs = AuditLogs::new(Arc::new(few_among_many()), whole());
    let searching = || AuditQuery { search: Some("rare".into()), ..query() };
    let long = |query: AuditQuery| AuditQuery { end: Some(NOON + Duration::days(30)), ..query };
    let (mut listed, mut token, mut calls) = (Vec::new(), None, 0);
    loop {
        let page = logs.list(organization_id(), long(searching()), token.as_deref()).await.expect("a page");
        assert!(!page.records.is_empty() || page.next.is_none(), "an empty page would be taken for the end");
        listed.extend(page.records);
        calls += 1;
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(listed, [900_000, 600_000, 300_000].map(record));
    assert!(calls > 1, "one call looks through so much and no more");

    let (mut exported, mut cursor) = (Vec::new(), None);
    loop {
        let mut chunk = logs.export(organization_id(), long(searching()), cursor.as_deref()).await.expect("a chunk");
        let mut count = 0;
        loop {
            let batch = chunk.next_batch().await.expect("records");
            if batch.is_empty() {
                break;
            }
            count += u32::try_from(batch.len()).unwrap();
            exported.extend(batch);
        }
        assert_eq!(count, chunk.count);
        cursor = chunk.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(exported, [900_000, 600_000, 300_000].map(record));
}
