//! Authenticates requests of the web interface by cookie in place of an API key.
//!
//! A browser sends a cookie automatically, so it proves identity but not intent. There are four measures, each of which
//! would suffice: the cookie is `SameSite=Strict`; the origin that the browser states (`Sec-Fetch-Site`, `Origin`) must
//! be the origin of this server; a request that changes something must send a token that only pages of this server can
//! read; and no response here permits other sites to read it.

use actix_web::{
    HttpRequest,
    http::{
        Method,
        header::{self, HeaderMap, HeaderValue},
    },
};
use casement_domain::api_key::{AuthenticateError, Caller};
use casement_domain::sign_in::SignIn;
use subtle::ConstantTimeEq as _;
use url::Url;

use crate::{
    error::{ApiError, Code},
    state::Api,
};

const CSRF_HEADER: &str = "x-casement-csrf";
/// The name of the cookie, and its name behind TLS.
const NAME: &str = "casement_ui";
const SECURE_NAME: &str = "__Host-casement_ui";

/// Authenticates the caller by the cookie.
///
/// # Errors
/// `forbidden` for a request that is not from a page of this server; `unauthorized` without a valid sign-in, or if the
/// key was revoked since.
pub(crate) async fn authenticate(api: &Api, request: &HttpRequest) -> Result<Caller, ApiError> {
    signed_in(api, request).await.map(|(caller, _)| caller)
}

/// Authenticates as [`authenticate`] does, and returns the sign-in as well.
pub(super) async fn signed_in(api: &Api, request: &HttpRequest) -> Result<(Caller, SignIn), ApiError> {
    check_own_page(request)?;
    let cookie = cookie(api, request).ok_or_else(|| ApiError::unauthorized(false))?;
    let refused = || ApiError::unauthorized(true);
    let sign_ins = &api.services.sign_ins;
    let sign_in = sign_ins.find(&cookie).await?.ok_or_else(refused)?;
    if is_change(request.method()) && !has_token(request.headers(), &sign_in.token) {
        return Err(ApiError::new(Code::Forbidden, "the page's token is missing or not valid"));
    }
    match api.services.api_keys.remembered(sign_in.key).await {
        Ok(caller) => Ok((caller, sign_in)),
        Err(error) => {
            if matches!(error, AuthenticateError::Refused) {
                sign_ins.end_all_with_key(sign_in.key).await?;
            }
            Err(error.into())
        }
    }
}

/// Checks that a request comes from a page of this server.
///
/// # Errors
/// `forbidden` for a request from another site, and for a request that should state its origin but does not.
pub(crate) fn check_own_page(request: &HttpRequest) -> Result<(), ApiError> {
    let headers = request.headers();
    let has = |name: &str| headers.contains_key(name);
    let is_same_origin = headers.get_all("sec-fetch-site").all(|site| site == "same-origin");
    let host = headers.get(header::HOST);
    let is_own_origin = headers.get_all(header::ORIGIN).all(|origin| host.is_some_and(|host| is_at(origin, host)));
    // Every browser sends one of these headers, except with plain reads.
    let states_origin = !is_change(request.method()) || has("sec-fetch-site") || has("origin");
    match is_same_origin && is_own_origin && states_origin {
        true => Ok(()),
        false => Err(ApiError::new(Code::Forbidden, "this is for the pages of this server alone")),
    }
}

/// Returns whether an origin has this host, with or without TLS, because a proxy may have terminated TLS.
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

fn is_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let mut values = headers.get_all(CSRF_HEADER);
    match (values.next(), values.next()) {
        (Some(value), None) => value.as_bytes().ct_eq(token.as_bytes()).into(),
        _ => false,
    }
}

/// Returns whether a request has a cookie of the web interface, valid or not.
pub(crate) fn has_cookie(request: &HttpRequest) -> bool {
    cookies(request).any(|(name, _)| [NAME, SECURE_NAME].contains(&name))
}

/// Returns the value of the cookie.
pub(super) fn cookie(api: &Api, request: &HttpRequest) -> Option<String> {
    let name = cookie_name(api);
    cookies(request).find(|(cookie_name, _)| *cookie_name == name).map(|(_, value)| value.to_owned())
}

/// Returns the names and values of a request's cookies.
pub(crate) fn cookies(request: &HttpRequest) -> impl Iterator<Item = (&str, &str)> {
    let lines = request.headers().get_all(header::COOKIE).filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

/// Returns the `Set-Cookie` value that sets or removes the cookie.
pub(super) fn set_cookie(api: &Api, content: Option<&str>) -> String {
    let (name, secure) = (cookie_name(api), api.is_https());
    // The prefix `__Host-` requires this path and binds the cookie to this host.
    let attributes = if secure { "Path=/; Secure" } else { "Path=/ui" };
    let age = if content.is_some() { SignIn::MAX_DURATION.whole_seconds() } else { 0 };
    format!("{name}={}; {attributes}; HttpOnly; SameSite=Strict; Max-Age={age}", content.unwrap_or_default())
}

fn cookie_name(api: &Api) -> &'static str {
    if api.is_https() { SECURE_NAME } else { NAME }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_at_a_host_if_name_and_port_are_equal() {
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
