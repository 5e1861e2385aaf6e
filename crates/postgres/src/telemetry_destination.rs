//! Telemetry destinations, with sealed headers.

use async_trait::async_trait;
use casement_domain::name::LabelName;
use casement_domain::organization::{Limit, admit_one};
use casement_domain::page::{Listed, Page};
use casement_domain::sealing::KeyId;
use casement_domain::telemetry_destination::{
    DeliveryHealth, DestinationDeleted, DestinationFilter, DestinationStored, TelemetryDestination,
    TelemetryDestinationRepository,
};
use casement_domain::{OrganizationId, StoreError, TelemetryDestinationId};
use diesel::dsl::{Eq, Filter, exists};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use url::Url;
use uuid::Uuid;

use crate::column::{Column, Stored, export_to, row};
use crate::database::repository;
use crate::error::{CallError, if_violated};
use crate::query::{contains, counted, find};
use crate::schema::{browser_pools, organizations, pool_waiters, sessions, telemetry_destinations};
use crate::sealed::{head, under_other_key};

/// The constraint that keeps names unique.
const NAME_KEY: &str = "telemetry_destinations_name_key";

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = telemetry_destinations, check_for_backend(diesel::pg::Pg))]
    struct DestinationRow for TelemetryDestination {
        id: Column<TelemetryDestinationId>,
        organization: Column<OrganizationId> as organization_id,
        name: Column<LabelName>,
        description: Option<String>,
        endpoint: Column<Url>,
        header_names: Vec<String>,
        headers: Vec<u8> as sealed_headers,
        created_at: OffsetDateTime,
        updated_at: OffsetDateTime,
        #[diesel(embed)]
        health: HealthColumns,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = telemetry_destinations, check_for_backend(diesel::pg::Pg))]
    struct HealthColumns for DeliveryHealth {
        consecutive_failures: Column<u32>,
        last_error: Option<String>,
        last_error_at: Option<OffsetDateTime>,
        last_export_at: Option<OffsetDateTime>,
    }
}

repository! {
    /// Telemetry destinations in PostgreSQL.
    PgTelemetryDestinations
}

/// The destinations of the organization.
fn of(organization: OrganizationId) -> OfOrganization {
    telemetry_destinations::table.filter(telemetry_destinations::organization_id.eq(Column(organization)))
}

type OfOrganization =
    Filter<telemetry_destinations::table, Eq<telemetry_destinations::organization_id, Column<OrganizationId>>>;

/// Whether a session that has not ended, a pool, or a waiting lease exports to the destination.
async fn is_used(connection: &mut AsyncPgConnection, id: TelemetryDestinationId) -> Result<bool, CallError> {
    let named = vec![export_to(id)];
    let pools = browser_pools::table.filter(browser_pools::telemetry.contains(named.clone()));
    let pools = pools.filter(browser_pools::deleted_at.is_null());
    let waiting = pool_waiters::table.filter(pool_waiters::telemetry.contains(named.clone()));
    let sessions = sessions::table.filter(sessions::state.ne("ended")).filter(sessions::telemetry.contains(named));
    let used = exists(pools).or(exists(waiting)).or(exists(sessions));
    Ok(diesel::select(used).get_result(connection).await?)
}

#[async_trait]
impl TelemetryDestinationRepository for PgTelemetryDestinations {
    async fn create(&self, destination: &TelemetryDestination, max: u32) -> Result<DestinationStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Locked, so that two transactions do not both use the last unit of the limit.
            let owner = organizations::table.find(Column(destination.organization)).select(organizations::id);
            owner.for_no_key_update().get_result::<Uuid>(connection).await?;
            let used = counted(connection, of(destination.organization).count()).await?;
            if let Err(refused) = admit_one(Limit::OrganizationTelemetryDestinations, max, used) {
                return Ok(DestinationStored::LimitExceeded(refused));
            }
            let row = DestinationRow::of(destination);
            diesel::insert_into(telemetry_destinations::table).values(row).execute(connection).await?;
            Ok(DestinationStored::Yes)
        };
        let name_taken = if_violated(&[NAME_KEY], DestinationStored::NameTaken);
        self.database.transaction_or("telemetry_destination.create", work, name_taken).await
    }

    async fn find(
        &self,
        organization: OrganizationId,
        id: TelemetryDestinationId,
    ) -> Result<Option<TelemetryDestination>, StoreError> {
        let row = of(organization).find(Column(id)).select(DestinationRow::as_select());
        self.database.find("telemetry_destination.find", row).await
    }

    async fn named(
        &self,
        organization: OrganizationId,
        name: &str,
    ) -> Result<Option<TelemetryDestination>, StoreError> {
        let row = of(organization).filter(telemetry_destinations::name.eq(name)).select(DestinationRow::as_select());
        self.database.find("telemetry_destination.named", row).await
    }

    async fn find_any(&self, id: TelemetryDestinationId) -> Result<Option<TelemetryDestination>, StoreError> {
        let row = telemetry_destinations::table.find(Column(id)).select(DestinationRow::as_select());
        self.database.find("telemetry_destination.find_any", row).await
    }

    async fn list(
        &self,
        organization: OrganizationId,
        filter: &DestinationFilter,
        page: Page,
    ) -> Result<Listed<TelemetryDestination>, StoreError> {
        let mut rows = of(organization).into_boxed();
        if let Some(name) = &filter.name {
            rows = rows.filter(telemetry_destinations::name.eq(name));
        }
        if let Some(query) = &filter.query {
            let ids = query.parse::<TelemetryDestinationId>().ok().map(Column);
            let named = contains("telemetry_destinations.name", query);
            let named = named.or(contains("telemetry_destinations.endpoint", query));
            rows = rows.filter(named.or(telemetry_destinations::id.eq_any(ids)));
        }
        let rows = rows.order((telemetry_destinations::created_at.desc(), telemetry_destinations::id.desc()));
        let rows = rows.select(DestinationRow::as_select());
        self.database.page("telemetry_destination.list", page, rows).await
    }

    async fn replace(
        &self,
        current: &TelemetryDestination,
        next: &TelemetryDestination,
    ) -> Result<DestinationStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = of(current.organization).find(Column(current.id));
            let held = row.select(DestinationRow::as_select()).for_update();
            let held: Option<TelemetryDestination> = find(connection, held).await?;
            // The headers may have been resealed, which is no change by a caller but invalidates `current`.
            let unchanged =
                |held: &TelemetryDestination| held.updated_at == current.updated_at && held.headers == current.headers;
            if !held.is_some_and(|held| unchanged(&held)) {
                return Ok(DestinationStored::LostRace);
            }
            if next.name != current.name && is_used(connection, current.id).await? {
                return Ok(DestinationStored::InUse);
            }
            let DestinationRow { name, description, endpoint, header_names, headers, updated_at, .. } =
                DestinationRow::of(next);
            let values = (
                telemetry_destinations::name.eq(name),
                telemetry_destinations::description.eq(description),
                telemetry_destinations::endpoint.eq(endpoint),
                telemetry_destinations::header_names.eq(header_names),
                telemetry_destinations::sealed_headers.eq(headers),
                telemetry_destinations::updated_at.eq(updated_at),
            );
            diesel::update(row).set(values).execute(connection).await?;
            Ok(DestinationStored::Yes)
        };
        let name_taken = if_violated(&[NAME_KEY], DestinationStored::NameTaken);
        self.database.transaction_or("telemetry_destination.replace", work, name_taken).await
    }

    async fn delete(
        &self,
        organization: OrganizationId,
        id: TelemetryDestinationId,
    ) -> Result<DestinationDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = of(organization).find(Column(id));
            let held = row.select(telemetry_destinations::id).for_update();
            if held.get_result::<Uuid>(connection).await.optional()?.is_none() {
                return Ok(DestinationDeleted::NotFound);
            }
            if is_used(connection, id).await? {
                return Ok(DestinationDeleted::InUse);
            }
            diesel::delete(row).execute(connection).await?;
            Ok(DestinationDeleted::Yes)
        };
        self.database.transaction("telemetry_destination.delete", work).await
    }

    async fn note_success(&self, id: TelemetryDestinationId, at: OffsetDateTime) -> Result<(), StoreError> {
        let row = telemetry_destinations::table.find(Column(id));
        let values =
            (telemetry_destinations::consecutive_failures.eq(0), telemetry_destinations::last_export_at.eq(at));
        self.database.change("telemetry_destination.note_success", diesel::update(row).set(values)).await
    }

    async fn note_failure(
        &self,
        id: TelemetryDestinationId,
        error: &str,
        at: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let row = telemetry_destinations::table.find(Column(id));
        let values = (
            telemetry_destinations::consecutive_failures.eq(telemetry_destinations::consecutive_failures + 1),
            telemetry_destinations::last_error.eq(error),
            telemetry_destinations::last_error_at.eq(at),
        );
        self.database.change("telemetry_destination.note_failure", diesel::update(row).set(values)).await
    }

    async fn sealed_with_other_key(
        &self,
        key: KeyId,
        max: u32,
    ) -> Result<Vec<(TelemetryDestinationId, Vec<u8>)>, StoreError> {
        let rows = telemetry_destinations::table.filter(under_other_key("sealed_headers", key));
        let rows = rows.order(telemetry_destinations::id).limit(max.into());
        let rows = rows.select((telemetry_destinations::id, telemetry_destinations::sealed_headers));
        self.database.all::<(Column<_>, Vec<u8>), _>("telemetry_destination.sealed_otherwise", rows).await
    }

    async fn reseal(&self, id: TelemetryDestinationId, current: &[u8], next: &[u8]) -> Result<(), StoreError> {
        let row = telemetry_destinations::table.find(Column(id));
        let row = row.filter(telemetry_destinations::sealed_headers.eq(current));
        let row = diesel::update(row).set(telemetry_destinations::sealed_headers.eq(next));
        self.database.change("telemetry_destination.reseal", row).await
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        let heads = telemetry_destinations::table.select(head("sealed_headers")).distinct();
        self.database.keys("telemetry_destination.keys", heads).await
    }
}
