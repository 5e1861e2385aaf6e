//! HTTP requests through the browser, sent by the agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::curl::{self as wire, MAX_HEAD_LINE, REQUEST};
use casement_domain::curl::{CurlAnswer, CurlMachine, CurlRequest};
use casement_domain::ids::BrowserId;
use casement_domain::session_operation::OperationError;

use super::lines::{Lines, encoded};
use super::process::{milliseconds, timed};
use crate::engine::Engine;

/// Added to the request's own timeout, so that the agent can report that timeout.
const REPORT_GRACE: Duration = Duration::from_secs(5);

#[async_trait]
impl CurlMachine for Engine {
    async fn send(&self, browser: BrowserId, request: CurlRequest) -> Result<CurlAnswer, OperationError> {
        let running = self.running(browser)?;
        let CurlRequest { url, method, headers, body, within } = request;
        let body_b64 = body.map(|body| encoded(&body));
        let request = wire::CurlRequest { url, method, headers, body_b64, timeout_ms: milliseconds(within) };
        let answer = running.agent.download(REQUEST, &request, within + REPORT_GRACE).await;
        let answer = answer.map_err(|error| match timed(&running, &error, within) {
            OperationError::Timeout { seconds } => OperationError::Unanswered { seconds },
            other => other,
        })?;
        let mut lines = Lines::new(running, answer, MAX_HEAD_LINE);
        let head: wire::CurlHead = lines.first().await?;
        Ok(CurlAnswer { status: head.status, headers: head.headers, body: lines.rest() })
    }
}
