//! The live view of a display: what changed since a viewer looked last, as a JPEG.
//!
//! A viewer asks for the next frame when it has drawn the one before. So nothing waits in a queue: one that is slow sees fewer
//! frames, each as the display is when it is made.

mod changes;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::watch::Watch;
use crate::display::Display;
use crate::reply::{self, Answer, Refusal, read};
use crate::state::AgentState;
use crate::x11::{Cursor, X11};
use casement_agent_protocol::view::{
    ANSWER, DIALOGS, DialogAnswer, FRAME, FrameHead, NextDialogs, NextFrame, OpenDialogs, WAIT_SECONDS,
};
use casement_agent_protocol::{ErrorCode, Region, Viewport};

/// Quality of the pictures, of 100: text stays readable.
const QUALITY: u8 = 75;
/// Viewers that wait for a frame at once. Each holds one of the agent's connections.
const MAX_WAITING: usize = 24;
/// The most frames per second, whatever the viewport says.
const MAX_FRAMES: u32 = 60;

/// What watches the display while somebody looks.
#[derive(Debug)]
pub(crate) struct Views {
    watch: Mutex<Option<Arc<Watch>>>,
    waiting: Semaphore,
}

impl Default for Views {
    fn default() -> Self {
        Self { watch: Mutex::default(), waiting: Semaphore::new(MAX_WAITING) }
    }
}

impl Views {
    /// The watch over this display, begun if nobody looked before.
    fn over(&self, display: &Display, viewport: Viewport) -> Result<Arc<Watch>, Refusal> {
        let mut buffered = self.watch.lock();
        if let Some(watch) = buffered.as_ref().filter(|watch| watch.goes_on(display.name())) {
            return Ok(Arc::clone(watch));
        }
        let pace = Duration::from_secs(1) / viewport.refresh_rate.clamp(1, MAX_FRAMES);
        let watch = Watch::begin(display.name(), pace).map_err(|error| Refusal::new(ErrorCode::Internal, error))?;
        *buffered = Some(Arc::clone(&watch));
        Ok(watch)
    }
}

/// The operations of `/v1/view/…`.
pub(crate) async fn serve(core: &Arc<AgentState>, head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        FRAME => frame(core, read(body).await?).await,
        DIALOGS => dialogs(core, read(body).await?).await,
        ANSWER => answer(core, read(body).await?).await,
        other => Err(Refusal::new(ErrorCode::NotFound, format_args!("no such operation: {other}"))),
    }
}

async fn dialogs(core: &AgentState, requested: NextDialogs) -> Answer {
    let live = core.usable()?;
    let Ok(_waiting) = core.views.waiting.try_acquire() else {
        return Err(Refusal::new(ErrorCode::LimitReached, format_args!("{MAX_WAITING} viewers wait already")));
    };
    let mut changes = live.browser.dialog_changes();
    let news = changes.wait_for(|state| requested.since != Some(*state));
    drop(tokio::time::timeout(Duration::from_secs(WAIT_SECONDS), news).await);
    let state = *changes.borrow();
    reply::ok(&OpenDialogs { state, dialogs: live.browser.open_dialogs() })
}

async fn answer(core: &AgentState, requested: DialogAnswer) -> Answer {
    let answered = core.usable()?.browser.answer_dialog(&requested.page, requested.accept, &requested.text).await;
    answered.map(|()| reply::empty()).map_err(|error| Refusal::new(ErrorCode::BrowserHung, error))
}

async fn frame(core: &Arc<AgentState>, requested: NextFrame) -> Answer {
    let live = core.usable()?;
    let Some(display) = &live.display else {
        return Err(Refusal::new(ErrorCode::NotSupported, "this session has no display"));
    };
    let Ok(_waiting) = core.views.waiting.try_acquire() else {
        return Err(Refusal::new(ErrorCode::LimitReached, format_args!("{MAX_WAITING} viewers wait already")));
    };
    let watch = core.views.over(display, core.viewport())?;
    if !watch.changed(requested.since, Duration::from_secs(WAIT_SECONDS)).await {
        return Ok(reply::bytes("application/octet-stream", Bytes::new()));
    }
    let _place = core.pictures.acquire().await;
    let x11 = display.x11();
    let made = tokio::task::spawn_blocking(move || picture(&x11, &watch, requested.since)).await;
    let failed = |error: &dyn std::fmt::Display| Refusal::new(ErrorCode::Internal, error);
    let made = made.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    Ok(reply::bytes("application/octet-stream", made))
}

/// What changed, as it is now.
fn picture(x11: &X11, watch: &Watch, since: Option<u64>) -> Result<Vec<u8>, String> {
    let text = |error: crate::display::DisplayError| error.to_string();
    let (width, height) = x11.size().map_err(text)?;
    let (state, area) = watch.since(since, (width, height));
    let area = area.aligned(width, height);
    let region = Region { x: area.left, y: area.top, width: area.width(), height: area.height() };
    let mut pixels = Vec::new();
    x11.capture(region, Cursor::Shown, &mut pixels).map_err(text)?;
    let side = |side: u32| u16::try_from(side).map_err(|error| error.to_string());
    let head = FrameHead { state, width: side(width)?, height: side(height)?, x: side(area.left)?, y: side(area.top)? };
    let mut made = head.to_bytes().to_vec();
    jpeg_encoder::Encoder::new(&mut made, QUALITY)
        .encode(&pixels, side(region.width)?, side(region.height)?, jpeg_encoder::ColorType::Bgra)
        .map_err(|error| error.to_string())?;
    Ok(made)
}
