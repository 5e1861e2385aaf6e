//! The live view of a display: the changed part since a viewer's previous frame, as a JPEG.
//!
//! A viewer requests the next frame when it has drawn the previous one. Therefore no frames are queued: a slow viewer
//! sees fewer frames, each of the current display.

mod changes;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use self::watch::Watch;
use crate::browser_handle::BrowserHandle;
use crate::display::{Display, DisplayError};
use crate::reply::{self, Answer, Refusal, read};
use crate::screen_capture::ScreenCapture;
use crate::x11::{Cursor, X11};
use casement_agent_protocol::view::{
    ANSWER, DIALOGS, DialogAnswer, FRAME, FrameHead, NextDialogs, NextFrame, OpenDialogs, WAIT_SECONDS,
};
use casement_agent_protocol::{ErrorCode, Region};

/// The quality of the JPEGs, of 100: text stays readable.
const QUALITY: u8 = 75;
/// The maximum number of waiting viewers. Each holds one of the agent's connections.
const MAX_WAITING: usize = 24;
/// The maximum number of frames per second, regardless of the refresh rate.
const MAX_FRAMES: u32 = 60;

/// The viewers of the session.
#[derive(Debug)]
pub(crate) struct Views {
    browser: BrowserHandle,
    capture: ScreenCapture,
    /// The watch of the display, while there are viewers.
    watch: Mutex<Option<Arc<Watch>>>,
    waiting: Semaphore,
}

impl Views {
    pub(crate) fn new(browser: BrowserHandle, capture: ScreenCapture) -> Self {
        Self { browser, capture, watch: Mutex::default(), waiting: Semaphore::new(MAX_WAITING) }
    }

    /// Serves `/v1/view/…`.
    pub(crate) async fn serve(&self, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            FRAME => self.frame(read(body).await?).await,
            DIALOGS => self.dialogs(read(body).await?).await,
            ANSWER => self.answer(read(body).await?).await,
            other => Err(Refusal::no_operation(other)),
        }
    }

    fn wait_slot(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        let message = format_args!("{MAX_WAITING} viewers wait already");
        self.waiting.try_acquire().map_err(|_| Refusal::new(ErrorCode::LimitReached, message))
    }

    /// Returns the watch of the display, and starts one for the first viewer.
    fn watch(&self, display: &Display) -> Result<Arc<Watch>, Refusal> {
        let mut current = self.watch.lock();
        if let Some(watch) = current.as_ref().filter(|watch| watch.is_active(display.name())) {
            return Ok(Arc::clone(watch));
        }
        let interval = Duration::from_secs(1) / self.browser.viewport().refresh_rate.clamp(1, MAX_FRAMES);
        let watch = Watch::start(display.name(), interval).map_err(|error| Refusal::new(ErrorCode::Internal, error))?;
        *current = Some(Arc::clone(&watch));
        Ok(watch)
    }

    async fn dialogs(&self, request: NextDialogs) -> Answer {
        let running = self.browser.usable()?;
        let _slot = self.wait_slot()?;
        let mut changes = running.browser.dialog_changes();
        let changed = changes.wait_for(|state| request.since != Some(*state));
        drop(tokio::time::timeout(Duration::from_secs(WAIT_SECONDS), changed).await);
        let state = *changes.borrow();
        reply::ok(&OpenDialogs { state, dialogs: running.browser.open_dialogs() })
    }

    async fn answer(&self, request: DialogAnswer) -> Answer {
        let DialogAnswer { page, accept, text } = request;
        let answered = self.browser.usable()?.browser.answer_dialog(&page, accept, &text).await;
        answered.map(|()| reply::empty()).map_err(|error| Refusal::new(ErrorCode::BrowserHung, error))
    }

    async fn frame(&self, request: NextFrame) -> Answer {
        let running = self.browser.usable()?;
        let Some(display) = &running.display else {
            return Err(Refusal::new(ErrorCode::NotSupported, "this session has no display"));
        };
        let _slot = self.wait_slot()?;
        let watch = self.watch(display)?;
        if !watch.wait_for_change(request.since, Duration::from_secs(WAIT_SECONDS)).await {
            return Ok(reply::bytes("application/octet-stream", Bytes::new()));
        }
        let _capture_slot = self.capture.slot().await;
        let x11 = display.x11();
        let encoded = tokio::task::spawn_blocking(move || encode_change(&x11, &watch, request.since)).await;
        let failed = |error: &dyn std::fmt::Display| Refusal::new(ErrorCode::Internal, error);
        let frame = encoded.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        Ok(reply::bytes("application/octet-stream", frame))
    }
}

/// Encodes the part of the display that changed after `since`, as it is now.
fn encode_change(x11: &X11, watch: &Watch, since: Option<u64>) -> Result<Vec<u8>, String> {
    let text = |error: DisplayError| error.to_string();
    let (width, height) = x11.size().map_err(text)?;
    let (state, area) = watch.since(since, (width, height));
    let area = area.aligned(width, height);
    let region = Region { x: area.left, y: area.top, width: area.width(), height: area.height() };
    let mut pixels = Vec::new();
    x11.capture(region, Cursor::Shown, &mut pixels).map_err(text)?;
    let side = |side: u32| u16::try_from(side).map_err(|error| error.to_string());
    let head = FrameHead { state, width: side(width)?, height: side(height)?, x: side(area.left)?, y: side(area.top)? };
    let mut frame = head.to_bytes().to_vec();
    jpeg_encoder::Encoder::new(&mut frame, QUALITY)
        .encode(&pixels, side(region.width)?, side(region.height)?, jpeg_encoder::ColorType::Bgra)
        .map_err(|error| error.to_string())?;
    Ok(frame)
}
