//! One viewer's side of a whole display: its frames, and what the viewer does with it.

use std::{sync::Arc, time::Duration};

use casement_domain::{
    BrowserId,
    computer::Computers,
    live_view::{Frame, LiveDisplay},
    session::Session,
    session_operation::OperationError,
};
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::{input::FromPage, viewer_input::ViewerInput};

/// Frames under way to the page. More would only be old when they arrive; fewer would leave a slow line idle.
const MAX_IN_FLIGHT: usize = 2;
/// How long after a failure the display is asked again: it may be starting anew.
const RETRY_BACKOFF: Duration = Duration::from_millis(500);

/// The way to the display of a session that has one.
#[derive(Clone)]
pub struct WholeDisplay {
    /// Shows it.
    pub frames: Arc<dyn LiveDisplay>,
    /// Mouse, keyboard and clipboard.
    pub computers: Computers,
    /// Whose it is.
    pub session: Session,
}

type Coming = BoxFuture<'static, Result<Option<Frame>, OperationError>>;

/// A display as one viewer follows it.
pub(super) struct Display {
    frames: Arc<dyn LiveDisplay>,
    browser: BrowserId,
    hands: ViewerInput,
    /// What the viewer has been sent.
    seen: Option<u64>,
    in_flight: usize,
    coming: Option<Coming>,
    pub(super) size: (u32, u32),
}

impl Display {
    /// `None` for a session without a browser.
    pub(super) fn new(way: WholeDisplay) -> Option<Self> {
        let browser = way.session.browser?;
        let viewport = way.session.shape.viewport;
        Some(Self {
            frames: way.frames,
            browser,
            hands: ViewerInput::new(way.computers, way.session),
            seen: None,
            in_flight: 0,
            coming: None,
            size: (viewport.width, viewport.height),
        })
    }

    /// The next frame for the page, as a message: the size of the display and the place of the part, then the part. Waits while the page
    /// has enough to draw; safe to drop while it waits.
    pub(super) async fn next(&mut self) -> Vec<u8> {
        if self.in_flight >= MAX_IN_FLIGHT {
            return std::future::pending().await;
        }
        loop {
            let (frames, browser, seen) = (&self.frames, self.browser, self.seen);
            let coming = self.coming.get_or_insert_with(|| {
                let frames = Arc::clone(frames);
                Box::pin(async move { frames.next_frame(browser, seen).await })
            });
            let came = coming.await;
            self.coming = None;
            match came {
                Ok(Some(frame)) => return self.take(&frame),
                // Nothing changed.
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "no frame of the display");
                    self.seen = None;
                    self.coming = Some(Box::pin(async {
                        sleep(RETRY_BACKOFF).await;
                        Ok(None)
                    }));
                }
            }
        }
    }

    fn take(&mut self, frame: &Frame) -> Vec<u8> {
        self.seen = Some(frame.state);
        self.in_flight += 1;
        self.size = (frame.width.into(), frame.height.into());
        let head = [frame.width, frame.height, frame.x, frame.y].map(u16::to_be_bytes).concat();
        [head.as_slice(), &frame.jpeg].concat()
    }

    /// The page drew a frame.
    pub(super) fn drawn(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Does what the page says.
    pub(super) fn obey(&mut self, message: &FromPage) {
        self.hands.obey(message, self.size);
    }
}
