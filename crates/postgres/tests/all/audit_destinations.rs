//! Audit destinations: their number, their changes, and the progress of their exports.

use casement_domain::audit::{AuditRepository as _, Position};
use casement_domain::audit_destination::{
    AuditDestination, AuditDestinationRepository as _, AuditDestinationStored, AuditExportStatus, BucketTarget,
    ExportHealth,
};
use casement_domain::organization::{Limit, LimitExceeded};
use casement_domain::page::Page;
use casement_domain::testing::{NOON, audit_destination, audit_entry, node_id, organization_id};
use casement_domain::{AuditDestinationId, AuditRecordId, OrganizationId};
use casement_postgres::{PgAudit, PgAuditDestinations};
use pretty_assertions::assert_eq;
use time::Duration;
use ulid::Ulid;

use super::audit::{entry, record};
use crate::support::TestResult;
use crate::world::{Fault, World, other_node, seconds};

fn id(n: u32) -> AuditDestinationId {
    AuditDestinationId::from_ulid(Ulid::from_parts(16, u128::from(n)))
}

fn destination(n: u32) -> AuditDestination {
    AuditDestination { id: id(n), created_at: seconds(n.into()), ..audit_destination() }
}

/// The position of the n-th record.
fn position(n: u32) -> Position {
    let entry = audit_entry(n);
    Position { at: entry.at, id: entry.id }
}

async fn stored(world: &World) -> Result<PgAuditDestinations, Fault> {
    let rows = PgAuditDestinations::new(world.db.database().clone());
    for n in [1, 2] {
        assert_eq!(rows.create(&destination(n), 10).await?, AuditDestinationStored::Yes);
    }
    Ok(rows)
}

async fn found(rows: &PgAuditDestinations, n: u32) -> Result<AuditDestination, Fault> {
    Ok(rows.find(organization_id(), id(n)).await?.ok_or("no destination")?)
}

#[tokio::test]
async fn destinations_belong_to_their_organization_within_a_limit() -> TestResult {
    let world = World::new().await?;
    let rows = stored(&world).await?;
    let others = OrganizationId::from_ulid(Ulid(99));
    assert_eq!(found(&rows, 1).await?, destination(1));
    assert_eq!(rows.find(others, id(1)).await?, None);
    let page = rows.list(organization_id(), Page { limit: 1, offset: 0 }).await?;
    assert_eq!((page.items, page.next_offset), (vec![destination(2)], Some(1)));
    let limit = Limit::OrganizationAuditDestinations;
    let exceeded = LimitExceeded { limit, value: 2, used: 2, requested: 1 };
    assert_eq!(rows.create(&destination(3), 2).await?, AuditDestinationStored::LimitExceeded(exceeded));
    assert!(!rows.delete(others, id(1)).await?);
    assert!(rows.delete(organization_id(), id(1)).await?);
    assert!(!rows.delete(organization_id(), id(1)).await?);
    Ok(())
}

#[tokio::test]
async fn a_change_keeps_the_progress_of_the_export_and_the_health() -> TestResult {
    let world = World::new().await?;
    let rows = stored(&world).await?;
    let health = ExportHealth::default().failed("no answer in time".to_owned(), NOON, 0);
    rows.note_failure(id(1), &health).await?;
    let current = found(&rows, 1).await?;
    assert_eq!(current.health, health);
    assert!(rows.plan(id(1), position_of_start(), position(5), seconds(60)).await?);
    let target = BucketTarget { kms_key_id: Some("alias/a".to_owned()), ..current.target.clone() };
    let status = AuditExportStatus::Paused;
    let next = AuditDestination { target, status, exported: None, updated_at: seconds(9), ..current.clone() };
    assert!(rows.replace(&current, &next).await?);
    let health = ExportHealth { next_attempt_at: None, ..health };
    let expected = AuditDestination { exported: current.exported, planned: Some(position(5)), health, ..next.clone() };
    assert_eq!(found(&rows, 1).await?, expected);
    // The second change started from the state before the first one.
    assert!(!rows.replace(&current, &next).await?);
    Ok(())
}

/// The beginning of the export of [`destination`].
fn position_of_start() -> Position {
    Position { at: NOON, id: AuditRecordId::from_ulid(Ulid(0)) }
}

#[tokio::test]
async fn a_planned_object_is_advanced_once_and_only_from_its_start() -> TestResult {
    let world = World::new().await?;
    let rows = stored(&world).await?;
    let start = position_of_start();
    assert!(!rows.plan(id(1), position(1), position(5), seconds(60)).await?);
    assert!(rows.plan(id(1), start, position(5), seconds(60)).await?);
    // Another node plans something else.
    assert!(!rows.plan(id(1), start, position(6), seconds(60)).await?);
    assert_eq!(rows.advance(id(1), position(6), seconds(1)).await?, None);
    let advanced = rows.advance(id(1), position(5), seconds(1)).await?.ok_or("not advanced")?;
    assert_eq!((advanced.exported, advanced.planned), (Some(position(5)), None));
    assert_eq!(advanced.health.last_success_at, Some(seconds(1)));
    assert_eq!(rows.advance(id(1), position(5), seconds(2)).await?, None);
    assert_eq!(found(&rows, 2).await?, destination(2));
    Ok(())
}

#[tokio::test]
async fn one_node_at_a_time_exports_to_a_destination_that_is_due() -> TestResult {
    let world = World::new().await?;
    let rows = stored(&world).await?;
    let claim = async |node, now: i64| -> Result<Vec<AuditDestinationId>, Fault> {
        let claimed = rows.claim(node, seconds(now), seconds(now + 60)).await?;
        let mut ids: Vec<_> = claimed.into_iter().map(|one| one.id).collect();
        ids.sort();
        Ok(ids)
    };
    assert_eq!(claim(node_id(), 0).await?, [id(1), id(2)]);
    // A node that starts again has its claims still.
    assert_eq!(claim(node_id(), 1).await?, [id(1), id(2)]);
    assert_eq!(claim(other_node(), 2).await?, []);
    rows.release(other_node(), &[id(1), id(2)]).await?;
    rows.release(node_id(), &[id(2)]).await?;
    assert_eq!(claim(other_node(), 3).await?, [id(2)]);
    assert_eq!(claim(other_node(), 62).await?, [id(1), id(2)]);
    let later = ExportHealth { next_attempt_at: Some(seconds(100)), ..ExportHealth::default() };
    rows.note_failure(id(1), &later).await?;
    let current = found(&rows, 2).await?;
    let paused = AuditDestination { status: AuditExportStatus::Paused, updated_at: seconds(63), ..current.clone() };
    assert!(rows.replace(&current, &paused).await?);
    assert!(!rows.plan(id(2), position_of_start(), position(5), seconds(99)).await?);
    assert_eq!(claim(other_node(), 99).await?, []);
    assert_eq!(claim(other_node(), 100).await?, [id(1)]);
    Ok(())
}

#[tokio::test]
async fn records_follow_a_position_oldest_first() -> TestResult {
    let world = World::new().await?;
    let audit = PgAudit::new(world.db.database().clone());
    audit.append(&[entry(3), entry(1), entry(2), entry(4)]).await?;
    let (after, before) = (position(1), position(4));
    assert_eq!(audit.following(organization_id(), after, before, 9).await?, [record(2), record(3)]);
    assert_eq!(audit.following(organization_id(), after, before.ahead(), 2).await?, [record(2), record(3)]);
    let all = (position_of_start(), Position { at: NOON + Duration::DAY, id: AuditRecordId::from_ulid(Ulid(0)) });
    assert_eq!(audit.following(organization_id(), all.0, all.1, 9).await?.len(), 4);
    assert_eq!(audit.following(OrganizationId::from_ulid(Ulid(99)), all.0, all.1, 9).await?, []);
    Ok(())
}
