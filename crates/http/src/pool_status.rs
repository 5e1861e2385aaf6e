//! The port to the status of pools, which the web interface shows.

use casement_domain::PoolId;
use serde::Serialize;

/// The status of a pool, as known on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolStatus {
    /// The number of callers that wait for a browser of the pool.
    pub waiting: u32,
    /// The time in seconds for which the first of these callers has waited.
    pub longest_wait_seconds: u32,
    /// The number of consecutive failed starts.
    pub failed_starts: u32,
    /// The kind of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<&'static str>,
}

/// Provides the status of pools.
pub trait PoolStatusSource: Send + Sync {
    /// Returns the status of a pool; the default for an unknown one.
    fn status(&self, pool: PoolId) -> PoolStatus;
}
