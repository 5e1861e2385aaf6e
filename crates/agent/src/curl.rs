//! One HTTP request through the browser's network stack, with its cookies, its proxy and its TLS.
//!
//! A hidden page, or one in the background of a remote browser, navigates to the URL, and the debugging protocol pauses
//! its request twice: before it is sent, to set the method, the headers and the body, and when the response arrives, to
//! read it instead of the page. Therefore no page shows the response, the same-origin policy does not apply, a redirect
//! is an ordinary response, and nothing is downloaded. The page closes after its response.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::browser_handle::BrowserHandle;
use crate::cdp::{Cdp, CdpError, Endpoint, Notice, text};
use crate::egress::{FailedTunnels, Fault, PROXY_STATUS};
use crate::own_page;
use crate::reply::{self, Answer, Refusal, line, read_within};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::curl::{CurlHead, CurlRequest, REQUEST, Upstream};

/// The maximum number of concurrent requests; each has its own page.
const MAX_REQUESTS: usize = 8;
/// The maximum size of a request in bytes: a body of 10 MiB in base64.
const MAX_REQUEST_BYTES: usize = 15 << 20;
/// The timeout of calls that need no network.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout of the notice with the cookies.
const COOKIES_TIMEOUT: Duration = Duration::from_millis(500);
/// The timeout of the next part of a body.
const PART_TIMEOUT: Duration = Duration::from_secs(60);
const PART_BYTES: u32 = 256 << 10;

/// Sends HTTP requests through the browser.
#[derive(Debug)]
pub(crate) struct Curl {
    browser: BrowserHandle,
    failed_tunnels: Arc<FailedTunnels>,
    slots: Arc<Semaphore>,
}

impl Curl {
    pub(crate) fn new(browser: BrowserHandle, failed_tunnels: Arc<FailedTunnels>) -> Self {
        Self { browser, failed_tunnels, slots: Arc::new(Semaphore::new(MAX_REQUESTS)) }
    }

    /// Serves `/v1/curl/…`.
    pub(crate) async fn serve(&self, head: &Parts, body: Incoming) -> Answer {
        if head.uri.path() != REQUEST {
            return Err(Refusal::no_operation(head.uri.path()));
        }
        let request: CurlRequest = read_within(body, MAX_REQUEST_BYTES).await?;
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| {
            let message = format_args!("{MAX_REQUESTS} requests of this session are under way");
            Refusal::new(ErrorCode::LimitReached, message)
        })?;
        self.browser.usable()?;
        let timeout_ms = request.timeout_ms;
        let exchange = async {
            let mut page = Page::open(&self.browser.endpoint(), slot).await?;
            // A remote browser does not use the egress proxy.
            let is_plain = request.url.starts_with("http:") && !self.browser.is_remote();
            let head = page.exchange(request, &self.failed_tunnels).await?;
            if is_plain && let Some(fault) = egress_fault(&head) {
                return Err(Refusal::upstream(fault.upstream(), format_args!("the request failed: {}", fault.text())));
            }
            Ok::<_, Refusal>((page, head))
        };
        let exchanged = tokio::time::timeout(Duration::from_millis(timeout_ms), Box::pin(exchange)).await;
        let late = |_| Refusal::new(ErrorCode::TimedOut, format_args!("no answer within {timeout_ms} ms"));
        let (page, head) = exchanged.map_err(late)??;
        Ok(page.response(&head))
    }
}

/// The hidden page of one request.
struct Page {
    cdp: Arc<Cdp>,
    /// A hidden page closes with its connection, any other one with this value.
    _tab: Option<Tab>,
    notices: Receiver<Notice>,
    session: String,
    /// The id of the paused response.
    paused_id: Option<String>,
    /// The handle of the response's body stream.
    body: Option<String>,
    _slot: OwnedSemaphorePermit,
}

/// A page that is closed when this value is dropped.
struct Tab {
    cdp: Arc<Cdp>,
    target: String,
}

impl Drop for Tab {
    fn drop(&mut self) {
        let (cdp, target) = (Arc::clone(&self.cdp), std::mem::take(&mut self.target));
        tokio::spawn(async move {
            // A page that cannot be closed is gone, or its browser is.
            drop(cdp.call(None, "Target.closeTarget", json!({ "targetId": target }), STEP_TIMEOUT).await);
        });
    }
}

impl Page {
    async fn open(endpoint: &Endpoint, slot: OwnedSemaphorePermit) -> Result<Self, Refusal> {
        let (cdp, notices) = Cdp::connect(endpoint).await?;
        let cdp = Arc::new(cdp);
        let created = cdp.call(None, "Target.createTarget", own_page::hidden(endpoint), STEP_TIMEOUT).await?;
        let target = text(&created["targetId"]).to_owned();
        let tab = endpoint.is_remote().then(|| Tab { cdp: Arc::clone(&cdp), target: target.clone() });
        let session = cdp.attach(&target, STEP_TIMEOUT).await?;
        let page = Self { cdp, _tab: tab, notices, session, paused_id: None, body: None, _slot: slot };
        page.call("Network.enable", json!({})).await?;
        // Neither a service worker nor the cache may answer.
        page.call("Network.setBypassServiceWorker", json!({ "bypass": true })).await?;
        page.call("Network.setCacheDisabled", json!({ "cacheDisabled": true })).await?;
        let stages = ["Request", "Response"].map(|stage| json!({ "urlPattern": "*", "requestStage": stage }));
        page.call("Fetch.enable", json!({ "patterns": stages, "handleAuthRequests": true })).await?;
        Ok(page)
    }

    async fn call(&self, method: &'static str, params: Value) -> Result<Value, Refusal> {
        Ok(self.cdp.call(Some(&self.session), method, params, STEP_TIMEOUT).await?)
    }

    /// Sends the request and waits for the head of the response.
    async fn exchange(&mut self, request: CurlRequest, tunnels: &FailedTunnels) -> Result<CurlHead, Refusal> {
        let mut cookies = Vec::new();
        let paused = self.send(request, &mut cookies, tunnels).await?;
        self.paused_id = paused["requestId"].as_str().map(str::to_owned);
        self.head(&paused, cookies).await
    }

    /// Sends the request and returns the notice of its paused response.
    async fn send(
        &mut self,
        request: CurlRequest,
        cookies: &mut Vec<(String, Vec<String>)>,
        tunnels: &FailedTunnels,
    ) -> Result<Value, Refusal> {
        let url = request.url.clone();
        let mut request = Some(request);
        let (cdp, session) = (&self.cdp, self.session.as_str());
        // The result of the navigation describes a failure in more detail than the paused request. The caller bounds
        // the time.
        let navigation = cdp.call(Some(session), "Page.navigate", json!({ "url": url }), Duration::from_secs(3600));
        let mut navigation = std::pin::pin!(navigation);
        loop {
            let notice = tokio::select! {
                ended = &mut navigation => return Err(navigation_failure(ended, |error| tunnels.fault(&url, error))),
                notice = self.notices.recv() => notice.ok_or_else(|| Refusal::from(CdpError::Closed))?,
            };
            if notice.session.as_deref() != Some(session) {
                continue;
            }
            let params = notice.params;
            let id = &params["requestId"];
            match notice.method.as_str() {
                "Network.responseReceivedExtraInfo" => cookies.push(set_cookies(&params)),
                "Fetch.authRequired" => {
                    let answer = json!({ "requestId": id, "authChallengeResponse": { "response": "CancelAuth" } });
                    cdp.send(Some(session), "Fetch.continueWithAuth", answer).await?;
                }
                "Fetch.requestPaused" if params["responseErrorReason"].is_string() => {
                    let resume = json!({ "requestId": id });
                    cdp.send(Some(session), "Fetch.continueResponse", resume).await?;
                }
                "Fetch.requestPaused" if params["responseStatusCode"].is_u64() => {
                    return Ok(params);
                }
                "Fetch.requestPaused" => {
                    // Only the first request is the caller's.
                    let changed = match request.take() {
                        Some(request) => changed_request(&params, request),
                        None => json!({ "requestId": id }),
                    };
                    cdp.call(Some(session), "Fetch.continueRequest", changed, STEP_TIMEOUT).await.map_err(|error| {
                        match error {
                            CdpError::Refused { message, .. } => {
                                Refusal::new(ErrorCode::NotAllowed, message).of_field("headers")
                            }
                            other => other.into(),
                        }
                    })?;
                }
                _ => {}
            }
        }
    }

    async fn head(&mut self, params: &Value, mut cookies: Vec<(String, Vec<String>)>) -> Result<CurlHead, Refusal> {
        // `Set-Cookie` is missing in the paused response, and reported in a notice of its own.
        let id = text(&params["networkId"]).to_owned();
        let extra = async {
            while !cookies.iter().any(|(request, _)| *request == id) {
                let Some(notice) = self.notices.recv().await else { return };
                if notice.method == "Network.responseReceivedExtraInfo" {
                    cookies.push(set_cookies(&notice.params));
                }
            }
        };
        if tokio::time::timeout(COOKIES_TIMEOUT, extra).await.is_err() {
            tracing::debug!("the browser did not report the cookies of a response");
        }
        let listed = params["responseHeaders"].as_array().map(Vec::as_slice).unwrap_or_default();
        let owned = |value: &Value| text(value).to_owned();
        let mut headers: Vec<_> = listed.iter().map(|one| (owned(&one["name"]), owned(&one["value"]))).collect();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("set-cookie")) {
            let values = cookies.into_iter().filter(|(request, _)| *request == id).flat_map(|(_, values)| values);
            headers.extend(values.map(|value| ("Set-Cookie".to_owned(), value)));
        }
        let status = params["responseStatusCode"].as_u64().and_then(|status| u16::try_from(status).ok());
        let status = status.ok_or_else(|| Refusal::upstream(Upstream::HttpStatus, "an answer without a status"))?;
        self.open_body().await?;
        Ok(CurlHead { status, headers })
    }

    async fn open_body(&mut self) -> Result<(), Refusal> {
        let params = json!({ "requestId": self.paused_id });
        match self.cdp.call(Some(&self.session), "Fetch.takeResponseBodyAsStream", params, STEP_TIMEOUT).await {
            Ok(opened) => self.body = opened["stream"].as_str().map(str::to_owned),
            // The browser never reads the body of a redirect.
            Err(CdpError::Refused { .. }) => self.body = None,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn response(self, head: &CurlHead) -> http::Response<reply::Body> {
        let first = line(head);
        let body = stream::try_unfold(self, |mut page| async move { Ok(page.part().await?.map(|part| (part, page))) });
        let first = stream::once(std::future::ready(Ok(first)));
        reply::stream("application/octet-stream", futures_util::StreamExt::chain(first, body))
    }

    /// Returns the next part of the body.
    async fn part(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(handle) = &self.body {
            let params = json!({ "handle": handle, "size": PART_BYTES });
            let read =
                self.cdp.call(Some(&self.session), "IO.read", params, PART_TIMEOUT).await.map_err(io::Error::other)?;
            let data = read["data"].as_str().unwrap_or_default();
            let part = match read["base64Encoded"] == true {
                true => STANDARD.decode(data).map_err(io::Error::other)?,
                false => data.as_bytes().to_vec(),
            };
            if read["eof"] == true {
                self.body = None;
            }
            if !part.is_empty() {
                return Ok(Some(part.into()));
            }
        }
        Ok(None)
    }
}

/// Returns the fault that the egress proxy reports instead of the target's response. It does so for plain HTTP only.
fn egress_fault(head: &CurlHead) -> Option<Fault> {
    let mut status = head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(PROXY_STATUS));
    status.find_map(|(_, value)| Fault::of(value))
}

/// Returns the parameters that replace the page's request by the caller's.
fn changed_request(params: &Value, request: CurlRequest) -> Value {
    let mut changed = json!({ "requestId": params["requestId"], "method": request.method });
    if let Some(body) = request.body_b64 {
        changed["postData"] = Value::from(body);
    }
    if !request.headers.is_empty() {
        let given = |name: &str| request.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let own = params["request"]["headers"].as_object().into_iter().flatten();
        let own = own.filter(|(name, _)| !given(name)).map(|(name, value)| json!({ "name": name, "value": value }));
        let added = request.headers.iter().map(|(name, value)| json!({ "name": name, "value": value }));
        changed["headers"] = own.chain(added).collect();
    }
    changed
}

/// Returns the cookies that a response sets, with the id of its request.
fn set_cookies(params: &Value) -> (String, Vec<String>) {
    let id = params["requestId"].as_str().unwrap_or_default().to_owned();
    let headers = params["headers"].as_object().into_iter().flatten();
    let set = headers.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let values = set.filter_map(|(_, value)| value.as_str()).flat_map(str::lines).map(str::to_owned);
    (id, values.collect())
}

/// Returns the refusal of a navigation that ended before its response was paused. `tunnel_fault` looks up the reason of
/// a failed tunnel by the browser's error.
fn navigation_failure(ended: Result<Value, CdpError>, tunnel_fault: impl Fn(&str) -> Option<Fault>) -> Refusal {
    match ended {
        Ok(answer) => {
            let why = answer["errorText"].as_str().unwrap_or("the request was not sent");
            match tunnel_fault(why) {
                Some(known) => {
                    let text = known.text();
                    Refusal::upstream(known.upstream(), format_args!("the request failed: {text} ({why})"))
                }
                None => Refusal::upstream(upstream_fault(why), format_args!("the request failed: {why}")),
            }
        }
        Err(CdpError::Refused { message, .. }) => {
            Refusal::new(ErrorCode::NotAllowed, format_args!("cannot be opened: {message}")).of_field("url")
        }
        Err(other) => other.into(),
    }
}

/// Classifies an error of the browser. The egress proxy resolves names, so most failures are those of the connection.
fn upstream_fault(why: &str) -> Upstream {
    let word = why.strip_prefix("net::ERR_").unwrap_or(why);
    match word {
        _ if word.starts_with("NAME_") || word.starts_with("DNS_") => Upstream::Dns,
        _ if ["SSL_", "CERT_", "BAD_SSL_", "ECH_"].iter().any(|tls| word.starts_with(tls)) => Upstream::Tls,
        _ if word.starts_with("PROXY_") || word.contains("_PROXY_") => Upstream::Proxy,
        _ if ["INVALID_", "EMPTY_", "RESPONSE_", "HTTP2_", "CONTENT_"].iter().any(|no| word.starts_with(no)) => {
            Upstream::HttpStatus
        }
        _ => Upstream::Connect,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_browsers_error_decides_the_fault() {
        for (word, upstream) in [
            ("net::ERR_NAME_NOT_RESOLVED", Upstream::Dns),
            ("net::ERR_CONNECTION_REFUSED", Upstream::Connect),
            ("net::ERR_TUNNEL_CONNECTION_FAILED", Upstream::Connect),
            ("net::ERR_CERT_AUTHORITY_INVALID", Upstream::Tls),
            ("net::ERR_SSL_PROTOCOL_ERROR", Upstream::Tls),
            ("net::ERR_PROXY_CONNECTION_FAILED", Upstream::Proxy),
            ("net::ERR_EMPTY_RESPONSE", Upstream::HttpStatus),
            ("net::ERR_INVALID_HTTP_RESPONSE", Upstream::HttpStatus),
            ("a word of tomorrow", Upstream::Connect),
        ] {
            assert_eq!(upstream_fault(word), upstream, "{word}");
        }
    }
}
