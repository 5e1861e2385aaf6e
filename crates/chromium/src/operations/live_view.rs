//! Frames of the display, from the agent.

use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use casement_agent_protocol::view::{self as wire, FRAME, FrameHead, MAX_FRAME_BYTES, NextFrame, WAIT_SECONDS};
use casement_domain::browser::EngineFault;
use casement_domain::ids::BrowserId;
use casement_domain::live_view::{DialogAnswer, Frame, LiveDisplay, OpenDialog, OpenDialogs};
use casement_domain::session_operation::OperationError;
use futures_util::StreamExt as _;

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
        let answer = async {
            let mut content = running.agent.download(FRAME, &NextFrame { since }, within).await?;
            let mut bytes = BytesMut::with_capacity(content.length.unwrap_or(0).min(MAX_FRAME_BYTES as u64) as usize);
            while let Some(part) = content.next().await.transpose()? {
                if bytes.len() + part.len() > MAX_FRAME_BYTES {
                    return Err(casement_agent_protocol::client::ClientError::TooLong);
                }
                bytes.extend_from_slice(&part);
            }
            Ok(bytes.freeze())
        };
        let late = OperationError::Timeout { seconds: u32::try_from(within.as_secs()).unwrap_or(u32::MAX) };
        let answer = tokio::time::timeout(within, answer).await.map_err(|_| late)?;
        frame(answer.map_err(|error| operation_error(&running, &error))?)
    }

    async fn next_dialogs(&self, browser: BrowserId, since: Option<u64>) -> Result<OpenDialogs, OperationError> {
        let running = self.running(browser)?;
        let within = Duration::from_secs(WAIT_SECONDS) + FRAME_GRACE;
        let received: wire::OpenDialogs = running
            .agent
            .call(wire::DIALOGS, &wire::NextDialogs { since }, within)
            .await
            .map_err(|error| operation_error(&running, &error))?;
        let dialogs = received.dialogs.into_iter().take(MAX_DIALOGS).map(|one| OpenDialog {
            page: one.page,
            kind: one.kind,
            message: one.message,
            default_text: one.default_text,
        });
        Ok(OpenDialogs { state: received.state, dialogs: dialogs.collect() })
    }

    async fn answer_dialog(&self, browser: BrowserId, answer: DialogAnswer) -> Result<(), OperationError> {
        let running = self.running(browser)?;
        let DialogAnswer { page, accept, text } = answer;
        let answer = wire::DialogAnswer { page, accept, text };
        running
            .agent
            .command(wire::ANSWER, &answer, FRAME_GRACE)
            .await
            .map_err(|error| operation_error(&running, &error))
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
