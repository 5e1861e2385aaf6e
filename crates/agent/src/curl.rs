//! One HTTP request through the browser's network stack, with its cookies, its proxy and its TLS.
//!
//! A page that no client sees begins to open the address, and the debugging protocol holds the request at both ends: on its way out
//! method, headers and body are put in, and the answer is read before the page gets any of it. So no page ever shows it, no rule of
//! pages about other origins applies, a redirect is an answer like any other, and nothing is downloaded. The page lives as long as the
//! connection that made it: however this ends, nothing is left.

use std::io;
use std::sync::{Arc, LazyLock};
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

use crate::cdp::{Cdp, CdpError, Notice};
use crate::egress::{FailedTunnels, Fault, PROXY_STATUS};
use crate::reply::{self, Answer, Refusal, read_within};
use crate::state::AgentState;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::curl::{CurlHead, CurlRequest, REQUEST, Upstream};

/// Requests at once: each has a page of its own.
const MAX_REQUESTS: usize = 8;
/// Longest request: 10 MiB of body in base64.
const MAX_REQUESTED: usize = 15 << 20;
/// How long the browser may take for what needs no network.
const STEP: Duration = Duration::from_secs(20);
/// How long the part of the headers that comes by another way may take.
const EXTRA: Duration = Duration::from_millis(500);
/// How long the next part of a body may take.
const PART: Duration = Duration::from_secs(60);
const PART_BYTES: u32 = 256 << 10;

static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_REQUESTS)));

/// What `/v1/curl/…` answers.
pub(crate) async fn serve(core: &Arc<AgentState>, head: &Parts, body: Incoming) -> Answer {
    if head.uri.path() != REQUEST {
        return Err(Refusal::new(ErrorCode::NotFound, format_args!("no such operation: {}", head.uri.path())));
    }
    let requested: CurlRequest = read_within(body, MAX_REQUESTED).await?;
    let place = Arc::clone(&PLACES).try_acquire_owned();
    let place = place.map_err(|_| {
        Refusal::new(ErrorCode::LimitReached, format_args!("{MAX_REQUESTS} requests of this session are under way"))
    })?;
    core.usable()?;
    let path = core.status().borrow().browser_ws_path.clone();
    let timeout_ms = requested.timeout_ms;
    let asking = async {
        let mut page = Page::open(core.config.debugging_port, &path, place).await?;
        let plain = requested.url.starts_with("http:");
        let head = page.ask(requested, &core.failed_tunnels).await?;
        if plain && let Some(fault) = reported_by_egress(&head) {
            return Err(Refusal::upstream(fault.upstream(), format_args!("the request failed: {}", fault.text())));
        }
        Ok::<_, Refusal>((page, head))
    };
    let requested = tokio::time::timeout(Duration::from_millis(timeout_ms), Box::pin(asking)).await;
    let late = |_| Refusal::new(ErrorCode::TimedOut, format_args!("no answer within {timeout_ms} ms"));
    let (page, head) = requested.map_err(late)??;
    Ok(page.answer(&head))
}

/// A page of its own for one request.
struct Page {
    cdp: Cdp,
    notices: Receiver<Notice>,
    session: String,
    /// The held answer, and where its body is read.
    held: Option<String>,
    body: Option<String>,
    _place: OwnedSemaphorePermit,
}

impl Page {
    async fn open(port: u16, path: &str, place: OwnedSemaphorePermit) -> Result<Self, Refusal> {
        let (cdp, notices) = Cdp::connect(port, path).await.map_err(browser)?;
        let new = json!({ "url": "about:blank", "hidden": true, "background": true });
        let target = cdp.call(None, "Target.createTarget", new, STEP).await.map_err(browser)?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = cdp.call(None, "Target.attachToTarget", attach, STEP).await.map_err(browser)?;
        let session = attached["sessionId"].as_str().unwrap_or_default().to_owned();
        let page = Self { cdp, notices, session, held: None, body: None, _place: place };
        page.call("Network.enable", json!({})).await?;
        // Asked of the network, not of what a site or an earlier visit has left here.
        page.call("Network.setBypassServiceWorker", json!({ "bypass": true })).await?;
        page.call("Network.setCacheDisabled", json!({ "cacheDisabled": true })).await?;
        let stages = ["Request", "Response"].map(|stage| json!({ "urlPattern": "*", "requestStage": stage }));
        page.call("Fetch.enable", json!({ "patterns": stages, "handleAuthRequests": true })).await?;
        Ok(page)
    }

    async fn call(&self, method: &'static str, params: Value) -> Result<Value, Refusal> {
        self.cdp.call(Some(&self.session), method, params, STEP).await.map_err(browser)
    }

    /// Sends the request and waits for the head of the answer.
    async fn ask(&mut self, requested: CurlRequest, tunnels: &FailedTunnels) -> Result<CurlHead, Refusal> {
        let mut cookies = Vec::new();
        let held = self.send(requested, &mut cookies, tunnels).await?;
        self.held = held["requestId"].as_str().map(str::to_owned);
        self.head(&held, cookies).await
    }

    /// Sends the request and answers what is told when the answer is held.
    async fn send(
        &mut self,
        requested: CurlRequest,
        cookies: &mut Vec<(String, Vec<String>)>,
        tunnels: &FailedTunnels,
    ) -> Result<Value, Refusal> {
        let mut requested = Some(requested);
        let url = requested.as_ref().map(|requested| requested.url.clone()).unwrap_or_default();
        let (cdp, session) = (&self.cdp, self.session.as_str());
        // Answers when the navigation has ended, which says more of what failed than the held request does. The time of all this is
        // bounded by who asks.
        let navigation = cdp.call(Some(session), "Page.navigate", json!({ "url": url }), Duration::from_secs(3600));
        let mut navigation = std::pin::pin!(navigation);
        loop {
            let notice = tokio::select! {
                ended = &mut navigation => return Err(failed(ended, |why| tunnels.why(&url, why))),
                notice = self.notices.recv() => notice.ok_or_else(|| browser(CdpError::Closed))?,
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
                    cdp.report(Some(session), "Fetch.continueWithAuth", answer).await.map_err(browser)?;
                }
                "Fetch.requestPaused" if params["responseErrorReason"].is_string() => {
                    let go_on = json!({ "requestId": id });
                    cdp.report(Some(session), "Fetch.continueResponse", go_on).await.map_err(browser)?;
                }
                "Fetch.requestPaused" if params["responseStatusCode"].is_u64() => {
                    return Ok(params);
                }
                "Fetch.requestPaused" => {
                    // Only the first request is the caller's.
                    let changed = match requested.take() {
                        Some(requested) => changed(&params, requested),
                        None => json!({ "requestId": id }),
                    };
                    cdp.call(Some(session), "Fetch.continueRequest", changed, STEP).await.map_err(
                        |error| match error {
                            CdpError::Refused { message, .. } => {
                                Refusal::new(ErrorCode::NotAllowed, message).of_field("headers")
                            }
                            other => browser(other),
                        },
                    )?;
                }
                _ => {}
            }
        }
    }

    async fn head(&mut self, params: &Value, mut cookies: Vec<(String, Vec<String>)>) -> Result<CurlHead, Refusal> {
        // Set-Cookie is left out of what is held, and is told beside it.
        let of = params["networkId"].as_str().unwrap_or_default().to_owned();
        let extra = async {
            while !cookies.iter().any(|(id, _)| *id == of) {
                let Some(notice) = self.notices.recv().await else { return };
                if notice.method == "Network.responseReceivedExtraInfo" {
                    cookies.push(set_cookies(&notice.params));
                }
            }
        };
        if tokio::time::timeout(EXTRA, extra).await.is_err() {
            tracing::debug!("an answer's cookies were not told");
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let listed = params["responseHeaders"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut headers: Vec<_> = listed.iter().map(|header| (text(&header["name"]), text(&header["value"]))).collect();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("set-cookie")) {
            let reported = cookies.into_iter().filter(|(id, _)| *id == of).flat_map(|(_, values)| values);
            headers.extend(reported.map(|value| ("Set-Cookie".to_owned(), value)));
        }
        let status = params["responseStatusCode"].as_u64().and_then(|status| u16::try_from(status).ok());
        let status = status.ok_or_else(|| Refusal::upstream(Upstream::HttpStatus, "an answer without a status"))?;
        self.open_body().await?;
        Ok(CurlHead { status, headers })
    }

    async fn open_body(&mut self) -> Result<(), Refusal> {
        let params = json!({ "requestId": self.held });
        match self.cdp.call(Some(&self.session), "Fetch.takeResponseBodyAsStream", params, STEP).await {
            Ok(opened) => self.body = opened["stream"].as_str().map(str::to_owned),
            // The browser never reads the body of a redirect.
            Err(CdpError::Refused { .. }) => self.body = None,
            Err(error) => return Err(browser(error)),
        }
        Ok(())
    }

    fn answer(self, head: &CurlHead) -> http::Response<reply::Body> {
        let mut line = serde_json::to_vec(head).unwrap_or_default();
        line.push(b'\n');
        let body = stream::try_unfold(self, |mut page| async move { Ok(page.part().await?.map(|part| (part, page))) });
        let first = stream::once(std::future::ready(Ok(Bytes::from(line))));
        reply::stream("application/octet-stream", futures_util::StreamExt::chain(first, body))
    }

    /// The next part of the body.
    async fn part(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(handle) = &self.body {
            let params = json!({ "handle": handle, "size": PART_BYTES });
            let read = self.cdp.call(Some(&self.session), "IO.read", params, PART).await.map_err(io::Error::other)?;
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

/// Why there is no answer of the target: of an address without encryption the way out answers itself when it does not lead there.
fn reported_by_egress(head: &CurlHead) -> Option<Fault> {
    let mut status = head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(PROXY_STATUS));
    status.find_map(|(_, value)| Fault::of(value))
}

/// The caller's request in place of the page's.
fn changed(params: &Value, requested: CurlRequest) -> Value {
    let mut changed = json!({ "requestId": params["requestId"], "method": requested.method });
    if let Some(body) = requested.body_b64 {
        changed["postData"] = Value::from(body);
    }
    if !requested.headers.is_empty() {
        let given = |name: &str| requested.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let own = params["request"]["headers"].as_object().into_iter().flatten();
        let own = own.filter(|(name, _)| !given(name)).map(|(name, value)| json!({ "name": name, "value": value }));
        let theirs = requested.headers.iter().map(|(name, value)| json!({ "name": name, "value": value }));
        changed["headers"] = own.chain(theirs).collect();
    }
    changed
}

/// The cookies that an answer sets, with the request it belongs to.
fn set_cookies(params: &Value) -> (String, Vec<String>) {
    let id = params["requestId"].as_str().unwrap_or_default().to_owned();
    let headers = params["headers"].as_object().into_iter().flatten();
    let set = headers.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let values = set.filter_map(|(_, value)| value.as_str()).flat_map(str::lines).map(str::to_owned);
    (id, values.collect())
}

/// Why a navigation ended before its answer was held. `tunnel` says why there was no tunnel, by the browser's word.
fn failed(ended: Result<Value, CdpError>, tunnel: impl Fn(&str) -> Option<Fault>) -> Refusal {
    match ended {
        Ok(answer) => {
            let why = answer["errorText"].as_str().unwrap_or("the request was not sent");
            match tunnel(why) {
                Some(known) => {
                    let text = known.text();
                    Refusal::upstream(known.upstream(), format_args!("the request failed: {text} ({why})"))
                }
                None => Refusal::upstream(fault(why), format_args!("the request failed: {why}")),
            }
        }
        Err(CdpError::Refused { message, .. }) => {
            Refusal::new(ErrorCode::NotAllowed, format_args!("cannot be opened: {message}")).of_field("url")
        }
        Err(other) => browser(other),
    }
}

/// What failed, by the browser's word for it. Names are looked up by the way out, so that most of what fails is the connection.
fn fault(why: &str) -> Upstream {
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

fn browser(error: CdpError) -> Refusal {
    let code = match error {
        CdpError::Timeout { .. } | CdpError::Closed | CdpError::Connect(_) => ErrorCode::BrowserHung,
        CdpError::Dialog(_) => ErrorCode::InvalidState,
        CdpError::Refused { .. } => ErrorCode::Internal,
    };
    Refusal::new(code, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_reported_by_the_browsers_word() {
        for (word, reported) in [
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
            assert_eq!(fault(word), reported, "{word}");
        }
    }
}
