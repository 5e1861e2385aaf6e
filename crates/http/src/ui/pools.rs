//! Pools with their status, for the web interface.

use casement_domain::{
    PoolId,
    pool::{Pool, PoolCounts, PoolFilter},
};
use serde::Serialize;

use crate::{
    answer::{self, Answer},
    pool::PoolBody,
    request::{ProjectKey, Request},
};

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

#[derive(Serialize)]
struct PoolWithStatus {
    #[serde(flatten)]
    pool: PoolBody,
    #[serde(flatten)]
    pool_status: PoolStatus,
}

/// `GET /ui/api/browser_pools`: lists pools with their status.
pub(crate) async fn list_pools(request: Request<ProjectKey>) -> Answer {
    let page = request.page()?;
    let found = request.services().pools.list(request.scope(), &PoolFilter::default(), page).await?;
    let with_status = |(pool, counts): (Pool, PoolCounts)| PoolWithStatus {
        pool_status: request.services().pool_status.status(pool.id),
        pool: (pool, counts).into(),
    };
    Ok(answer::list(&found.map(with_status)))
}
