//! Current usage, counted while the caller locks the organization.

use std::sync::LazyLock;

use casement_domain::organization::{OrganizationUsage, Usage};
use casement_domain::project::ResourceCount;
use casement_domain::{NodeId, OrganizationId, PoolId, ProjectId};
use diesel::dsl::{self, not, sql};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Nullable, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::column::Column;
use crate::error::CallError;
use crate::query::count;
use crate::schema::{
    auth_connections, browser_pools, credentials, deployments, extensions, invocations, nodes, profiles, projects,
    proxies, sessions,
};
use crate::statement::Statement;

/// The usage to which a new resource is added.
pub(crate) struct CurrentUsage {
    /// The usage of the project.
    pub(crate) project: Usage,
    /// The usage of all projects of its organization.
    pub(crate) organization: Usage,
    /// The places of the pool's browsers that are not ending.
    pub(crate) held: u32,
}

/// Everything but invocations is counted in places. One statement, so that a browser that ends meanwhile is counted
/// everywhere or nowhere. A deleted pool has the size 0, and its leased browsers count until they end.
/// `greatest(held - size, 0)` is [`casement_domain::organization::beyond`].
const USED: &str = "
    WITH of_it AS (SELECT id FROM projects WHERE organization_id = $1),
    pools AS (
        SELECT pool.id, project_id, CASE WHEN deleted_at IS NULL THEN size * memory_places ELSE 0 END AS size,
            coalesce(held, 0) AS held
        FROM browser_pools pool LEFT JOIN (
            SELECT pool_id, sum(memory_places) AS held FROM browsers WHERE pool_id IS NOT NULL AND state <> 'ending' GROUP BY pool_id
        ) browsers ON pool_id = pool.id
        WHERE (deleted_at IS NULL OR held > 0) AND project_id IN (SELECT id FROM of_it)
    ),
    on_demand AS (
        SELECT coalesce(sum(memory_places) FILTER (WHERE project_id = $2), 0) AS mine,
            coalesce(sum(memory_places), 0) AS total
        FROM sessions
        WHERE state <> 'ended' AND pool_id IS NULL AND project_id IN (SELECT id FROM of_it)
    ),
    running AS (
        SELECT count(*) FILTER (WHERE project_id = $2) AS mine, count(*) AS total FROM invocations
        WHERE status IN ('queued', 'running') AND project_id IN (SELECT id FROM of_it)
    ),
    pooled AS (
        SELECT coalesce(sum(size) FILTER (WHERE project_id = $2), 0)::bigint AS mine, coalesce(sum(size), 0)::bigint AS total,
            coalesce(sum(greatest(held - size, 0)) FILTER (WHERE project_id = $2), 0)::bigint AS beyond_mine,
            coalesce(sum(greatest(held - size, 0)), 0)::bigint AS beyond_total,
            coalesce(max(held) FILTER (WHERE id = $3), 0) AS held
        FROM pools
    )
    SELECT on_demand.mine AS on_demand_mine, on_demand.total AS on_demand_total,
        pooled.mine AS pooled_mine, pooled.total AS pooled_total, beyond_mine, beyond_total, held,
        running.mine AS running_mine, running.total AS running_total
    FROM on_demand, running, pooled";

static STATEMENT: LazyLock<Statement> = LazyLock::new(|| Statement::cut(USED));

/// [`USED`], prepared once per connection, because planning it takes longer than running it.
#[derive(Debug, QueryId)]
struct CountUsed {
    organization: Column<OrganizationId>,
    project: Option<Column<ProjectId>>,
    pool: Option<Column<PoolId>>,
}

impl Query for CountUsed {
    type SqlType = (BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, BigInt, BigInt);
}

impl QueryFragment<Pg> for CountUsed {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        STATEMENT.walk(out, |out, name| match name {
            "1" => out.push_bind_param::<SqlUuid, _>(&self.organization),
            "2" => out.push_bind_param::<Nullable<SqlUuid>, _>(&self.project),
            _ => out.push_bind_param::<Nullable<SqlUuid>, _>(&self.pool),
        })
    }
}

/// In the order of the statement's columns.
#[derive(Queryable)]
struct UsedRow {
    on_demand_mine: i64,
    on_demand_total: i64,
    pooled_mine: i64,
    pooled_total: i64,
    beyond_mine: i64,
    beyond_total: i64,
    held: i64,
    running_mine: i64,
    running_total: i64,
}

/// The places of the browsers of the row `nodes`, and of its sessions that start, which have no browser yet.
pub(crate) const USED_OF_NODE: &str = "(
    (SELECT coalesce(sum(memory_places), 0) FROM browsers b WHERE b.node_id = nodes.id AND b.state <> 'ending')
    + (SELECT coalesce(sum(memory_places), 0) FROM sessions s WHERE s.node_id = nodes.id AND s.state = 'starting'))";

/// The places of a node that are in use.
pub(crate) async fn of_node(connection: &mut AsyncPgConnection, node: NodeId) -> Result<u32, CallError> {
    let used = nodes::table.find(Column(node)).select(sql::<BigInt>(USED_OF_NODE));
    Ok(count(used.get_result(connection).await?))
}

/// The usage of a project and of its organization, and the browsers of a pool of the project.
pub(crate) async fn of(
    connection: &mut AsyncPgConnection,
    project: ProjectId,
    organization: OrganizationId,
    pool: Option<PoolId>,
) -> Result<CurrentUsage, CallError> {
    count_all(connection, organization, Some(project), pool).await
}

/// The usage of an organization.
pub(crate) async fn of_organization(
    connection: &mut AsyncPgConnection,
    organization: OrganizationId,
) -> Result<OrganizationUsage, CallError> {
    let limited = count_all(connection, organization, None, None).await?.organization;
    let owned = projects::table.filter(projects::organization_id.eq(Column(organization))).select(projects::id);
    let connections = auth_connections::table.filter(auth_connections::project_id.eq_any(owned));
    let connections: i64 = connections.count().get_result(connection).await?;
    Ok(OrganizationUsage { limited, auth_connections: count(connections) })
}

async fn count_all(
    connection: &mut AsyncPgConnection,
    organization: OrganizationId,
    project: Option<ProjectId>,
    pool: Option<PoolId>,
) -> Result<CurrentUsage, CallError> {
    let query = CountUsed { organization: Column(organization), project: project.map(Column), pool: pool.map(Column) };
    let row: UsedRow = query.get_result(connection).await?;
    let usage = |on_demand, pooled, beyond, invocations| Usage {
        on_demand: count(on_demand),
        pooled: count(pooled),
        beyond: count(beyond),
        invocations: count(invocations),
    };
    Ok(CurrentUsage {
        project: usage(row.on_demand_mine, row.pooled_mine, row.beyond_mine, row.running_mine),
        organization: usage(row.on_demand_total, row.pooled_total, row.beyond_total, row.running_total),
        held: count(row.held),
    })
}

/// The usage by unfinished invocations alone, of a project and of its organization.
pub(crate) async fn invocations(
    connection: &mut AsyncPgConnection,
    project: ProjectId,
    organization: OrganizationId,
) -> Result<(Usage, Usage), CallError> {
    let of_connection = projects::table.filter(projects::organization_id.eq(Column(organization))).select(projects::id);
    let running = invocations::table.filter(invocations::status.eq_any(["queued", "running"]));
    let running = running.filter(invocations::project_id.eq_any(of_connection));
    let mine = dsl::count(invocations::id).aggregate_filter(invocations::project_id.eq(Column(project)));
    let (mine, all): (i64, i64) = running.select((mine, dsl::count(invocations::id))).get_result(connection).await?;
    let usage = |found| Usage { invocations: count(found), ..Usage::default() };
    Ok((usage(mine), usage(all)))
}

/// The numbers of active resources of a project by kind, without zeros.
pub(crate) async fn resources_of(
    connection: &mut AsyncPgConnection,
    id: ProjectId,
) -> Result<Vec<ResourceCount>, CallError> {
    let id = Column(id);
    let not_deleted = sessions::table.filter(not(sessions::state.eq("ended"))).filter(sessions::project_id.eq(id));
    let pools =
        browser_pools::table.filter(browser_pools::deleted_at.is_null()).filter(browser_pools::project_id.eq(id));
    let stored = extensions::table.filter(extensions::project_id.eq(id));
    let ways = proxies::table.filter(proxies::project_id.eq(id)).filter(proxies::deleted_at.is_null());
    let logins = credentials::table.filter(credentials::project_id.eq(id));
    let stored_in = auth_connections::table.filter(auth_connections::project_id.eq(id));
    let states = profiles::table.filter(profiles::project_id.eq(id)).filter(profiles::deleted_at.is_null());
    let programs = deployments::table.filter(not(deployments::status.eq_any(["failed", "stopped"])));
    let programs = programs.filter(deployments::project_id.eq(id));
    let calls = invocations::table.filter(invocations::status.eq_any(["queued", "running"]));
    let calls = calls.filter(invocations::project_id.eq(id));
    let counted = [
        ("sessions", not_deleted.count().get_result::<i64>(connection).await?),
        ("browser pools", pools.count().get_result(connection).await?),
        ("extensions", stored.count().get_result(connection).await?),
        ("auth connections", stored_in.count().get_result(connection).await?),
        ("credentials", logins.count().get_result(connection).await?),
        ("profiles", states.count().get_result(connection).await?),
        ("proxies", ways.count().get_result(connection).await?),
        ("deployments", programs.count().get_result(connection).await?),
        ("invocations", calls.count().get_result(connection).await?),
    ];
    let found = counted.into_iter().map(|(kind, found)| ResourceCount { kind, count: count(found) });
    Ok(found.filter(|found| found.count > 0).collect())
}
