//! Pools with their status, for the web interface.

use casement_domain::pool::{Pool, PoolCounts, PoolFilter};
use serde::Serialize;

use crate::{
    answer::{self, Answer},
    pool::PoolBody,
    pool_status::PoolStatus,
    request::{ProjectKey, Request},
};

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
        pool: PoolBody::new((pool, counts), request.services().pools.installation()),
    };
    Ok(answer::list(&found.map(with_status)))
}
