//! The pool and its configuration.

use time::OffsetDateTime;

use crate::browser::{Shape, StartUrl};
use crate::ids::{PoolId, ProjectId};
use crate::name::SlugName;
use crate::telemetry::Capture;

/// The longest wait of an acquire, in seconds.
pub const MAX_WAIT_SECONDS: u32 = 3600;

/// The maximum number of characters of the reason why a pool cannot be filled.
pub const MAX_BLOCKED_REASON: usize = 500;

/// The configuration of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The number of browsers, counting warming, idle and leased ones; at least 1.
    pub size: u32,
    /// The growth per minute in percent of the size, 1 to 100. Replacing a browser is not growth.
    pub fill_rate_per_minute: u32,
    /// The idle timeout of its leases, 10 to 259200 seconds.
    pub timeout_seconds: u32,
    /// The shape that its browsers are started with.
    pub shape: Shape,
    /// The address that a lease opens first, unless the lease names another.
    pub start_url: Option<StartUrl>,
    /// Whether idle browsers that were started with an older version of the profile are replaced.
    pub refresh_on_profile_update: bool,
    /// The telemetry capture of a lease, unless the lease changes it.
    pub telemetry: Option<Capture>,
}

impl PoolConfig {
    /// Returns what the pool takes of the limits of sessions: its size, times the places of one browser.
    #[must_use]
    pub fn places(&self) -> u32 {
        self.size.saturating_mul(self.shape.places())
    }

    /// Returns how long the pool takes to fill from empty at its rate, at most an hour. It is the default timeout of an
    /// acquire.
    #[must_use]
    pub fn time_to_fill_seconds(&self) -> u32 {
        (100_u32.div_ceil(self.fill_rate_per_minute.max(1)) * 60).min(MAX_WAIT_SECONDS)
    }
}

/// The growth state of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The number of browsers that it may hold now; at most its size.
    pub allowance: u32,
    /// The time from which the growth by the next browser counts.
    pub since: OffsetDateTime,
}

/// The count of a pool's discards. A browser of an earlier generation is never leased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub i64);

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The identifier.
    pub id: PoolId,
    /// The project that owns it.
    pub project: ProjectId,
    /// Unique in the project, without case and accents.
    pub name: Option<SlugName>,
    /// The configuration.
    pub config: PoolConfig,
    /// The growth state.
    pub growth: Growth,
    /// The generation of the browsers that it may lease.
    pub generation: Generation,
    /// Why the last start of one of its browsers failed, at most [`MAX_BLOCKED_REASON`] characters, safe to show; `None`
    /// after a start that succeeded and after a change of the configuration.
    pub blocked_reason: Option<String>,
    /// The time of its creation.
    pub created_at: OffsetDateTime,
    /// The time of the last change of the configuration.
    pub updated_at: OffsetDateTime,
}

/// The number of a pool's browsers by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Idle browsers.
    pub available: u32,
    /// Leased browsers.
    pub acquired: u32,
}

/// The callers that wait for a browser of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLength {
    /// Their number.
    pub callers: u32,
    /// The arrival of the first one.
    pub since: OffsetDateTime,
}
