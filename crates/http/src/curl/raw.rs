//! `…/curl/raw`: forwards a request to a target unchanged, and returns the target's response.

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        Method, StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
};
use casement_domain::curl::{CurlAnswer, CurlRequest, RawRequest};
use serde::Deserialize;

use crate::{
    answer::Answer,
    body,
    client_timeout::client_timeout,
    error::{ApiError, Code},
    request::{ActiveSession, Request},
    stream, ui,
};

/// The maximum size of a forwarded body, in bytes.
const MAX_BYTES: usize = 10 * 1024 * 1024;

/// Headers of the target's response that are returned under their own names. They describe its body only; no browser
/// and no proxy in front of this server does more with them.
const RETURNED_HEADERS: [&str; 8] = [
    "accept-ranges",
    "allow",
    "content-language",
    "content-range",
    "content-type",
    "etag",
    "last-modified",
    "retry-after",
];

/// Headers that are not returned: those of the connection to the target, and the encoding of a body that is already
/// decoded.
const CONNECTION_HEADERS: [&str; 9] = [
    "connection",
    "content-encoding",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const BODILESS: [StatusCode; 2] = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];

/// The prefix of the names of all other headers of the target's response, so that only the caller acts on them.
const TARGET_PREFIX: &str = "x-target-";

/// The parameters of the query that are not for the target, besides `url` and `jwt`.
#[derive(Deserialize)]
struct RawParams {
    timeout_ms: Option<i64>,
}

/// Any method of `/vm/{session_id}/curl/raw?url=…`: sends the request through the session's browser.
pub(crate) async fn raw(mut request: Request<ActiveSession>) -> Answer {
    refuse_web_pages(request.http())?;
    let method = request.http().method().clone();
    if method == Method::CONNECT {
        // CONNECT opens a tunnel, and the bytes that follow it are no body.
        return Err(ApiError::new(Code::MethodNotAllowed, "CONNECT is not possible here"));
    }
    let query = request.raw_query()?;
    let url = query.raw("url")?.map(str::to_owned);
    let timeout_ms = query.read::<RawParams>()?.timeout_ms;
    let others = query.all().filter(|(name, _)| !matches!(*name, "url" | "jwt" | "timeout_ms"));
    let query: Vec<_> = others.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let text = |(name, value): (&HeaderName, &HeaderValue)| Some((name.to_string(), value.to_str().ok()?.to_owned()));
    let headers = request.headers().iter().filter_map(text).collect();
    let client_timeout = client_timeout(request.headers());
    let body = body::read(&mut request.take_payload()?, MAX_BYTES).await?;
    let raw = RawRequest { query: &query, method: method.to_string(), headers, body, timeout_ms };
    let curl_request = CurlRequest::pass_on(url.as_deref(), raw, client_timeout)?;
    let CurlAnswer { status, headers, body } =
        request.while_served(request.services().curl.send(request.session(), curl_request)).await?;
    let bad = |_| ApiError::new(Code::UpstreamError, "the answer has a status that is none");
    let status = StatusCode::from_u16(status).map_err(bad)?;
    let mut response = HttpResponse::build(status);
    let mut response = match method == Method::HEAD || BODILESS.contains(&status) {
        true => response.finish(),
        false => stream::answer(response, request, body),
    };
    copy_headers(response.headers_mut(), headers);
    if status.is_client_error() || status.is_server_error() {
        // The target has responded. The client library would retry otherwise.
        response.headers_mut().insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
    }
    Ok(response)
}

/// Refuses requests from web pages: any site can make a person's browser send one, and the browser would treat the
/// target's response as one of this server.
///
/// # Errors
/// `forbidden` for a request of a web page.
fn refuse_web_pages(request: &HttpRequest) -> Result<(), ApiError> {
    let headers = request.headers();
    let given = |name: &str| headers.contains_key(name);
    // Node.js sends `Sec-Fetch-Mode: cors` with every request, and none of the other headers.
    let mode = headers.get_all("sec-fetch-mode").any(|mode| mode != "cors");
    let fetch =
        mode || ["sec-fetch-site", "sec-fetch-dest", "sec-fetch-user", "service-worker"].iter().any(|name| given(name));
    // Older browsers, and all browsers over plain HTTP, send no `Sec-Fetch-…` headers.
    let older = given("origin") || given("upgrade-insecure-requests") || ui::has_cookie(request);
    match fetch || older {
        false => Ok(()),
        true => Err(ApiError::new(
            Code::Forbidden,
            "curl/raw is for programs, and this request comes from a browser's page, or has its headers (Sec-Fetch-…, Origin); \
             POST …/curl takes any header for the target in its body",
        )),
    }
}

fn copy_headers(headers: &mut HeaderMap, theirs: Vec<(String, String)>) {
    headers.remove(header::CONTENT_TYPE);
    for (name, value) in theirs {
        let name = name.to_ascii_lowercase();
        if CONNECTION_HEADERS.contains(&name.as_str()) {
            continue;
        }
        let as_it_is = RETURNED_HEADERS.contains(&name.as_str()) && !has_parts(&name, &value);
        let name = if as_it_is { name } else { format!("{TARGET_PREFIX}{name}") };
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    // If a browser does receive the response, it saves a file, which has no origin, loads nothing and sends no
    // referrer.
    for (name, value) in [
        (header::CONTENT_DISPOSITION, "attachment"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox; frame-ancestors 'none'"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CONTENT_TYPE) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    }
}

/// Returns whether the body consists of parts with headers of their own. A browser would treat these headers, cookies
/// among them, as headers of this server.
fn has_parts(name: &str, value: &str) -> bool {
    name == "content-type" && value.trim_start().get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(theirs: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        copy_headers(
            &mut headers,
            theirs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        );
        let text = |value: &HeaderValue| value.to_str().expect("text").to_owned();
        let mut given: Vec<_> = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        given.sort();
        given
    }

    #[test]
    fn nothing_that_a_browser_or_a_proxy_acts_on_comes_back_under_its_own_name() {
        let bare = received(&[]);
        for name in [
            "Set-Cookie",
            "NEL",
            "Report-To",
            "Reporting-Endpoints",
            "WWW-Authenticate",
            "Refresh",
            "Location",
            "Content-Location",
            "Access-Control-Allow-Origin",
            "Access-Control-Allow-Credentials",
            "Clear-Site-Data",
            "Service-Worker-Allowed",
            "Link",
            "SourceMap",
            "X-SourceMap",
            "Strict-Transport-Security",
            "Alt-Svc",
            "Accept-CH",
            "Cache-Control",
            "Content-Disposition",
            "Content-Security-Policy",
            "Cross-Origin-Resource-Policy",
            "Referrer-Policy",
            "Set-Login",
            "Speculation-Rules",
            "X-Accel-Redirect",
            "X-Sendfile",
            "X-Should-Retry",
            "X-Request-Id",
            "X-Content-Type-Options",
            "A-Name-Of-Tomorrow",
        ] {
            let mut expected = bare.clone();
            expected.push((format!("x-target-{}", name.to_ascii_lowercase()), "a".to_owned()));
            expected.sort();
            assert_eq!(received(&[(name, "a")]), expected, "{name}");
        }
    }

    #[test]
    fn headers_of_the_body_are_returned_and_those_of_the_connection_are_not() {
        let given = [("Content-Type", "text/html"), ("ETag", "\"a\""), ("Content-Range", "bytes 0-1/2")];
        let back = received(&given);
        for (name, value) in given {
            assert!(back.contains(&(name.to_ascii_lowercase(), value.to_owned())), "{name}: {back:?}");
        }
        let none = [
            ("Transfer-Encoding", "chunked"),
            ("content-length", "9"),
            ("Content-Encoding", "gzip"),
            ("bad name", "x"),
        ];
        assert_eq!(received(&none), received(&[]));
        assert_eq!(received(&[("x-bad", "a\nb")]), received(&[]));
        let twice = received(&[("Set-Cookie", "a=1"), ("set-cookie", "b=2")]);
        let cookies = twice.iter().filter(|(name, _)| name == "x-target-set-cookie").map(|(_, value)| value.as_str());
        assert_eq!(cookies.collect::<Vec<_>>(), ["a=1", "b=2"]);
    }

    #[test]
    fn a_body_of_parts_with_headers_of_their_own_is_a_mere_file() {
        for kind in ["multipart/x-mixed-replace;boundary=a", "Multipart/Mixed"] {
            let back = received(&[("Content-Type", kind)]);
            assert!(back.contains(&("content-type".to_owned(), "application/octet-stream".to_owned())), "{back:?}");
            assert!(back.contains(&("x-target-content-type".to_owned(), kind.to_owned())), "{back:?}");
        }
    }
}
