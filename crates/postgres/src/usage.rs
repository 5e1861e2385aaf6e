//! What is in use, counted while the organization is held.

use casement_domain::organization::Usage;
use casement_domain::project::ResourceCount;
use casement_domain::{OrganizationId, ProjectId};
use diesel::dsl::{self, not, sum};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::convert::{count, uuid};
use crate::error::CallError;
use crate::schema::{
    auth_connections, browser_pools, credentials, deployments, extensions, invocations, profiles, projects, proxies,
    sessions,
};

/// In one project.
pub(crate) async fn of_project(connection: &mut AsyncPgConnection, id: ProjectId) -> Result<Usage, CallError> {
    let living = sessions::table.filter(not(sessions::state.eq("ended"))).filter(sessions::pool_id.is_null());
    let living = living.filter(sessions::project_id.eq(uuid(id.ulid())));
    let on_demand: i64 = living.count().get_result(connection).await?;
    let pools = browser_pools::table.filter(browser_pools::deleted_at.is_null());
    let pools = pools.filter(browser_pools::project_id.eq(uuid(id.ulid())));
    let pooled: Option<i64> = pools.select(sum(browser_pools::size)).get_result(connection).await?;
    let running = invocations::table.filter(invocations::status.eq_any(["queued", "running"]));
    let running = running.filter(invocations::project_id.eq(uuid(id.ulid())));
    let running: i64 = running.count().get_result(connection).await?;
    Ok(Usage { on_demand: count(on_demand), pooled: count(pooled.unwrap_or(0)), invocations: count(running) })
}

/// In all projects of an organization.
pub(crate) async fn of_organization(
    connection: &mut AsyncPgConnection,
    id: OrganizationId,
) -> Result<Usage, CallError> {
    let of_it = projects::table.filter(projects::organization_id.eq(uuid(id.ulid()))).select(projects::id);
    let living = sessions::table.filter(not(sessions::state.eq("ended"))).filter(sessions::pool_id.is_null());
    let on_demand: i64 = living.filter(sessions::project_id.eq_any(of_it)).count().get_result(connection).await?;
    let pools = browser_pools::table.filter(browser_pools::deleted_at.is_null());
    let pools = pools.filter(browser_pools::project_id.eq_any(of_it));
    let pooled: Option<i64> = pools.select(sum(browser_pools::size)).get_result(connection).await?;
    let running = invocations::table.filter(invocations::status.eq_any(["queued", "running"]));
    let running: i64 = running.filter(invocations::project_id.eq_any(of_it)).count().get_result(connection).await?;
    Ok(Usage { on_demand: count(on_demand), pooled: count(pooled.unwrap_or(0)), invocations: count(running) })
}

/// The invocations that have not ended, and nothing else: in one project, and in all of the organization.
pub(crate) async fn invocations(
    connection: &mut AsyncPgConnection,
    project: ProjectId,
    organization: OrganizationId,
) -> Result<(Usage, Usage), CallError> {
    let of_it = projects::table.filter(projects::organization_id.eq(uuid(organization.ulid()))).select(projects::id);
    let running = invocations::table.filter(invocations::status.eq_any(["queued", "running"]));
    let running = running.filter(invocations::project_id.eq_any(of_it));
    let mine = dsl::count(invocations::id).aggregate_filter(invocations::project_id.eq(uuid(project.ulid())));
    let (mine, all): (i64, i64) = running.select((mine, dsl::count(invocations::id))).get_result(connection).await?;
    let usage = |found| Usage { invocations: count(found), ..Usage::default() };
    Ok((usage(mine), usage(all)))
}

/// What of a project is active, by kind; nothing of what there is none of.
pub(crate) async fn resources_of(
    connection: &mut AsyncPgConnection,
    id: ProjectId,
) -> Result<Vec<ResourceCount>, CallError> {
    let id = uuid(id.ulid());
    let living = sessions::table.filter(not(sessions::state.eq("ended"))).filter(sessions::project_id.eq(id));
    let pools =
        browser_pools::table.filter(browser_pools::deleted_at.is_null()).filter(browser_pools::project_id.eq(id));
    let kept = extensions::table.filter(extensions::project_id.eq(id));
    let ways = proxies::table.filter(proxies::project_id.eq(id)).filter(proxies::deleted_at.is_null());
    let logins = credentials::table.filter(credentials::project_id.eq(id));
    let kept_in = auth_connections::table.filter(auth_connections::project_id.eq(id));
    let states = profiles::table.filter(profiles::project_id.eq(id)).filter(profiles::deleted_at.is_null());
    let programs = deployments::table.filter(not(deployments::status.eq_any(["failed", "stopped"])));
    let programs = programs.filter(deployments::project_id.eq(id));
    let calls = invocations::table.filter(invocations::status.eq_any(["queued", "running"]));
    let calls = calls.filter(invocations::project_id.eq(id));
    let counted = [
        ("sessions", living.count().get_result::<i64>(connection).await?),
        ("browser pools", pools.count().get_result(connection).await?),
        ("extensions", kept.count().get_result(connection).await?),
        ("auth connections", kept_in.count().get_result(connection).await?),
        ("credentials", logins.count().get_result(connection).await?),
        ("profiles", states.count().get_result(connection).await?),
        ("proxies", ways.count().get_result(connection).await?),
        ("deployments", programs.count().get_result(connection).await?),
        ("invocations", calls.count().get_result(connection).await?),
    ];
    let found = counted.into_iter().map(|(kind, found)| ResourceCount { kind, count: count(found) });
    Ok(found.filter(|found| found.count > 0).collect())
}
