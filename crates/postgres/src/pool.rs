//! Browser pools: their configuration, lead and browsers.

mod observe;
mod overview;
mod row;

use std::collections::HashMap;

use async_trait::async_trait;
use casement_domain::browser::{Browser, Shape};
use casement_domain::organization::{CapacityRequest, Limit, admit, admit_one};
use casement_domain::page::{Listed, Page};
use casement_domain::pool::{
    Generation, Growth, LeaderFence, Observed, Pool, PoolCounts, PoolDeleted, PoolFilter, PoolRepository, PoolStored,
    QueueLength,
};
use casement_domain::session::IdOrName;
use casement_domain::{BrowserId, NodeId, OrganizationId, PoolId, ProjectId, Replaced, StoreError};
use diesel::dsl::{Filter, IsNull, now};
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::{Duration, OffsetDateTime};

use self::observe::observe;
use self::row::{GrowthColumns, PoolRow};
use crate::browser::BrowserRow;
use crate::changes::{Change, report, report_ending};
use crate::column::{Column, Stored};
use crate::database::repository;
use crate::error::{BadRow, CallError, if_violated};
use crate::query::{contains, count, counted, window};
use crate::schema::{browser_pools, browsers};
use crate::{extension, organization, profile, project, proxy, usage, wait_queue};

/// The constraint that keeps names unique.
const NAME_KEY: &str = "browser_pools_name_key";

repository! {
    /// Pools in PostgreSQL.
    PgPools
}

/// The pools that are not deleted.
fn not_deleted() -> Filter<browser_pools::table, IsNull<browser_pools::deleted_at>> {
    browser_pools::table.filter(browser_pools::deleted_at.is_null())
}

/// Locks what the pool's browsers load, so that none of it is deleted meanwhile. Returns the outcome if something is
/// missing.
async fn hold_loaded(connection: &mut AsyncPgConnection, shape: &Shape) -> Result<Option<PoolStored>, CallError> {
    Ok(if !extension::lock(connection, &shape.extensions).await? {
        Some(PoolStored::ExtensionGone)
    } else if !proxy::lock(connection, &shape.proxies()).await? {
        Some(PoolStored::ProxyGone)
    } else if !profile::lock(connection, shape.profile).await? {
        Some(PoolStored::ProfileGone)
    } else {
        None
    })
}

/// Checks whether the pool `next` fits into the limits. Locks the organization until the transaction ends.
async fn reserve(
    connection: &mut AsyncPgConnection,
    organization: OrganizationId,
    current: Option<&Pool>,
    next: &Pool,
) -> Result<PoolStored, CallError> {
    let Some(held) = organization::lock(connection, organization).await? else { return Ok(PoolStored::Gone) };
    let Some(owner) = project::not_deleted(connection, organization, next.project).await? else {
        return Ok(PoolStored::Gone);
    };
    let used = usage::of(connection, owner.id, organization, Some(next.id)).await?;
    let ask = current.map_or(CapacityRequest::new_pool(next.config.places()), |current| {
        CapacityRequest::resized(current.config.places(), next.config.places(), used.held)
    });
    let caps = owner.caps_in_force(&held);
    Ok(match admit((&caps, used.project), (&held.caps, used.organization), ask) {
        Ok(()) => PoolStored::Yes,
        Err(refused) => PoolStored::LimitExceeded(refused),
    })
}

/// The numbers of idle and leased browsers of each pool.
async fn counts_of(
    connection: &mut AsyncPgConnection,
    ids: &[Column<PoolId>],
) -> Result<HashMap<Column<PoolId>, PoolCounts>, CallError> {
    let rows = browsers::table.filter(browsers::pool_id.eq_any(ids)).filter(browsers::state.eq_any(["idle", "leased"]));
    let rows = rows.group_by((browsers::pool_id, browsers::state));
    let rows = rows.select((browsers::pool_id.assume_not_null(), browsers::state, diesel::dsl::count_star()));
    let rows: Vec<(Column<PoolId>, String, i64)> = rows.load(connection).await?;
    let mut found = HashMap::<_, PoolCounts>::new();
    for (pool, state, number) in rows {
        let counts = found.entry(pool).or_default();
        if state == "idle" {
            counts.available = count(number);
        } else {
            counts.acquired = count(number);
        }
    }
    Ok(found)
}

/// Begins a new generation of the pool and marks its idle and warming browsers as ending.
async fn discard(
    connection: &mut AsyncPgConnection,
    id: PoolId,
    at: OffsetDateTime,
) -> Result<Vec<BrowserId>, CallError> {
    // The pool first: a browser that is being stored for it is either visible afterwards, or not stored.
    let row = browser_pools::table.find(Column(id));
    let next = browser_pools::generation.eq(browser_pools::generation + 1_i64);
    diesel::update(row).set(next).execute(connection).await?;
    let of_pool = browsers::table.filter(browsers::pool_id.eq(Column(id)));
    let ending = browsers::state.eq("ending");
    let columns = (browsers::id, browsers::node_id);
    let idle = diesel::update(of_pool.filter(browsers::state.eq("idle"))).set(ending).returning(columns);
    let mut ended: Vec<(Column<BrowserId>, Column<NodeId>)> = idle.get_results(connection).await?;
    if !ended.is_empty() {
        let fewer = i32::try_from(ended.len()).unwrap_or(i32::MAX);
        let lower = diesel::sql_query(
            "UPDATE browser_pools SET allowance = greatest(allowance - $2, 0), growth_since = $3 WHERE id = $1",
        );
        let lower = lower.bind::<sql_types::Uuid, _>(Column(id)).bind::<sql_types::Integer, _>(fewer);
        lower.bind::<sql_types::Timestamptz, _>(at).execute(connection).await?;
    }
    let warming = diesel::update(of_pool.filter(browsers::state.eq("warming"))).set(ending);
    ended.extend(warming.returning(columns).get_results::<(Column<_>, Column<_>)>(connection).await?);
    report_ending(connection, ended.iter().map(|(_, node)| node.0)).await?;
    report(connection, Change::Pool(id)).await?;
    Ok(ended.into_iter().map(|(browser, _)| browser.0).collect())
}

#[derive(QueryableByName)]
struct Led {
    #[diesel(sql_type = sql_types::BigInt)]
    lease_fence: i64,
}

#[async_trait]
impl PoolRepository for PgPools {
    async fn create(
        &self,
        organization: OrganizationId,
        pool: &Pool,
        max_pools: u32,
    ) -> Result<PoolStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let reserved = reserve(connection, organization, None, pool).await?;
            if reserved != PoolStored::Yes {
                return Ok(reserved);
            }
            let pools = not_deleted().filter(browser_pools::project_id.eq(Column(pool.project))).count();
            if let Err(refused) = admit_one(Limit::ProjectPools, max_pools, counted(connection, pools).await?) {
                return Ok(PoolStored::LimitExceeded(refused));
            }
            if let Some(missing) = hold_loaded(connection, &pool.config.shape).await? {
                return Ok(missing);
            }
            let row = (PoolRow::of(pool), browser_pools::lease_fence.eq(0));
            diesel::insert_into(browser_pools::table).values(row).execute(connection).await?;
            report(connection, Change::Pool(pool.id)).await?;
            Ok(PoolStored::Yes)
        };
        self.database.transaction_or("pool.create", work, if_violated(&[NAME_KEY], PoolStored::NameTaken)).await
    }

    async fn replace(
        &self,
        organization: OrganizationId,
        current: &Pool,
        next: &Pool,
        discards: bool,
    ) -> Result<(PoolStored, Vec<BrowserId>), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            if next.config.places() > current.config.places() {
                let reserved = reserve(connection, organization, Some(current), next).await?;
                if reserved != PoolStored::Yes {
                    return Ok((reserved, Vec::new()));
                }
            }
            if let Some(missing) = hold_loaded(connection, &next.config.shape).await? {
                return Ok((missing, Vec::new()));
            }
            let row = browser_pools::table.find(Column(current.id));
            // Unchanged, since the limits were checked against the current size.
            let row = row.filter(browser_pools::updated_at.eq(current.updated_at));
            let row = row.filter(browser_pools::deleted_at.is_null());
            if diesel::update(row).set(PoolRow::of(next)).execute(connection).await? == 0 {
                return Ok((PoolStored::Gone, Vec::new()));
            }
            if discards {
                return Ok((PoolStored::Yes, discard(connection, next.id, next.updated_at).await?));
            }
            report(connection, Change::Pool(next.id)).await?;
            Ok((PoolStored::Yes, Vec::new()))
        };
        let name_taken = if_violated(&[NAME_KEY], (PoolStored::NameTaken, Vec::new()));
        self.database.transaction_or("pool.replace", work, name_taken).await
    }

    async fn find(&self, project: ProjectId, which: &IdOrName<PoolId>) -> Result<Option<Pool>, StoreError> {
        let rows = not_deleted().filter(browser_pools::project_id.eq(Column(project))).select(PoolRow::as_select());
        match which {
            IdOrName::Id(id) => self.database.read_one("pool.find", rows.find(Column(*id))).await,
            IdOrName::Name(name) => {
                self.database.read_one("pool.find", rows.filter(browser_pools::name.eq(name))).await
            }
        }
    }

    async fn find_with_next(
        &self,
        project: ProjectId,
        which: &IdOrName<PoolId>,
        node: NodeId,
    ) -> Result<Option<(Pool, Option<BrowserId>)>, StoreError> {
        const OPERATION: &str = "pool.find_with_next";
        type Row = (PoolRow, Option<Column<BrowserId>>);

        let idle = browsers::table.filter(browsers::pool_id.eq(browser_pools::id.nullable()));
        let idle = idle.filter(browsers::state.eq("idle")).filter(browsers::generation.eq(browser_pools::generation));
        let idle = idle.filter(browsers::node_id.eq(Column(node)));
        let next = idle.order((browsers::created_at, browsers::id)).select(browsers::id).limit(1).single_value();
        let rows =
            not_deleted().filter(browser_pools::project_id.eq(Column(project))).select((PoolRow::as_select(), next));
        match which {
            IdOrName::Id(id) => self.database.read_one::<Row, _>(OPERATION, rows.find(Column(*id))).await,
            IdOrName::Name(name) => {
                self.database.read_one::<Row, _>(OPERATION, rows.filter(browser_pools::name.eq(name))).await
            }
        }
    }

    async fn find_by_id(&self, id: PoolId) -> Result<Option<Pool>, StoreError> {
        self.database.read_one("pool.find_by_id", not_deleted().find(Column(id)).select(PoolRow::as_select())).await
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &PoolFilter,
        page: Page,
    ) -> Result<Listed<(Pool, PoolCounts)>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let mut rows = not_deleted().filter(browser_pools::project_id.eq(Column(project))).into_boxed();
            if let Some(name) = &filter.name {
                rows = rows.filter(browser_pools::name.eq(name));
            }
            if let Some(query) = &filter.query {
                rows = rows.filter(contains("browser_pools.name", query));
            }
            let rows = rows.order((browser_pools::created_at.desc(), browser_pools::id.desc()));
            let rows = rows.limit(limit).offset(offset).select(PoolRow::as_select()).load(connection).await?;
            let ids: Vec<Column<PoolId>> = rows.iter().map(|row| row.id).collect();
            let counts = counts_of(connection, &ids).await?;
            let with_counts = |row: PoolRow| {
                let counts = counts.get(&row.id).copied().unwrap_or_default();
                Ok((row.value()?, counts))
            };
            Ok(page.cut(rows.into_iter().map(with_counts).collect::<Result<Vec<_>, BadRow>>()?))
        };
        self.database.fetch("pool.list", work).await
    }

    async fn counts(&self, id: PoolId) -> Result<PoolCounts, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let id = Column(id);
            Ok(counts_of(connection, &[id]).await?.get(&id).copied().unwrap_or_default())
        };
        self.database.fetch("pool.counts", work).await
    }

    async fn all_counts(&self) -> Result<Vec<(PoolId, PoolCounts, Option<QueueLength>)>, StoreError> {
        self.database.fetch("pool.all_counts", async |connection| overview::all_counts(connection).await).await
    }

    async fn all(&self) -> Result<Vec<PoolId>, StoreError> {
        self.database.ids("pool.all", not_deleted().order(browser_pools::id).select(browser_pools::id)).await
    }

    async fn all_conditions(&self, node: NodeId) -> Result<Vec<(PoolId, String)>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| overview::all_conditions(connection, node).await;
        self.database.fetch("pool.all_conditions", work).await
    }

    async fn delete(&self, id: PoolId, force: bool) -> Result<PoolDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            wait_queue::lock(connection, id).await?;
            let row = not_deleted().find(Column(id));
            let deleted = browser_pools::deleted_at.eq(now);
            if diesel::update(row).set(deleted).execute(connection).await? == 0 {
                return Ok((PoolDeleted::NotFound, Vec::new()));
            }
            let of_pool = browsers::table.filter(browsers::pool_id.eq(Column(id)));
            // Ends the unleased browsers before it counts the leased ones, so that a lease in between is counted.
            let unleased = of_pool.filter(browsers::state.eq_any(["warming", "idle"]));
            let unleased = diesel::update(unleased).set(browsers::state.eq("ending")).returning(browsers::node_id);
            let nodes: Vec<Column<NodeId>> = unleased.get_results(connection).await?;
            report_ending(connection, nodes.into_iter().map(|node| node.0)).await?;
            report(connection, Change::Pool(id)).await?;
            let leased = counted(connection, of_pool.filter(browsers::state.eq("leased")).count()).await?;
            if leased > 0 && !force {
                return Err(CallError::Undone { leased });
            }
            Ok((PoolDeleted::Yes, wait_queue::dissolve(connection, id).await?))
        };
        let rolled_back = |error| match error {
            CallError::Undone { leased } => Ok((PoolDeleted::InUse(leased), Vec::new())),
            other => Err(other),
        };
        let (deleted, decided) = self.database.transaction_or("pool.delete", work, rolled_back).await?;
        self.database.report(decided).await;
        Ok(deleted)
    }

    async fn flush(&self, id: PoolId, at: OffsetDateTime) -> Result<Vec<BrowserId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| discard(connection, id, at).await;
        self.database.transaction("pool.flush", work).await
    }

    async fn lead(&self, id: PoolId, node: NodeId, lasts: Duration) -> Result<Option<LeaderFence>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let leading = diesel::sql_query(
                "UPDATE browser_pools SET lease_node_id = $2, lease_until = now() + make_interval(secs => $3),
                     lease_fence = lease_fence + CASE WHEN lease_node_id = $2 THEN 0 ELSE 1 END
                 WHERE id = $1 AND deleted_at IS NULL
                     AND (lease_node_id IS NULL OR lease_node_id = $2 OR lease_until <= now())
                 RETURNING lease_fence",
            );
            let leading = leading.bind::<sql_types::Uuid, _>(Column(id));
            let leading = leading.bind::<sql_types::Uuid, _>(Column(node));
            let leading = leading.bind::<sql_types::Double, _>(lasts.as_seconds_f64());
            let led = leading.get_result::<Led>(connection).await.optional()?;
            Ok(led.map(|led| LeaderFence(led.lease_fence)))
        };
        self.database.call("pool.lead", work).await
    }

    async fn renew_leads(&self, node: NodeId, lasts: Duration) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let renewing = diesel::sql_query(
                "UPDATE browser_pools SET lease_until = now() + make_interval(secs => $2)
                 WHERE lease_node_id = $1 AND deleted_at IS NULL",
            );
            let renewing = renewing.bind::<sql_types::Uuid, _>(Column(node));
            renewing.bind::<sql_types::Double, _>(lasts.as_seconds_f64()).execute(connection).await?;
            Ok(())
        };
        self.database.call("pool.renew_leads", work).await
    }

    async fn set_blocked(&self, id: PoolId, reason: Option<String>) -> Result<(), StoreError> {
        let row = not_deleted().find(Column(id)).filter(browser_pools::blocked_reason.is_distinct_from(reason.clone()));
        let changed = diesel::update(row).set(browser_pools::blocked_reason.eq(reason));
        self.database.changed("pool.set_blocked", changed).await.map(drop)
    }

    async fn observe(&self, id: PoolId, node: NodeId) -> Result<Observed, StoreError> {
        self.database.fetch("pool.observe", async |connection| observe(connection, id, node).await).await
    }

    async fn grow(&self, pool: &Pool, fence: LeaderFence, growth: Growth) -> Result<Replaced, StoreError> {
        let row = not_deleted().find(Column(pool.id)).filter(browser_pools::lease_fence.eq(fence.0));
        let row = row.filter(browser_pools::updated_at.eq(pool.updated_at));
        // A flush lowers the allowance without changing `updated_at`.
        let row = row.filter(browser_pools::allowance.eq(Column(pool.growth.allowance)));
        let row = row.filter(browser_pools::growth_since.eq(pool.growth.since));
        let grown = diesel::update(row).set(GrowthColumns::of(&growth));
        Ok(if self.database.changed("pool.grow", grown).await? { Replaced::Yes } else { Replaced::LostRace })
    }

    async fn warm(&self, browser: &Browser, generation: Generation) -> Result<Replaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let Some(pool) = browser.pool else { return Ok(Replaced::LostRace) };
            let row = not_deleted().find(Column(pool)).filter(browser_pools::generation.eq(generation.0));
            // Locked, so that the pool can't be deleted in between and leave this browser behind, and no other node
            // stores a browser after the same count.
            let allowance = row.select(browser_pools::allowance).for_no_key_update();
            let allowance: Option<Column<u32>> = allowance.get_result(connection).await.optional()?;
            let Some(Column(allowance)) = allowance else { return Ok(Replaced::LostRace) };
            let of_pool = browsers::table.filter(browsers::pool_id.eq(Column(pool)));
            let living = of_pool.filter(browsers::state.ne("ending")).count();
            if counted(connection, living).await? >= allowance {
                return Ok(Replaced::LostRace);
            }
            let row = (BrowserRow::of(browser), browsers::generation.eq(generation.0));
            diesel::insert_into(browsers::table).values(row).execute(connection).await?;
            Ok(Replaced::Yes)
        };
        self.database.transaction("pool.warm", work).await
    }

    async fn ready(&self, browser: BrowserId, at: OffsetDateTime) -> Result<Replaced, StoreError> {
        let avoided = self.database.avoided();
        let work = async |connection: &mut AsyncPgConnection| {
            let row = browsers::table.find(Column(browser)).filter(browsers::state.eq("warming"));
            let owner = row.select((browsers::pool_id, browsers::node_id)).get_result(connection).await.optional()?;
            let Some((Some(Column(pool)), Column(node))) = owner else { return Ok((Replaced::LostRace, Vec::new())) };
            wait_queue::lock(connection, pool).await?;
            let current = browser_pools::table.find(Column(pool)).select(browser_pools::generation).single_value();
            let row = row.filter(browsers::generation.nullable().eq(current));
            if diesel::update(row).set(browsers::state.eq("idle")).execute(connection).await? == 0 {
                return Ok((Replaced::LostRace, Vec::new()));
            }
            Ok((Replaced::Yes, wait_queue::hand_over(connection, pool, node, &avoided, at).await?))
        };
        let (replaced, decided) = self.database.transaction("pool.ready", work).await?;
        self.database.report(decided).await;
        Ok(replaced)
    }
}
