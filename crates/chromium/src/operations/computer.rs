//! Computer control by the agent.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_agent_protocol::client::ClientError;
use casement_agent_protocol::computer::{self as wire, MAX_CLIPBOARD_BYTES, Perform};
use casement_domain::browser::EngineFault;
use casement_domain::computer::{
    Action, ActionError, Button, ClickKind, Computer, Drag, DragMotion, KeySym, MousePath, Move, Point,
};
use casement_domain::ids::BrowserId;
use casement_domain::session_operation::OperationError;
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;

use super::operation_error;
use super::process::milliseconds;
use crate::engine::Engine;
use crate::fault::failed;

/// The timeout of requests that the agent answers from memory, including the wait for earlier requests.
const QUICK_TIMEOUT: Duration = Duration::from_secs(15);
/// The timeout of clipboard requests. The clipboard page may have to be created, and each step of the agent has a
/// timeout of its own.
const CLIPBOARD_TIMEOUT: Duration = Duration::from_secs(60);

/// An empty response.
#[derive(Deserialize)]
struct Empty {}

#[async_trait]
impl Computer for Engine {
    async fn perform(&self, browser: BrowserId, actions: Vec<Action>, within: Duration) -> Result<(), ActionError> {
        let running = self.running(browser).map_err(OperationError::from)?;
        let request = Perform { actions: actions.into_iter().map(action).collect() };
        let done = running.agent.command("/v1/computer/perform", &request, within).await;
        done.map_err(|error| ActionError { at: at(&error), error: operation_error(&running, &error) })
    }

    async fn mouse(&self, browser: BrowserId) -> Result<Point, OperationError> {
        let wire::Point { x, y } = self.agent_call(browser, "/v1/computer/mouse", &(), QUICK_TIMEOUT).await?;
        Ok(Point { x, y })
    }

    async fn write_clipboard(&self, browser: BrowserId, text: String) -> Result<(), OperationError> {
        let running = self.running(browser)?;
        let content = stream::iter([Ok(Bytes::from(text))]);
        let written =
            running.agent.upload::<Empty>("/v1/computer/clipboard/write", &(), content, CLIPBOARD_TIMEOUT).await;
        written.map(drop).map_err(|error| operation_error(&running, &error))
    }

    async fn read_clipboard(&self, browser: BrowserId) -> Result<String, OperationError> {
        let path = "/v1/computer/clipboard/read";
        let (running, mut download) = self.agent_download(browser, path, &(), CLIPBOARD_TIMEOUT).await?;
        let mut text = Vec::new();
        while let Some(part) = download.next().await {
            text.extend_from_slice(&part.map_err(|error| operation_error(&running, &error))?);
            if text.len() > MAX_CLIPBOARD_BYTES {
                return Err(failed(EngineFault::AgentError, "the agent sent more of the clipboard than allowed").into());
            }
        }
        let unreadable = |_| failed(EngineFault::AgentError, "the agent sent a clipboard that is not text");
        Ok(String::from_utf8(text).map_err(unreadable)?)
    }
}

/// Returns the index of the failed action from the agent's error: `actions[3]`.
fn at(error: &ClientError) -> Option<usize> {
    let ClientError::Refused(body) = error else { return None };
    body.field.as_deref()?.strip_prefix("actions[")?.strip_suffix(']')?.parse().ok()
}

fn action(action: Action) -> wire::Action {
    match action {
        Action::Click(click) => wire::Action::Click {
            at: point(click.at),
            button: button(click.button),
            kind: match click.kind {
                ClickKind::Click => wire::ClickKind::Click,
                ClickKind::Down => wire::ClickKind::Down,
                ClickKind::Up => wire::ClickKind::Up,
            },
            times: click.times,
            hold: keys(&click.hold),
        },
        Action::Move(Move { to, way, hold }) => {
            let (smooth, duration_ms) = match way {
                MousePath::Straight => (false, None),
                MousePath::Smooth(duration) => (true, duration.map(milliseconds)),
            };
            wire::Action::Move { to: point(to), smooth, duration_ms, hold: keys(&hold) }
        }
        Action::Drag(drag) => dragged(drag),
        Action::Scroll(scroll) => wire::Action::Scroll {
            at: point(scroll.at),
            right: scroll.right,
            down: scroll.down,
            hold: keys(&scroll.hold),
        },
        Action::Press(press) => wire::Action::Press {
            chords: press.chords.iter().map(|chord| keys(chord.keys())).collect(),
            duration_ms: milliseconds(press.duration),
            hold: keys(&press.hold),
        },
        Action::Type(typed) => wire::Action::Type { text: typed.text, delay_ms: milliseconds(typed.delay) },
        Action::Key { key, down } => wire::Action::Key { key: key.value(), down },
        Action::Cursor { hidden } => wire::Action::Cursor { hidden },
        Action::Sleep(duration) => wire::Action::Sleep { duration_ms: milliseconds(duration) },
    }
}

fn dragged(drag: Drag) -> wire::Action {
    let (smooth, duration_ms, steps_per_segment, step_delay) = match drag.motion {
        DragMotion::Steps { per_segment, delay } => (false, None, per_segment, delay),
        DragMotion::Smooth(duration) => (true, duration.map(milliseconds), 1, Duration::ZERO),
    };
    wire::Action::Drag {
        path: drag.path.into_iter().map(point).collect(),
        button: button(drag.button),
        delay_ms: milliseconds(drag.delay),
        step_delay_ms: milliseconds(step_delay),
        steps_per_segment,
        smooth,
        duration_ms,
        hold: keys(&drag.hold),
    }
}

const fn point(Point { x, y }: Point) -> wire::Point {
    wire::Point { x, y }
}

const fn button(button: Button) -> wire::Button {
    match button {
        Button::Left => wire::Button::Left,
        Button::Middle => wire::Button::Middle,
        Button::Right => wire::Button::Right,
        Button::Back => wire::Button::Back,
        Button::Forward => wire::Button::Forward,
    }
}

fn keys(keys: &[KeySym]) -> Vec<u32> {
    keys.iter().map(|key| key.value()).collect()
}
