//! Telemetry destinations: names, use, outcomes; and what their sessions have exported.

use casement_domain::node::NodeRepository as _;
use casement_domain::organization::{Limit, LimitExceeded};
use casement_domain::page::Page;
use casement_domain::pool::{PoolRepository as _, PoolStored};
use casement_domain::sealing::{KeyId, Sealer as _};
use casement_domain::session::{EndReason, Session, SessionRepository as _, SessionState};
use casement_domain::storage::StorageBounds;
use casement_domain::telemetry::{
    Batch, Capture, Category, Delivery, Event, EventsQuery, Item, TelemetryStore as _, Unexported, What,
};
use casement_domain::telemetry_destination::{
    DeliveryHealth, DestinationDeleted, DestinationFilter, DestinationStored, TelemetryDestination,
    TelemetryDestinationRepository as _,
};
use casement_domain::testing::{NOON, PlainSealer, node_id, organization_id, pool, session, session_id};
use casement_domain::{NodeId, OrganizationId, TelemetryDestinationId};
use casement_postgres::{PgTelemetry, PgTelemetryDestinations};
use pretty_assertions::assert_eq;
use time::Duration;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{Fault, World, label, node, other_node, seconds};

fn id(n: u32) -> TelemetryDestinationId {
    TelemetryDestinationId::from_ulid(Ulid::from_parts(15, u128::from(n)))
}

fn destination(n: u32, name: &str) -> Result<TelemetryDestination, Fault> {
    Ok(TelemetryDestination {
        id: id(n),
        organization: organization_id(),
        name: label(name)?,
        description: None,
        endpoint: format!("https://d{n}.test/otlp").parse()?,
        header_names: vec!["Authorization".to_owned()],
        headers: PlainSealer.seal(&TelemetryDestination::place(id(n)), b"{}")?,
        created_at: seconds(i64::from(n)),
        updated_at: seconds(i64::from(n)),
        health: DeliveryHealth::default(),
    })
}

async fn stored(world: &World) -> Result<PgTelemetryDestinations, Fault> {
    let rows = PgTelemetryDestinations::new(world.db.database().clone());
    for (n, name) in [(1, "Grafana"), (2, "Loki")] {
        assert_eq!(rows.create(&destination(n, name)?, 10).await?, DestinationStored::Yes);
    }
    Ok(rows)
}

fn capture(n: u32, stored: bool) -> Option<Capture> {
    let delivery = Delivery { destination: Some(id(n)), stored };
    Capture::only([Category::Control]).map(|capture| capture.delivered(delivery))
}

#[tokio::test]
async fn a_destination_has_a_unique_name_in_its_organization_within_a_limit() -> TestResult {
    let world = World::new().await?;
    let rows = stored(&world).await?;
    let (ours, others) = (organization_id(), OrganizationId::from_ulid(Ulid(99)));
    assert_eq!(rows.find(ours, id(1)).await?, Some(destination(1, "Grafana")?));
    assert_eq!(rows.find(others, id(1)).await?, None);
    assert_eq!(rows.named(ours, "grafanä").await?, Some(destination(1, "Grafana")?));
    assert_eq!(rows.find_any(id(2)).await?, Some(destination(2, "Loki")?));
    assert_eq!(rows.create(&destination(3, "LOKI")?, 10).await?, DestinationStored::NameTaken);
    let limit = Limit::OrganizationTelemetryDestinations;
    let exceeded = LimitExceeded { limit, value: 2, used: 2, requested: 1 };
    assert_eq!(rows.create(&destination(3, "x")?, 2).await?, DestinationStored::LimitExceeded(exceeded));

    let list = async |name: Option<&str>, query: Option<String>, limit| {
        let filter = DestinationFilter { name: name.map(str::to_owned), query };
        let listed = rows.list(ours, &filter, Page { limit, offset: 0 }).await?;
        Ok::<_, Fault>((listed.items.iter().map(|one| one.id).collect::<Vec<_>>(), listed.next_offset))
    };
    assert_eq!(list(None, None, 1).await?, (vec![id(2)], Some(1)));
    assert_eq!(list(Some("loki"), None, 20).await?.0, [id(2)]);
    assert_eq!(list(None, Some("D1.TEST".to_owned()), 20).await?.0, [id(1)]);
    assert_eq!(list(None, Some(id(2).to_string()), 20).await?.0, [id(2)]);
    Ok(())
}

#[tokio::test]
async fn a_destination_that_a_session_or_a_pool_uses_keeps_its_name_and_stays() -> TestResult {
    let world = World::new().await?;
    let rows = stored(&world).await?;
    let used = Session { telemetry: capture(1, true), ..session(1) };
    let _created = world.sessions.create(organization_id(), &used, None).await?;
    let mut pool = pool(1).build();
    pool.config.telemetry = capture(2, true);
    assert_eq!(world.pools.create(organization_id(), &pool, 10).await?, PoolStored::Yes);
    for (n, name) in [(1, "Grafana"), (2, "Loki")] {
        let current = destination(n, name)?;
        assert_eq!(rows.delete(organization_id(), id(n)).await?, DestinationDeleted::InUse);
        let renamed = TelemetryDestination { name: label("other")?, ..current.clone() };
        assert_eq!(rows.replace(&current, &renamed).await?, DestinationStored::InUse);
        let moved = TelemetryDestination { endpoint: "https://moved.test".parse()?, ..current.clone() };
        let moved = TelemetryDestination { updated_at: seconds(100), ..moved };
        assert_eq!(rows.replace(&current, &moved).await?, DestinationStored::Yes);
        assert_eq!(rows.replace(&current, &moved).await?, DestinationStored::LostRace);
        assert_eq!(rows.find_any(id(n)).await?, Some(moved));
    }
    let ended = Session { state: SessionState::Ended(EndReason::Deleted), ended_at: Some(NOON), ..used.clone() };
    let _ended = world.sessions.end(&used, &ended).await?;
    assert_eq!(rows.delete(organization_id(), id(1)).await?, DestinationDeleted::Yes);
    assert_eq!(rows.delete(organization_id(), id(1)).await?, DestinationDeleted::NotFound);
    Ok(())
}

#[tokio::test]
async fn outcomes_are_counted_without_a_change_of_the_destination() -> TestResult {
    let world = World::new().await?;
    let rows = stored(&world).await?;
    rows.note_failure(id(1), "no answer in time", seconds(5)).await?;
    rows.note_failure(id(1), "the connection failed", seconds(6)).await?;
    let failed = rows.find_any(id(1)).await?.ok_or("gone")?;
    let mut expected = destination(1, "Grafana")?;
    expected.health = DeliveryHealth {
        consecutive_failures: 2,
        last_error: Some("the connection failed".to_owned()),
        last_error_at: Some(seconds(6)),
        last_export_at: None,
    };
    assert_eq!(failed, expected);
    rows.note_success(id(1), seconds(7)).await?;
    expected.health.consecutive_failures = 0;
    expected.health.last_export_at = Some(seconds(7));
    assert_eq!(rows.find_any(id(1)).await?, Some(expected));
    Ok(())
}

#[tokio::test]
async fn headers_are_found_and_resealed_by_their_key() -> TestResult {
    let world = World::new().await?;
    let rows = stored(&world).await?;
    let sealed = destination(1, "Grafana")?.headers;
    assert_eq!(rows.keys().await?, [KeyId::of(&sealed).ok_or("no key")?]);
    assert_eq!(rows.sealed_with_other_key(KeyId([9; 8]), 1).await?, [(id(1), sealed.clone())]);
    assert_eq!(rows.sealed_with_other_key(KeyId::of(&sealed).ok_or("no key")?, 9).await?, []);
    rows.reseal(id(1), b"other", b"next").await?;
    rows.reseal(id(2), &destination(2, "Loki")?.headers, &[1; 20]).await?;
    assert_eq!(rows.find_any(id(1)).await?.ok_or("gone")?.headers, sealed);
    assert_eq!(rows.find_any(id(2)).await?.ok_or("gone")?.headers, [1; 20]);
    Ok(())
}

fn batch(n: u32, number: u128, events: usize) -> Batch {
    let event = || What::Event(Event::api_call(NOON, "x", "y", 200, 0));
    let items = (0..events).map(|_| Item { agent_seq: None, what: event() }).collect();
    Batch { session: session_id(n), id: Ulid(number), items }
}

async fn sessions(world: &World, captures: &[Option<Capture>]) -> Result<PgTelemetry, Fault> {
    for (n, telemetry) in (1..).zip(captures) {
        let captured = Session { telemetry: telemetry.clone(), state: SessionState::Active, ..session(n) };
        let _created = world.sessions.create(organization_id(), &captured, None).await?;
    }
    Ok(PgTelemetry::new(world.db.database().clone(), StorageBounds::unbounded(node_id())))
}

#[tokio::test]
async fn events_that_are_not_stored_are_numbered_and_passed_on() -> TestResult {
    let world = World::new().await?;
    let store = sessions(&world, &[capture(1, false)]).await?;
    store.append(&[batch(1, 1, 2)], NOON).await?;
    let second = store.append(&[batch(1, 2, 1)], NOON).await?;
    let again = store.append(&[batch(1, 2, 1)], NOON).await?;
    let facts = |one: &casement_domain::telemetry::StoredBatch| (one.before, one.counted.last_seq, one.events.len());
    assert_eq!((facts(&second[0]), facts(&again[0])), ((2, 3, 1), (3, 3, 0)));
    assert_eq!(second[0].delivery, Delivery { destination: Some(id(1)), stored: false });
    assert_eq!(second[0].counted.bytes, 0);
    let query = EventsQuery { since: Some(NOON - Duration::DAY), ..EventsQuery::default() };
    let (span, _) = query.parse(NOON).expect("a span");
    assert_eq!(store.page(session_id(1), &span).await?, (Vec::new(), false));
    assert_eq!((store.unexported(session_id(1)).await?, store.with_unexported(node_id()).await?), (None, Vec::new()));
    Ok(())
}

#[tokio::test]
async fn the_export_of_stored_events_continues_after_the_last_exported_one() -> TestResult {
    let world = World::new().await?;
    let store = sessions(&world, &[capture(1, true), capture(2, true), Capture::only([Category::Control])]).await?;
    for n in 1..=3 {
        store.append(&[batch(n, u128::from(n), 3)], NOON).await?;
    }
    assert_eq!(store.unexported(session_id(1)).await?, Some(Unexported { destination: id(1), after: 0 }));
    assert_eq!(store.unexported(session_id(3)).await?, None);
    store.set_exported(session_id(1), 2).await?;
    store.set_exported(session_id(2), 3).await?;
    assert_eq!(store.unexported(session_id(1)).await?, Some(Unexported { destination: id(1), after: 2 }));
    assert_eq!(store.with_unexported(node_id()).await?, [(session_id(1), id(1))]);
    store.set_exported(session_id(1), 3).await?;
    assert_eq!(store.with_unexported(node_id()).await?, []);
    Ok(())
}

#[tokio::test]
async fn one_living_node_exports_what_lost_nodes_have_stored() -> TestResult {
    let world = World::new().await?;
    let store = sessions(&world, &[capture(1, true)]).await?;
    store.append(&[batch(1, 1, 3)], NOON).await?;
    let third = NodeId::from_ulid(Ulid::from_parts(3, 3));
    world.nodes.announce(&node(third)).await?;
    assert_eq!(store.with_unexported(other_node()).await?, [], "its own node lives");
    world.silence(node_id()).await?;
    assert_eq!(store.with_unexported(other_node()).await?, [(session_id(1), id(1))]);
    assert_eq!(store.with_unexported(third).await?, [], "another one does");
    world.silence(other_node()).await?;
    assert_eq!(store.with_unexported(third).await?, [(session_id(1), id(1))]);
    Ok(())
}

#[tokio::test]
async fn an_export_that_begins_later_leaves_out_the_events_before() -> TestResult {
    let world = World::new().await?;
    let store = sessions(&world, &[Capture::only([Category::Control])]).await?;
    store.append(&[batch(1, 1, 3)], NOON).await?;
    assert!(world.sessions.set_telemetry(session_id(1), capture(1, true)).await?);
    assert_eq!(store.unexported(session_id(1)).await?, Some(Unexported { destination: id(1), after: 3 }));
    // Another destination gets what the first one did not.
    assert!(world.sessions.set_telemetry(session_id(1), capture(2, true)).await?);
    store.append(&[batch(1, 2, 1)], NOON).await?;
    assert_eq!(store.unexported(session_id(1)).await?, Some(Unexported { destination: id(2), after: 3 }));
    Ok(())
}
