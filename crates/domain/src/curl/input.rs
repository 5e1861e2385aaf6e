//! The checks of HTTP requests.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::CurlRequest;
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, check_max_bytes, within};
use crate::web_url;

/// The methods of a request.
pub const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/// The maximum length of a URL, in bytes.
pub const MAX_URL: usize = 16 << 10;
/// The maximum number of headers.
pub const MAX_HEADERS: usize = 100;
const MAX_HEADERS_BYTES: usize = 64 << 10;
const TIMEOUT_MS: i64 = 30_000;
/// The longest timeout, in milliseconds.
pub const MAX_TIMEOUT_MS: u32 = 300_000;
/// The headers of the connection, which only the browser sets.
const CONNECTION_HEADERS: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The headers of a raw request that are passed on to the target, besides those that begin with `x-`.
///
/// A raw request is a request to this server as well. A browser or a reverse proxy between the caller and this server
/// adds headers that hold secrets or addresses of this installation, under unpredictable names. Therefore only the
/// headers of this list are passed on.
const TARGET_HEADERS: [&str; 33] = [
    "accept",
    "accept-charset",
    "accept-datetime",
    "accept-language",
    "api-key",
    "apikey",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "depth",
    "destination",
    "digest",
    "dnt",
    "idempotency-key",
    "if",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-event-id",
    "lock-token",
    "overwrite",
    "pragma",
    "prefer",
    "range",
    "soapaction",
    "user-agent",
];
/// The prefixes of `x-` headers of this server, and of reverse proxies and single sign-on in front of it.
const PRIVATE_HEADERS: [&str; 33] = [
    "x-amz-cf-",
    "x-amzn-",
    "x-appengine-",
    "x-appgw-",
    "x-arr-",
    "x-auth-request-",
    "x-authentik-",
    "x-azure-",
    "x-casement-",
    "x-client-",
    "x-cloud-",
    "x-cluster-",
    "x-envoy-",
    "x-forwarded",
    "x-goog-authenticated-",
    "x-goog-iap-",
    "x-kernel-",
    "x-ms-client-principal",
    "x-ms-token-",
    "x-original-",
    "x-pomerium-",
    "x-proxy-",
    "x-real-ip",
    "x-remote-",
    "x-request-id",
    "x-request-start",
    "x-scheme",
    "x-ssl-",
    "x-stainless-",
    "x-tls-",
    "x-vercel-",
    "x-vouch-",
    "x-webauth-",
];

/// A request that is passed on to a target.
#[derive(Debug, Default)]
pub struct RawRequest<'a> {
    /// The parameters that are added to the query of the URL.
    pub query: &'a [(String, String)],
    /// The method.
    pub method: String,
    /// All headers of the request.
    pub headers: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Bytes,
    /// The timeout in milliseconds, 1 to 300000. Default: 300000.
    pub timeout_ms: Option<i64>,
}

impl CurlRequest {
    /// Checks the fields of a request. `client_timeout` is the timeout of the caller.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(
        url: Option<&str>,
        method: Option<String>,
        headers: Option<BTreeMap<String, String>>,
        body: Option<String>,
        timeout_ms: Option<i64>,
        client_timeout: Option<Duration>,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let url = fields.take_required("url", url, |text| parse_url(text, &[]));
        let method = fields.take("method", parse_method(method));
        let headers = fields.take("headers", parse_headers(headers.unwrap_or_default()));
        let timeout = fields.take("timeout_ms", within(timeout_ms.unwrap_or(TIMEOUT_MS), 1, MAX_TIMEOUT_MS));
        fields.finish_with(|| {
            let within = shorter(Duration::from_millis(timeout?.into()), client_timeout);
            Some(Self { url: url?, method: method?, headers: headers?, body: body.map(Bytes::from), within })
        })
    }

    /// Creates a request that is passed on unchanged, with its query added to that of the URL. The headers that
    /// describe the request and its body are passed on, and custom ones (`x-…`) except those of proxies: never a
    /// cookie, a credential, the origin of the request, or the description of the client library.
    ///
    /// # Errors
    /// Returns an invalid URL or timeout.
    pub fn pass_on(
        url: Option<&str>,
        raw: RawRequest<'_>,
        client_timeout: Option<Duration>,
    ) -> Result<Self, InvalidInput> {
        let RawRequest { query, method, headers, body, timeout_ms } = raw;
        let mut fields = Fields::new();
        let url = fields.take_required("url", url, |text| parse_url(text, query));
        let timeout_ms = timeout_ms.unwrap_or(MAX_TIMEOUT_MS.into());
        let timeout = fields.take("timeout_ms", within(timeout_ms, 1, MAX_TIMEOUT_MS));
        let headers = headers.into_iter().filter(|(name, value)| is_for_the_target(name, value)).collect();
        fields.finish_with(|| {
            let within = shorter(Duration::from_millis(timeout?.into()), client_timeout);
            Some(Self { url: url?, method, headers, body: Some(body).filter(|body| !body.is_empty()), within })
        })
    }
}

fn is_for_the_target(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if name == "user-agent" {
        // The public client library describes itself, not the browser.
        return !["Kernel/", "AsyncKernel/"].iter().any(|library| value.starts_with(library));
    }
    let custom = name.starts_with("x-") && !PRIVATE_HEADERS.iter().any(|begin| name.starts_with(begin));
    custom || TARGET_HEADERS.contains(&name.as_str())
}

fn shorter(limit: Duration, client_timeout: Option<Duration>) -> Duration {
    client_timeout.map_or(limit, |client_timeout| client_timeout.min(limit))
}

fn parse_url(text: &str, query: &[(String, String)]) -> Result<String, InvalidValue> {
    check_max_bytes(text, MAX_URL)?;
    let bad = || InvalidValue::new(FieldCode::InvalidFormat, "must be an absolute URL");
    let mut url = web_url::read(text).ok_or_else(bad)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(InvalidValue::new(FieldCode::NotAllowed, "must be http or https"));
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    Ok(url.into())
}

fn parse_method(method: Option<String>) -> Result<String, InvalidValue> {
    match method {
        None => Ok("GET".to_owned()),
        Some(method) if METHODS.contains(&method.as_str()) => Ok(method),
        Some(_) => Err(InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {}", METHODS.join(", ")))),
    }
}

fn parse_headers(headers: BTreeMap<String, String>) -> Result<Vec<(String, String)>, InvalidValue> {
    if headers.len() > MAX_HEADERS {
        return Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {MAX_HEADERS} members")));
    }
    if headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_HEADERS_BYTES {
        return Err(InvalidValue::new(
            FieldCode::TooLong,
            format!("must have at most {MAX_HEADERS_BYTES} bytes together"),
        ));
    }
    for (name, value) in &headers {
        if name.is_empty()
            || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
        {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "a name must be a token of HTTP"));
        }
        if CONNECTION_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(InvalidValue::new(FieldCode::Blocked, "is the browser's own to set").of(name));
        }
        if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
            return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold control characters").of(name));
        }
    }
    Ok(headers.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(request: Result<CurlRequest, InvalidInput>) -> Vec<(String, FieldCode)> {
        let refused = request.expect_err("a refusal");
        refused.fields().iter().map(|error| (error.field.clone(), error.code)).collect()
    }

    fn to(url: &str) -> Result<CurlRequest, InvalidInput> {
        CurlRequest::parse(Some(url), None, None, None, None, None)
    }

    #[test]
    fn only_http_and_https_urls_are_requested() {
        for url in
            ["file:///etc/passwd", "chrome://settings", "data:text/html,x", "javascript:1", "ws://a/", "about:blank"]
        {
            assert_eq!(codes(to(url)), [("url".to_owned(), FieldCode::NotAllowed)], "{url}");
        }
        for url in ["", "a", "//a/b", "http://", "http:// /", "http://a b/"] {
            assert_eq!(codes(to(url)), [("url".to_owned(), FieldCode::InvalidFormat)], "{url}");
        }
        let request = to("HTTPS://Example.com").expect("a request");
        assert_eq!((request.url.as_str(), request.method.as_str()), ("https://example.com/", "GET"));
        assert_eq!(request.within, Duration::from_secs(30));
    }

    #[test]
    fn headers_cannot_smuggle_nor_speak_for_the_connection() {
        for (name, value, code) in [
            ("x y", "1", FieldCode::InvalidFormat),
            ("x\r\ny", "1", FieldCode::InvalidFormat),
            ("", "1", FieldCode::InvalidFormat),
            ("x", "1\r\ny: 2", FieldCode::InvalidFormat),
            ("Host", "a", FieldCode::Blocked),
            ("transfer-encoding", "chunked", FieldCode::Blocked),
        ] {
            let headers = Some([(name.to_owned(), value.to_owned())].into());
            let refused = codes(CurlRequest::parse(Some("http://a/"), None, headers, None, None, None));
            assert_eq!(refused.first().map(|(_, code)| *code), Some(code), "{name:?}: {value:?}");
        }
    }

    fn passed_on(headers: &[(&str, &str)]) -> Vec<String> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let raw = RawRequest { headers, ..RawRequest::default() };
        CurlRequest::pass_on(Some("http://a"), raw, None)
            .expect("a request")
            .headers
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn a_raw_request_keeps_its_url_method_body_and_timeout() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let request = CurlRequest::pass_on(
            Some("http://a/b?c=d"),
            RawRequest {
                query: &[pair("e", "f g")],
                method: "PROPFIND".to_owned(),
                headers: vec![pair("x-mine", "1"), pair("content-type", "text/plain")],
                body: Bytes::from_static(b"abc"),
                timeout_ms: None,
            },
            Some(Duration::from_secs(58)),
        )
        .expect("a request");
        assert_eq!(request.url, "http://a/b?c=d&e=f+g");
        assert_eq!(request.headers, [pair("x-mine", "1"), pair("content-type", "text/plain")]);
        assert_eq!((request.method.as_str(), request.within.as_secs()), ("PROPFIND", 58));
    }

    #[test]
    fn a_raw_request_ends_at_its_own_timeout_or_that_of_the_client() {
        let raw = |timeout_ms, client: Option<u64>| {
            let raw = RawRequest { timeout_ms, ..RawRequest::default() };
            CurlRequest::pass_on(Some("http://a/"), raw, client.map(Duration::from_secs))
        };
        for (timeout_ms, client, expected) in [
            (None, None, 300_000),
            (Some(2_500), None, 2_500),
            (Some(2_500), Some(58), 2_500),
            (Some(90_000), Some(58), 58_000),
        ] {
            let within = raw(timeout_ms, client).expect("a request").within;
            assert_eq!(within.as_millis(), expected, "{timeout_ms:?} {client:?}");
        }
        for outside in [0, -1, 300_001, i64::MAX] {
            assert_eq!(
                codes(raw(Some(outside), None)),
                [("timeout_ms".to_owned(), FieldCode::OutOfRange)],
                "{outside}"
            );
        }
    }

    #[test]
    fn what_a_browser_or_a_proxy_adds_to_a_raw_request_does_not_reach_the_target() {
        for (name, value) in [
            ("Cookie", "__Host-casement_ui=secret"),
            ("authorization", "Bearer key"),
            ("proxy-authorization", "Basic x"),
            ("Origin", "https://us"),
            ("Referer", "https://us/vm/x?jwt=y"),
            ("Sec-Fetch-Mode", "cors"),
            ("sec-ch-ua", "x"),
            ("Forwarded", "for=10.0.0.1"),
            ("via", "1.1 us"),
            ("X-Forwarded-For", "10.0.0.1"),
            ("x-forwarded-access-token", "secret"),
            ("x-real-ip", "10.0.0.1"),
            ("x-amzn-oidc-data", "secret"),
            ("x-auth-request-access-token", "secret"),
            ("cf-access-jwt-assertion", "secret"),
            ("cf-connecting-ip", "10.0.0.1"),
            ("remote-user", "me"),
            ("tailscale-user-login", "me"),
            ("traceparent", "00-1"),
            ("x-kernel-project-id", "p"),
            ("x-stainless-lang", "python"),
            ("x-request-id", "1"),
            ("x-casement-csrf", "secret"),
            ("user-agent", "Kernel/Python 0.80.0"),
            ("user-agent", "AsyncKernel/Python 0.80.0"),
            ("host", "us"),
            ("content-length", "3"),
            ("connection", "close"),
            ("upgrade-insecure-requests", "1"),
            ("a-name-that-nobody-has-thought-of", "secret"),
        ] {
            assert_eq!(passed_on(&[(name, value)]), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn what_a_caller_says_to_the_target_reaches_it() {
        let given = [
            "Accept",
            "Content-Type",
            "User-Agent",
            "If-None-Match",
            "Range",
            "SOAPAction",
            "X-Api-Key",
            "X-Goog-Api-Key",
        ];
        assert_eq!(passed_on(&given.map(|name| (name, "mine"))), given);
    }
}
