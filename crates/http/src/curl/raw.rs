//! A request that is passed on as it came, and its answer as it came back.

use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        Method, StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
};
use casement_domain::curl::{CurlAnswer, CurlRequest};

use crate::{
    answer::Answer,
    body,
    client_timeout::client_timeout,
    error::{ApiError, Code},
    request::{ActiveSession, Request},
    stream, ui,
};

/// The longest body that is passed on.
const MAX_BYTES: usize = 10 * 1024 * 1024;

/// Headers of the target's answer that come back as they are. They describe its body, and nothing in front of us, no browser and no
/// proxy, acts on them beyond it.
const GIVEN_BACK: [&str; 8] = [
    "accept-ranges",
    "allow",
    "content-language",
    "content-range",
    "content-type",
    "etag",
    "last-modified",
    "retry-after",
];

/// What belongs to the connection with the target, or says how a body was packed that comes unpacked.
const OF_THE_CONNECTION: [&str; 9] = [
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

/// Before the name of every other header of the target's answer: a name that nobody but the caller acts on.
const THEIRS: &str = "x-target-";

/// Any method of `/vm/{session_id}/curl/raw?url=…`: sends the request through the session's browser.
pub(crate) async fn raw(mut request: Request<ActiveSession>) -> Answer {
    not_from_a_page(request.http())?;
    let method = request.http().method().clone();
    if method == Method::CONNECT {
        // No request, but a tunnel, and what follows it no body.
        return Err(ApiError::new(Code::MethodNotAllowed, "CONNECT is not possible here"));
    }
    let query = request.raw_query()?;
    let url = query.raw("url")?.map(str::to_owned);
    let others = query.all().filter(|(name, _)| !matches!(*name, "url" | "jwt"));
    let query: Vec<_> = others.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let text = |(name, value): (&HeaderName, &HeaderValue)| Some((name.to_string(), value.to_str().ok()?.to_owned()));
    let headers = request.headers().iter().filter_map(text).collect();
    let client_timeout = client_timeout(request.headers());
    let body = body::read(&mut request.take_payload()?, MAX_BYTES).await?;
    let curl_request = CurlRequest::pass_on(url.as_deref(), &query, method.to_string(), headers, body, client_timeout)?;
    let CurlAnswer { status, headers, body } =
        request.while_served(request.services().curl.send(request.session(), curl_request)).await?;
    let bad = |_| ApiError::new(Code::UpstreamError, "the answer has a status that is none");
    let status = StatusCode::from_u16(status).map_err(bad)?;
    let mut response = HttpResponse::build(status);
    let mut response = match method == Method::HEAD || BODILESS.contains(&status) {
        true => response.finish(),
        false => stream::answer(response, request, body),
    };
    give_back(response.headers_mut(), headers);
    if status.is_client_error() || status.is_server_error() {
        // The target's own answer, which the client library would otherwise ask for again.
        response.headers_mut().insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
    }
    Ok(response)
}

/// A page of whatever site can make a person's browser begin such a request, and the answer would be taken for ours.
///
/// # Errors
/// `forbidden` for what a browser's page began.
fn not_from_a_page(request: &HttpRequest) -> Result<(), ApiError> {
    let headers = request.headers();
    let given = |name: &str| headers.contains_key(name);
    // `Sec-Fetch-Mode: cors` alone is what Node.js says of every request of its own.
    let mode = headers.get_all("sec-fetch-mode").any(|mode| mode != "cors");
    let fetch =
        mode || ["sec-fetch-site", "sec-fetch-dest", "sec-fetch-user", "service-worker"].iter().any(|name| given(name));
    // Of browsers that say none of these, and where they do not: over plain HTTP.
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

fn give_back(headers: &mut HeaderMap, theirs: Vec<(String, String)>) {
    headers.remove(header::CONTENT_TYPE);
    for (name, value) in theirs {
        let name = name.to_ascii_lowercase();
        if OF_THE_CONNECTION.contains(&name.as_str()) {
            continue;
        }
        let as_it_is = GIVEN_BACK.contains(&name.as_str()) && !has_parts(&name, &value);
        let name = if as_it_is { name } else { format!("{THEIRS}{name}") };
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    // Should a browser ever get the answer: it is a file, of no site's, that loads nothing and says to nobody where it came from.
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

/// Each part of such a body has headers of its own, cookies among them, which a browser takes for ours.
fn has_parts(name: &str, value: &str) -> bool {
    name == "content-type" && value.trim_start().get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(theirs: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        give_back(&mut headers, theirs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect());
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
