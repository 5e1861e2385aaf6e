//! A request that is passed on as it came, and its answer as it came back.

use actix_web::{
    HttpResponse,
    http::{
        Method, StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
};
use casement_domain::curl::{CurlAnswer, RawInput};

use crate::{
    answer::Answer,
    body,
    caller::Inside,
    error::{ApiError, Code},
    patience::patience,
    stream,
};

/// The longest body that is passed on.
const LONGEST: usize = 10 * 1024 * 1024;

/// What belongs to the connection with the target, or would speak for our own host.
const KEPT_BACK: [&str; 13] = [
    "alt-svc",
    "clear-site-data",
    "connection",
    "content-encoding",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Any method of `/vm/{session_id}/curl/raw?url=…`: sends the request through the session's browser.
pub(crate) async fn raw(mut inside: Inside) -> Answer {
    let method = inside.request.method().clone();
    if method == Method::CONNECT {
        // No request, but a tunnel, and what follows it no body.
        return Err(ApiError::new(Code::MethodNotAllowed, "CONNECT is not possible here"));
    }
    let query = inside.query()?;
    let url = query.raw("url")?.map(str::to_owned);
    let others = query.all().filter(|(name, _)| !matches!(*name, "url" | "jwt"));
    let query = others.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let text = |(name, value): (&HeaderName, &HeaderValue)| Some((name.to_string(), value.to_str().ok()?.to_owned()));
    let headers = inside.headers().iter().filter_map(text).collect();
    let patience = patience(inside.headers());
    let body = body::read(&mut inside.take_payload()?, LONGEST).await?;
    let input = RawInput { url, query, method: method.to_string(), headers, body, patience };
    let CurlAnswer { status, headers, body } = inside.services().curl.pass(&inside.session, input).await?;
    let bad = |_| ApiError::new(Code::UpstreamError, "the answer has a status that is none");
    let status = StatusCode::from_u16(status).map_err(bad)?;
    let mut response = HttpResponse::build(status);
    let bodiless = method == Method::HEAD || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    let mut response = match bodiless || status.is_informational() {
        true => response.finish(),
        false => stream::answer(response, inside, body),
    };
    give_back(response.headers_mut(), headers);
    if status.is_client_error() || status.is_server_error() {
        // The target's own answer, which the client library would otherwise ask for again.
        response.headers_mut().insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
    }
    Ok(response)
}

fn give_back(headers: &mut HeaderMap, theirs: Vec<(String, String)>) {
    headers.remove(header::CONTENT_TYPE);
    for (name, value) in theirs {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else { continue };
        if !KEPT_BACK.contains(&name.as_str()) {
            headers.append(name, value);
        }
    }
    // A target's page must not run as one of ours, should a person's browser ever show it.
    headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_the_targets_but_for_what_would_speak_for_us() {
        let mut headers = HeaderMap::new();
        let theirs = [
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
            ("Content-Encoding", "gzip"),
            ("Transfer-Encoding", "chunked"),
            ("Strict-Transport-Security", "max-age=1"),
            ("bad name", "x"),
            ("x-bad", "a\nb"),
            ("Content-Security-Policy", "default-src 'none'"),
        ];
        give_back(&mut headers, theirs.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let of = |name: &str| headers.get_all(name).map(|value| value.to_str().expect("text")).collect::<Vec<_>>();
        assert_eq!(of("set-cookie"), ["a=1", "b=2"]);
        assert_eq!(of("content-security-policy"), ["default-src 'none'", "sandbox"]);
        assert_eq!(headers.keys().count(), 3, "{headers:?}");
    }
}
