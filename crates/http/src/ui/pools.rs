//! The pools, with what a person wants to know beyond their records.

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

/// How it goes with a pool, as far as this node knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolStatus {
    /// How many callers wait for a browser of it.
    pub waiting: u32,
    /// For how long the first of them has waited.
    pub longest_wait_seconds: u32,
    /// How many starts have failed in a row.
    pub failed_starts: u32,
    /// Why the last one failed, in a word of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<&'static str>,
}

/// Knows how it goes with pools.
pub trait PoolStatusSource: Send + Sync {
    /// Of one pool; of one that nothing is known of, nothing.
    fn of(&self, pool: PoolId) -> PoolStatus;
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    pool: PoolBody,
    #[serde(flatten)]
    pool_status: PoolStatus,
}

/// `GET /ui/api/browser_pools`.
pub(crate) async fn list_pools(request: Request<ProjectKey>) -> Answer {
    let page = request.page()?;
    let found = request.services().pools.list(request.scope(), &PoolFilter::default(), page).await?;
    let shown = |(pool, counts): (Pool, PoolCounts)| Shown {
        pool_status: request.services().pool_status.of(pool.id),
        pool: (pool, counts).into(),
    };
    Ok(answer::list(&found.map(shown)))
}
