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
    pub(crate) requested_state: RestartKind,
    pub(crate) answer: oneshot::Sender<Result<Status, Refusal>>,
}

/// The way from those who ask to the browser's keeper, who does one at a time.
#[derive(Debug)]
pub(crate) struct Restarts {
    ask: mpsc::Sender<RestartWaiter>,
    requested: Mutex<Option<mpsc::Receiver<RestartWaiter>>>,
}

impl Restarts {
    pub(crate) fn new() -> Self {
        let (ask, requested) = mpsc::channel(1);
        Self { ask, requested: Mutex::new(Some(requested)) }
    }

    /// The keeper's end. There is one keeper; dropping this refuses whoever waits.
    pub(crate) fn requested(&self) -> mpsc::Receiver<RestartWaiter> {
        let taken = self.requested.lock().take();
        taken.unwrap_or_else(|| mpsc::channel(1).1)
    }
}

/// `POST /v1/restart`.
pub(crate) async fn serve(core: &AgentState, requested_state: RestartRequest) -> Answer {
    check(core, &requested_state).await?;
    let status = ask(core, RestartKind::Anew(requested_state)).await?;
    Ok(json(StatusCode::OK, &status))
}

/// Has the keeper do it and waits until it is done.
pub(crate) async fn ask(core: &AgentState, requested_state: RestartKind) -> Result<Status, Refusal> {
    let gone = || Refusal::new(ErrorCode::NotReady, "the browser is gone");
    let (answer, answered) = oneshot::channel();
    core.restarts.ask.send(RestartWaiter { requested_state, answer }).await.map_err(|_| gone())?;
    answered.await.map_err(|_| gone())?
}

async fn check(core: &AgentState, requested_state: &RestartRequest) -> Result<(), Refusal> {
    if let Some(viewport) = requested_state.viewport
        && [viewport.width, viewport.height].iter().any(|side| !(1..=MAX_SIDE).contains(side))
    {
        let message = format!("width and height must be between 1 and {MAX_SIDE}");
        return Err(Refusal::new(ErrorCode::OutOfRange, message));
    }
    if (1..requested_state.extensions.len())
        .any(|at| requested_state.extensions[..at].contains(&requested_state.extensions[at]))
    {
        return Err(Refusal::new(ErrorCode::BadRequest, "an extension is named twice"));
    }
    if let Some(unknown) = requested_state.extensions.iter().find(|name| !core.extensions.waits(name)) {
        let message = format!("no extension {unknown} was added");
        return Err(Refusal::new(ErrorCode::Missing, message));
    }
    if requested_state.profile && !core.profiles.waits().await {
        return Err(Refusal::new(ErrorCode::Missing, "no profile was loaded"));
    }
    if core.extensions.after(&requested_state.extensions).len() > MAX_EXTENSIONS {
        let message = format!("a session has at most {MAX_EXTENSIONS} extensions");
        return Err(Refusal::new(ErrorCode::LimitReached, message));
    }
    Ok(())
}
