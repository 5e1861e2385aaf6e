//! The row of a pool.

use casement_domain::browser::StartUrl;
use casement_domain::name::SlugName;
use casement_domain::pool::{Generation, Growth, Pool, PoolConfig};
use casement_domain::{PoolId, ProjectId};
use diesel::prelude::*;
use time::OffsetDateTime;

use crate::column::{Column, ColumnValue, row};
use crate::schema::browser_pools;
use crate::shape::shape_columns;

shape_columns!(ShapeColumns, browser_pools);

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = browser_pools, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    pub(super) struct PoolRow for Pool {
        pub(super) id: Column<PoolId>,
        project: Column<ProjectId> as project_id,
        name: Option<Column<SlugName>>,
        #[diesel(embed)]
        config: ConfigColumns,
        #[diesel(embed)]
        growth: GrowthColumns,
        created_at: OffsetDateTime,
        updated_at: OffsetDateTime,
        /// Changed only by a discard.
        #[diesel(skip_update)]
        generation: Column<Generation>,
        blocked_reason: Option<String>,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = browser_pools, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    pub(super) struct ConfigColumns for PoolConfig {
        size: Column<u32>,
        fill_rate_per_minute: Column<u32>,
        timeout_seconds: Column<u32>,
        #[diesel(embed)]
        shape: ShapeColumns,
        start_url: Option<Column<StartUrl>>,
        refresh_on_profile_update: bool,
        telemetry: Option<Vec<String>>,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = browser_pools, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    pub(super) struct GrowthColumns for Growth {
        allowance: Column<u32>,
        since: OffsetDateTime as growth_since,
    }
}

impl ColumnValue for Generation {
    type Raw = i64;

    fn to_raw(&self) -> i64 {
        self.0
    }

    fn from_raw(raw: i64) -> Result<Self, String> {
        Ok(Self(raw))
    }
}
