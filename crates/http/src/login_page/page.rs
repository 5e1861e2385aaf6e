//! The embedded login pages and their assets.

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderValue},
    },
};

use crate::ui::add_security_headers;

const PAGE: &str = include_str!("assets/page.html");
const START_PAGE: &str = include_str!("assets/door.html");
const START_SCRIPT: &str = include_str!("assets/door.js");
const SCRIPT: &str = include_str!("assets/login.js");
const STYLE: &str = include_str!("assets/login.css");
/// The placeholder of the reason in [`ERROR_PAGE`].
const REASON: &str = "<!-- reason -->";
const ERROR_PAGE: &str = include_str!("assets/ended.html");

/// Allows nothing from other origins, nothing inline, no text that becomes markup or code, and no embedding. The live
/// view is a page of this server.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// The reason why a link cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkError {
    /// The code was used before.
    Used,
    /// The login has ended.
    Ended,
    /// There is no such login, or the code or cookie belongs to another one.
    NotFound,
}

/// Returns the login page, which is the same for every login; the script reads the URL.
pub(super) fn page() -> HttpResponse {
    embedded(StatusCode::OK, "text/html; charset=utf-8", "no-store", PAGE.to_owned())
}

/// Returns the page that a link shows before it is used: a button that posts to the URL with the code.
pub(super) fn start_page() -> HttpResponse {
    let mut response = embedded(StatusCode::OK, "text/html; charset=utf-8", "no-store", START_PAGE.to_owned());
    let headers = response.headers_mut();
    let policy = POLICY.replace("form-action 'none'", "form-action 'self'");
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    // Without a referrer browsers do not send the form's origin; `strict-origin` sends it without the code.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("strict-origin"));
    response
}

/// Returns the page that shows why a link cannot be opened.
pub(super) fn error_page(error: LinkError) -> HttpResponse {
    let (status, reason) = match error {
        LinkError::Used => (
            StatusCode::GONE,
            "<h1>This link was used</h1><p>It opens once. Go on in the browser that opened it, or ask for a new link.</p>",
        ),
        LinkError::Ended => {
            (StatusCode::GONE, "<h1>This link has expired</h1><p>The login is over. Ask for a new link.</p>")
        }
        LinkError::NotFound => (
            StatusCode::NOT_FOUND,
            "<h1>This link opens nothing</h1><p>It may not have been copied as a whole, or is of a login that is over.</p>",
        ),
    };
    embedded(status, "text/html; charset=utf-8", "no-store", ERROR_PAGE.replace(REASON, reason))
}

/// Returns the asset of that name, if it exists.
pub(super) fn asset(name: &str) -> Option<HttpResponse> {
    let (kind, body) = match name {
        "login.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "door.js" => ("text/javascript; charset=utf-8", START_SCRIPT),
        "login.css" => ("text/css; charset=utf-8", STYLE),
        _ => return None,
    };
    Some(embedded(StatusCode::OK, kind, "no-cache", body.to_owned()))
}

fn embedded(status: StatusCode, kind: &'static str, caching: &'static str, body: String) -> HttpResponse {
    let mut response = HttpResponse::build(status);
    add_security_headers(&mut response, POLICY)
        .insert_header((header::CONTENT_TYPE, kind))
        .insert_header((header::CACHE_CONTROL, caching))
        .body(body)
}
