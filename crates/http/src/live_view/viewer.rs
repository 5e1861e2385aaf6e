//! One viewer's socket.

use std::{any::Any, sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, web};
use actix_ws::{AggregatedMessage, AggregatedMessageStream, CloseCode, ProtocolError, Session};
use casement_domain::live_view::DialogAnswer;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, timeout};
use tracing::Instrument as _;

use super::{
    cdp::{Cdp, ConnectError, Lost},
    dialogs::{Dialogs, PageDialogs},
    display::{Display, WholeDisplay},
    input::{self, FromPage, MAX_TEXT},
    screencast::Screencast,
};
use crate::relay::{
    BadHandshake, BrowserConnector, ByteCounter, ClientHandshake, CloseReason, EndSignal, RelayObserver, STALL,
};

/// The longest message of a page: the longest text, every byte of it escaped for JSON.
const MAX_MESSAGE: usize = 2 * MAX_TEXT + 1024;
/// How often changes of the tab list go out at most.
const NEWS_EVERY: Duration = Duration::from_millis(150);
/// How often the browser is asked for the titles of its tabs.
const TITLES_EVERY: Duration = Duration::from_secs(2);
/// How long the session's own reason may take after the browser's connection ended.
const CRASH_GRACE: Duration = Duration::from_secs(1);

/// What a viewer's token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Frames only; whatever else is sent is ignored.
    View,
    /// Mouse, keyboard, text, tabs, and files that are let fall, too. Nothing that names another file or an address.
    Interact,
}

/// One viewer of a session.
pub struct LiveView {
    /// The way into the session.
    pub dial: Arc<dyn BrowserConnector>,
    /// What the viewer may do.
    pub access: Access,
    /// Whether what the viewer does counts now.
    pub may_act: Box<dyn Fn() -> bool>,
    /// The display, of a session that has one: it is shown as a whole. Of others, the tab in front.
    pub display: Option<WholeDisplay>,
    /// The dialogs of its pages, of a session without a display: nothing shows them there.
    pub dialogs: Option<PageDialogs>,
    /// An address with a `view` token, which the page offers for handing on.
    pub view_url: Option<String>,
    /// Ends the view with a reason.
    pub end: EndSignal,
    /// Is told when the view opens and ends.
    pub observer: Option<Box<dyn RelayObserver>>,
    /// Dropped when the view is over: keeps the session from counting as idle.
    pub guard: Box<dyn Any>,
}

/// A live view that did not come about; nothing was answered to the client yet.
#[derive(Debug, thiserror::Error)]
pub enum LiveViewError {
    /// The request is no WebSocket handshake.
    #[error(transparent)]
    Handshake(#[from] BadHandshake),
    /// The browser cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl LiveView {
    /// Connects to the browser, then answers the handshake. The view runs until either side ends.
    ///
    /// # Errors
    /// [`LiveViewError`]; the client has no answer yet.
    pub async fn open(mut self, request: &HttpRequest, payload: web::Payload) -> Result<HttpResponse, LiveViewError> {
        let client = ClientHandshake::read(request)?;
        let cdp = Cdp::connect(self.dial.as_ref()).await?;
        let (response, session, stream) =
            actix_ws::handle(request, payload).map_err(|_| LiveViewError::Handshake(BadHandshake::NoUpgrade))?;
        let stream = stream.max_frame_size(MAX_MESSAGE).aggregate_continuations().max_continuation_size(MAX_MESSAGE);
        let meter = ByteCounter::open("live_view", client.backlog(), self.observer.take());
        actix_web::rt::spawn(self.run(cdp, session, stream, meter).in_current_span());
        Ok(response)
    }

    async fn run(self, cdp: Cdp, session: Session, stream: AggregatedMessageStream, meter: ByteCounter) {
        let end = self.end.clone();
        let closing = session.clone();
        let display = self.display.and_then(Display::new);
        let dialogs = self.dialogs.map(Dialogs::new);
        let mut view = View { access: self.access, may_act: self.may_act, session, display, dialogs };
        let over = tokio::select! {
            reason = end.clone().ended() => Over::Ended(reason),
            over = view.serve(cdp, stream, self.view_url.as_deref()) => over,
        };
        let reason = match over {
            Over::ClientGone => return,
            Over::Ended(reason) => reason,
            Over::BrowserGone => timeout(CRASH_GRACE, end.ended()).await.unwrap_or(CloseReason::Crashed),
        };
        let frame =
            actix_ws::CloseReason { code: CloseCode::from(reason.code()), description: Some(reason.as_str().into()) };
        let told = timeout(CRASH_GRACE, closing.close(Some(frame))).await.is_ok_and(|sent| sent.is_ok());
        meter.ended(reason, told);
    }
}

enum Over {
    ClientGone,
    BrowserGone,
    Ended(CloseReason),
}

impl From<Lost> for Over {
    fn from(_: Lost) -> Self {
        Self::BrowserGone
    }
}

impl From<ProtocolError> for Over {
    fn from(error: ProtocolError) -> Self {
        match error {
            // Closed or reset without a close frame.
            ProtocolError::Io(_) => Self::ClientGone,
            ProtocolError::Overflow => Self::Ended(CloseReason::MessageTooBig),
            _ => Self::Ended(CloseReason::Protocol),
        }
    }
}

struct View {
    access: Access,
    may_act: Box<dyn Fn() -> bool>,
    session: Session,
    display: Option<Display>,
    dialogs: Option<Dialogs>,
}

impl View {
    async fn serve(&mut self, cdp: Cdp, stream: AggregatedMessageStream, view_url: Option<&str>) -> Over {
        match self.follow(cdp, stream, view_url).await {
            Ok(never) => match never {},
            Err(over) => over,
        }
    }

    async fn follow(
        &mut self,
        cdp: Cdp,
        mut stream: AggregatedMessageStream,
        view_url: Option<&str>,
    ) -> Result<std::convert::Infallible, Over> {
        let mut cast = Screencast::start(cdp, self.display.is_some()).await?;
        let hello = json!({
            "t": "hello", "input": self.access == Access::Interact, "view_url": view_url, "display": self.display.is_some(),
        });
        self.tell(&hello).await?;
        let mut news = interval(NEWS_EVERY);
        news.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut titles = interval_at(Instant::now() + TITLES_EVERY, TITLES_EVERY);
        titles.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = stream.recv() => match message {
                    Some(Ok(message)) => self.hear(message, &mut cast).await?,
                    Some(Err(error)) => return Err(error.into()),
                    None => return Err(Over::ClientGone),
                },
                incoming = cast.next() => {
                    if let Some(jpeg) = cast.handle(incoming?).await? {
                        sent(timeout(STALL, self.session.binary(jpeg)).await)?;
                    }
                }
                frame = next_frame(&mut self.display) => {
                    sent(timeout(STALL, self.session.binary(frame)).await)?;
                }
                dialogs = next_dialogs(&mut self.dialogs) => self.tell(&dialogs).await?,
                _ = titles.tick() => cast.ask_titles().await?,
                _ = news.tick() => {
                    let current = cast.current_tab().map(str::to_owned);
                    if let Some(list) = cast.tabs.news(current.as_deref()) {
                        self.tell(&list).await?;
                    }
                }
            }
        }
    }

    async fn tell(&mut self, message: &serde_json::Value) -> Result<(), Over> {
        sent(timeout(STALL, self.session.text(message.to_string())).await)
    }

    async fn hear(&mut self, message: AggregatedMessage, cast: &mut Screencast) -> Result<(), Over> {
        match message {
            AggregatedMessage::Text(text) => match serde_json::from_str(&text) {
                Ok(message) => Ok(self.obey(message, cast).await?),
                Err(_) => Err(Over::Ended(CloseReason::Protocol)),
            },
            AggregatedMessage::Ping(bytes) => sent(timeout(STALL, self.session.pong(&bytes)).await),
            AggregatedMessage::Pong(_) => Ok(()),
            AggregatedMessage::Close(_) => {
                let _ = self.session.clone().close(None).await;
                Err(Over::ClientGone)
            }
            AggregatedMessage::Binary(_) => Err(Over::Ended(CloseReason::Protocol)),
        }
    }

    async fn obey(&mut self, message: FromPage, cast: &mut Screencast) -> Result<(), Lost> {
        let command = match (message, self.access) {
            (FromPage::Ack, _) => match &mut self.display {
                Some(display) => {
                    display.drawn();
                    return Ok(());
                }
                None => return cast.drawn().await,
            },
            (FromPage::Size { w, h }, _) => return cast.fit(w, h).await,
            (_, Access::View) => return Ok(()),
            _ if !(self.may_act)() => return Ok(()),
            (FromPage::Dialog { page, accept, text }, Access::Interact) => {
                if let Some(dialogs) = &self.dialogs {
                    dialogs.answer(DialogAnswer { page, accept, text });
                }
                return Ok(());
            }
            (FromPage::Tab { id }, Access::Interact) => return cast.activate(id).await,
            (FromPage::Drop(dropped), Access::Interact) => {
                return match dropped.is_plain() {
                    true => cast.drop_files(dropped, self.display.as_ref().map(|display| display.size)).await,
                    false => Ok(()),
                };
            }
            (message, Access::Interact) if self.display.is_some() => {
                self.display.as_mut().into_iter().for_each(|display| display.obey(&message));
                None
            }
            (FromPage::Mouse(mouse), Access::Interact) => Some(mouse.command(cast.size)),
            (FromPage::Wheel(wheel), Access::Interact) => Some(wheel.command(cast.size)),
            (FromPage::Key(key), Access::Interact) => key.command(),
            (FromPage::Text { s, .. }, Access::Interact) => input::insert(&s),
        };
        match command {
            Some((method, params)) => cast.on_tab(method, params).await,
            None => Ok(()),
        }
    }
}

/// The next frame of the display; never one, where there is none.
async fn next_frame(display: &mut Option<Display>) -> Vec<u8> {
    match display {
        Some(display) => display.next().await,
        None => std::future::pending().await,
    }
}

/// What dialogs are open; never told, where the display shows them.
async fn next_dialogs(dialogs: &mut Option<Dialogs>) -> serde_json::Value {
    match dialogs {
        Some(dialogs) => dialogs.next().await,
        None => std::future::pending().await,
    }
}

fn sent(result: Result<Result<(), actix_ws::Closed>, tokio::time::error::Elapsed>) -> Result<(), Over> {
    match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Over::ClientGone),
        Err(_) => Err(Over::Ended(CloseReason::SlowReader)),
    }
}
