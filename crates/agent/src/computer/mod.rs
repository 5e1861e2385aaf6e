//! Computer control: the mouse, the keyboard and the clipboard of the session.
//!
//! Calls are performed one after the other, in order of arrival. A call that is cancelled or fails releases all keys
//! and buttons that it holds before the next one begins.

mod announce;
mod browser_keys;
mod clipboard;
mod composer;
mod display_input;
mod input_devices;
mod input_error;
mod key_sym;
mod keyboard;
mod look;
mod page_input;
mod path;
mod perform;
mod select_list;
pub(crate) mod signs;
mod us_keys;

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::request::Parts;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::browser_handle::{BrowserHandle, RunningBrowser};
use crate::chromedriver::Chromedriver;
use crate::reply::{self, Answer, Refusal};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::computer::{Action, MAX_CLIPBOARD_BYTES, Perform};

use clipboard::{Clipboard, ClipboardError};
use input_devices::InputDevices;
use input_error::InputError;
use perform::{Performer, release_all};

/// The maximum number of callers: those that wait, and the one whose turn it is.
const MAX_CALLERS: usize = 17;
/// The maximum size of a list of actions as JSON, in bytes: a hundred texts.
const MAX_ACTIONS_BYTES: usize = 16 << 20;
/// The time after its last use at which the clipboard's page closes.
const CLIPBOARD_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The input devices and the clipboard's page of the running browser.
#[derive(Debug)]
pub(crate) struct Computer {
    browser: BrowserHandle,
    chromedriver: Arc<Chromedriver>,
    callers: Arc<Semaphore>,
    devices: Mutex<Option<BrowserScoped<InputDevices>>>,
    clipboard: Arc<Mutex<Option<BrowserScoped<Clipboard>>>>,
}

/// A value that belongs to one browser and is useless for the next.
#[derive(Debug)]
struct BrowserScoped<T> {
    owner: Weak<RunningBrowser>,
    value: T,
    /// The number of uses of the value.
    uses: u64,
}

impl<T> BrowserScoped<T> {
    fn new(owner: &Arc<RunningBrowser>, value: T) -> Self {
        Self { owner: Arc::downgrade(owner), value, uses: 0 }
    }

    fn belongs_to(&self, running: &Arc<RunningBrowser>) -> bool {
        std::ptr::eq(self.owner.as_ptr(), Arc::as_ptr(running))
    }
}

impl Computer {
    pub(crate) fn new(browser: BrowserHandle, chromedriver: Arc<Chromedriver>) -> Self {
        let (devices, clipboard) = Default::default();
        Self { browser, chromedriver, callers: Arc::new(Semaphore::new(MAX_CALLERS)), devices, clipboard }
    }

    /// Serves `POST /v1/computer/…`.
    pub(crate) async fn serve(self: &Arc<Self>, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            "/v1/computer/perform" => self.perform(reply::read_within(body, MAX_ACTIONS_BYTES).await?).await,
            "/v1/computer/mouse" => self.mouse().await,
            "/v1/computer/clipboard/write" => self.write_clipboard(text(body).await?).await,
            "/v1/computer/clipboard/read" => self.read_clipboard().await,
            other => Err(Refusal::no_operation(other)),
        }
    }

    async fn perform(self: &Arc<Self>, request: Perform) -> Answer {
        let busy = |_| Refusal::new(ErrorCode::LimitReached, format_args!("{} callers wait already", MAX_CALLERS - 1));
        let slot = Arc::clone(&self.callers).try_acquire_owned().map_err(busy)?;
        let cancelled = CancellationToken::new();
        // Dropped with this future, when the caller disconnects.
        let _caller = cancelled.clone().drop_guard();
        let computer = Arc::clone(self);
        let work = tokio::spawn(async move {
            let performed = computer.perform_in_turn(request.actions, &cancelled).await;
            drop(slot);
            performed
        });
        work.await.unwrap_or_else(|error| Err(Refusal::new(ErrorCode::Internal, error)))?;
        Ok(reply::empty())
    }

    /// Waits for the turn, performs all actions, and releases everything if one fails.
    async fn perform_in_turn(&self, actions: Vec<Action>, cancelled: &CancellationToken) -> Result<(), Refusal> {
        let mut devices = tokio::select! {
            devices = self.devices.lock() => devices,
            () = cancelled.cancelled() => return Err(InputError::Cancelled.into()),
        };
        let devices = self.current_devices(&mut devices)?;
        let mut pressed = Vec::new();
        for (index, action) in actions.iter().enumerate() {
            let performed =
                Performer { devices: &mut *devices, pressed: &mut pressed, cancelled }.perform(action).await;
            if let Err(error) = performed {
                release_all(devices, &mut pressed).await;
                return Err(Refusal::from(error).of_field(format!("actions[{index}]")));
            }
        }
        Ok(())
    }

    async fn mouse(&self) -> Answer {
        let mut devices = self.devices.lock().await;
        reply::ok(&self.current_devices(&mut devices)?.mouse().await?)
    }

    /// Returns the input devices of the running browser.
    fn current_devices<'d>(
        &self,
        devices: &'d mut Option<BrowserScoped<InputDevices>>,
    ) -> Result<&'d mut InputDevices, Refusal> {
        let running = self.browser.usable()?;
        if !devices.as_ref().is_some_and(|devices| devices.belongs_to(&running)) {
            *devices = None;
        }
        Ok(&mut devices.get_or_insert_with(|| BrowserScoped::new(&running, InputDevices::of(&running))).value)
    }

    async fn write_clipboard(&self, text: String) -> Answer {
        let mut page = self.clipboard.lock().await;
        let written = self.clipboard(&mut page).await?.write(&text).await;
        self.close_before_clients_see(&mut page);
        written?;
        Ok(reply::empty())
    }

    async fn read_clipboard(&self) -> Answer {
        let mut page = self.clipboard.lock().await;
        let text = self.clipboard(&mut page).await?.read().await;
        self.close_before_clients_see(&mut page);
        Ok(reply::bytes("text/plain; charset=utf-8", text?))
    }

    /// Closes the clipboard's page if there may be a WebDriver client, which sees the page among its windows.
    fn close_before_clients_see(&self, page: &mut Option<BrowserScoped<Clipboard>>) {
        if self.chromedriver.is_running() {
            *page = None;
        }
    }

    /// Returns the clipboard's page, the current one or a new one. It closes when it was not used for a while.
    async fn clipboard<'p>(&self, page: &'p mut Option<BrowserScoped<Clipboard>>) -> Result<&'p Clipboard, Refusal> {
        let running = self.browser.usable()?;
        let is_usable = match page.as_ref() {
            Some(page) => page.belongs_to(&running) && page.value.is_open().await,
            None => false,
        };
        if !is_usable {
            *page = None;
            *page = Some(BrowserScoped::new(&running, Clipboard::open(&self.browser.endpoint()).await?));
        }
        let page = page.as_mut().ok_or_else(|| Refusal::new(ErrorCode::Internal, "the clipboard has no page"))?;
        page.uses += 1;
        let (uses, clipboard) = (page.uses, Arc::downgrade(&self.clipboard));
        tokio::spawn(async move {
            tokio::time::sleep(CLIPBOARD_IDLE_TIMEOUT).await;
            if let Some(clipboard) = clipboard.upgrade() {
                let mut page = clipboard.lock().await;
                if page.as_ref().is_some_and(|page| page.uses == uses) {
                    *page = None;
                }
            }
        });
        Ok(&page.value)
    }
}

/// Reads the clipboard's text, which is the plain body.
async fn text(body: Incoming) -> Result<String, Refusal> {
    let bytes = Limited::new(body, MAX_CLIPBOARD_BYTES).collect().await;
    let bytes = bytes.map_err(|error| Refusal::new(ErrorCode::TooLarge, error))?.to_bytes();
    String::from_utf8(bytes.into()).map_err(|error| Refusal::new(ErrorCode::BadRequest, error))
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
