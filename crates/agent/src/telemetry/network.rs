//! Requests and their responses.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::capture::{Capture, PendingQuery, Timer};
use super::event::{Event, beginning, short_url};
use super::requests::{MAX_POST, MAX_REQUESTS, Request, Response};
use super::secrets::{REDACTED, is_secret_header, redacted_body};
use crate::egress::Fault;
use casement_agent_protocol::telemetry::Category;

/// The time without a request after which the network counts as idle.
pub(super) const IDLE_AFTER: Duration = Duration::from_millis(500);
/// The maximum number of captured bytes of a body: of data, and of other text.
const MAX_DATA_BODY: usize = 8 << 10;
const MAX_TEXT_BODY: usize = 4 << 10;
/// The longest body that is requested from the browser.
const MAX_BODY: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestSent {
    request_id: String,
    #[serde(default)]
    loader_id: String,
    #[serde(rename = "documentURL", default)]
    document_url: String,
    request: SentRequest,
    #[serde(default)]
    wall_time: f64,
    #[serde(default)]
    initiator: Initiator,
    redirect_response: Option<Response>,
    #[serde(rename = "type", default)]
    resource_type: String,
    frame_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentRequest {
    url: String,
    method: String,
    #[serde(default)]
    headers: Map<String, Value>,
    post_data: Option<String>,
}

#[derive(Default, Deserialize)]
struct Initiator {
    #[serde(rename = "type", default)]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Received {
    request_id: String,
    response: Response,
}

/// The parameters of `dataReceived`, `loadingFinished` and `loadingFailed`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    request_id: String,
    #[serde(default)]
    data_length: u64,
    #[serde(rename = "type", default)]
    resource_type: String,
    #[serde(default)]
    error_text: String,
    blocked_reason: Option<String>,
    canceled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    body: String,
    base64_encoded: bool,
}

impl Capture {
    /// Handles `Network.requestWillBeSent`.
    pub(super) fn request_sent(&mut self, session: &str, params: &RawValue, is_truncated: bool) {
        let Some(sent) = self.read::<RequestSent>(params) else { return };
        let redirected = sent.redirect_response.and_then(|response| {
            let mut before = self.requests.0.remove(&sent.request_id)?;
            let url = response.url.clone();
            before.response = Some(response);
            self.report_response(session, &sent.request_id, &before, None);
            Some(url)
        });
        let mut event = Event::from_browser("network_request", Category::Network, "Network.requestWillBeSent")
            .at_ms(sent.wall_time * 1000.0)
            .truncated(is_truncated);
        self.sessions.locate_at(&mut event, session, sent.frame_id.as_deref(), Some(&sent.request.url));
        event.put_text("loader_id", &sent.loader_id);
        event.put_text("request_id", &sent.request_id);
        event.put_text("method", &sent.request.method);
        if let Some(body) = &sent.request.post_data {
            let kind = content_type(&sent.request.headers);
            event.put("post_data", beginning(&redacted_body(kind, body), MAX_POST as usize));
        }
        event.put("headers", redacted_headers(sent.request.headers));
        event.put_url("document_url", &sent.document_url);
        event.put_text("initiator_type", &sent.initiator.kind);
        event.put_text("resource_type", &sent.resource_type);
        event.put("is_redirect", redirected.is_some());
        if let Some(url) = &redirected {
            event.put_url("redirect_url", url);
        }
        self.events.add(event);
        if self.requests.0.len() < MAX_REQUESTS {
            let request = Request {
                session: session.to_owned(),
                url: short_url(&sent.request.url).into_owned(),
                method: sent.request.method,
                resource_type: sent.resource_type,
                frame: sent.frame_id,
                loader: sent.loader_id,
                ..Request::default()
            };
            self.requests.0.insert(sent.request_id, request);
            if redirected.is_none() {
                self.add_in_flight(session, 1);
            }
        } else {
            // The response of this request will not be reported.
            self.lose();
            if redirected.is_some() {
                self.finish_requests(session, 1);
            }
        }
    }

    /// Handles `Network.responseReceived`, the head of a response, which is reported once the response is complete.
    pub(super) fn response_received(&mut self, params: &RawValue) {
        let Some(mut received) = self.read::<Received>(params) else { return };
        if let Some(request) = self.requests.0.get_mut(&received.request_id) {
            received.response.headers = redacted_headers(received.response.headers);
            request.response = Some(received.response);
        }
    }

    /// Handles `Network.dataReceived`.
    pub(super) fn data_received(&mut self, params: &RawValue) {
        let Some(progress) = self.read::<Progress>(params) else { return };
        if let Some(request) = self.requests.0.get_mut(&progress.request_id) {
            request.length = request.length.saturating_add(progress.data_length);
        }
    }

    /// Handles `Network.loadingFinished`.
    pub(super) fn loading_finished(&mut self, session: &str, params: &RawValue) {
        let Some(progress) = self.read::<Progress>(params) else { return };
        let Some(request) = self.requests.0.remove(&progress.request_id) else { return };
        self.finish_requests(&request.session, 1);
        let is_text = request.response.as_ref().is_some_and(|response| max_body_bytes(&response.mime_type).is_some());
        if is_text && (1..=MAX_BODY).contains(&request.length) {
            let params = json!({ "requestId": progress.request_id });
            let query = PendingQuery::ResponseBody {
                session: session.to_owned(),
                request: Box::new(request),
                id: progress.request_id,
            };
            self.ask(Some(session), "Network.getResponseBody", params, query);
        } else {
            self.report_response(session, &progress.request_id, &request, None);
        }
    }

    /// Reports a response with its body, if the browser still has it.
    pub(super) fn report_with_body(&mut self, session: &str, id: &str, request: &Request, body: Option<&RawValue>) {
        let body = body.and_then(|body| serde_json::from_str::<Body>(body.get()).ok());
        let text = body.filter(|body| !body.base64_encoded).map(|body| body.body);
        self.report_response(session, id, request, text.as_deref());
    }

    /// Handles `Network.loadingFailed`.
    pub(super) fn loading_failed(&mut self, session: &str, params: &RawValue, is_truncated: bool) {
        let Some(progress) = self.read::<Progress>(params) else { return };
        let request = self.requests.0.remove(&progress.request_id);
        let mut event = Event::from_browser("network_loading_failed", Category::Network, "Network.loadingFailed")
            .truncated(is_truncated);
        if let Some(request) = &request {
            self.finish_requests(&request.session, 1);
            self.locate_request(&mut event, session, request);
        }
        event.put_text("request_id", &progress.request_id);
        let error = match progress.blocked_reason {
            Some(reason) if progress.error_text.is_empty() => format!("blocked: {reason}"),
            _ => progress.error_text,
        };
        // The browser reports the same error for all failed tunnels.
        let why = request.as_ref().and_then(|request| self.failed_tunnels.fault(&request.url, &error));
        if let Some(word) = why.and_then(Fault::word) {
            event.put_text("proxy_failure", word);
        }
        event.put_text("error_text", &error);
        event.put("canceled", progress.canceled.unwrap_or(false));
        event.put_text("resource_type", &progress.resource_type);
        self.events.add(event);
    }

    fn report_response(&self, session: &str, id: &str, request: &Request, body: Option<&str>) {
        let mut event = Event::from_browser("network_response", Category::Network, "Network.loadingFinished");
        self.locate_request(&mut event, session, request);
        event.put_text("request_id", id);
        event.put_text("method", &request.method);
        event.put_text("resource_type", &request.resource_type);
        if let Some(response) = &request.response {
            event.put("status", response.status);
            event.put_text("status_text", &response.status_text);
            event.put("headers", response.headers.clone());
            event.put_text("mime_type", &response.mime_type);
            if let Some((body, max)) = body.zip(max_body_bytes(&response.mime_type)) {
                let body =
                    if max == MAX_DATA_BODY { redacted_response_body(&response.mime_type, body) } else { body.into() };
                let beginning = beginning(&body, max);
                event.put_text("body", beginning);
                event = event.truncated(beginning.len() < body.len());
            }
        }
        self.events.add(event);
    }

    fn locate_request(&self, event: &mut Event, session: &str, request: &Request) {
        self.sessions.locate_at(event, session, request.frame.as_deref(), Some(&request.url));
        event.put_text("loader_id", &request.loader);
    }

    fn add_in_flight(&mut self, session: &str, count: usize) {
        if let Some(root) = self.sessions.root_of(session) {
            root.navigation.in_flight += count;
            root.navigation.idle_at = None;
        }
    }

    /// Counts requests that have finished.
    pub(super) fn finish_requests(&mut self, session: &str, count: usize) {
        let Some(root) = self.sessions.root_of(session) else { return };
        let was = root.navigation.in_flight;
        root.navigation.in_flight = was.saturating_sub(count);
        if was > 0 && root.navigation.in_flight == 0 {
            let at = Instant::now() + IDLE_AFTER;
            root.navigation.idle_at = Some(at);
            let id = root.id.clone();
            self.timers.set(at, Timer::Idle(id));
        }
    }

    /// Reports that the network is idle, if no request was sent meanwhile.
    pub(super) fn idle(&mut self, root: &str) {
        let Some(page) = self.sessions.get_mut(root) else { return };
        match page.navigation.idle_at {
            Some(at) if at <= Instant::now() => page.navigation.idle_at = None,
            _ => return,
        }
        if self.categories.network {
            let mut event = Event::from_browser("network_idle", Category::Network, "Network.loadingFinished");
            self.sessions.locate(&mut event, root, None);
            self.events.add(event);
        }
    }
}

/// Returns the maximum number of captured bytes of a body of this type; `None` if it is no text.
fn max_body_bytes(mime_type: &str) -> Option<usize> {
    let mime_type = mime_type.to_ascii_lowercase();
    let data = ["json", "xml", "x-www-form-urlencoded", "form-data"];
    if data.iter().any(|kind| mime_type.ends_with(kind)) && !mime_type.starts_with("image/") {
        return Some(MAX_DATA_BODY);
    }
    let text = mime_type.starts_with("text/") || mime_type.ends_with("javascript") || mime_type.ends_with("ecmascript");
    text.then_some(MAX_TEXT_BODY)
}

/// Redacts the data in a response, which may contain tokens like a request. XML is no form and stays unchanged.
fn redacted_response_body<'a>(mime_type: &str, body: &'a str) -> Cow<'a, str> {
    if mime_type.to_ascii_lowercase().ends_with("xml") { body.into() } else { redacted_body(mime_type, body) }
}

fn content_type(headers: &Map<String, Value>) -> &str {
    let found = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    found.and_then(|(_, value)| value.as_str()).unwrap_or_default()
}

fn redacted_headers(mut headers: Map<String, Value>) -> Map<String, Value> {
    for (name, value) in &mut headers {
        if is_secret_header(name, value.as_str().unwrap_or_default()) {
            *value = REDACTED.into();
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_captured_length_of_a_body_depends_on_its_type() {
        for data in ["application/json", "application/problem+json", "text/xml", "application/x-www-form-urlencoded"] {
            assert_eq!(max_body_bytes(data), Some(MAX_DATA_BODY), "{data}");
        }
        for text in ["text/html", "text/css", "application/javascript", "TEXT/plain"] {
            assert_eq!(max_body_bytes(text), Some(MAX_TEXT_BODY), "{text}");
        }
        for none in ["image/png", "image/svg+xml", "application/octet-stream", "font/woff2", ""] {
            assert_eq!(max_body_bytes(none), None, "{none}");
        }
    }

    #[test]
    fn a_token_in_a_response_is_redacted() {
        let body = r#"{"access_token":"x","n":1}"#;
        assert_eq!(redacted_response_body("application/json", body), r#"{"access_token":"[redacted]","n":1}"#);
        assert_eq!(redacted_response_body("text/xml", "<password/>"), "<password/>");
    }

    #[test]
    fn headers_with_credentials_are_redacted() {
        let headers = json!({ "Cookie": "a=b", "AUTHORIZATION": "Bearer x", "Accept": "*/*" });
        let Value::Object(headers) = headers else { panic!() };
        let redacted = redacted_headers(headers);
        assert_eq!(
            (&redacted["Cookie"], &redacted["AUTHORIZATION"], &redacted["Accept"]),
            (&json!(REDACTED), &json!(REDACTED), &json!("*/*"))
        );
    }
}
