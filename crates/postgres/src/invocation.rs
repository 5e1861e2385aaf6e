//! Invocations: admitted by the limits, changed by compare-and-set.

use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::deployment::{DeploymentStatus, Subject};
use casement_domain::invocation::{
    Invocation, InvocationFilter, InvocationRepository, InvocationStatus, InvocationStored,
};
use casement_domain::name::LabelName;
use casement_domain::organization::{CapacityRequest, admit};
use casement_domain::page::{Listed, Page};
use casement_domain::{DeploymentId, InvocationId, NodeId, OrganizationId, ProjectId, Replaced, StoreError};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::column::{Column, Stored, row};
use crate::database::Database;
use crate::deployment::{ENDED, report};
use crate::error::CallError;
use crate::query::{all, contains, is_there, window};
use crate::schema::{deployments, invocations};
use crate::{organization, project, usage};

/// The maximum number of invocations that this node creates concurrently. Those of one organization are created one by
/// one anyway.
const ACCEPTED_AT_ONCE: usize = 4;
/// The maximum size, in bytes, of the payloads and outputs of a page, unless its first invocation alone is larger.
const PAGE_BYTES: i64 = 8 << 20;
/// The size, in bytes, of an invocation's payload and output, computed without reading them.
const WEIGHT: &str = "(coalesce(octet_length(payload), 0) + coalesce(octet_length(output), 0))::bigint";
/// The statuses of invocations that have not ended.
const UNFINISHED: [&str; 2] = [InvocationStatus::Queued.as_str(), InvocationStatus::Running.as_str()];

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = invocations, check_for_backend(diesel::pg::Pg))]
    struct InvocationRow for Invocation {
        id: Column<InvocationId>,
        project: Column<ProjectId> as project_id,
        deployment: Column<DeploymentId> as deployment_id,
        app: Column<LabelName> as app_name,
        version: String,
        action: Column<LabelName> as action_name,
        payload: Option<String>,
        output: Option<String>,
        status: Column<InvocationStatus>,
        status_reason: Option<String>,
        node: Option<Column<NodeId>> as node_id,
        timeout_seconds: Column<u32>,
        started_at: OffsetDateTime,
        finished_at: Option<OffsetDateTime>,
    }
}

/// Invocations in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgInvocations {
    database: Database,
    /// Calls that would wait for the lock of the organization wait here, without occupying a connection.
    accepting: Arc<Semaphore>,
}

impl PgInvocations {
    /// Creates the repository on this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, accepting: Arc::new(Semaphore::new(ACCEPTED_AT_ONCE)) }
    }
}

/// Whether the invocation belongs to the project and has not ended. If so, it is locked, so that it does not end before
/// the transaction.
pub(crate) async fn is_unfinished(
    connection: &mut AsyncPgConnection,
    project: ProjectId,
    id: InvocationId,
) -> Result<bool, CallError> {
    let row = invocations::table.find(Column(id)).filter(invocations::project_id.eq(Column(project)));
    let row = row.filter(invocations::status.eq_any(UNFINISHED)).select(invocations::id).for_share();
    is_there(connection, row).await
}

#[derive(QueryableByName)]
struct IdRow {
    #[diesel(sql_type = sql_types::Uuid)]
    id: Column<InvocationId>,
}

/// Cuts a page to the items that fit into [`PAGE_BYTES`].
fn cut_to_bytes(page: Page, found: Vec<(Uuid, i64)>) -> Listed<Uuid> {
    let mut bytes = 0_i64;
    let fits = |weight: i64| {
        let first = bytes == 0;
        bytes = bytes.saturating_add(weight.max(1));
        first || bytes <= PAGE_BYTES
    };
    let weights = found.iter().take(page.limit as usize).map(|(_, weight)| *weight);
    let fitting = u32::try_from(weights.map(fits).take_while(|fits| *fits).count()).unwrap_or(page.limit);
    Page { limit: fitting.max(1), ..page }.cut(found.into_iter().map(|(id, _)| id).collect())
}

#[async_trait]
impl InvocationRepository for PgInvocations {
    async fn create(
        &self,
        organization: OrganizationId,
        invocation: &Invocation,
    ) -> Result<InvocationStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let Some(held) = organization::lock(connection, organization).await? else {
                return Ok(InvocationStored::ProjectGone);
            };
            let Some(owner) = project::not_deleted(connection, organization, invocation.project).await? else {
                return Ok(InvocationStored::ProjectGone);
            };
            // Updating `used_at` also locks the deployment, so that it does not end meanwhile.
            let row = deployments::table.find(Column(invocation.deployment));
            let row = row.filter(deployments::status.eq(DeploymentStatus::Running.as_str()));
            let used = deployments::used_at.eq(invocation.started_at);
            if diesel::update(row).set(used).execute(connection).await? == 0 {
                return Ok(InvocationStored::NotRunning);
            }
            let (in_project, in_all) = usage::invocations(connection, owner.id, organization).await?;
            let caps = owner.caps_in_force(&held);
            if let Err(refused) = admit((&caps, in_project), (&held.caps, in_all), CapacityRequest::Invocation) {
                return Ok(InvocationStored::LimitExceeded(refused));
            }
            let row = (InvocationRow::of(invocation), invocations::deadline.eq(invocation.deadline()));
            diesel::insert_into(invocations::table).values(row).execute(connection).await?;
            report(connection, Subject::Invocation(invocation.id), true).await?;
            Ok(InvocationStored::Yes)
        };
        let _turn = self.accepting.acquire().await;
        self.database.transaction("invocation.create", work).await
    }

    async fn find(&self, project: ProjectId, id: InvocationId) -> Result<Option<Invocation>, StoreError> {
        Ok(self.get(id).await?.filter(|invocation| invocation.project == project))
    }

    async fn get(&self, id: InvocationId) -> Result<Option<Invocation>, StoreError> {
        let row = invocations::table.find(Column(id)).select(InvocationRow::as_select());
        self.database.find("invocation.get", row).await
    }

    async fn status(&self, id: InvocationId) -> Result<Option<InvocationStatus>, StoreError> {
        let row = invocations::table.find(Column(id)).select(invocations::status);
        self.database.find::<Column<_>, _>("invocation.status", row).await
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &InvocationFilter,
        page: Page,
    ) -> Result<Listed<Invocation>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let mut rows = invocations::table.filter(invocations::project_id.eq(Column(project))).into_boxed();
            if let Some(name) = &filter.app_name {
                rows = rows.filter(invocations::app_name.eq(name));
            }
            if let Some(name) = &filter.action_name {
                rows = rows.filter(invocations::action_name.eq(name));
            }
            if let Some(version) = &filter.version {
                rows = rows.filter(invocations::version.eq(version));
            }
            if let Some(status) = filter.status {
                rows = rows.filter(invocations::status.eq(status.as_str()));
            }
            if let Some(deployment) = filter.deployment {
                rows = rows.filter(invocations::deployment_id.eq(Column(deployment)));
            }
            if let Some(since) = filter.since {
                rows = rows.filter(invocations::started_at.ge(since));
            }
            if let Some(query) = &filter.query {
                let named = contains("invocations.app_name", query).or(contains("invocations.action_name", query));
                rows = rows.filter(named.or(invocations::id.eq_any(query.parse::<InvocationId>().ok().map(Column))));
            }
            let newest_first = (invocations::started_at.desc(), invocations::id.desc());
            let rows = rows.order(newest_first).limit(limit).offset(offset);
            let rows = rows.select((invocations::id, diesel::dsl::sql::<sql_types::BigInt>(WEIGHT)));
            let found = cut_to_bytes(page, rows.load(connection).await?);
            let rows = invocations::table.filter(invocations::id.eq_any(&found.items)).order(newest_first);
            let items = all(connection, rows.select(InvocationRow::as_select())).await?;
            Ok(Listed { items, next_offset: found.next_offset })
        };
        self.database.snapshot("invocation.list", work).await
    }

    async fn replace(&self, current: &Invocation, next: &Invocation) -> Result<Replaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = invocations::table.find(Column(current.id));
            let row = row.filter(invocations::status.eq(current.status.as_str()));
            let moved = (
                invocations::status.eq(next.status.as_str()),
                invocations::status_reason.eq(&next.status_reason),
                invocations::output.eq(&next.output),
                invocations::node_id.eq(next.node.map(Column)),
                invocations::finished_at.eq(next.finished_at),
            );
            if diesel::update(row).set(moved).execute(connection).await? == 0 {
                return Ok(Replaced::LostRace);
            }
            report(connection, Subject::Invocation(next.id), next.status == InvocationStatus::Queued).await?;
            Ok(Replaced::Yes)
        };
        self.database.transaction("invocation.replace", work).await
    }

    async fn queued(&self, max: u32) -> Result<Vec<Invocation>, StoreError> {
        let rows = invocations::table.filter(invocations::status.eq(InvocationStatus::Queued.as_str()));
        // The first of each project comes before the second of any, so that no project blocks another.
        let nth = sql::<sql_types::BigInt>(
            "row_number() OVER (PARTITION BY invocations.project_id ORDER BY invocations.started_at, invocations.id)",
        );
        let rows = rows.order((nth, invocations::started_at, invocations::id)).limit(max.into());
        self.database.all("invocation.queued", rows.select(InvocationRow::as_select())).await
    }

    async fn running_on(&self, node: NodeId) -> Result<Vec<Invocation>, StoreError> {
        let rows = invocations::table.filter(invocations::status.eq(InvocationStatus::Running.as_str()));
        let rows = rows.filter(invocations::node_id.eq(Column(node)));
        self.database.all("invocation.running_on", rows.select(InvocationRow::as_select())).await
    }

    async fn overdue(&self, now: OffsetDateTime, max: u32) -> Result<Vec<Invocation>, StoreError> {
        let rows = invocations::table.filter(invocations::status.eq_any(UNFINISHED));
        let rows = rows.filter(invocations::deadline.le(now)).order(invocations::deadline).limit(max.into());
        self.database.all("invocation.overdue", rows.select(InvocationRow::as_select())).await
    }

    async fn unfinished_of(&self, deployment: DeploymentId) -> Result<Vec<Invocation>, StoreError> {
        let rows = invocations::table.filter(invocations::status.eq_any(UNFINISHED));
        let rows = rows.filter(invocations::deployment_id.eq(Column(deployment)));
        self.database.all("invocation.unfinished_of", rows.select(InvocationRow::as_select())).await
    }

    async fn stranded(&self, max: u32) -> Result<Vec<Invocation>, StoreError> {
        let rows = invocations::table.inner_join(deployments::table);
        let rows = rows.filter(invocations::status.eq_any(UNFINISHED)).filter(deployments::status.eq_any(ENDED));
        self.database.all("invocation.stranded", rows.select(InvocationRow::as_select()).limit(max.into())).await
    }

    async fn canceled_with_sessions(&self, max: u32) -> Result<Vec<InvocationId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Starts from the sessions that have not ended, since there are few.
            let statement = diesel::sql_query(
                "SELECT DISTINCT i.id FROM sessions s JOIN invocations i ON i.id = s.invocation_id
                 WHERE s.state <> 'ended' AND i.status = 'failed' AND i.status_reason = 'canceled' LIMIT $1",
            );
            let rows: Vec<IdRow> = statement.bind::<sql_types::BigInt, _>(i64::from(max)).load(connection).await?;
            Ok(rows.into_iter().map(|row| row.id.0).collect())
        };
        self.database.call("invocation.canceled_with_sessions", work).await
    }

    async fn forget(&self, before: OffsetDateTime, max: u32) -> Result<usize, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let statement = diesel::sql_query(
                "WITH old AS (
                     SELECT id FROM invocations
                     WHERE finished_at < $1 AND NOT EXISTS (
                         SELECT 1 FROM sessions WHERE invocation_id = invocations.id AND state <> 'ended')
                     ORDER BY finished_at LIMIT $2
                 ), parted AS (
                     UPDATE sessions SET invocation_id = NULL WHERE invocation_id IN (SELECT id FROM old)
                 )
                 DELETE FROM invocations WHERE id IN (SELECT id FROM old)",
            );
            let statement = statement.bind::<sql_types::Timestamptz, _>(before);
            Ok(statement.bind::<sql_types::BigInt, _>(i64::from(max)).execute(connection).await?)
        };
        self.database.call("invocation.forget", work).await
    }
}
