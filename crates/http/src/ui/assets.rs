//! The pages and their parts, all embedded.

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, HeaderName},
};

use crate::{
    answer::Answer,
    error::{ApiError, Code},
};

const PAGE: &str = include_str!("assets/page.html");

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const PARTS: &[(&str, &str, &str)] = &[
    ("ui.css", STYLE, include_str!("assets/ui.css")),
    ("app.js", SCRIPT, include_str!("assets/app.js")),
    ("api.js", SCRIPT, include_str!("assets/api.js")),
    ("apps.js", SCRIPT, include_str!("assets/apps.js")),
    ("dom.js", SCRIPT, include_str!("assets/dom.js")),
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

/// Nothing from elsewhere, nothing inline, and no text that becomes markup or code. A picture is shown from a blob.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// `GET /`: a person who typed the address wants the pages.
pub(crate) async fn home() -> HttpResponse {
    HttpResponse::SeeOther().insert_header((header::LOCATION, "/ui")).finish()
}

/// `GET /ui/…`: the same bytes for every page; the script looks at the address.
pub(crate) async fn page() -> HttpResponse {
    embedded("text/html; charset=utf-8", "no-store", PAGE)
}

/// `GET /ui/assets/{name}`.
pub(crate) async fn asset(request: HttpRequest) -> Answer {
    let name = request.match_info().get("name").unwrap_or_default();
    let part = PARTS.iter().find(|(known, ..)| *known == name);
    let (_, kind, body) = part.ok_or_else(|| ApiError::new(Code::NotFound, "there is no such asset"))?;
    Ok(embedded(kind, "no-cache", body))
}

fn embedded(content_type: &'static str, caching: &'static str, body: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, content_type))
        .insert_header((header::CACHE_CONTROL, caching))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::X_FRAME_OPTIONS, "DENY"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((HeaderName::from_static("cross-origin-opener-policy"), "same-origin"))
        .insert_header((HeaderName::from_static("cross-origin-resource-policy"), "same-origin"))
        .body(body)
}
