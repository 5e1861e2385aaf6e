//! The web interface: pages for people, at `/ui`.
//!
//! The pages are the same bytes for everybody; what they show they ask for under `/ui/api`, where a few of the API's own handlers answer
//! (see `routes`). There, and nowhere else, a cookie stands in for an API key: `guard` says when it does, `sign_ins` keeps whose it is.

mod assets;
mod guard;
mod handlers;
mod pools;
mod sign_ins;
mod thumbnail;

use actix_web::HttpRequest;

pub use self::pools::{PoolStatus, PoolStatusSource};
pub(crate) use self::{
    assets::{asset, home, page},
    guard::{authenticate, own_page, shows_cookie},
    handlers::{sign_in, sign_out, who},
    pools::list_pools,
    sign_ins::SignIns,
    thumbnail::thumbnail,
};

/// A small picture of a session, which is part of a page.
pub(crate) const THUMBNAIL: &str = "/ui/api/browsers/{id}/thumbnail";

/// Whether a page of ours asks: by the route that was taken, not by how the path was written.
pub(crate) fn is_ui(request: &HttpRequest) -> bool {
    request.match_pattern().is_some_and(|route| route.starts_with("/ui/"))
}
