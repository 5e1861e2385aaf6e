//! Computer control: one mouse, one keyboard and one clipboard for whoever calls.
//!
//! Calls are done one after the other in the order they came. A call that breaks off, because its caller went or because something
//! failed, lets go of what it holds before the next one begins.

mod announce;
mod clipboard;
mod display_input;
mod input_devices;
mod keyboard;
mod page_input;
mod path;
mod perform;
mod signs;
mod us_keys;

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::reply::{self, Answer, Body, Refusal};
use crate::state::{AgentState, Live};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::computer::{Action, MAX_CLIPBOARD_BYTES, Perform};

use clipboard::{Clipboard, ClipboardError};
use input_devices::{InputDevices, InputError};
use perform::{Work, let_go};

/// A key, by the number of the X11 symbol on it.
type KeySym = u32;

/// Callers who wait for their turn, and the one whose turn it is.
const MAX_CALLERS: usize = 17;
/// Longest list of actions, as JSON: a hundred texts.
const MAX_ACTIONS_BYTES: usize = 16 << 20;
/// How long the clipboard's page stays after its last use.
const CLIPBOARD_STAYS: Duration = Duration::from_secs(60);

/// The hands and the clipboard's page of the browser that runs.
#[derive(Debug)]
pub(crate) struct Computer {
    callers: Arc<Semaphore>,
    hands: Arc<Mutex<Option<BrowserScoped<InputDevices>>>>,
    clipboard: Arc<Mutex<Option<BrowserScoped<Clipboard>>>>,
}

/// Something that belongs to one browser, and is worth nothing for the next.
#[derive(Debug)]
struct BrowserScoped<T> {
    of: Weak<Live>,
    what: T,
    /// How often it was used.
    uses: u64,
}

impl<T> BrowserScoped<T> {
    fn new(live: &Arc<Live>, what: T) -> Self {
        Self { of: Arc::downgrade(live), what, uses: 0 }
    }

    fn belongs_to(&self, live: &Arc<Live>) -> bool {
        std::ptr::eq(self.of.as_ptr(), Arc::as_ptr(live))
    }
}

impl Default for Computer {
    fn default() -> Self {
        Self { callers: Arc::new(Semaphore::new(MAX_CALLERS)), hands: Arc::default(), clipboard: Arc::default() }
    }
}

fn live(core: &AgentState) -> Result<Arc<Live>, Refusal> {
    core.usable()
}

/// `POST /v1/computer/…`.
pub(crate) async fn serve(core: &Arc<AgentState>, head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        "/v1/computer/perform" => perform(core, reply::read_within(body, MAX_ACTIONS_BYTES).await?).await,
        "/v1/computer/mouse" => mouse(core).await,
        "/v1/computer/clipboard/write" => write_clipboard(core, text(body).await?).await,
        "/v1/computer/clipboard/read" => read_clipboard(core).await,
        _ => Err(Refusal::new(ErrorCode::NotFound, "computer control has no such operation")),
    }
}

async fn perform(core: &Arc<AgentState>, requested: Perform) -> Answer {
    let busy = |_| Refusal::new(ErrorCode::LimitReached, format_args!("{} callers wait already", MAX_CALLERS - 1));
    let place = Arc::clone(&core.computer.callers).try_acquire_owned().map_err(busy)?;
    let gone = CancellationToken::new();
    // Dropped with this future, when the caller goes.
    let _caller = gone.clone().drop_guard();
    let core = Arc::clone(core);
    let work = tokio::spawn(async move {
        let done = in_turn(&core, requested.actions, &gone).await;
        drop(place);
        done
    });
    work.await.unwrap_or_else(|error| Err(Refusal::new(ErrorCode::Internal, error)))?;
    Ok(reply::empty())
}

/// Waits for the turn, does all of it, and lets go where it broke off.
async fn in_turn(core: &AgentState, actions: Vec<Action>, gone: &CancellationToken) -> Result<(), Refusal> {
    let turn = tokio::select! {
        turn = core.computer.hands.lock() => turn,
        () = gone.cancelled() => return Err(InputError::Gone.into()),
    };
    let mut turn = turn;
    let live = live(core)?;
    if !turn.as_ref().is_some_and(|buffered| buffered.belongs_to(&live)) {
        *turn = Some(BrowserScoped::new(&live, InputDevices::of(&live)));
    }
    let Some(buffered) = turn.as_mut() else { return Ok(()) };
    let hands = &mut buffered.what;
    let mut pressed = Vec::new();
    for (index, action) in actions.iter().enumerate() {
        let done = Work { hands: &mut *hands, pressed: &mut pressed, gone }.act(action).await;
        if let Err(error) = done {
            let_go(hands, &mut pressed).await;
            return Err(Refusal::from(error).of_field(format!("actions[{index}]")));
        }
    }
    Ok(())
}

async fn mouse(core: &AgentState) -> Answer {
    let live = live(core)?;
    let mut turn = core.computer.hands.lock().await;
    if !turn.as_ref().is_some_and(|buffered| buffered.belongs_to(&live)) {
        *turn = Some(BrowserScoped::new(&live, InputDevices::of(&live)));
    }
    let Some(buffered) = turn.as_ref() else { return Ok(reply::empty()) };
    reply::ok(&buffered.what.mouse().await?)
}

/// The clipboard's text, as it is the body.
async fn text(body: Incoming) -> Result<String, Refusal> {
    let bytes = Limited::new(body, MAX_CLIPBOARD_BYTES).collect().await;
    let bytes = bytes.map_err(|error| Refusal::new(ErrorCode::TooLarge, error))?.to_bytes();
    String::from_utf8(bytes.into()).map_err(|error| Refusal::new(ErrorCode::BadRequest, error))
}

async fn write_clipboard(core: &Arc<AgentState>, text: String) -> Answer {
    let mut buffered = core.computer.clipboard.lock().await;
    let clipboard = clipboard(core, &mut buffered).await?;
    let written = clipboard.write(&text).await;
    close_before_clients_see(core, &mut buffered);
    written?;
    Ok(reply::empty())
}

async fn read_clipboard(core: &Arc<AgentState>) -> Answer {
    let mut buffered = core.computer.clipboard.lock().await;
    let clipboard = clipboard(core, &mut buffered).await?;
    let read = clipboard.read().await;
    close_before_clients_see(core, &mut buffered);
    let text = read?;
    let response: Response<Body> = reply::bytes("text/plain; charset=utf-8", Bytes::from(text));
    Ok(response)
}

/// A WebDriver client has the clipboard's page among its windows: while there may be one, the page goes at once.
fn close_before_clients_see(core: &AgentState, buffered: &mut Option<BrowserScoped<Clipboard>>) {
    if core.chromedriver.is_running() {
        *buffered = None;
    }
}

/// The clipboard's page: the one that is there, or a new one. It goes when nobody has used it for a while.
async fn clipboard<'k>(
    core: &Arc<AgentState>,
    buffered: &'k mut Option<BrowserScoped<Clipboard>>,
) -> Result<&'k Clipboard, Refusal> {
    let live = live(core)?;
    let usable = match buffered.as_ref() {
        Some(page) => page.belongs_to(&live) && page.what.is_there().await,
        None => false,
    };
    if !usable {
        *buffered = None;
        let path = core.status().borrow().browser_ws_path.clone();
        *buffered = Some(BrowserScoped::new(&live, Clipboard::open(core.config.debugging_port, &path).await?));
    }
    let page = buffered.as_mut().ok_or_else(|| Refusal::new(ErrorCode::Internal, "the clipboard has no page"))?;
    page.uses += 1;
    let (uses, all) = (page.uses, Arc::downgrade(&core.computer.clipboard));
    tokio::spawn(async move {
        tokio::time::sleep(CLIPBOARD_STAYS).await;
        if let Some(all) = all.upgrade() {
            let mut buffered = all.lock().await;
            if buffered.as_ref().is_some_and(|page| page.uses == uses) {
                *buffered = None;
            }
        }
    });
    Ok(&page.what)
}

impl From<ClipboardError> for Refusal {
    fn from(error: ClipboardError) -> Self {
        let code = match &error {
            ClipboardError::TooLong => ErrorCode::TooLarge,
            ClipboardError::Refused(_) | ClipboardError::Browser(crate::cdp::CdpError::Refused { .. }) => {
                ErrorCode::Failed
            }
            ClipboardError::Browser(_) => ErrorCode::BrowserHung,
        };
        Self::new(code, error)
    }
}
