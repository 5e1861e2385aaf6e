//! Create, list, get, update, delete, flush, release.

use actix_web::http::StatusCode;
use casement_domain::{NotFound, pool::PoolFilter};

use super::{
    input::{DeletePool, PoolInput, ReleaseBrowser},
    record::PoolBody,
};
use crate::{
    answer::{self, Answer},
    caller::Authorized,
    error::{ApiError, ErrorBody},
    json::in_order,
};

fn no_pool(which: &str) -> ApiError {
    NotFound::new("browser pool", which).into()
}

/// Creates a pool; its browsers are started at once.
#[utoipa::path(
    post, path = "/browser_pools", tag = "Browser pools", request_body = PoolInput,
    responses(
        (status = 201, body = PoolBody),
        (status = 400, description = "A field breaks a rule, or cannot be done here", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 409, description = "The name is taken", body = ErrorBody),
        (status = 429, description = "A limit is reached", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn create_pool(mut caller: Authorized) -> Answer {
    let input = caller.json::<PoolInput>().await?.create().map_err(in_order::<PoolInput>)?;
    let made = caller.finish(|services, scope| async move { services.pools.create(&scope, input).await }).await;
    let pool = PoolBody::from(made.map_err(in_order::<PoolInput>)?);
    Ok(answer::created(&format!("/browser_pools/{}", pool.id), &pool))
}

/// Lists pools, newest first.
#[utoipa::path(
    get, path = "/browser_pools", tag = "Browser pools",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("name" = Option<String>, Query, description = "The whole name"),
        ("query" = Option<String>, Query, description = "Part of the name"),
    ),
    responses(
        (status = 200, body = [PoolBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_pools(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let given = |name| Ok::<_, ApiError>(query.text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    let filter = PoolFilter { name: given("name")?, query: given("query")? };
    let page = caller.services().pools.list(caller.scope(), &filter, query.page()?).await?;
    Ok(answer::list(&page.map(PoolBody::from)))
}

/// Reads a pool.
#[utoipa::path(
    get, path = "/browser_pools/{id_or_name}", tag = "Browser pools",
    params(("id_or_name" = String, Path)),
    responses(
        (status = 200, body = PoolBody),
        (status = 404, description = "There is no such pool", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn get_pool(caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let found = caller.services().pools.get(caller.scope(), &which).await?;
    Ok(answer::record(StatusCode::OK, &PoolBody::from(found.ok_or_else(|| no_pool(&which))?)))
}

/// Changes a pool. Idle browsers keep the old configuration unless they are to be discarded.
#[utoipa::path(
    patch, path = "/browser_pools/{id_or_name}", tag = "Browser pools", request_body = PoolInput,
    params(("id_or_name" = String, Path)),
    responses(
        (status = 200, body = PoolBody),
        (status = 400, description = "A field breaks a rule, or cannot be done here", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 404, description = "There is no such pool", body = ErrorBody),
        (status = 409, description = "The name is taken", body = ErrorBody),
        (status = 429, description = "A limit is reached", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn update_pool(mut caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let update = caller.json::<PoolInput>().await?.update().map_err(in_order::<PoolInput>)?;
    let changed = caller.finish(|services, scope| async move { services.pools.update(&scope, &which, update).await });
    let changed = changed.await.map_err(in_order::<PoolInput>)?;
    Ok(answer::record(StatusCode::OK, &PoolBody::from(changed)))
}

/// Deletes a pool.
#[utoipa::path(
    delete, path = "/browser_pools/{id_or_name}", tag = "Browser pools",
    request_body = DeletePool,
    params(("id_or_name" = String, Path)),
    responses(
        (status = 204, description = "It is gone"),
        (status = 404, description = "There is no such pool", body = ErrorBody),
        (status = 409, description = "Browsers are leased, and it was not forced", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn delete_pool(mut caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let force = caller.json::<DeletePool>().await?.force.unwrap_or(false);
    caller.finish(|services, scope| async move { services.pools.delete(&scope, &which, force).await }).await?;
    Ok(answer::nothing())
}

/// Ends the idle browsers of a pool; fresh ones come at its fill rate.
#[utoipa::path(
    post, path = "/browser_pools/{id_or_name}/flush", tag = "Browser pools",
    params(("id_or_name" = String, Path)),
    responses(
        (status = 204, description = "They have ended"),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 404, description = "There is no such pool", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn flush_pool(caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let asked = which.clone();
    let found = caller.finish(|services, scope| async move { services.pools.flush(&scope, &asked).await }).await?;
    if found { Ok(answer::nothing()) } else { Err(no_pool(&which)) }
}

/// Gives a browser back. Its whole sandbox ends, and a fresh one takes its place.
#[utoipa::path(
    post, path = "/browser_pools/{id_or_name}/release", tag = "Browser pools", request_body = ReleaseBrowser,
    params(("id_or_name" = String, Path)),
    responses(
        (status = 204, description = "It is given back"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such pool, or the session is not leased from it", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn release_browser(mut caller: Authorized) -> Answer {
    let which = caller.path("id_or_name")?;
    let session = caller.json::<ReleaseBrowser>().await?.session_id;
    caller.finish(|services, scope| async move { services.leases.release(&scope, &which, &session).await }).await?;
    Ok(answer::nothing())
}
