//! When the cookie of a page stands in for an API key.
//!
//! A browser sends a cookie by itself, so it proves who, but not that they want it. Four walls, each of which would do alone: the cookie
//! is `SameSite=Strict`; what the browser says of where a request comes from (`Sec-Fetch-Site`, `Origin`) must be this very origin; a
//! request that changes something shows a token that only our own pages can read; and no answer here allows another site to read it.

use actix_web::{
    HttpRequest,
    http::{
        Method,
        header::{self, HeaderMap, HeaderValue},
    },
};
use casement_domain::api_key::{AuthenticateError, Caller};
use subtle::ConstantTimeEq as _;
use url::Url;

use super::sign_ins::{LONGEST, SignIn};
use crate::{
    error::{ApiError, Code},
    state::Api,
};

const TOKEN: &str = "x-casement-csrf";
/// The cookie, and what it is called behind TLS.
const NAME: &str = "casement_ui";
const SECURE_NAME: &str = "__Host-casement_ui";

/// Who asks, by the cookie.
///
/// # Errors
/// `forbidden` for what does not come from our own pages; `unauthorized` for who is not signed in, or came with a key that was revoked
/// since.
pub(crate) async fn authenticate(api: &Api, request: &HttpRequest) -> Result<Caller, ApiError> {
    signed_in(api, request).await.map(|(caller, _)| caller)
}

/// As [`authenticate`], with the sign-in.
pub(super) async fn signed_in(api: &Api, request: &HttpRequest) -> Result<(Caller, SignIn), ApiError> {
    own_page(request)?;
    let cookie = cookie(api, request).ok_or_else(|| ApiError::unauthorized(false))?;
    let refused = || ApiError::unauthorized(true);
    let sign_in = api.sign_ins.of(&cookie, api.services.monotonic.monotonic_now()).ok_or_else(refused)?;
    if changes(request.method()) && !shows(request.headers(), &sign_in.token) {
        return Err(ApiError::new(Code::Forbidden, "the page's token is missing or not valid"));
    }
    match api.services.api_keys.remembered(sign_in.key).await {
        Ok(caller) => Ok((caller, sign_in)),
        Err(error) => {
            if matches!(error, AuthenticateError::Refused) {
                api.sign_ins.end_all_of(sign_in.key);
            }
            Err(error.into())
        }
    }
}

/// # Errors
/// `forbidden` for a request of another site, or one whose browser does not say where it comes from although it should.
pub(crate) fn own_page(request: &HttpRequest) -> Result<(), ApiError> {
    let headers = request.headers();
    let said = |name: &str| headers.contains_key(name);
    let same = headers.get_all("sec-fetch-site").all(|site| site == "same-origin");
    let host = headers.get(header::HOST);
    let own = headers.get_all(header::ORIGIN).all(|origin| host.is_some_and(|host| is_at(origin, host)));
    // Every browser sends one of them with what is no plain read.
    let tells = !changes(request.method()) || said("sec-fetch-site") || said("origin");
    match same && own && tells {
        true => Ok(()),
        false => Err(ApiError::new(Code::Forbidden, "this is for the pages of this server alone")),
    }
}

/// Whether the origin is that of pages of this host, over TLS or not: what stands in front of us may have ended it.
fn is_at(origin: &HeaderValue, host: &HeaderValue) -> bool {
    let (Ok(origin), Ok(host)) = (origin.to_str(), host.to_str()) else { return false };
    let Some(scheme) = ["http", "https"].into_iter().find(|scheme| origin.starts_with(&format!("{scheme}://"))) else {
        return false;
    };
    match (Url::parse(origin), Url::parse(&format!("{scheme}://{host}"))) {
        (Ok(origin), Ok(host)) => origin.origin() == host.origin(),
        _ => false,
    }
}

fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

fn shows(headers: &HeaderMap, token: &str) -> bool {
    let mut given = headers.get_all(TOKEN);
    match (given.next(), given.next()) {
        (Some(value), None) => value.as_bytes().ct_eq(token.as_bytes()).into(),
        _ => false,
    }
}

/// Whether a request carries a cookie of the pages, good or not.
pub(crate) fn shows_cookie(request: &HttpRequest) -> bool {
    cookies(request).any(|(name, _)| [NAME, SECURE_NAME].contains(&name))
}

/// What the cookie holds.
pub(super) fn cookie(api: &Api, request: &HttpRequest) -> Option<String> {
    let name = cookie_name(api);
    cookies(request).find(|(given, _)| *given == name).map(|(_, value)| value.to_owned())
}

fn cookies(request: &HttpRequest) -> impl Iterator<Item = (&str, &str)> {
    let lines = request.headers().get_all(header::COOKIE).filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

/// The header that sets the cookie, or takes it away.
pub(super) fn set_cookie(api: &Api, content: Option<&str>) -> String {
    let (name, secure) = (cookie_name(api), is_secure(api));
    // Browsers take the prefix only with this path, and from nobody but this host.
    let place = if secure { "Path=/; Secure" } else { "Path=/ui" };
    let age = if content.is_some() { LONGEST.whole_seconds() } else { 0 };
    format!("{name}={}; {place}; HttpOnly; SameSite=Strict; Max-Age={age}", content.unwrap_or_default())
}

fn cookie_name(api: &Api) -> &'static str {
    if is_secure(api) { SECURE_NAME } else { NAME }
}

fn is_secure(api: &Api) -> bool {
    api.public_url.scheme() == "https"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_at_a_host_if_name_and_port_are_the_same() {
        let at = |origin: &str, host: &str| {
            is_at(&HeaderValue::from_str(origin).expect("a value"), &HeaderValue::from_str(host).expect("a value"))
        };
        for (origin, host) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("https://casement.example", "casement.example"),
            ("https://casement.example", "CASEMENT.example:443"),
            ("http://[::1]:80", "[::1]"),
        ] {
            assert!(at(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "casement.example"),
            ("https://evil.example", "casement.example"),
            ("https://casement.example:8443", "casement.example"),
            ("https://casement.example.evil.example", "casement.example"),
            ("http://localhost:3000", "localhost:8080"),
            ("file://casement.example", "casement.example"),
            ("", "casement.example"),
        ] {
            assert!(!at(origin, host), "{origin} {host}");
        }
    }
}
