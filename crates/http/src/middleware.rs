//! The outermost layer: what holds for every request and every answer, whatever route it takes.

use std::{
    panic::AssertUnwindSafe,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use actix_web::{
    Error, HttpResponse, ResponseError as _,
    body::{BodySize, BoxBody, MessageBody as _},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, StatusCode, Uri,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
    web::{Bytes, Data},
};
use casement_domain::IdSource;
use futures_util::FutureExt as _;
use metrics::{counter, histogram};
use tracing::Instrument as _;

use crate::{
    audit::{Audited, caller_ip},
    cors::{self, Cors},
    error::{ApiError, Code},
    ignored_fields,
    plain_errors::ActiveRequests,
    state::Api,
    telemetry::Call,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The longest request line, in bytes, and the longest head, names and values together.
const MAX_LINE: usize = 16 * 1024;
const MAX_HEAD: usize = 64 * 1024;
/// How the path of the call ends in which thousands of callers may wait at a time.
const WAITING: &str = "/acquire";
/// How the challenge ends that answers a credential which is not good.
const REFUSED: &[u8] = b"error=\"invalid_token\"";
/// The route of what none answers.
const NO_ROUTE: &str = "none";
/// Shorter answers are not worth packing.
const WORTH_PACKING: usize = 1024;

/// What is known of a request before it is routed.
struct RequestFacts {
    id: String,
    method: Method,
    path: String,
    takes_gzip: bool,
    at: Instant,
}

/// Wraps everything.
pub(crate) async fn outermost(
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(api) = request.app_data::<Data<Api>>().cloned() else {
        return Err(ApiError::internal("the server was put together without its state").into());
    };
    let asked = RequestFacts::read(&request, api.services.ids.as_ref());
    let span = tracing::info_span!("request", request_id = %asked.id, session = tracing::field::Empty);
    let answering = request.conn_data::<ActiveRequests>().cloned().unwrap_or_default();
    answering.set(true);
    async move {
        without_slash(&mut request);
        if request.path().ends_with(WAITING) {
            fit(request.headers_mut());
        }
        let audited = Audited::begin(&api, &request, &asked.id);
        let call = Call::begin(&api.services, &request);
        let page = api
            .cors
            .allowed(request.headers())
            .map(|origin| (origin, cors::Asked::of(request.method(), request.headers())));
        let answered = match admit(&api, &request) {
            Ok(()) => AssertUnwindSafe(next.call(request)).catch_unwind().await,
            Err(refusal) => Ok(Ok(request.error_response(refusal))),
        };
        let answer = match answered {
            Ok(Ok(response)) => {
                let response = slowed(&api, response);
                let route = response.request().match_pattern().unwrap_or_default();
                let mut response = asked.finish(audited.complete(response, &route).await, &route);
                call.answered(&api.services, &route, response.status(), &asked.id);
                if let Some((origin, wish)) = page {
                    let status = response.status();
                    Cors::say(origin, &wish, status, response.headers_mut());
                }
                Ok(response)
            }
            Ok(Err(error)) => Err(asked.lost(error, audited)),
            Err(_) => Err(asked.lost(ApiError::internal("the handler panicked").into(), audited)),
        };
        answering.set(false);
        answer
    }
    .instrument(span)
    .await
}

fn admit(api: &Api, request: &ServiceRequest) -> Result<(), ApiError> {
    let headers = request.headers();
    let line = request.uri().to_string().len();
    let head: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if line > MAX_LINE || line + head > MAX_HEAD {
        return Err(ApiError::new(Code::BadRequest, "the request line or the headers are too long"));
    }
    api.hosts.admit(request, api.cors.allowed(headers).is_some())?;
    if api.draining.load(Ordering::Relaxed) && request.path() != "/healthz" {
        return Err(ApiError::new(Code::Unavailable, "the server is stopping"));
    }
    Ok(())
}

/// A refused credential counts against its address. Whoever shows too many of them is told to come later; a good one from the same address is
/// served all the same.
fn slowed(api: &Api, response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let challenge = response.headers().get(header::WWW_AUTHENTICATE);
    // Whoever shows none is only told what is asked for.
    if !challenge.is_some_and(|challenge| challenge.as_bytes().ends_with(REFUSED)) {
        return response;
    }
    let request = response.request();
    match api.refused.admit(caller_ip(request.peer_addr(), request.headers(), api)) {
        Ok(()) => response,
        Err(refusal) => response.into_response(refusal.error_response()),
    }
}

/// Moves headers into a map of their own size. The one that they were read into has room for dozens, which takes kilobytes, and lives as
/// long as the request.
fn fit(headers: &mut HeaderMap) {
    let fitting = HeaderMap::with_capacity(headers.len_keys());
    for (name, value) in std::mem::replace(headers, fitting) {
        headers.append(name, value);
    }
}

/// One slash at the end means nothing.
fn without_slash(request: &mut ServiceRequest) {
    let path = request.uri().path();
    let Some(shorter) = path.strip_suffix('/').filter(|shorter| !shorter.is_empty()) else { return };
    let shorter = match request.uri().query() {
        Some(query) => format!("{shorter}?{query}"),
        None => shorter.to_owned(),
    };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = shorter.parse().ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        request.match_info_mut().get_mut().update(&uri);
        request.head_mut().uri = uri;
    }
}

impl RequestFacts {
    fn read(request: &ServiceRequest, ids: &dyn IdSource) -> Self {
        let headers = request.headers();
        let own = || ids.next().to_string().to_ascii_lowercase();
        Self {
            id: headers.get(&REQUEST_ID).and_then(good_id).unwrap_or_else(own),
            method: request.method().clone(),
            path: request.path().to_owned(),
            takes_gzip: takes_gzip(headers),
            at: Instant::now(),
        }
    }

    /// Completes an answer.
    fn finish(&self, response: ServiceResponse<BoxBody>, route: &str) -> ServiceResponse<BoxBody> {
        if let Some(error) = response.response().error() {
            self.log(error);
        }
        let status = response.status();
        self.account(if route.is_empty() { NO_ROUTE } else { route }, status);
        let mut response = if self.takes_gzip { packed(response) } else { response };
        ignored_fields::tell(&mut response);
        self.complete(response.headers_mut(), status);
        response
    }

    /// An answer that there is no request any more to answer with.
    fn lost(&self, error: Error, audited: Audited) -> Error {
        self.log(&error);
        let mut response: HttpResponse = error.error_response();
        let status = response.status();
        audited.lost(status.as_u16());
        self.account(NO_ROUTE, status);
        self.complete(response.headers_mut(), status);
        actix_web::error::InternalError::from_response("lost", response).into()
    }

    fn complete(&self, headers: &mut HeaderMap, status: StatusCode) {
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            headers.insert(REQUEST_ID, id);
        }
        if !headers.contains_key(header::CACHE_CONTROL) {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        // No answer is ever taken for a script, a style sheet or a page that it does not say it is.
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if self.is_final(headers, status) {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
    }

    /// Whether repeating the same call would be of no use, or would do it twice.
    fn is_final(&self, headers: &HeaderMap, status: StatusCode) -> bool {
        match status.as_u16() {
            408..=410 => true,
            429 => !headers.contains_key(header::RETRY_AFTER),
            500 | 502 | 504 => matches!(self.method, Method::POST | Method::PATCH),
            _ => false,
        }
    }

    fn log(&self, error: &Error) {
        let Some(error) = error.as_error::<ApiError>() else {
            tracing::error!(%error, "an error that is not ours came out of a handler");
            return;
        };
        match error.code() {
            Code::Internal => tracing::error!(code = error.code().as_str(), error = error.chain(), "request failed"),
            code if code.status() >= 500 => {
                tracing::warn!(code = code.as_str(), error = error.chain(), "request failed")
            }
            _ => {}
        }
    }

    /// Notes the answer once it has been written, so that nobody waits for it.
    fn account(&self, route: &str, status: StatusCode) {
        let account = Account {
            method: self.method.clone(),
            path: self.path.clone(),
            route: route.to_owned(),
            status,
            elapsed: self.at.elapsed(),
        };
        actix_web::rt::spawn(async move { account.write() }.in_current_span());
    }
}

/// What is told of an answer, in the log and the metrics.
struct Account {
    method: Method,
    path: String,
    route: String,
    status: StatusCode,
    elapsed: Duration,
}

impl Account {
    fn write(self) {
        tracing::info!(
            method = %self.method,
            route = self.route,
            path = %self.path,
            status = self.status.as_u16(),
            elapsed_ms = u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
            "answered"
        );
        let labels = [
            ("route", self.route),
            ("method", known(&self.method).to_owned()),
            ("status", self.status.as_u16().to_string()),
        ];
        counter!("casement_http_requests_total", &labels).increment(1);
        histogram!("casement_http_request_seconds", &labels[..2]).record(self.elapsed.as_secs_f64());
    }
}

/// A method as a label: callers may invent any number of others.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

fn good_id(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let good = (1..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    good.then(|| text.to_owned())
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT_ENCODING)
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            let wanted = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
            let refused = parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0_f32)));
            wanted && !refused
        })
}

/// JSON of some length, packed; everything else as it is.
fn packed(response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let long = matches!(response.response().body().size(), BodySize::Sized(size) if size > WORTH_PACKING as u64);
    if !json || !long {
        return response;
    }
    let mut done = false;
    let mut response = response.map_body(|_, body| match body.try_into_bytes() {
        Ok(plain) => match gzip(&plain) {
            Ok(packed) => {
                done = true;
                BoxBody::new(packed)
            }
            Err(_) => BoxBody::new(plain),
        },
        Err(stream) => stream,
    });
    if done {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

fn gzip(plain: &[u8]) -> std::io::Result<Bytes> {
    use std::io::Write as _;

    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(plain.len() / 2), flate2::Compression::fast());
    encoder.write_all(plain)?;
    Ok(encoder.finish()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_moved_stay_what_they_were_repeated_ones_in_their_order() {
        let mut headers = HeaderMap::with_capacity(32);
        for (name, value) in [("host", "a"), ("x-one", "1"), ("x-two", "2"), ("x-one", "3")] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        fit(&mut headers);
        assert_eq!(headers.len(), 4);
        assert_eq!(headers.get_all("x-one").collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(headers.get("host").map(HeaderValue::as_bytes), Some(&b"a"[..]));
        assert!(headers.capacity() < 32, "{}", headers.capacity());
    }
}
