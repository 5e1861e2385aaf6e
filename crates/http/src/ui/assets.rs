//! The embedded page of the web interface and its assets.

use actix_web::{
    HttpRequest, HttpResponse, HttpResponseBuilder,
    http::header::{self, HeaderName},
};

use crate::{
    answer::Answer,
    error::{ApiError, Code},
};

const PAGE: &str = include_str!("assets/page.html");

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: &[(&str, &str, &str)] = &[
    ("ui.css", STYLE, include_str!("assets/ui.css")),
    ("app.js", SCRIPT, include_str!("assets/app.js")),
    ("api.js", SCRIPT, include_str!("assets/api.js")),
    ("apps.js", SCRIPT, include_str!("assets/apps.js")),
    ("dom.js", SCRIPT, include_str!("assets/dom.js")),
    ("engines.js", SCRIPT, include_str!("assets/engines.js")),
    ("keys.js", SCRIPT, include_str!("assets/keys.js")),
    ("nodes.js", SCRIPT, include_str!("assets/nodes.js")),
    ("pools.js", SCRIPT, include_str!("assets/pools.js")),
    ("reference.js", SCRIPT, include_str!("assets/reference.js")),
    ("run.js", SCRIPT, include_str!("assets/run.js")),
    ("session.js", SCRIPT, include_str!("assets/session.js")),
    ("sessions.js", SCRIPT, include_str!("assets/sessions.js")),
    ("sign-in.js", SCRIPT, include_str!("assets/sign-in.js")),
    ("stream.js", SCRIPT, include_str!("assets/stream.js")),
    ("thumbnails.js", SCRIPT, include_str!("assets/thumbnails.js")),
    ("timeline.js", SCRIPT, include_str!("assets/timeline.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// Allows nothing from other origins, nothing inline, and no text that becomes markup or code. Images are loaded from
/// blobs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// `GET /`: redirects people to the web interface.
pub(crate) async fn home() -> HttpResponse {
    HttpResponse::SeeOther().insert_header((header::LOCATION, "/ui")).finish()
}

/// `GET /ui/…`: returns the page, which is the same for every path; the script reads the path.
pub(crate) async fn page() -> HttpResponse {
    embedded("text/html; charset=utf-8", "no-store", PAGE)
}

/// `GET /ui/assets/{name}`: returns an asset.
pub(crate) async fn asset(request: HttpRequest) -> Answer {
    let name = request.match_info().get("name").unwrap_or_default();
    let asset = ASSETS.iter().find(|(asset_name, ..)| *asset_name == name);
    let (_, content_type, body) = asset.ok_or_else(|| ApiError::new(Code::NotFound, "there is no such asset"))?;
    Ok(embedded(content_type, "no-cache", body))
}

fn embedded(content_type: &'static str, caching: &'static str, body: &'static str) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    add_security_headers(&mut response, POLICY)
        .insert_header((header::CONTENT_TYPE, content_type))
        .insert_header((header::CACHE_CONTROL, caching))
        .body(body)
}

/// Adds the headers of a page that no other site may embed, open or read.
pub(crate) fn add_security_headers<'a>(
    response: &'a mut HttpResponseBuilder,
    policy: &'static str,
) -> &'a mut HttpResponseBuilder {
    response
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::X_FRAME_OPTIONS, "DENY"))
        // The URL of a page may contain a code.
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((HeaderName::from_static("cross-origin-opener-policy"), "same-origin"))
        .insert_header((HeaderName::from_static("cross-origin-resource-policy"), "same-origin"))
}
