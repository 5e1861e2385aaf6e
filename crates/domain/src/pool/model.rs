//! What a pool is.

use time::OffsetDateTime;

use super::AcquireInput;
use crate::browser::{Shape, StartUrl};
use crate::ids::{PoolId, ProjectId};
use crate::name::SlugName;
use crate::telemetry::Capture;

/// What a pool wishes for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// How many browsers it holds, warming, idle and leased ones together; at least 1.
    pub size: u32,
    /// How much it may grow per minute, in percent of its size, 1 to 100. A replacement is no growth.
    pub fill_rate_per_minute: u32,
    /// Idle timeout of its leases, 10 to 259200 seconds.
    pub timeout_seconds: u32,
    /// What its browsers are started as.
    pub shape: Shape,
    /// What a lease opens first, unless it says otherwise.
    pub start_url: Option<StartUrl>,
    /// Whether idle browsers that were started with an older version of the profile are replaced.
    pub refresh_on_profile_update: bool,
    /// What is captured of a lease, unless it says otherwise.
    pub telemetry: Option<Capture>,
}

impl PoolConfig {
    /// How long a pool needs to fill from empty at its rate, at most an hour: how long an acquire waits unless told.
    #[must_use]
    pub fn time_to_fill_seconds(&self) -> u32 {
        (100_u32.div_ceil(self.fill_rate_per_minute.max(1)) * 60).min(AcquireInput::MAX_WAIT_SECONDS)
    }
}

/// How far a pool may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// How many browsers it may hold now; at most its size.
    pub allowance: u32,
    /// Since when the next one is being earned.
    pub since: OffsetDateTime,
}

/// How often all that a pool had was discarded. A browser that was started before the last time is never leased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub i64);

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Which one.
    pub id: PoolId,
    /// Whose it is.
    pub project: ProjectId,
    /// Unique in the project, without case and accents.
    pub name: Option<SlugName>,
    /// Its wish.
    pub config: PoolConfig,
    /// How far it may grow.
    pub growth: Growth,
    /// Of the browsers that it may lease.
    pub generation: Generation,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// When its wish last changed.
    pub updated_at: OffsetDateTime,
}

/// What a pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Idle browsers.
    pub available: u32,
    /// Leased browsers.
    pub acquired: u32,
}
