//! Create, list, get, update, delete, flush, release.

use actix_web::http::StatusCode;
use casement_domain::{
    NotFound,
    pool::{Pool, PoolCounts, PoolFilter},
};
use serde::Deserialize;

use super::{
    input::{DeletePool, PoolInput, ReleaseBrowser},
    record::PoolBody,
};
use crate::{
    answer::{self, Answer},
    error::ApiError,
    json::in_order,
    query::non_empty,
    request::{ProjectKey, Request},
    schema::IntoParams,
    session::region,
};

fn body(request: &Request<ProjectKey>, pool: (Pool, PoolCounts)) -> PoolBody {
    PoolBody::new(pool, request.services().pools.installation())
}

fn no_pool(which: &str) -> ApiError {
    NotFound::new("browser pool", which).into()
}

pub(crate) async fn create_pool(mut request: Request<ProjectKey>) -> Answer {
    let input = request.json::<PoolInput>().await?;
    let input = input.create(request.services().sessions.engines()).map_err(in_order::<PoolInput>)?;
    let made = request.finish(|services, scope| async move { services.pools.create(&scope, input).await }).await;
    let pool = body(&request, made.map_err(in_order::<PoolInput>)?);
    Ok(answer::created(&format!("/browser_pools/{}", pool.id), &pool))
}

/// The filter of a list of pools.
#[derive(Deserialize, IntoParams)]
pub(super) struct PoolListParams {
    /// The whole name.
    name: Option<String>,
    /// Part of the name.
    query: Option<String>,
    /// `us-east`, `us-west`, `eu-west` or `ap-southeast`: pools of that region. All pools are in one.
    region: Option<String>,
}

pub(crate) async fn list_pools(request: Request<ProjectKey>) -> Answer {
    let PoolListParams { name, query, region: wanted } = request.query()?;
    let filter = PoolFilter { name: non_empty(name), query: non_empty(query), region: region(wanted)? };
    let page = request.services().pools.list(request.scope(), &filter, request.page()?).await?;
    Ok(answer::list(&page.map(|pool| body(&request, pool))))
}

pub(crate) async fn get_pool(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let found = request.services().pools.get(request.scope(), &which).await?;
    Ok(answer::record(StatusCode::OK, &body(&request, found.ok_or_else(|| no_pool(&which))?)))
}

pub(crate) async fn update_pool(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let update = request.json::<PoolInput>().await?;
    let update = update.update(request.services().sessions.engines()).map_err(in_order::<PoolInput>)?;
    let changed = request.finish(|services, scope| async move { services.pools.update(&scope, &which, update).await });
    let changed = changed.await.map_err(in_order::<PoolInput>)?;
    Ok(answer::record(StatusCode::OK, &body(&request, changed)))
}

pub(crate) async fn delete_pool(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let force = request.json::<DeletePool>().await?.force.unwrap_or(false);
    request.finish(|services, scope| async move { services.pools.delete(&scope, &which, force).await }).await?;
    Ok(answer::nothing())
}

pub(crate) async fn flush_pool(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let requested = which.clone();
    let found = request.finish(|services, scope| async move { services.pools.flush(&scope, &requested).await }).await?;
    if found { Ok(answer::nothing()) } else { Err(no_pool(&which)) }
}

pub(crate) async fn release_browser(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id_or_name")?;
    let session = request.json::<ReleaseBrowser>().await?.session_id;
    request.finish(|services, scope| async move { services.leases.release(&scope, &which, &session).await }).await?;
    Ok(answer::nothing())
}
