//! The WebSocket of one viewer.

use std::{any::Any, convert::Infallible, sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, web};
use actix_ws::{AggregatedMessage, AggregatedMessageStream, CloseCode, ProtocolError, Session};
use casement_domain::live_view::DialogAnswer;
use futures_util::stream;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, timeout};
use tracing::Instrument as _;

use super::{
    cdp::{Cdp, ConnectError, Disconnected},
    dialogs::{Dialogs, PageDialogs},
    display::{Display, DisplayUpdate, WholeDisplay},
    input::{self, MAX_TEXT_BYTES, PageMessage},
    screencast::Screencast,
};
use crate::relay::{
    BadHandshake, BrowserConnector, ByteCounter, ClientHandshake, CloseReason, EndSignal, RelayObserver, STALL_TIMEOUT,
};

/// The maximum size of a message of the page, in bytes: the longest text with every byte escaped for JSON.
const MAX_MESSAGE_BYTES: usize = 2 * MAX_TEXT_BYTES + 1024;
/// The minimum interval between updates of the tab list.
const TABS_INTERVAL: Duration = Duration::from_millis(150);
/// The interval at which the titles of the tabs are requested.
const TITLES_INTERVAL: Duration = Duration::from_secs(2);
/// The maximum wait for the end reason of the session after the browser's connection ended.
const CRASH_REASON_TIMEOUT: Duration = Duration::from_secs(1);

/// The access that a viewer's token grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Frames only; input is ignored.
    View,
    /// Also mouse, keyboard, text, tabs and dropped uploads, but no other files and no URLs.
    Interact,
}

/// One viewer of a session.
pub struct LiveView {
    /// Connects to the session's browser.
    pub connector: Arc<dyn BrowserConnector>,
    /// The access of the viewer.
    pub access: Access,
    /// Returns whether input of the viewer is accepted now.
    pub may_act: Box<dyn Fn() -> bool>,
    /// The display, if the session has one; it is shown whole. Otherwise the tab in front is shown.
    pub display: Option<WholeDisplay>,
    /// The dialogs of the pages, if the session has no display that shows them.
    pub dialogs: Option<PageDialogs>,
    /// A URL with a `view` token, which the page offers for sharing.
    pub view_url: Option<String>,
    /// The interval of pings, which keep the connection open without frames.
    pub ping_interval: Duration,
    /// Ends the view with a reason.
    pub end: EndSignal,
    /// Observes the opening and the end of the view.
    pub observer: Option<Box<dyn RelayObserver>>,
    /// Dropped when the view ends; keeps the session from counting as idle.
    pub guard: Box<dyn Any>,
}

/// Accepts the handshake of a viewer for whom the session has no place, and closes with the reason: a page of a browser is
/// not told the status of a refused handshake.
///
/// # Errors
/// [`BadHandshake`]; no response was sent to the client yet.
pub(crate) fn refuse_view(request: &HttpRequest) -> Result<HttpResponse, BadHandshake> {
    let client = ClientHandshake::read(request)?;
    let reason = CloseReason::TooManyViewers;
    ByteCounter::open("live_view", client.backlog(), None).ended(reason, true);
    Ok(client.accept().streaming(stream::iter([Ok::<_, Infallible>(reason.frame())])))
}

/// A live view could not be opened; no response was sent to the client yet.
#[derive(Debug, thiserror::Error)]
pub enum LiveViewError {
    /// The request is not a WebSocket handshake.
    #[error(transparent)]
    Handshake(#[from] BadHandshake),
    /// The browser cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl LiveView {
    /// Connects to the browser, then accepts the handshake. The view runs until either side ends.
    ///
    /// # Errors
    /// [`LiveViewError`]; no response was sent to the client yet.
    pub async fn open(mut self, request: &HttpRequest, payload: web::Payload) -> Result<HttpResponse, LiveViewError> {
        let client = ClientHandshake::read(request)?;
        let cdp = Cdp::connect(self.connector.as_ref()).await?;
        let (response, session, stream) =
            actix_ws::handle(request, payload).map_err(|_| LiveViewError::Handshake(BadHandshake::NoUpgrade))?;
        let stream =
            stream.max_frame_size(MAX_MESSAGE_BYTES).aggregate_continuations().max_continuation_size(MAX_MESSAGE_BYTES);
        let counter = ByteCounter::open("live_view", client.backlog(), self.observer.take());
        actix_web::rt::spawn(self.run(cdp, session, stream, counter).in_current_span());
        Ok(response)
    }

    async fn run(self, cdp: Cdp, session: Session, stream: AggregatedMessageStream, counter: ByteCounter) {
        let end = self.end.clone();
        let closing = session.clone();
        let display = self.display.and_then(Display::new);
        let dialogs = self.dialogs.map(Dialogs::new);
        let (access, may_act, ping_interval) = (self.access, self.may_act, self.ping_interval);
        let mut view = View { access, may_act, session, display, dialogs, ping_interval };
        let end_of_view = tokio::select! {
            reason = end.clone().ended() => ViewEnd::Closed(reason),
            Err(end_of_view) = view.run(cdp, stream, self.view_url.as_deref()) => end_of_view,
        };
        let reason = match end_of_view {
            ViewEnd::ClientDisconnected => return,
            ViewEnd::Closed(reason) => reason,
            ViewEnd::BrowserDisconnected => {
                timeout(CRASH_REASON_TIMEOUT, end.ended()).await.unwrap_or(CloseReason::Crashed)
            }
        };
        let frame =
            actix_ws::CloseReason { code: CloseCode::from(reason.code()), description: Some(reason.as_str().into()) };
        let frame_sent = timeout(CRASH_REASON_TIMEOUT, closing.close(Some(frame))).await.is_ok_and(|sent| sent.is_ok());
        counter.ended(reason, frame_sent);
    }
}

/// The reason why a view ended.
enum ViewEnd {
    ClientDisconnected,
    BrowserDisconnected,
    Closed(CloseReason),
}

impl From<Disconnected> for ViewEnd {
    fn from(_: Disconnected) -> Self {
        Self::BrowserDisconnected
    }
}

impl From<ProtocolError> for ViewEnd {
    fn from(error: ProtocolError) -> Self {
        match error {
            // The connection was closed or reset without a close frame.
            ProtocolError::Io(_) => Self::ClientDisconnected,
            ProtocolError::Overflow => Self::Closed(CloseReason::MessageTooBig),
            _ => Self::Closed(CloseReason::Protocol),
        }
    }
}

struct View {
    access: Access,
    may_act: Box<dyn Fn() -> bool>,
    session: Session,
    display: Option<Display>,
    dialogs: Option<Dialogs>,
    ping_interval: Duration,
}

impl View {
    async fn run(
        &mut self,
        cdp: Cdp,
        mut stream: AggregatedMessageStream,
        view_url: Option<&str>,
    ) -> Result<Infallible, ViewEnd> {
        let mut cast = Screencast::start(cdp, self.display.is_some()).await?;
        let hello = json!({
            "t": "hello", "input": self.access == Access::Interact, "view_url": view_url, "display": self.display.is_some(),
        });
        self.send(&hello).await?;
        let mut tabs = interval(TABS_INTERVAL);
        tabs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut titles = interval_at(Instant::now() + TITLES_INTERVAL, TITLES_INTERVAL);
        titles.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pings = interval_at(Instant::now() + self.ping_interval, self.ping_interval);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = stream.recv() => match message {
                    Some(Ok(message)) => self.receive(message, &mut cast).await?,
                    Some(Err(error)) => return Err(error.into()),
                    None => return Err(ViewEnd::ClientDisconnected),
                },
                incoming = cast.next() => {
                    if let Some(jpeg) = cast.handle(incoming?).await? {
                        send_result(timeout(STALL_TIMEOUT, self.session.binary(jpeg)).await)?;
                    }
                }
                update = next_update(&mut self.display) => match update {
                    DisplayUpdate::Frame(frame) => {
                        send_result(timeout(STALL_TIMEOUT, self.session.binary(frame)).await)?;
                    }
                    DisplayUpdate::Unavailable => self.send(&json!({ "t": "unavailable" })).await?,
                },
                _ = pings.tick() => send_result(timeout(STALL_TIMEOUT, self.session.ping(b"")).await)?,
                dialogs = next_dialogs(&mut self.dialogs) => self.send(&dialogs).await?,
                _ = titles.tick() => cast.request_titles().await?,
                _ = tabs.tick() => {
                    let current = cast.current_tab().map(str::to_owned);
                    if let Some(list) = cast.tabs.take_update(current.as_deref()) {
                        self.send(&list).await?;
                    }
                }
            }
        }
    }

    async fn send(&mut self, message: &serde_json::Value) -> Result<(), ViewEnd> {
        send_result(timeout(STALL_TIMEOUT, self.session.text(message.to_string())).await)
    }

    async fn receive(&mut self, message: AggregatedMessage, cast: &mut Screencast) -> Result<(), ViewEnd> {
        match message {
            AggregatedMessage::Text(text) => match serde_json::from_str(&text) {
                Ok(message) => Ok(self.handle(message, cast).await?),
                Err(_) => Err(ViewEnd::Closed(CloseReason::Protocol)),
            },
            AggregatedMessage::Ping(bytes) => send_result(timeout(STALL_TIMEOUT, self.session.pong(&bytes)).await),
            AggregatedMessage::Pong(_) => Ok(()),
            AggregatedMessage::Close(_) => {
                let _ = self.session.clone().close(None).await;
                Err(ViewEnd::ClientDisconnected)
            }
            AggregatedMessage::Binary(_) => Err(ViewEnd::Closed(CloseReason::UnsupportedData)),
        }
    }

    async fn handle(&mut self, message: PageMessage, cast: &mut Screencast) -> Result<(), Disconnected> {
        let command = match (message, self.access) {
            (PageMessage::Ack, _) => match &mut self.display {
                Some(display) => {
                    display.drawn();
                    return Ok(());
                }
                None => return cast.drawn().await,
            },
            (PageMessage::Size { w, h }, _) => return cast.set_bounds(w, h).await,
            (_, Access::View) => return Ok(()),
            _ if !(self.may_act)() => return Ok(()),
            (PageMessage::Dialog { page, accept, text }, Access::Interact) => {
                if let Some(dialogs) = &self.dialogs {
                    dialogs.answer(DialogAnswer { page, accept, text });
                }
                return Ok(());
            }
            (PageMessage::Tab { id }, Access::Interact) => return cast.activate(id).await,
            (PageMessage::Drop(dropped), Access::Interact) => {
                return match dropped.is_plain() {
                    true => cast.drop_files(dropped, self.display.as_ref().map(|display| display.size)).await,
                    false => Ok(()),
                };
            }
            (message, Access::Interact) if self.display.is_some() => {
                self.display.as_mut().into_iter().for_each(|display| display.handle(&message));
                None
            }
            (PageMessage::Mouse(mouse), Access::Interact) => Some(mouse.command(cast.size)),
            (PageMessage::Wheel(wheel), Access::Interact) => Some(wheel.command(cast.size)),
            (PageMessage::Key(key), Access::Interact) => key.command(),
            (PageMessage::Text { s, .. }, Access::Interact) => input::insert_text(&s),
        };
        match command {
            Some((method, params)) => cast.send_to_tab(method, params).await,
            None => Ok(()),
        }
    }
}

/// Waits for the next frame of the display; forever if there is no display.
async fn next_update(display: &mut Option<Display>) -> DisplayUpdate {
    match display {
        Some(display) => display.next().await,
        None => std::future::pending().await,
    }
}

/// Waits for a change of the open dialogs; forever, if the display shows them.
async fn next_dialogs(dialogs: &mut Option<Dialogs>) -> serde_json::Value {
    match dialogs {
        Some(dialogs) => dialogs.next().await,
        None => std::future::pending().await,
    }
}

fn send_result(result: Result<Result<(), actix_ws::Closed>, tokio::time::error::Elapsed>) -> Result<(), ViewEnd> {
    match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(ViewEnd::ClientDisconnected),
        Err(_) => Err(ViewEnd::Closed(CloseReason::SlowReader)),
    }
}
