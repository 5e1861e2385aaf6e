//! Cross-origin requests from sites that the operator trusts. Their pages send an API key; cookies are not sent.

use std::{collections::HashSet, fmt, str::FromStr};

use actix_web::http::{
    Method, StatusCode,
    header::{self, HeaderMap, HeaderValue},
};
use url::Url;

const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
const REQUEST_HEADERS: &str = "Authorization, Content-Type, X-Kernel-Project-Id, X-Kernel-Project, Last-Event-ID";
const RESPONSE_HEADERS: &str = "X-Request-Id, X-Has-More, X-Next-Offset, X-Next-Page-Token, X-Next-Cursor, X-Record-Count, X-Row-Count, X-Content-Sha256, X-Range-End, \
    Content-Disposition, Location, Deprecation, Sunset, Link, WWW-Authenticate, Allow, Retry-After, X-Should-Retry, \
    X-Casement-Ignored-Fields";
const MAX_AGE_SECONDS: &str = "600";

/// The origin of a site: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin(String);

/// The text is not an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadOrigin;

impl fmt::Display for BadOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be an origin as https://app.example.com, without a path")
    }
}

impl std::error::Error for BadOrigin {}

impl FromStr for Origin {
    type Err = BadOrigin;

    fn from_str(text: &str) -> Result<Self, BadOrigin> {
        let url = Url::parse(text).map_err(|_| BadOrigin)?;
        let is_bare =
            url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        if !is_bare || !matches!(url.scheme(), "http" | "https") {
            return Err(BadOrigin);
        }
        Ok(Self(url.origin().ascii_serialization()))
    }
}

/// The origins that may call the API; none unless configured.
#[derive(Debug, Default)]
pub(crate) struct Cors(HashSet<Origin>);

impl Cors {
    pub(crate) fn new(origins: &[Origin]) -> Self {
        Self(origins.iter().cloned().collect())
    }

    /// Returns the `Origin` of a request if it may call the API.
    pub(crate) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut given = headers.get_all(header::ORIGIN);
        let (Some(origin), None) = (given.next(), given.next()) else { return None };
        // Compared exactly as browsers write it, without normalization.
        let origin_value = Origin(origin.to_str().ok()?.to_owned());
        self.0.contains(&origin_value).then(|| origin.clone())
    }
}

/// Returns whether a request is a preflight.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Adds the CORS headers for the page of `origin` to a response.
pub(crate) fn add_headers(origin: HeaderValue, is_preflight: bool, status: StatusCode, headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if is_preflight && status.is_success() {
        let methods = headers.get(header::ALLOW).cloned();
        let methods = methods.unwrap_or_else(|| HeaderValue::from_static(METHODS));
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(REQUEST_HEADERS));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE_SECONDS));
    } else {
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(RESPONSE_HEADERS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port() {
        for (text, origin) in [
            ("https://App.example.com", "https://app.example.com"),
            ("https://app.example.com:443/", "https://app.example.com"),
            ("http://localhost:3000", "http://localhost:3000"),
        ] {
            assert_eq!(text.parse::<Origin>(), Ok(Origin(origin.to_owned())), "{text}");
        }
        for text in ["*", "app.example.com", "https://app.example.com/path", "file:///x", "https://u@x.test", "null"] {
            assert_eq!(text.parse::<Origin>(), Err(BadOrigin), "{text}");
        }
    }
}
