//! Browser pools: their wish, their lead, their browsers.

mod row;

use async_trait::async_trait;
use casement_domain::browser::Browser;
use casement_domain::organization::{CapacityRequest, Limit, LimitExceeded, admit};
use casement_domain::page::{Listed, Page};
use casement_domain::pool::{
    Generation, Growth, IdleBrowser, LeaderFence, Observed, Pool, PoolConfig, PoolCounts, PoolDeleted, PoolFilter,
    PoolRepository, PoolStored,
};
use casement_domain::session::IdOrName;
use casement_domain::{BrowserId, NodeId, OrganizationId, PoolId, ProjectId, Replaced, StoreError};
use diesel::dsl::now;
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use self::row::PoolRow;
use crate::browser::BrowserRow;
use crate::convert::{
    contains, count, int, number, shape_columns, slug, start_url, telemetry, telemetry_value, ulid, uuid,
};
use crate::database::{Database, window};
use crate::error::{BadRow, CallError};
use crate::schema::{browser_pools, browsers, profiles};
use crate::{extension, organization, profile, project, proxy, usage, wait_queue};

shape_columns!(PoolShape, browser_pools);

/// Pools in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgPools {
    database: Database,
}

impl PgPools {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

fn name_taken(error: CallError) -> Result<PoolStored, CallError> {
    if error.violated() == Some("browser_pools_name_key") { Ok(PoolStored::NameTaken) } else { Err(error) }
}

/// Whether a pool fits into the limits as it is to be; holds the organization until the transaction ends.
async fn reserve(
    connection: &mut AsyncPgConnection,
    organization: OrganizationId,
    current: Option<&Pool>,
    next: &Pool,
) -> Result<PoolStored, CallError> {
    let Some(held) = organization::hold(connection, organization).await? else { return Ok(PoolStored::Gone) };
    let Some(owner) = project::living(connection, organization, next.project).await? else {
        return Ok(PoolStored::Gone);
    };
    let used = usage::of(connection, owner.id, organization, Some(next.id)).await?;
    let ask = current.map_or(CapacityRequest::new_pool(next.config.size), |current| {
        CapacityRequest::resized(current.config.size, next.config.size, used.held)
    });
    let caps = owner.caps_in_force(&held);
    Ok(match admit((&caps, used.project), (&held.caps, used.organization), ask) {
        Ok(()) => PoolStored::Yes,
        Err(refused) => PoolStored::LimitExceeded(refused),
    })
}

async fn pools_of(connection: &mut AsyncPgConnection, id: ProjectId) -> Result<u32, CallError> {
    let pools = browser_pools::table.filter(browser_pools::project_id.eq(uuid(id.ulid())));
    let found: i64 = pools.filter(browser_pools::deleted_at.is_null()).count().get_result(connection).await?;
    Ok(count(found))
}

/// Idle and leased browsers of each pool.
async fn counts_of(
    connection: &mut AsyncPgConnection,
    ids: &[Uuid],
) -> Result<std::collections::HashMap<Uuid, PoolCounts>, CallError> {
    let rows = browsers::table.filter(browsers::pool_id.eq_any(ids)).filter(browsers::state.eq_any(["idle", "leased"]));
    let rows = rows.group_by((browsers::pool_id, browsers::state));
    let rows = rows.select((browsers::pool_id.assume_not_null(), browsers::state, diesel::dsl::count_star()));
    let rows: Vec<(Uuid, String, i64)> = rows.load(connection).await?;
    let mut found = std::collections::HashMap::<Uuid, PoolCounts>::new();
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

/// The version that idle browsers of the pool are to have, if it follows its profile.
async fn followed_version(connection: &mut AsyncPgConnection, pool: PoolId) -> Result<Option<Option<Uuid>>, CallError> {
    let pool = browser_pools::table.find(uuid(pool.ulid())).filter(browser_pools::refresh_on_profile_update);
    let profile = profiles::table.filter(profiles::id.nullable().eq_any(pool.select(browser_pools::profile_id)));
    Ok(profile.select(profiles::version_id).get_result(connection).await.optional()?)
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
            let used = pools_of(connection, pool.project).await?;
            if used >= max_pools {
                let refused = LimitExceeded { limit: Limit::ProjectPools, value: max_pools, used, requested: 1 };
                return Ok(PoolStored::LimitExceeded(refused));
            }
            if !extension::hold(connection, &pool.config.shape.extensions).await? {
                return Ok(PoolStored::ExtensionGone);
            }
            if !proxy::hold(connection, pool.config.shape.proxy).await? {
                return Ok(PoolStored::ProxyGone);
            }
            if !profile::hold(connection, pool.config.shape.profile).await? {
                return Ok(PoolStored::ProfileGone);
            }
            let row = (PoolRow::from(pool), browser_pools::lease_fence.eq(0));
            diesel::insert_into(browser_pools::table).values(row).execute(connection).await?;
            Ok(PoolStored::Yes)
        };
        self.database.transaction_or("pool.create", work, name_taken).await
    }

    async fn replace(
        &self,
        organization: OrganizationId,
        current: &Pool,
        next: &Pool,
    ) -> Result<PoolStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            if next.config.size > current.config.size {
                let reserved = reserve(connection, organization, Some(current), next).await?;
                if reserved != PoolStored::Yes {
                    return Ok(reserved);
                }
            }
            if !extension::hold(connection, &next.config.shape.extensions).await? {
                return Ok(PoolStored::ExtensionGone);
            }
            if !proxy::hold(connection, next.config.shape.proxy).await? {
                return Ok(PoolStored::ProxyGone);
            }
            if !profile::hold(connection, next.config.shape.profile).await? {
                return Ok(PoolStored::ProfileGone);
            }
            let row = browser_pools::table.find(uuid(current.id.ulid()));
            let row = row.filter(browser_pools::updated_at.eq(current.updated_at));
            // The size was counted on above; a growth that came through meanwhile is only noted again.
            let row = row.filter(browser_pools::deleted_at.is_null());
            let changed = diesel::update(row).set(PoolRow::from(next)).execute(connection).await?;
            Ok(if changed == 1 { PoolStored::Yes } else { PoolStored::Gone })
        };
        self.database.transaction_or("pool.replace", work, name_taken).await
    }

    async fn find(&self, project: ProjectId, which: &IdOrName<PoolId>) -> Result<Option<Pool>, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            let rows = browser_pools::table.filter(browser_pools::project_id.eq(uuid(project.ulid())));
            let rows = rows.filter(browser_pools::deleted_at.is_null());
            let rows = rows.select(PoolRow::as_select());
            let row = match which {
                IdOrName::Id(id) => {
                    rows.filter(browser_pools::id.eq(uuid(id.ulid()))).get_result(&mut connection).await
                }
                IdOrName::Name(name) => rows.filter(browser_pools::name.eq(name)).get_result(&mut connection).await,
            };
            Ok(row.optional()?.map(Pool::try_from).transpose()?)
        };
        self.database.read("pool.find", work).await
    }

    async fn find_with_next(
        &self,
        project: ProjectId,
        which: &IdOrName<PoolId>,
    ) -> Result<Option<(Pool, Option<BrowserId>)>, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            let idle = browsers::table.filter(browsers::pool_id.eq(browser_pools::id.nullable()));
            let idle =
                idle.filter(browsers::state.eq("idle")).filter(browsers::generation.eq(browser_pools::generation));
            let idle = idle.order((browsers::created_at, browsers::id));
            let next = idle.select(browsers::id).limit(1).single_value();
            let rows = browser_pools::table.filter(browser_pools::project_id.eq(uuid(project.ulid())));
            let rows = rows.filter(browser_pools::deleted_at.is_null()).select((PoolRow::as_select(), next));
            let row = match which {
                IdOrName::Id(id) => {
                    rows.filter(browser_pools::id.eq(uuid(id.ulid()))).get_result(&mut connection).await
                }
                IdOrName::Name(name) => rows.filter(browser_pools::name.eq(name)).get_result(&mut connection).await,
            };
            let Some((row, next)) = row.optional()? else { return Ok(None) };
            let row: PoolRow = row;
            let next: Option<Uuid> = next;
            Ok(Some((Pool::try_from(row)?, next.map(|id| BrowserId::from_ulid(ulid(id))))))
        };
        self.database.read("pool.find_with_next", work).await
    }

    async fn find_by_id(&self, id: PoolId) -> Result<Option<Pool>, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            let row = browser_pools::table.find(uuid(id.ulid())).filter(browser_pools::deleted_at.is_null());
            let row = row.select(PoolRow::as_select()).get_result(&mut connection).await.optional()?;
            Ok(row.map(Pool::try_from).transpose()?)
        };
        self.database.read("pool.find_by_id", work).await
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &PoolFilter,
        page: Page,
    ) -> Result<Listed<(Pool, PoolCounts)>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let mut rows = browser_pools::table.filter(browser_pools::project_id.eq(uuid(project.ulid()))).into_boxed();
            rows = rows.filter(browser_pools::deleted_at.is_null());
            if let Some(name) = &filter.name {
                rows = rows.filter(browser_pools::name.eq(name));
            }
            if let Some(query) = &filter.query {
                rows = rows.filter(contains("browser_pools.name", query));
            }
            let rows = rows.order((browser_pools::created_at.desc(), browser_pools::id.desc()));
            let rows = rows.limit(limit).offset(offset).select(PoolRow::as_select()).load(connection).await?;
            let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
            let counts = counts_of(connection, &ids).await?;
            let with_counts = |row: PoolRow| {
                let counts = counts.get(&row.id).copied().unwrap_or_default();
                Ok((Pool::try_from(row)?, counts))
            };
            Ok(page.cut(rows.into_iter().map(with_counts).collect::<Result<Vec<_>, BadRow>>()?))
        };
        self.database.fetch("pool.list", work).await
    }

    async fn counts(&self, id: PoolId) -> Result<PoolCounts, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let id = uuid(id.ulid());
            Ok(counts_of(connection, &[id]).await?.get(&id).copied().unwrap_or_default())
        };
        self.database.fetch("pool.counts", work).await
    }

    async fn all(&self) -> Result<Vec<PoolId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = browser_pools::table.filter(browser_pools::deleted_at.is_null()).order(browser_pools::id);
            let ids: Vec<Uuid> = rows.select(browser_pools::id).load(connection).await?;
            Ok(ids.into_iter().map(|id| PoolId::from_ulid(ulid(id))).collect())
        };
        self.database.fetch("pool.all", work).await
    }

    async fn delete(&self, id: PoolId, force: bool) -> Result<PoolDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            wait_queue::hold(connection, id).await?;
            let row = browser_pools::table.find(uuid(id.ulid())).filter(browser_pools::deleted_at.is_null());
            let deleted = browser_pools::deleted_at.eq(now);
            if diesel::update(row).set(deleted).execute(connection).await? == 0 {
                return Ok(PoolDeleted::NotFound);
            }
            let of_pool = browsers::table.filter(browsers::pool_id.eq(uuid(id.ulid())));
            // First what could still be leased, then what is: a lease in between is seen by the second.
            let unleased = of_pool.filter(browsers::state.eq_any(["warming", "idle"]));
            diesel::update(unleased).set(browsers::state.eq("ending")).execute(connection).await?;
            let leased: i64 = of_pool.filter(browsers::state.eq("leased")).count().get_result(connection).await?;
            if leased > 0 && !force {
                return Err(CallError::Undone { leased: count(leased) });
            }
            wait_queue::dissolve(connection, id).await?;
            Ok(PoolDeleted::Yes)
        };
        let rolled_back = |error| match error {
            CallError::Undone { leased } => Ok(PoolDeleted::InUse(leased)),
            other => Err(other),
        };
        self.database.transaction_or("pool.delete", work, rolled_back).await
    }

    async fn flush(&self, id: PoolId, at: OffsetDateTime) -> Result<Vec<BrowserId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // First the pool: a browser that is being stored for it is there afterwards, or is not stored.
            let row = browser_pools::table.find(uuid(id.ulid()));
            let next = browser_pools::generation.eq(browser_pools::generation + 1_i64);
            diesel::update(row).set(next).execute(connection).await?;
            let of_pool = browsers::table.filter(browsers::pool_id.eq(uuid(id.ulid())));
            let ending = browsers::state.eq("ending");
            let idle = diesel::update(of_pool.filter(browsers::state.eq("idle"))).set(ending).returning(browsers::id);
            let mut ended: Vec<Uuid> = idle.get_results(connection).await?;
            if !ended.is_empty() {
                let fewer = i32::try_from(ended.len()).unwrap_or(i32::MAX);
                let lower = diesel::sql_query(
                    "UPDATE browser_pools SET allowance = greatest(allowance - $2, 0), growth_since = $3 WHERE id = $1",
                );
                let lower = lower.bind::<sql_types::Uuid, _>(uuid(id.ulid())).bind::<sql_types::Integer, _>(fewer);
                lower.bind::<sql_types::Timestamptz, _>(at).execute(connection).await?;
            }
            let warming = diesel::update(of_pool.filter(browsers::state.eq("warming"))).set(ending);
            ended.extend(warming.returning(browsers::id).get_results::<Uuid>(connection).await?);
            Ok(ended.into_iter().map(|id| BrowserId::from_ulid(ulid(id))).collect())
        };
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
            let leading = leading.bind::<sql_types::Uuid, _>(uuid(id.ulid()));
            let leading = leading.bind::<sql_types::Uuid, _>(uuid(node.ulid()));
            let leading = leading.bind::<sql_types::Double, _>(lasts.as_seconds_f64());
            let led = leading.get_result::<Led>(connection).await.optional()?;
            Ok(led.map(|led| LeaderFence(led.lease_fence)))
        };
        self.database.call("pool.lead", work).await
    }

    async fn observe(&self, id: PoolId) -> Result<Observed, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = browsers::table.filter(browsers::pool_id.eq(uuid(id.ulid())));
            let rows = rows.filter(browsers::state.ne("ending"));
            let columns = (
                browsers::id,
                browsers::state,
                browsers::created_at,
                browsers::profile_version_id,
                browsers::generation,
            );
            let rows: Vec<(Uuid, String, OffsetDateTime, Option<Uuid>, i64)> =
                rows.select(columns).load(connection).await?;
            let followed = followed_version(connection, id).await?;
            let generation = browser_pools::table.find(uuid(id.ulid())).select(browser_pools::generation);
            let generation: Option<i64> = generation.get_result(connection).await.optional()?;
            let mut observed = Observed::default();
            for (id, state, created_at, version, of) in rows {
                match state.as_str() {
                    "warming" => observed.warming += 1,
                    "leased" => observed.leased += 1,
                    _ => {
                        let outdated = followed.is_some_and(|current| current != version) || generation != Some(of);
                        observed.idle.push(IdleBrowser { id: BrowserId::from_ulid(ulid(id)), created_at, outdated });
                    }
                }
            }
            Ok(observed)
        };
        self.database.fetch("pool.observe", work).await
    }

    async fn grow(&self, pool: &Pool, fence: LeaderFence, growth: Growth) -> Result<Replaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = browser_pools::table.find(uuid(pool.id.ulid())).filter(browser_pools::deleted_at.is_null());
            let row = row.filter(browser_pools::lease_fence.eq(fence.0));
            let row = row.filter(browser_pools::updated_at.eq(pool.updated_at));
            // A flush lowers the allowance without changing the wish.
            let row = row.filter(browser_pools::allowance.eq(int(pool.growth.allowance)));
            let row = row.filter(browser_pools::growth_since.eq(pool.growth.since));
            let grown =
                (browser_pools::allowance.eq(int(growth.allowance)), browser_pools::growth_since.eq(growth.since));
            let changed = diesel::update(row).set(grown).execute(connection).await?;
            Ok(if changed == 1 { Replaced::Yes } else { Replaced::LostRace })
        };
        self.database.call("pool.grow", work).await
    }

    async fn warm(
        &self,
        browser: &Browser,
        fence: LeaderFence,
        generation: Generation,
    ) -> Result<Replaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let Some(pool) = browser.pool else { return Ok(Replaced::LostRace) };
            let row = browser_pools::table.find(uuid(pool.ulid())).filter(browser_pools::deleted_at.is_null());
            let row = row.filter(browser_pools::lease_fence.eq(fence.0)).select(browser_pools::id);
            let row = row.filter(browser_pools::generation.eq(generation.0));
            // Held, so that the pool can't be deleted in between and leave this browser behind.
            let led: Option<Uuid> = row.for_share().get_result(connection).await.optional()?;
            if led.is_none() {
                return Ok(Replaced::LostRace);
            }
            let row = (BrowserRow::from(browser), browsers::generation.eq(generation.0));
            diesel::insert_into(browsers::table).values(row).execute(connection).await?;
            Ok(Replaced::Yes)
        };
        self.database.transaction("pool.warm", work).await
    }

    async fn ready(&self, browser: BrowserId, at: OffsetDateTime) -> Result<Replaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = browsers::table.find(uuid(browser.ulid())).filter(browsers::state.eq("warming"));
            let pool: Option<Option<Uuid>> = row.select(browsers::pool_id).get_result(connection).await.optional()?;
            let Some(Some(pool)) = pool else { return Ok(Replaced::LostRace) };
            let pool = PoolId::from_ulid(ulid(pool));
            wait_queue::hold(connection, pool).await?;
            let current = browser_pools::table.find(uuid(pool.ulid())).select(browser_pools::generation).single_value();
            let row = row.filter(browsers::generation.nullable().eq(current));
            if diesel::update(row).set(browsers::state.eq("idle")).execute(connection).await? == 0 {
                return Ok(Replaced::LostRace);
            }
            wait_queue::hand_over(connection, pool, at).await?;
            Ok(Replaced::Yes)
        };
        self.database.transaction("pool.ready", work).await
    }
}
