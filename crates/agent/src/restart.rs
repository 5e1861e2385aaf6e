//! Starting Chromium anew in a session that goes on: who asks for it, and what is refused before anything is touched.

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::reply::{Answer, Refusal, json};
use crate::state::AgentState;
use casement_agent_protocol::extension::{MAX_EXTENSIONS, RestartRequest};
use casement_agent_protocol::{ErrorCode, MAX_SIDE, Status};

/// What becomes of Chromium.
#[derive(Debug)]
pub(crate) enum RestartKind {
    Anew(RestartRequest),
    /// Closed for good.
    Close,
}

/// Somebody waits for that.
#[derive(Debug)]
pub(crate) struct RestartWaiter {
    pub(crate) wish: RestartKind,
    pub(crate) answer: oneshot::Sender<Result<Status, Refusal>>,
}

/// The way from those who ask to the browser's keeper, who does one at a time.
#[derive(Debug)]
pub(crate) struct Restarts {
    ask: mpsc::Sender<RestartWaiter>,
    asked: Mutex<Option<mpsc::Receiver<RestartWaiter>>>,
}

impl Restarts {
    pub(crate) fn new() -> Self {
        let (ask, asked) = mpsc::channel(1);
        Self { ask, asked: Mutex::new(Some(asked)) }
    }

    /// The keeper's end. There is one keeper; dropping this refuses whoever waits.
    pub(crate) fn asked(&self) -> mpsc::Receiver<RestartWaiter> {
        let taken = self.asked.lock().take();
        taken.unwrap_or_else(|| mpsc::channel(1).1)
    }
}

/// `POST /v1/restart`.
pub(crate) async fn serve(core: &AgentState, wish: RestartRequest) -> Answer {
    check(core, &wish).await?;
    let status = ask(core, RestartKind::Anew(wish)).await?;
    Ok(json(StatusCode::OK, &status))
}

/// Has the keeper do it and waits until it is done.
pub(crate) async fn ask(core: &AgentState, wish: RestartKind) -> Result<Status, Refusal> {
    let gone = || Refusal::new(ErrorCode::NotReady, "the browser is gone");
    let (answer, answered) = oneshot::channel();
    core.restarts.ask.send(RestartWaiter { wish, answer }).await.map_err(|_| gone())?;
    answered.await.map_err(|_| gone())?
}

async fn check(core: &AgentState, wish: &RestartRequest) -> Result<(), Refusal> {
    if let Some(viewport) = wish.viewport
        && [viewport.width, viewport.height].iter().any(|side| !(1..=MAX_SIDE).contains(side))
    {
        let message = format!("width and height must be between 1 and {MAX_SIDE}");
        return Err(Refusal::new(ErrorCode::OutOfRange, message));
    }
    if (1..wish.extensions.len()).any(|at| wish.extensions[..at].contains(&wish.extensions[at])) {
        return Err(Refusal::new(ErrorCode::BadRequest, "an extension is named twice"));
    }
    if let Some(unknown) = wish.extensions.iter().find(|name| !core.extensions.waits(name)) {
        let message = format!("no extension {unknown} was added");
        return Err(Refusal::new(ErrorCode::Missing, message));
    }
    if wish.profile && !core.profiles.waits().await {
        return Err(Refusal::new(ErrorCode::Missing, "no profile was loaded"));
    }
    if core.extensions.after(&wish.extensions).len() > MAX_EXTENSIONS {
        let message = format!("a session has at most {MAX_EXTENSIONS} extensions");
        return Err(Refusal::new(ErrorCode::LimitReached, message));
    }
    Ok(())
}
