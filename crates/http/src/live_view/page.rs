//! The embedded page and its assets.

use actix_web::{
    HttpResponse,
    http::header::{self, HeaderName},
};

const PAGE: &str = include_str!("assets/page.html");
const SCRIPT: &str = include_str!("assets/live.js");
const STYLE: &str = include_str!("assets/live.css");

/// Allows nothing from other origins and nothing inline. Frames are drawn from blobs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; media-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// `GET /live/{session_id}`: returns the page, which is the same for every session and derives its socket from its own
/// URL.
#[must_use]
pub fn page() -> HttpResponse {
    embedded("text/html; charset=utf-8", "no-store", PAGE)
}

/// `GET /live/assets/{name}`: returns the asset, if it exists.
#[must_use]
pub fn asset(name: &str) -> Option<HttpResponse> {
    match name {
        "live.js" => Some(embedded("text/javascript; charset=utf-8", "no-cache", SCRIPT)),
        "live.css" => Some(embedded("text/css; charset=utf-8", "no-cache", STYLE)),
        _ => None,
    }
}

/// Responds with an embedded file of a page.
pub(crate) fn embedded(content_type: &'static str, caching: &'static str, body: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, content_type))
        .insert_header((header::CACHE_CONTROL, caching))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        // The page's URL contains the token.
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((HeaderName::from_static("cross-origin-opener-policy"), "same-origin"))
        .body(body)
}
