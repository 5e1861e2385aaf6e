//! Frames of the display, from the agent.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_agent_protocol::view::{self as wire, FRAME, FrameHead, MAX_FRAME_BYTES, NextFrame, WAIT_SECONDS};
use casement_domain::browser::EngineFault;
use casement_domain::ids::BrowserId;
use casement_domain::live_view::{DialogAnswer, Frame, LiveDisplay, OpenDialog, OpenDialogs};
use casement_domain::session_operation::OperationError;

use super::operation_error;
use crate::engine::Engine;
use crate::fault::failed;

/// Added to the agent's wait for a change, to create and transfer a frame.
const FRAME_GRACE: Duration = Duration::from_secs(10);
/// The maximum number of dialogs of one response.
const MAX_DIALOGS: usize = 50;

#[async_trait]
impl LiveDisplay for Engine {
    async fn next_frame(&self, browser: BrowserId, since: Option<u64>) -> Result<Option<Frame>, OperationError> {
        let running = self.running(browser)?;
        let within = Duration::from_secs(WAIT_SECONDS) + FRAME_GRACE;
        let answer =
            async { running.agent.download(FRAME, &NextFrame { since }, within).await?.collect(MAX_FRAME_BYTES).await };
        let late = OperationError::Timeout { seconds: u32::try_from(within.as_secs()).unwrap_or(u32::MAX) };
        let answer = tokio::time::timeout(within, answer).await.map_err(|_| late)?;
        frame(answer.map_err(|error| operation_error(&running, &error))?)
    }

    async fn next_dialogs(&self, browser: BrowserId, since: Option<u64>) -> Result<OpenDialogs, OperationError> {
        let within = Duration::from_secs(WAIT_SECONDS) + FRAME_GRACE;
        let request = wire::NextDialogs { since };
        let received: wire::OpenDialogs = self.agent_call(browser, wire::DIALOGS, &request, within).await?;
        let dialogs = received.dialogs.into_iter().take(MAX_DIALOGS).map(|one| OpenDialog {
            page: one.page,
            kind: one.kind,
            message: one.message,
            default_text: one.default_text,
        });
        Ok(OpenDialogs { state: received.state, dialogs: dialogs.collect() })
    }

    async fn answer_dialog(&self, browser: BrowserId, answer: DialogAnswer) -> Result<(), OperationError> {
        let DialogAnswer { page, accept, text } = answer;
        self.agent_command(browser, wire::ANSWER, &wire::DialogAnswer { page, accept, text }, FRAME_GRACE).await
    }
}

fn frame(mut bytes: Bytes) -> Result<Option<Frame>, OperationError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let head = FrameHead::from_bytes(&bytes)
        .ok_or_else(|| failed(EngineFault::AgentError, "the agent's frame has no head"))?;
    let FrameHead { state, width, height, x, y } = head;
    let jpeg = bytes.split_off(FrameHead::BYTES);
    Ok(Some(Frame { state, width, height, x, y, jpeg }))
}
