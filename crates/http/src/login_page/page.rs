//! The page and its parts, all embedded.

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
};

const PAGE: &str = include_str!("assets/page.html");
const DOOR: &str = include_str!("assets/door.html");
const DOOR_SCRIPT: &str = include_str!("assets/door.js");
const SCRIPT: &str = include_str!("assets/login.js");
const STYLE: &str = include_str!("assets/login.css");
/// What stands for a reason in [`ENDED`].
const REASON: &str = "<!-- reason -->";
const ENDED: &str = include_str!("assets/ended.html");

/// Nothing from elsewhere, nothing inline, no text that becomes markup or code, in no frame. The live view is our own page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Why a link opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The code was used.
    Used,
    /// The login is over.
    Over,
    /// There is no such login, or the code or cookie is not its.
    Nothing,
}

/// The same bytes for every login; the script looks at the address.
pub(super) fn page() -> HttpResponse {
    embedded(StatusCode::OK, "text/html; charset=utf-8", "no-store", PAGE.to_owned())
}

/// What a link shows before it is used: a button. It posts to its own address, where the code stands.
pub(super) fn door() -> HttpResponse {
    let mut response = embedded(StatusCode::OK, "text/html; charset=utf-8", "no-store", DOOR.to_owned());
    let headers = response.headers_mut();
    let policy = POLICY.replace("form-action 'none'", "form-action 'self'");
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    // The code is told to nobody, but where the form comes from is: browsers do not say it of a page without referrer.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("strict-origin"));
    response
}

/// Says plainly that there is nothing to do here.
pub(super) fn ended(why: Ended) -> HttpResponse {
    let (status, reason) = match why {
        Ended::Used => (
            StatusCode::GONE,
            "<h1>This link was used</h1><p>It opens once. Go on in the browser that opened it, or ask for a new link.</p>",
        ),
        Ended::Over => {
            (StatusCode::GONE, "<h1>This link has expired</h1><p>The login is over. Ask for a new link.</p>")
        }
        Ended::Nothing => (
            StatusCode::NOT_FOUND,
            "<h1>This link opens nothing</h1><p>It may not have been copied as a whole, or is of a login that is over.</p>",
        ),
    };
    embedded(status, "text/html; charset=utf-8", "no-store", ENDED.replace(REASON, reason))
}

/// An asset of that name, if there is one.
pub(super) fn asset(name: &str) -> Option<HttpResponse> {
    let (kind, body) = match name {
        "login.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "door.js" => ("text/javascript; charset=utf-8", DOOR_SCRIPT),
        "login.css" => ("text/css; charset=utf-8", STYLE),
        _ => return None,
    };
    Some(embedded(StatusCode::OK, kind, "no-cache", body.to_owned()))
}

fn embedded(status: StatusCode, kind: &'static str, caching: &'static str, body: String) -> HttpResponse {
    let mut response = HttpResponse::build(status);
    guarded(&mut response).insert_header((header::CONTENT_TYPE, kind)).insert_header((header::CACHE_CONTROL, caching));
    response.body(body)
}

/// With the headers that keep others out.
pub(super) fn guarded(response: &mut actix_web::HttpResponseBuilder) -> &mut actix_web::HttpResponseBuilder {
    response
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::X_FRAME_OPTIONS, "DENY"))
        // The code stands in the address that the page was opened with.
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header((HeaderName::from_static("cross-origin-opener-policy"), "same-origin"))
        .insert_header((HeaderName::from_static("cross-origin-resource-policy"), "same-origin"))
}
