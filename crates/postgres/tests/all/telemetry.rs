//! Telemetry events: numbered in the order in which they become visible, stored once each, read page by page.

use std::collections::BTreeSet;
use std::sync::Arc;

use casement_domain::session::SessionRepository;
use casement_domain::storage::{
    MockDiskSpace, ROW_BYTES, StorageBounds, StorageBudgets, StorageLimit, StorageUsage as _,
};
use casement_domain::telemetry::{
    Batch, Capture, Category, Event, EventCategory, EventsQuery, Item, NumberedEvent, Order, Span, TelemetryStore,
    TypeFilter, What,
};
use casement_domain::testing::{NOON, node_id, organization_id, session, session_id};
use casement_postgres::{PgSessions, PgStorageUsage, PgTelemetry};
use pretty_assertions::assert_eq;
use time::{Duration, OffsetDateTime};
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{Fault, World};

async fn world(sessions: u32) -> Result<(World, PgTelemetry), Fault> {
    within(sessions, StorageBounds::unbounded(node_id())).await
}

async fn within(sessions: u32, bounds: StorageBounds) -> Result<(World, PgTelemetry), Fault> {
    let world = World::new().await?;
    let rows = PgSessions::new(world.db.database().clone());
    for n in 1..=sessions {
        let _created = rows.create(organization_id(), &session(n), None).await?;
    }
    let store = PgTelemetry::new(world.db.database().clone(), bounds);
    Ok((world, store))
}

fn event(category: Category, at: OffsetDateTime, text: &str) -> Event {
    Event::ours(category, "api_call", at, None, Some([("text".to_owned(), text.into())]))
}

fn own(category: Category) -> Item {
    Item { agent_seq: None, what: What::Event(event(category, NOON, "own \\u0000 \u{0} ä")) }
}

fn agents(seq: u64) -> Item {
    Item { agent_seq: Some(seq), what: What::Event(event(Category::Console, NOON, "told")) }
}

fn batch(n: u32, id: u128, items: Vec<Item>) -> Batch {
    Batch { session: session_id(n), id: Ulid(id), items }
}

fn span(change: impl FnOnce(&mut Span)) -> Span {
    let query = EventsQuery { limit: Some(100), since: Some(NOON - Duration::DAY), ..EventsQuery::default() };
    let mut span = query.parse(NOON).expect("a span").0;
    change(&mut span);
    span
}

fn seqs(events: &[NumberedEvent]) -> Vec<u64> {
    events.iter().map(|one| one.seq).collect()
}

async fn read(store: &PgTelemetry, n: u32, change: impl FnOnce(&mut Span)) -> Result<(Vec<u64>, bool), Fault> {
    let (events, more) = store.page(session_id(n), &span(change)).await?;
    Ok((seqs(&events), more))
}

#[tokio::test]
async fn events_come_back_as_they_were_each_session_by_itself() -> TestResult {
    let (_world, store) = world(2).await?;
    let items = vec![own(Category::Control), agents(1), agents(4)];
    let stored = store.append(&[batch(1, 1, items), batch(2, 2, vec![own(Category::Page)])], NOON).await?;
    let first = stored.iter().find(|one| one.session == session_id(1)).expect("stored");
    assert_eq!((first.before, first.counted.last_seq, first.counted.agent_seq), (0, 6, 4));
    let (events, more) = store.page(session_id(1), &span(|_| ())).await?;
    assert_eq!((&events, more), (&first.events, false));
    assert_eq!(seqs(&events), [1, 2, 5, 6], "two were lost before the last");
    assert_eq!(store.counted(session_id(1)).await?, first.counted);
    assert_eq!(read(&store, 2, |_| ()).await?, (vec![1], false));
    assert_eq!(read(&store, 3, |_| ()).await?, (vec![], false));
    Ok(())
}

#[tokio::test]
async fn what_may_have_been_stored_is_stored_once() -> TestResult {
    let (_world, store) = world(1).await?;
    let items = vec![own(Category::Control), agents(1), agents(2)];
    store.append(&[batch(1, 1, items.clone())], NOON).await?;
    let again = store.append(&[batch(1, 1, items)], NOON).await?;
    assert_eq!((again[0].before, again[0].counted.last_seq, again[0].events.len()), (3, 3, 0));
    // After a crash, the server requests events from the agent again, and finds duplicates by the agent's numbers.
    let after = store.append(&[batch(1, 2, vec![agents(2), agents(3)])], NOON).await?;
    assert_eq!(seqs(&after[0].events), [4]);
    assert_eq!(read(&store, 1, |_| ()).await?.0, [1, 2, 3, 4]);
    Ok(())
}

#[tokio::test]
async fn pages_have_no_gap_and_no_duplicate_while_many_write() -> TestResult {
    let (_world, store) = world(1).await?;
    let store = Arc::new(store);
    let writing = (1..=20_u128).map(|id| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let items = (0..25).map(|_| own(Category::Control)).collect();
            store.append(&[batch(1, id, items)], NOON).await.map(|_| ())
        })
    });
    let writing: Vec<_> = writing.collect();
    let (mut seen, mut behind) = (Vec::new(), None);
    let mut writers = Some(writing);
    loop {
        let (page, _) = read(&store, 1, |span| (span.limit, span.behind) = (7, behind)).await?;
        behind = page.last().copied().or(behind);
        seen.extend_from_slice(&page);
        if page.is_empty() {
            let Some(writing) = writers.take() else { break };
            for writer in writing {
                writer.await??;
            }
        }
    }
    assert_eq!(seen, (1..=500).collect::<Vec<_>>());
    Ok(())
}

/// The numbers of all pages, until a page is empty and `done` returns `true`.
async fn all_pages(
    store: &PgTelemetry,
    change: impl Fn(&mut Span),
    mut done: impl AsyncFnMut() -> Result<bool, Fault>,
) -> Result<Vec<u64>, Fault> {
    let (mut seen, mut behind) = (Vec::new(), None);
    loop {
        let requested = |span: &mut Span| {
            change(span);
            (span.limit, span.behind) = (7, behind);
        };
        let (page, _) = read(store, 1, requested).await?;
        behind = page.last().copied().or(behind);
        seen.extend_from_slice(&page);
        if page.is_empty() && done().await? {
            return Ok(seen);
        }
    }
}

#[tokio::test]
async fn pages_of_a_category_and_of_the_newest_have_no_gap_while_many_write() -> TestResult {
    let (_world, store) = world(1).await?;
    let store = Arc::new(store);
    let items = || [Category::Control, Category::Page, Category::Control, Category::Console].map(own).to_vec();
    // Stored first, so that not all of the newest events are the writers'.
    store.append(&[batch(1, 1, (0..10).flat_map(|_| items()).collect())], NOON).await?;
    let writing = (2..=21_u128).map(|id| {
        let store = Arc::clone(&store);
        let items = (0..5).flat_map(|_| items()).collect();
        tokio::spawn(async move { store.append(&[batch(1, id, items)], NOON).await.map(drop) })
    });
    let mut writers = writing.collect::<Vec<_>>();
    let newest = |span: &mut Span| (span.order, span.since) = (Order::Descending, None);
    let first = read(&store, 1, newest).await?.0[0];
    // Paging back from the newest event finds all earlier ones, and none that were stored since.
    let back = all_pages(&store, newest, async || Ok(true)).await?;
    let last = back[0];
    assert!(last >= first);
    assert_eq!(back, (1..=last).rev().collect::<Vec<_>>());

    let control = |span: &mut Span| span.categories = vec![EventCategory::Captured(Category::Control)];
    let forth = all_pages(&store, control, async || {
        let left = writers.pop();
        Ok(match left {
            Some(writer) => writer.await?.map(|()| false)?,
            None => true,
        })
    });
    let forth = forth.await?;
    let whole = read_all(&store).await?;
    let expected: Vec<u64> = whole
        .iter()
        .filter(|one| one.event.category == EventCategory::Captured(Category::Control))
        .map(|one| one.seq)
        .collect();
    assert_eq!((whole.len(), expected.len()), (440, 220));
    assert_eq!(forth, expected);
    Ok(())
}

/// All events, after all writers have ended.
async fn read_all(store: &PgTelemetry) -> Result<Vec<NumberedEvent>, Fault> {
    let mut all: Vec<NumberedEvent> = Vec::new();
    loop {
        let behind = all.last().map(|one| one.seq);
        let (page, more) = store.page(session_id(1), &span(|span| span.behind = behind)).await?;
        all.extend(page);
        if !more {
            return Ok(all);
        }
    }
}

#[tokio::test]
async fn pages_of_types_have_no_gap_and_no_event_of_another_type() -> TestResult {
    let (_world, store) = world(1).await?;
    let of_agent = |body: &str| {
        let category = EventCategory::Captured(Category::Page);
        Item { agent_seq: None, what: What::Event(Event { category, at: NOON, body: body.into() }) }
    };
    let misleading = r#"{"type":"page_load","category":"page","data":{"a":"\u0000","type":"page_crashed"}}"#;
    let items = || {
        vec![
            of_agent(r#"{"type":"page_crashed","category":"page","source":{"kind":"cdp"},"data":{"type":"x"}}"#),
            of_agent(misleading),
            own(Category::Control),
            of_agent(r#"{"type":"page_crashed_not","category":"page","source":{"kind":"cdp"}}"#),
        ]
    };
    store.append(&[batch(1, 1, (0..10).flat_map(|_| items()).collect())], NOON).await?;
    for types in [&["page_crashed"][..], &["api_call"], &["api_call", "page_crashed", "a_type_of_later"], &["nothing"]]
    {
        let filter = TypeFilter::parse(types.iter().map(|&kind| kind.to_owned()).collect()).expect("types");
        let read = all_pages(&store, |span| span.types = filter.clone(), async || Ok(true)).await?;
        let all = read_all(&store).await?;
        let expected: Vec<u64> =
            all.iter().filter(|one| types.contains(&one.event.kind())).map(|one| one.seq).collect();
        assert_eq!(read, expected, "{types:?}");
        let newest = |span: &mut Span| (span.order, span.since, span.types) = (Order::Descending, None, filter.clone());
        let back = all_pages(&store, newest, async || Ok(true)).await?;
        assert_eq!(back, expected.into_iter().rev().collect::<Vec<_>>(), "{types:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_page_is_cut_by_time_category_and_direction() -> TestResult {
    let (_world, store) = world(1).await?;
    let at = |n: i64| NOON - Duration::minutes(60 - n);
    let kinds = [Category::Control, Category::Console, Category::Network];
    let item = |n: i64| {
        let category = kinds[usize::try_from(n % 3).expect("small")];
        Item { agent_seq: None, what: What::Event(event(category, at(n), "x")) }
    };
    store.append(&[batch(1, 1, (1..=30).map(item).collect())], NOON).await?;
    assert_eq!(read(&store, 1, |span| span.limit = 3).await?, (vec![1, 2, 3], true));
    assert_eq!(read(&store, 1, |span| span.since = Some(at(28))).await?, (vec![28, 29, 30], false));
    let until = read(&store, 1, |span| (span.since, span.until) = (Some(at(3)), Some(at(5)))).await?;
    assert_eq!(until, (vec![3, 4], false));
    let console = vec![EventCategory::Captured(Category::Console), EventCategory::Monitor];
    let found = read(&store, 1, |span| (span.categories, span.limit) = (console.clone(), 4)).await?;
    assert_eq!(found, (vec![1, 4, 7, 10], true));
    let rest = read(&store, 1, |span| (span.categories, span.behind) = (console, Some(25))).await?;
    assert_eq!(rest, (vec![28], false), "an empty page never says that there is more");
    let newest = |behind| {
        move |span: &mut Span| {
            (span.order, span.since, span.limit, span.behind) = (Order::Descending, None, 2, behind);
        }
    };
    assert_eq!(read(&store, 1, newest(None)).await?, (vec![30, 29], true));
    assert_eq!(read(&store, 1, newest(Some(3))).await?, (vec![2, 1], false));
    let mut before = span(newest(None));
    before.until = Some(at(10));
    assert_eq!(seqs(&store.page(session_id(1), &before).await?.0), [9, 8]);
    Ok(())
}

#[tokio::test]
async fn a_page_of_long_events_ends_early_and_says_that_there_is_more() -> TestResult {
    let (_world, store) = world(1).await?;
    let long = "x".repeat(3 << 20);
    let item = || Item { agent_seq: None, what: What::Event(event(Category::Screenshot, NOON, &long)) };
    for id in 1..=5 {
        store.append(&[batch(1, id, vec![item()])], NOON).await?;
    }
    assert_eq!(read(&store, 1, |_| ()).await?, (vec![1, 2, 3], true));
    assert_eq!(read(&store, 1, |span| span.behind = Some(3)).await?, (vec![4, 5], false));
    Ok(())
}

#[tokio::test]
async fn days_are_made_ahead_and_dropped_when_they_are_too_old() -> TestResult {
    let (world, store) = world(2).await?;
    let early = NOON - Duration::days(8);
    let old = Item { agent_seq: None, what: What::Event(event(Category::Control, early, "old")) };
    store.append(&[batch(1, 1, vec![old])], early).await?;
    store.tidy(early, early - Duration::days(7)).await?;
    store.append(&[batch(1, 2, vec![own(Category::Control)])], NOON).await?;
    store.tidy(NOON, NOON - Duration::days(7)).await?;
    store.tidy(NOON, NOON - Duration::days(7)).await?;
    assert_eq!(read(&store, 1, |span| span.since = None).await?, (vec![2], false));
    let there = "SELECT relname FROM pg_class JOIN pg_inherits ON inhrelid = oid
                 WHERE inhparent = 'telemetry_events'::regclass ORDER BY 1";
    let names: BTreeSet<String> = world.db.rows(there).await?.into_iter().flatten().collect();
    assert!(
        names.contains("telemetry_events_2026_12_01") && names.contains("telemetry_events_2026_12_03"),
        "{names:?}"
    );
    assert!(!names.contains("telemetry_events_2026_11_23"), "{names:?}");
    // The numbering goes on, since the session has not ended.
    assert_eq!(store.counted(session_id(1)).await?.last_seq, 2);
    Ok(())
}

#[tokio::test]
async fn what_is_captured_is_stored_with_the_session_and_changed_only_while_it_lives() -> TestResult {
    let (world, _) = world(1).await?;
    let rows = PgSessions::new(world.db.database().clone());
    let capture = Capture::only([Category::Console, Category::Captcha]);
    assert!(rows.set_telemetry(session_id(1), capture.clone()).await?);
    assert_eq!(rows.find(session_id(1)).await?.expect("there").telemetry, capture);
    assert!(rows.set_telemetry(session_id(1), None).await?);
    assert_eq!(rows.find(session_id(1)).await?.expect("there").telemetry, None);
    assert!(!rows.set_telemetry(session_id(9), capture).await?);
    Ok(())
}

/// The stored size of an event with this text, in bytes.
fn stored_bytes(text: &str) -> u64 {
    ROW_BYTES + event(Category::Control, NOON, text).body.len() as u64
}

fn bounds(budgets: StorageBudgets) -> StorageBounds {
    StorageBounds { budgets, ..StorageBounds::unbounded(node_id()) }
}

fn saying(text: &str) -> Item {
    Item { agent_seq: None, what: What::Event(event(Category::Control, NOON, text)) }
}

#[tokio::test]
async fn each_budget_bounds_what_is_stored_and_the_loss_is_reported_with_its_limit() -> TestResult {
    let text = "x".repeat(1000);
    let (one, unbounded) = (stored_bytes(&text), StorageBudgets::UNBOUNDED);
    for (budgets, limit, of_both) in [
        (StorageBudgets { session: 3 * one, ..unbounded }, StorageLimit::Session, [3, 3]),
        (StorageBudgets { project: 4 * one, ..unbounded }, StorageLimit::Project, [4, 0]),
        (StorageBudgets { node: 4 * one, ..unbounded }, StorageLimit::Node, [4, 0]),
    ] {
        let (_world, store) = within(2, bounds(budgets)).await?;
        for (n, id, fit) in [(1, 1, of_both[0]), (2, 2, of_both[1])] {
            let items = (0..10).map(|_| saying(&text)).collect();
            let stored = store.append(&[batch(n, id, items)], NOON).await?;
            let events = &stored[0].events;
            assert_eq!(events.len() as u64, fit + 1, "{limit:?}: those that fit, and the word of the others");
            let reported = &events.last().expect("told").event.body;
            let given = format!("\"limit\":\"{}\"", limit.as_str());
            assert!(reported.contains(&format!("\"count\":{}", 10 - fit)) && reported.contains(&given), "{reported}");
            assert_eq!(store.counted(session_id(n)).await?, stored[0].counted);
            // Further events are only counted, and the count is stored at the end.
            let more =
                vec![saying(&text), Item { agent_seq: Some(7), what: What::Event(event(Category::Page, NOON, &text)) }];
            let stored = store.append(&[batch(n, id + 10, more)], NOON).await?;
            assert_eq!((stored[0].events.len(), stored[0].counted.agent_seq), (0, 7));
            assert_eq!(store.counted(session_id(n)).await?.untold, 8);
            let end = vec![Item { agent_seq: None, what: What::End }];
            let stored = store.append(&[batch(n, id + 20, end)], NOON).await?;
            assert!(stored[0].events[0].event.body.contains("\"count\":8"), "{:?}", stored[0].events);
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_is_too_old_to_be_stored_makes_room_again() -> TestResult {
    let text = "x".repeat(1000);
    let budgets = StorageBudgets { session: 3 * stored_bytes(&text), ..StorageBudgets::UNBOUNDED };
    let (world, store) = within(1, bounds(budgets)).await?;
    let usage = PgStorageUsage::new(world.db.database().clone(), bounds(budgets));
    let early = NOON - Duration::days(9);
    let old = || Item { agent_seq: None, what: What::Event(event(Category::Control, early, &text)) };
    store.tidy(early, early - Duration::days(7)).await?;
    store.append(&[batch(1, 1, (0..3).map(|_| old()).collect())], early).await?;
    assert_eq!(usage.of_node().await?, 3 * stored_bytes(&text));
    let refused = store.append(&[batch(1, 2, vec![saying(&text)])], NOON).await?;
    assert_eq!(refused[0].counted.limit, Some(StorageLimit::Session));
    made_at(&world, early).await?;
    store.tidy(NOON, NOON - Duration::days(7)).await?;
    let stored = store.append(&[batch(1, 3, vec![saying(&text)])], NOON).await?;
    assert_eq!(stored[0].counted.limit, None);
    let stored = store.counted(session_id(1)).await?.bytes;
    assert_eq!(usage.of_node().await?, stored);
    Ok(())
}

/// Sets the creation time of all sessions.
async fn made_at(world: &World, at: OffsetDateTime) -> TestResult {
    world.db.execute(&format!("UPDATE sessions SET created_at = to_timestamp({})", at.unix_timestamp())).await?;
    Ok(())
}

#[tokio::test]
async fn while_the_disk_is_low_nothing_but_the_count_is_stored() -> TestResult {
    let mut disk = MockDiskSpace::new();
    disk.expect_is_low().times(1).return_const(true);
    disk.expect_is_low().return_const(false);
    let low = StorageBounds { disk: Arc::new(disk), ..StorageBounds::unbounded(node_id()) };
    let (_world, store) = within(1, low).await?;
    let refused = store.append(&[batch(1, 1, vec![own(Category::Control), agents(1)])], NOON).await?;
    assert_eq!((refused[0].events.len(), refused[0].counted.limit), (1, Some(StorageLimit::Disk)));
    assert_eq!(refused[0].counted.agent_seq, 1);
    let stored = store.append(&[batch(1, 2, vec![agents(2)])], NOON).await?;
    assert_eq!((seqs(&stored[0].events), stored[0].counted.limit), (vec![4], None));
    Ok(())
}
