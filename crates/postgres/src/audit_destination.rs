//! Audit destinations, and the progress of their exports.

use async_trait::async_trait;
use casement_domain::audit::Position;
use casement_domain::audit_destination::{
    AuditDestination, AuditDestinationRepository, AuditDestinationStored, AuditExportStatus, BucketTarget, ExportHealth,
};
use casement_domain::organization::{Limit, admit_one};
use casement_domain::page::{Listed, Page};
use casement_domain::{AuditDestinationId, AuditRecordId, NodeId, OrganizationId, StoreError};
use diesel::dsl::{Eq, Filter};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::changes::{Change, report};
use crate::column::{Column, Stored, columns, row};
use crate::database::repository;
use crate::error::BadRow;
use crate::query::{all, counted, find};
use crate::schema::{audit_destinations, organizations};

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = audit_destinations, check_for_backend(diesel::pg::Pg))]
    struct DestinationRow {
        id: Column<AuditDestinationId>,
        organization_id: Column<OrganizationId>,
        #[diesel(embed)]
        target: TargetColumns,
        status: Column<AuditExportStatus>,
        created_at: OffsetDateTime,
        updated_at: OffsetDateTime,
        exported_at: Option<OffsetDateTime>,
        exported_id: Option<Column<AuditRecordId>>,
        planned_at: Option<OffsetDateTime>,
        planned_id: Option<Column<AuditRecordId>>,
        #[diesel(embed)]
        health: HealthColumns,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = audit_destinations, check_for_backend(diesel::pg::Pg))]
    struct TargetColumns for BucketTarget {
        bucket: String,
        prefix: String,
        region: String,
        kms_key_id: Option<String>,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = audit_destinations, check_for_backend(diesel::pg::Pg))]
    struct HealthColumns for ExportHealth {
        consecutive_failures: Column<u32>,
        last_error: Option<String>,
        last_error_at: Option<OffsetDateTime>,
        last_success_at: Option<OffsetDateTime>,
        next_attempt_at: Option<OffsetDateTime>,
    }
}

impl Stored<AuditDestination> for DestinationRow {
    fn of(destination: &AuditDestination) -> Self {
        let id = |position: Option<Position>| position.map(|position| Column(position.id));
        Self {
            id: Column(destination.id),
            organization_id: Column(destination.organization),
            target: TargetColumns::of(&destination.target),
            status: Column(destination.status),
            created_at: destination.created_at,
            updated_at: destination.updated_at,
            exported_at: destination.exported.map(|position| position.at),
            exported_id: id(destination.exported),
            planned_at: destination.planned.map(|position| position.at),
            planned_id: id(destination.planned),
            health: HealthColumns::of(&destination.health),
        }
    }

    fn value(self) -> Result<AuditDestination, BadRow> {
        let position = |at: Option<_>, id: Option<Column<_>>| Some(Position { at: at?, id: id?.0 });
        Ok(AuditDestination {
            id: self.id.0,
            organization: self.organization_id.0,
            target: self.target.value()?,
            status: self.status.0,
            created_at: self.created_at,
            updated_at: self.updated_at,
            exported: position(self.exported_at, self.exported_id),
            planned: position(self.planned_at, self.planned_id),
            health: self.health.value()?,
        })
    }
}

repository! {
    /// Audit destinations in PostgreSQL.
    PgAuditDestinations
}

/// The destinations of the organization.
fn of(organization: OrganizationId) -> OfOrganization {
    audit_destinations::table.filter(audit_destinations::organization_id.eq(Column(organization)))
}

type OfOrganization =
    Filter<audit_destinations::table, Eq<audit_destinations::organization_id, Column<OrganizationId>>>;

#[async_trait]
impl AuditDestinationRepository for PgAuditDestinations {
    async fn create(&self, destination: &AuditDestination, max: u32) -> Result<AuditDestinationStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Locked, so that two transactions do not both use the last unit of the limit.
            let owner = organizations::table.find(Column(destination.organization)).select(organizations::id);
            owner.for_no_key_update().get_result::<Uuid>(connection).await?;
            let used = counted(connection, of(destination.organization).count()).await?;
            if let Err(refused) = admit_one(Limit::OrganizationAuditDestinations, max, used) {
                return Ok(AuditDestinationStored::LimitExceeded(refused));
            }
            let row = DestinationRow::of(destination);
            diesel::insert_into(audit_destinations::table).values(row).execute(connection).await?;
            Ok(AuditDestinationStored::Yes)
        };
        self.database.transaction("audit_destination.create", work).await
    }

    async fn find(
        &self,
        organization: OrganizationId,
        id: AuditDestinationId,
    ) -> Result<Option<AuditDestination>, StoreError> {
        let row = of(organization).find(Column(id)).select(DestinationRow::as_select());
        self.database.find("audit_destination.find", row).await
    }

    async fn list(&self, organization: OrganizationId, page: Page) -> Result<Listed<AuditDestination>, StoreError> {
        let rows = of(organization).order((audit_destinations::created_at.desc(), audit_destinations::id.desc()));
        let rows = rows.select(DestinationRow::as_select());
        self.database.page("audit_destination.list", page, rows).await
    }

    async fn replace(&self, current: &AuditDestination, next: &AuditDestination) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = of(current.organization).find(Column(current.id));
            let held = row.select(DestinationRow::as_select()).for_update();
            let held: Option<AuditDestination> = find(connection, held).await?;
            let Some(held) = held.filter(|held| held.updated_at == current.updated_at) else { return Ok(false) };
            // An export may have advanced meanwhile.
            let exported = held.exported.or(next.exported);
            let DestinationRow { target, status, updated_at, exported_at, exported_id, .. } =
                DestinationRow::of(&AuditDestination { exported, ..next.clone() });
            let values = (
                audit_destinations::bucket.eq(target.bucket),
                audit_destinations::prefix.eq(target.prefix),
                audit_destinations::region.eq(target.region),
                audit_destinations::kms_key_id.eq(target.kms_key_id),
                audit_destinations::status.eq(status),
                audit_destinations::updated_at.eq(updated_at),
                audit_destinations::exported_at.eq(exported_at),
                audit_destinations::exported_id.eq(exported_id),
                audit_destinations::next_attempt_at.eq(None::<OffsetDateTime>),
            );
            diesel::update(row).set(values).execute(connection).await?;
            report(connection, Change::AuditDestinations).await?;
            Ok(true)
        };
        self.database.transaction("audit_destination.replace", work).await
    }

    async fn delete(&self, organization: OrganizationId, id: AuditDestinationId) -> Result<bool, StoreError> {
        let row = of(organization).find(Column(id));
        let work = async |connection: &mut AsyncPgConnection| Ok(diesel::delete(row).execute(connection).await? > 0);
        self.database.call("audit_destination.delete", work).await
    }

    async fn claim(
        &self,
        node: NodeId,
        now: OffsetDateTime,
        until: OffsetDateTime,
    ) -> Result<Vec<AuditDestination>, StoreError> {
        use audit_destinations as d;

        let active = d::status.eq(Column(AuditExportStatus::Active)).and(d::exported_at.is_not_null());
        let is_due = d::next_attempt_at.is_null().or(d::next_attempt_at.le(now).assume_not_null());
        let is_ours = d::claimed_by.is_null().or(d::claimed_by.eq(Column(node)).assume_not_null());
        let is_free = is_ours.or(d::claimed_until.le(now).assume_not_null());
        let claims = (d::claimed_by.eq(Column(node)), d::claimed_until.eq(until));
        let claiming = diesel::update(d::table.filter(active.and(is_due).and(is_free))).set(claims);
        let claiming = claiming.returning(DestinationRow::as_returning());
        let work = async |connection: &mut AsyncPgConnection| all(connection, claiming).await;
        self.database.call("audit_destination.claim", work).await
    }

    async fn plan(
        &self,
        id: AuditDestinationId,
        after: Position,
        through: Position,
        until: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        use audit_destinations as d;

        let row = d::table.find(Column(id)).filter(d::status.eq(Column(AuditExportStatus::Active)));
        let row = row.filter(d::exported_at.eq(after.at)).filter(d::exported_id.eq(Column(after.id)));
        let values = (d::planned_at.eq(through.at), d::planned_id.eq(Column(through.id)), d::claimed_until.eq(until));
        let planning = diesel::update(row.filter(d::planned_at.is_null())).set(values);
        let work = async |connection: &mut AsyncPgConnection| Ok(planning.execute(connection).await? > 0);
        self.database.call("audit_destination.plan", work).await
    }

    async fn advance(
        &self,
        id: AuditDestinationId,
        through: Position,
        at: OffsetDateTime,
    ) -> Result<Option<AuditDestination>, StoreError> {
        use audit_destinations as d;

        let row = d::table.find(Column(id));
        let row = row.filter(d::planned_at.eq(through.at)).filter(d::planned_id.eq(Column(through.id)));
        let values = (
            d::exported_at.eq(through.at),
            d::exported_id.eq(Column(through.id)),
            d::planned_at.eq(None::<OffsetDateTime>),
            d::planned_id.eq(None::<Column<AuditRecordId>>),
            d::consecutive_failures.eq(0),
            d::last_success_at.eq(at),
            d::next_attempt_at.eq(None::<OffsetDateTime>),
        );
        let advancing = diesel::update(row).set(values).returning(DestinationRow::as_returning());
        let work = async |connection: &mut AsyncPgConnection| find(connection, advancing).await;
        self.database.call("audit_destination.advance", work).await
    }

    async fn note_failure(&self, id: AuditDestinationId, health: &ExportHealth) -> Result<(), StoreError> {
        use audit_destinations as d;

        let HealthColumns { consecutive_failures, last_error, last_error_at, next_attempt_at, .. } =
            HealthColumns::of(health);
        let values = (
            d::consecutive_failures.eq(consecutive_failures),
            d::last_error.eq(last_error),
            d::last_error_at.eq(last_error_at),
            d::next_attempt_at.eq(next_attempt_at),
        );
        self.database
            .change("audit_destination.note_failure", diesel::update(d::table.find(Column(id))).set(values))
            .await
    }

    async fn release(&self, node: NodeId, ids: &[AuditDestinationId]) -> Result<(), StoreError> {
        use audit_destinations as d;

        let rows = d::table.filter(d::id.eq_any(columns(ids))).filter(d::claimed_by.eq(Column(node)));
        let values = (d::claimed_by.eq(None::<Column<NodeId>>), d::claimed_until.eq(None::<OffsetDateTime>));
        self.database.change("audit_destination.release", diesel::update(rows).set(values)).await
    }
}
