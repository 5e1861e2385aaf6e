//! The web interface at `/ui`.
//!
//! The pages are the same for all users. They read data under `/ui/api`, where some of the API's own handlers respond
//! (see `routes`). Only there, a cookie replaces an API key: `guard` checks the cookie.

mod assets;
mod guard;
mod handlers;
mod ignored;
mod pools;
mod sign_in_attempts;
mod thumbnail;

use actix_web::HttpRequest;

pub(crate) use self::{
    assets::{add_security_headers, asset, home, page},
    guard::{authenticate, check_own_page, cookies, has_cookie},
    handlers::{get_sign_in, sign_in, sign_out},
    ignored::ignored_fields,
    pools::list_pools,
    sign_in_attempts::SignInAttempts,
    thumbnail::thumbnail,
};
pub(crate) use crate::permissions::table::THUMBNAIL;

/// Returns whether the matched route of a request is one of the web interface.
pub(crate) fn is_ui(request: &HttpRequest) -> bool {
    request.match_pattern().is_some_and(|route| route.starts_with("/ui/"))
}
