//! The outermost middleware, which applies to every request and response.

use std::{panic::AssertUnwindSafe, sync::atomic::Ordering, time::Instant};

use actix_web::{
    Error, HttpResponse, ResponseError as _,
    body::{self, BodySize, BoxBody, MessageBody as _},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
    web::{Bytes, Data},
};
use casement_domain::{IdSource, mask_secrets};
use futures_util::FutureExt as _;
use metrics::{counter, histogram};
use tracing::{Instrument as _, Span, field::Empty};

use crate::{
    active_requests::ActiveRequests,
    audit::{Audited, caller_ip},
    cluster::{self, Hop},
    connect_credential, cors,
    error::{ApiError, Code},
    ignored_fields, public_url,
    query::Query,
    request_uri,
    state::Api,
    telemetry::Call,
    websocket_end,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The maximum size of the request line, and of the whole head with names and values, in bytes.
const MAX_REQUEST_LINE_BYTES: usize = 16 * 1024;
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The end of the path of acquire requests, of which thousands may wait at a time.
const ACQUIRE_SUFFIX: &str = "/acquire";
/// The beginning of the paths into sessions.
const DIRECT_PREFIX: &str = "/vm/";
/// The end of the challenge in the response to a refused credential.
const INVALID_TOKEN: &[u8] = b"error=\"invalid_token\"";
/// The paths by which load balancers find out whether the server works.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];
/// The route label of requests that no route matches.
const NO_ROUTE: &str = "none";
/// The minimum size of a body that is compressed, in bytes.
const MIN_GZIP_BYTES: usize = 1024;

/// Properties of a request, read before it is routed.
struct RequestFacts {
    id: String,
    method: Method,
    path: String,
    accepts_gzip: bool,
    /// Whether another node relays the request, and counts it.
    is_relayed: bool,
    started: Instant,
}

/// Wraps every route.
pub(crate) async fn outermost(
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(api) = request.app_data::<Data<Api>>().cloned() else {
        return Err(ApiError::internal("the server was put together without its state").into());
    };
    let from_node = cluster::admit(api.services.cluster.as_ref(), &mut request);
    connect_credential::move_to_headers(&mut request);
    let facts = RequestFacts::read(&request, api.services.ids.as_ref());
    let span = request_span(&api, &request, &facts);
    let active = request.conn_data::<ActiveRequests>().cloned().unwrap_or_default();
    active.begin(&request);
    let requests = active.clone();
    async move {
        strip_trailing_slash(&mut request);
        if request.path().ends_with(ACQUIRE_SUFFIX) {
            shrink(request.headers_mut());
        }
        let audited = Audited::begin(&api, &request, &facts.id);
        let call = Call::begin(&api.services, &request);
        let page = api
            .cors
            .allowed(request.headers())
            .map(|origin| (origin, cors::is_preflight(request.method(), request.headers())));
        let result = match from_node.and_then(|()| admit(&api, &request)) {
            Ok(()) => {
                connect_credential::accept_basic(&mut request);
                let url = api.public_url.of(&request, &api.hosts, &api.trusted_proxies);
                AssertUnwindSafe(public_url::scope(url, next.call(request))).catch_unwind().await
            }
            Err(refusal) => Ok(Ok(request.error_response(refusal))),
        };
        let response = match result {
            Ok(Ok(response)) => {
                let response = cluster::relayed_response(response);
                let response = limit_refused_credentials(&api, refused_by_operation(response));
                let route = response.request().match_pattern().unwrap_or_default();
                let response = facts.complete(audited.complete(response, &route).await, &route);
                let mut response = websocket_end::mark_end(requests.paced(without_forbidden_body(response)));
                call.complete(&api.services, &route, response.status(), &facts.id);
                if let Some(tracing) = &api.services.tracing {
                    let route = if route.is_empty() { NO_ROUTE } else { &route };
                    tracing.end(&Span::current(), method_label(&facts.method), route, response.status().as_u16());
                }
                if let Some((origin, is_preflight)) = page {
                    let status = response.status();
                    cors::add_headers(origin, is_preflight, status, response.headers_mut());
                }
                Ok(response)
            }
            Ok(Err(error)) => Err(facts.without_request(error, audited)),
            Err(_) => Err(facts.without_request(ApiError::internal("the handler panicked").into(), audited)),
        };
        active.end();
        response
    }
    .instrument(span)
    .await
}

/// Returns whether requests of a route repeat by themselves: those of monitoring, and of open pages of the web interface.
fn is_routine(method: &Method, route: &str) -> bool {
    method == Method::GET && (PROBES.contains(&route) || route == "/metrics" || route.starts_with("/ui"))
}

/// Creates the span of a request. The field `otel.kind` is for traces.
fn request_span(api: &Api, request: &ServiceRequest, facts: &RequestFacts) -> Span {
    let span = tracing::info_span!(
        "request",
        request_id = %facts.id,
        session = Empty,
        trace_id = Empty,
        otel.kind = Empty
    );
    if let Some(tracing) = &api.services.tracing {
        let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let header = |name| text(name).filter(|value| mask_secrets(value) == *value);
        let method = method_label(&facts.method);
        if let Some(trace) = tracing.begin(&span, method, header("traceparent"), header("tracestate")) {
            span.record("trace_id", trace);
        }
    }
    span
}

fn admit(api: &Api, request: &ServiceRequest) -> Result<(), ApiError> {
    let headers = request.headers();
    let line = request.uri().to_string().len();
    let head: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if line > MAX_REQUEST_LINE_BYTES || line + head > MAX_HEAD_BYTES {
        return Err(ApiError::new(Code::BadRequest, "the request line or the headers are too long"));
    }
    let is_probe = PROBES.contains(&request.path());
    // Another node has checked all of it already.
    if !Hop::is(request.request()) {
        if let Some(peer) = request.peer_addr() {
            api.trusted_proxies.client_ip(peer.ip(), headers)?;
        }
        api.hosts.admit(request, api.cors.allowed(headers).is_some(), is_probe)?;
    }
    if api.draining.load(Ordering::Relaxed) && request.path() != "/healthz" {
        return Err(ApiError::new(Code::Unavailable, "the server is stopping"));
    }
    Ok(())
}

/// Counts a refused credential against the client's address. Over the limit, the response becomes 429. Valid
/// credentials from the same address are still accepted.
fn limit_refused_credentials(api: &Api, response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let challenge = response.headers().get(header::WWW_AUTHENTICATE);
    // A request without a credential does not count.
    if !challenge.is_some_and(|challenge| challenge.as_bytes().ends_with(INVALID_TOKEN)) {
        return response;
    }
    let request = response.request();
    if Hop::is(request) {
        return response;
    }
    match api.refused.admit(caller_ip(request.peer_addr(), request.headers(), api)) {
        Ok(()) => response,
        Err(refusal) => response.into_response(refusal.error_response()),
    }
}

/// Replaces the status 403 of a refused operation by 400 if the request has the token of a session: the public clients
/// take a 403 there for a refusal of the token, forget the address of the session and repeat the request elsewhere.
fn refused_by_operation(mut response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let error = response.response().error().and_then(|error| error.as_error::<ApiError>());
    let refused = response.status() == StatusCode::FORBIDDEN
        && error.is_some_and(|error| error.code() != Code::Forbidden)
        && response.request().path().starts_with(DIRECT_PREFIX)
        && Query::parse(response.request().query_string()).is_ok_and(|query| matches!(query.raw("jwt"), Ok(Some(_))));
    if refused {
        *response.response_mut().status_mut() = StatusCode::BAD_REQUEST;
    }
    response
}

/// Drops the body of a response whose status has none (RFC 9112 §6.3). The client would read the body, or its end, as the
/// beginning of the next response. The status may come from inside a session.
fn without_forbidden_body(response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let status = response.status();
    let has_no_body = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || (status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS);
    if has_no_body { response.map_body(|_, _| BoxBody::new(body::None::new())) } else { response }
}

/// Moves headers into a map of minimal capacity. The original has room for dozens, which takes kilobytes for as long as
/// the request waits.
fn shrink(headers: &mut HeaderMap) {
    let shrunk = HeaderMap::with_capacity(headers.len_keys());
    for (name, value) in std::mem::replace(headers, shrunk) {
        headers.append(name, value);
    }
}

/// Removes one slash at the end of the path.
fn strip_trailing_slash(request: &mut ServiceRequest) {
    let path = request.uri().path();
    let Some(shorter) = path.strip_suffix('/').filter(|shorter| !shorter.is_empty()) else { return };
    let shorter = match request.uri().query() {
        Some(query) => format!("{shorter}?{query}"),
        None => shorter.to_owned(),
    };
    request_uri::replace(request, &shorter);
}

impl RequestFacts {
    fn read(request: &ServiceRequest, ids: &dyn IdSource) -> Self {
        let headers = request.headers();
        let generated = || ids.next().to_string().to_ascii_lowercase();
        Self {
            id: headers.get(&REQUEST_ID).and_then(valid_id).unwrap_or_else(generated),
            method: request.method().clone(),
            path: mask_secrets(request.path()).into_owned(),
            accepts_gzip: accepts_gzip(headers),
            is_relayed: Hop::is(request.request()),
            started: Instant::now(),
        }
    }

    /// Logs and completes the response of a routed request.
    fn complete(&self, response: ServiceResponse<BoxBody>, route: &str) -> ServiceResponse<BoxBody> {
        if let Some(error) = response.response().error() {
            self.log(error);
        }
        let status = response.status();
        self.record(if route.is_empty() { NO_ROUTE } else { route }, status);
        let mut response = if self.accepts_gzip { compressed(response) } else { response };
        ignored_fields::add_header(&mut response);
        self.complete_headers(response.headers_mut(), status);
        response
    }

    /// Builds the response to an error after which the request is no longer available.
    fn without_request(&self, error: Error, audited: Audited) -> Error {
        self.log(&error);
        let mut response: HttpResponse = error.error_response();
        let status = response.status();
        audited.without_request(status.as_u16());
        self.record(NO_ROUTE, status);
        self.complete_headers(response.headers_mut(), status);
        actix_web::error::InternalError::from_response("lost", response).into()
    }

    fn complete_headers(&self, headers: &mut HeaderMap, status: StatusCode) {
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            headers.insert(REQUEST_ID, id);
        }
        if !headers.contains_key(header::CACHE_CONTROL) {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        // Prevents browsers from sniffing another content type.
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if self.is_final(headers, status) {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
    }

    /// Returns whether a retry of the call is useless or could repeat its effect.
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
            tracing::error!(%error, "a handler returned an error of an unknown type");
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

    /// Logs and counts the response in a separate task, so that the client does not wait for it.
    fn record(&self, route: &str, status: StatusCode) {
        let (method, path, route) = (self.method.clone(), self.path.clone(), route.to_owned());
        let (elapsed, is_relayed) = (self.started.elapsed(), self.is_relayed);
        let task = async move {
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            let code = status.as_u16();
            if is_routine(&method, &route) && !status.is_client_error() && !status.is_server_error() {
                tracing::debug!(%method, route, %path, status = code, elapsed_ms, "request completed");
            } else {
                tracing::info!(%method, route, %path, status = code, elapsed_ms, "request completed");
            }
            if is_relayed {
                counter!("casement_node_requests_total", "direction" => "received").increment(1);
                return;
            }
            let labels = [
                ("route", route),
                ("method", method_label(&method).to_owned()),
                ("status", status.as_u16().to_string()),
            ];
            counter!("casement_http_requests_total", &labels).increment(1);
            histogram!("casement_http_request_seconds", &labels[..2]).record(elapsed.as_secs_f64());
        };
        actix_web::rt::spawn(task.in_current_span());
    }
}

/// Returns a method as a metric label. The number of labels is bounded, although callers may send any method.
fn method_label(method: &Method) -> &'static str {
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

/// Returns the id that a client has given its request, unless it is a secret in the wrong header.
fn valid_id(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let is_valid = (1..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    (is_valid && mask_secrets(text) == text).then(|| text.to_owned())
}

pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT_ENCODING)
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
            let is_refused = parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0_f32)));
            is_gzip && !is_refused
        })
}

/// Compresses JSON above a minimum length; returns other responses unchanged.
fn compressed(response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let is_long = matches!(response.response().body().size(), BodySize::Sized(size) if size > MIN_GZIP_BYTES as u64);
    if !is_json || !is_long || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let mut is_compressed = false;
    let mut response = response.map_body(|_, body| match body.try_into_bytes() {
        Ok(plain) => match gzip(&plain) {
            Ok(compressed) => {
                is_compressed = true;
                BoxBody::new(compressed)
            }
            Err(_) => BoxBody::new(plain),
        },
        Err(stream) => stream,
    });
    if is_compressed {
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
    fn shrunk_headers_keep_their_values_and_the_order_of_repeated_ones() {
        let mut headers = HeaderMap::with_capacity(32);
        for (name, value) in [("host", "a"), ("x-one", "1"), ("x-two", "2"), ("x-one", "3")] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        shrink(&mut headers);
        assert_eq!(headers.len(), 4);
        assert_eq!(headers.get_all("x-one").collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(headers.get("host").map(HeaderValue::as_bytes), Some(&b"a"[..]));
        assert!(headers.capacity() < 32, "{}", headers.capacity());
    }
}
