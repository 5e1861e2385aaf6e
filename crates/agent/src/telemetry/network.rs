//! Requests and what became of them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::capture::{Capture, PendingQuery, Timer};
use super::event::{Event, beginning, short_url};
use super::secrets::{REDACTED, is_secret_header, redacted_body};
use crate::egress::Fault;
use casement_agent_protocol::telemetry::Category;

/// Requests without an answer that are remembered.
pub(super) const MAX_REQUESTS: usize = 10_000;
/// How long nothing is asked before the network counts as idle.
pub(super) const IDLE_AFTER: Duration = Duration::from_millis(500);
/// How much of a body is told, in bytes: of data, and of other text.
const BODY_OF_DATA: usize = 8 << 10;
const BODY_OF_TEXT: usize = 4 << 10;
/// Longest body that the browser is asked for.
const MAX_BODY: u64 = 1 << 20;
/// What the browser keeps of bodies for us, in bytes: of one, and of all of a page.
pub(super) const MAX_BUFFERED_BODY: u64 = 2 << 20;
pub(super) const MAX_BUFFERED_BODIES: u64 = 8 << 20;
/// Longest body of a request that is told, in bytes.
pub(super) const MAX_POST: u64 = 64 << 10;

/// What is known of a request.
#[derive(Debug, Default)]
pub(super) struct Request {
    session: String,
    url: String,
    method: String,
    resource_type: String,
    frame: Option<String>,
    loader: String,
    response: Option<Response>,
    length: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    url: String,
    status: i64,
    status_text: String,
    headers: Map<String, Value>,
    mime_type: String,
}

/// The requests that wait for their answers, by their ids: the script of a worker is asked for in one session and comes in another.
#[derive(Debug, Default)]
pub(super) struct Requests(HashMap<String, Request>);

impl Requests {
    /// Those of a session will never be answered. Returns how many there were.
    pub(super) fn forget(&mut self, session: &str) -> usize {
        let before = self.0.len();
        self.0.retain(|_, request| request.session != session);
        before - self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0 = HashMap::new();
    }
}

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

/// `dataReceived`, `loadingFinished` and `loadingFailed`, as far as each has it.
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
    /// `Network.requestWillBeSent`.
    pub(super) fn request_sent(&mut self, session: &str, params: &RawValue, cut: bool) {
        let Some(sent) = self.read::<RequestSent>(params) else { return };
        let redirected = sent.redirect_response.and_then(|response| {
            let mut before = self.requests.0.remove(&sent.request_id)?;
            let url = response.url.clone();
            before.response = Some(response);
            self.responded(session, &sent.request_id, &before, None);
            Some(url)
        });
        let mut event = Event::reported("network_request", Category::Network, "Network.requestWillBeSent")
            .at_ms(sent.wall_time * 1000.0)
            .cut(cut);
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
        self.buffered.add(event);
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
                self.in_flight(session, 1);
            }
        } else {
            // Its answer will not be known for one.
            self.lose();
            if redirected.is_some() {
                self.landed(session, 1);
            }
        }
    }

    /// `Network.responseReceived`: the head of an answer. It is told when all of it is there.
    pub(super) fn response_received(&mut self, params: &RawValue) {
        let Some(mut received) = self.read::<Received>(params) else { return };
        if let Some(request) = self.requests.0.get_mut(&received.request_id) {
            received.response.headers = redacted_headers(received.response.headers);
            request.response = Some(received.response);
        }
    }

    /// `Network.dataReceived`.
    pub(super) fn data_received(&mut self, params: &RawValue) {
        let Some(progress) = self.read::<Progress>(params) else { return };
        if let Some(request) = self.requests.0.get_mut(&progress.request_id) {
            request.length = request.length.saturating_add(progress.data_length);
        }
    }

    /// `Network.loadingFinished`.
    pub(super) fn loading_finished(&mut self, session: &str, params: &RawValue) {
        let Some(progress) = self.read::<Progress>(params) else { return };
        let Some(request) = self.requests.0.remove(&progress.request_id) else { return };
        self.landed(&request.session, 1);
        let is_text = request.response.as_ref().is_some_and(|response| body_reported(&response.mime_type).is_some());
        if is_text && (1..=MAX_BODY).contains(&request.length) {
            let params = json!({ "requestId": progress.request_id });
            let requested =
                PendingQuery::Body { session: session.to_owned(), request: Box::new(request), id: progress.request_id };
            self.ask(Some(session), "Network.getResponseBody", params, requested);
        } else {
            self.responded(session, &progress.request_id, &request, None);
        }
    }

    /// The body of an answer, or that there is none any more.
    pub(super) fn body_arrived(&mut self, session: &str, id: &str, request: &Request, body: Option<&RawValue>) {
        let body = body.and_then(|body| serde_json::from_str::<Body>(body.get()).ok());
        let text = body.filter(|body| !body.base64_encoded).map(|body| body.body);
        self.responded(session, id, request, text.as_deref());
    }

    /// `Network.loadingFailed`.
    pub(super) fn loading_failed(&mut self, session: &str, params: &RawValue, cut: bool) {
        let Some(progress) = self.read::<Progress>(params) else { return };
        let request = self.requests.0.remove(&progress.request_id);
        let mut event = Event::reported("network_loading_failed", Category::Network, "Network.loadingFailed").cut(cut);
        if let Some(request) = &request {
            self.landed(&request.session, 1);
            self.locate_request(&mut event, session, request);
        }
        event.put_text("request_id", &progress.request_id);
        let error = match progress.blocked_reason {
            Some(reason) if progress.error_text.is_empty() => format!("blocked: {reason}"),
            _ => progress.error_text,
        };
        // The browser has one word for all tunnels that do not come to be.
        let why = request.as_ref().and_then(|request| self.failed_tunnels.why(&request.url, &error));
        if let Some(word) = why.and_then(Fault::word) {
            event.put_text("proxy_failure", word);
        }
        event.put_text("error_text", &error);
        event.put("canceled", progress.canceled.unwrap_or(false));
        event.put_text("resource_type", &progress.resource_type);
        self.buffered.add(event);
    }

    fn responded(&self, session: &str, id: &str, request: &Request, body: Option<&str>) {
        let mut event = Event::reported("network_response", Category::Network, "Network.loadingFinished");
        self.locate_request(&mut event, session, request);
        event.put_text("request_id", id);
        event.put_text("method", &request.method);
        event.put_text("resource_type", &request.resource_type);
        if let Some(response) = &request.response {
            event.put("status", response.status);
            event.put_text("status_text", &response.status_text);
            event.put("headers", response.headers.clone());
            event.put_text("mime_type", &response.mime_type);
            if let Some((body, most)) = body.zip(body_reported(&response.mime_type)) {
                let body = if most == BODY_OF_DATA { answered_body(&response.mime_type, body) } else { body.into() };
                let reported = beginning(&body, most);
                event.put_text("body", reported);
                event = event.cut(reported.len() < body.len());
            }
        }
        self.buffered.add(event);
    }

    fn locate_request(&self, event: &mut Event, session: &str, request: &Request) {
        self.sessions.locate_at(event, session, request.frame.as_deref(), Some(&request.url));
        event.put_text("loader_id", &request.loader);
    }

    fn in_flight(&mut self, session: &str, count: usize) {
        if let Some(root) = self.sessions.root_of(session) {
            root.navigation.in_flight += count;
            root.navigation.idle_at = None;
        }
    }

    /// So many requests are not in flight any more.
    pub(super) fn landed(&mut self, session: &str, count: usize) {
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

    /// Nothing was asked for a while, if the time has come.
    pub(super) fn idle(&mut self, root: &str) {
        let Some(page) = self.sessions.get_mut(root) else { return };
        match page.navigation.idle_at {
            Some(at) if at <= Instant::now() => page.navigation.idle_at = None,
            _ => return,
        }
        if self.on.network {
            let mut event = Event::reported("network_idle", Category::Network, "Network.loadingFinished");
            self.sessions.locate(&mut event, root, None);
            self.buffered.add(event);
        }
    }
}

/// How much of a body of this type is told; none of what is no text.
fn body_reported(mime_type: &str) -> Option<usize> {
    let mime_type = mime_type.to_ascii_lowercase();
    let data = ["json", "xml", "x-www-form-urlencoded", "form-data"];
    if data.iter().any(|kind| mime_type.ends_with(kind)) && !mime_type.starts_with("image/") {
        return Some(BODY_OF_DATA);
    }
    let text = mime_type.starts_with("text/") || mime_type.ends_with("javascript") || mime_type.ends_with("ecmascript");
    text.then_some(BODY_OF_TEXT)
}

/// What is told of the data that a server answers: tokens are answered as often as they are sent. A document is not a form.
fn answered_body<'a>(mime_type: &str, body: &'a str) -> Cow<'a, str> {
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
    fn bodies_are_reported_of_text_and_more_of_data() {
        for data in ["application/json", "application/problem+json", "text/xml", "application/x-www-form-urlencoded"] {
            assert_eq!(body_reported(data), Some(BODY_OF_DATA), "{data}");
        }
        for text in ["text/html", "text/css", "application/javascript", "TEXT/plain"] {
            assert_eq!(body_reported(text), Some(BODY_OF_TEXT), "{text}");
        }
        for none in ["image/png", "image/svg+xml", "application/octet-stream", "font/woff2", ""] {
            assert_eq!(body_reported(none), None, "{none}");
        }
    }

    #[test]
    fn a_token_that_a_server_answers_is_not_reported() {
        let body = r#"{"access_token":"x","n":1}"#;
        assert_eq!(answered_body("application/json", body), r#"{"access_token":"[redacted]","n":1}"#);
        assert_eq!(answered_body("text/xml", "<password/>"), "<password/>");
    }

    #[test]
    fn headers_that_prove_who_somebody_is_are_not_reported() {
        let headers = json!({ "Cookie": "a=b", "AUTHORIZATION": "Bearer x", "Accept": "*/*" });
        let Value::Object(headers) = headers else { panic!() };
        let reported = redacted_headers(headers);
        assert_eq!(
            (&reported["Cookie"], &reported["AUTHORIZATION"], &reported["Accept"]),
            (&json!(REDACTED), &json!(REDACTED), &json!("*/*"))
        );
    }
}
