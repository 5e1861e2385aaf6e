//! `/browser_pools`: pools and their leases.

mod acquire;
mod handlers;
mod input;
mod record;

use self::{
    acquire::AcquireBrowser,
    handlers::PoolListParams,
    input::{DeletePool, PoolInput, ReleaseBrowser},
};
pub(crate) use self::{acquire::acquire, record::PoolBody};
use crate::{
    operation::{ARCHIVED, LIMIT_REACHED, NAME_TAKEN, Operations},
    session::SessionBody,
};

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Browser pools", "The pool does not exist");
    api.post("/browser_pools", "create_pool", handlers::create_pool)
        .summary("Creates a pool. Its browsers start at once.")
        .body_with::<PoolInput>("size")
        .created::<PoolBody>()
        .refuses([
            ("400", "A field breaks a rule, or this installation does not support it"),
            ARCHIVED,
            NAME_TAKEN,
            LIMIT_REACHED,
        ]);
    api.get("/browser_pools", "list_pools", handlers::list_pools)
        .summary("Lists pools, newest first.")
        .query::<PoolListParams>()
        .returns_page::<PoolBody>();
    api.get("/browser_pools/{id_or_name}", "get_pool", handlers::get_pool)
        .summary("Returns a pool.")
        .returns::<PoolBody>();
    api.patch("/browser_pools/{id_or_name}", "update_pool", handlers::update_pool)
        .summary("Updates a pool. Idle browsers keep the old configuration unless `discard_all_idle` is set.")
        .body::<PoolInput>()
        .returns::<PoolBody>()
        .refuses([
            ("400", "A field breaks a rule, or this installation does not support it"),
            ARCHIVED,
            ("409", "The name is taken, or the network configuration has changed"),
            LIMIT_REACHED,
        ]);
    api.delete("/browser_pools/{id_or_name}", "delete_pool", handlers::delete_pool)
        .summary("Deletes a pool.")
        .body::<DeletePool>()
        .no_content("Deleted")
        .refuses([("409", "Browsers of the pool are leased, and `force` is not set")]);
    api.post("/browser_pools/{id_or_name}/acquire", "acquire_browser", acquire::acquire_browser)
        .summary("Leases a browser of a pool: an idle one at once, otherwise in order of arrival.")
        .body::<AcquireBrowser>()
        .returns::<SessionBody>()
        .no_content("The wait is over without a browser")
        .refuses([ARCHIVED, NAME_TAKEN, LIMIT_REACHED]);
    api.post("/browser_pools/{id_or_name}/flush", "flush_pool", handlers::flush_pool)
        .summary("Ends the idle browsers of a pool. New ones start at the pool's fill rate.")
        .no_content("Ended")
        .refuses([ARCHIVED]);
    api.post("/browser_pools/{id_or_name}/release", "release_browser", handlers::release_browser)
        .summary("Releases a leased browser. Its sandbox ends, and a new browser takes its place.")
        .body::<ReleaseBrowser>()
        .no_content("Released")
        .refuses([("404", "The pool does not exist, or the session is not leased from it")]);
}
