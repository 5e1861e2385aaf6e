//! The row of a pool.

use super::*;

#[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
#[diesel(table_name = browser_pools, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
pub(super) struct PoolRow {
    pub(super) id: Uuid,
    project_id: Uuid,
    name: Option<String>,
    size: i32,
    fill_rate_per_minute: i32,
    timeout_seconds: i32,
    #[diesel(embed)]
    shape: PoolShape,
    refresh_on_profile_update: bool,
    start_url: Option<String>,
    allowance: i32,
    growth_since: OffsetDateTime,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    telemetry: Option<Vec<String>>,
    /// Only a discard changes it.
    #[diesel(skip_update)]
    generation: i64,
}

impl From<&Pool> for PoolRow {
    fn from(pool: &Pool) -> Self {
        let config = &pool.config;
        Self {
            id: uuid(pool.id.ulid()),
            project_id: uuid(pool.project.ulid()),
            name: pool.name.as_ref().map(|name| name.as_str().to_owned()),
            size: int(config.size),
            fill_rate_per_minute: int(config.fill_rate_per_minute),
            timeout_seconds: int(config.timeout_seconds),
            shape: (&config.shape).into(),
            refresh_on_profile_update: config.refresh_on_profile_update,
            start_url: config.start_url.as_ref().map(|url| url.as_str().to_owned()),
            allowance: int(pool.growth.allowance),
            growth_since: pool.growth.since,
            created_at: pool.created_at,
            updated_at: pool.updated_at,
            telemetry: telemetry_value(config.telemetry.as_ref()),
            generation: pool.generation.0,
        }
    }
}

impl TryFrom<PoolRow> for Pool {
    type Error = BadRow;

    fn try_from(row: PoolRow) -> Result<Self, BadRow> {
        let config = PoolConfig {
            size: number("size", row.size)?,
            fill_rate_per_minute: number("fill_rate_per_minute", row.fill_rate_per_minute)?,
            timeout_seconds: number("timeout_seconds", row.timeout_seconds)?,
            shape: row.shape.try_into()?,
            refresh_on_profile_update: row.refresh_on_profile_update,
            start_url: start_url(row.start_url.as_deref())?,
            telemetry: telemetry(row.telemetry),
        };
        Ok(Self {
            id: PoolId::from_ulid(ulid(row.id)),
            project: ProjectId::from_ulid(ulid(row.project_id)),
            name: row.name.map(|name| slug("browser_pools.name", &name)).transpose()?,
            config,
            growth: Growth { allowance: number("allowance", row.allowance)?, since: row.growth_since },
            generation: Generation(row.generation),
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}
