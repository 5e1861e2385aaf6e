//! One viewer's side of a whole display: its frames and the viewer's input.

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

use super::{input::PageMessage, viewer_input::ViewerInput};

/// The maximum number of frames in flight to the page. More would be outdated on arrival; fewer would leave a slow
/// connection idle.
const MAX_IN_FLIGHT: usize = 2;
/// The pause after a failure, because the display may be restarting.
const RETRY_BACKOFF: Duration = Duration::from_millis(500);

/// Access to the display of a session that has one.
#[derive(Clone)]
pub struct WholeDisplay {
    /// Reads frames.
    pub frames: Arc<dyn LiveDisplay>,
    /// Mouse, keyboard and clipboard.
    pub computers: Computers,
    /// The session of the display.
    pub session: Session,
}

/// What a viewer is told of its display.
pub(super) enum DisplayUpdate {
    /// A frame, as a message.
    Frame(Vec<u8>),
    /// No frame can be read now. Frames follow when one can.
    Unavailable,
}

type Request = BoxFuture<'static, Result<Option<Frame>, OperationError>>;

/// A display as one viewer sees it.
pub(super) struct Display {
    frames: Arc<dyn LiveDisplay>,
    browser: BrowserId,
    input: ViewerInput,
    /// The state of the frame that was sent last.
    seen_state: Option<u64>,
    in_flight: usize,
    request: Option<Request>,
    /// Whether the last request failed.
    is_failing: bool,
    pub(super) size: (u32, u32),
}

impl Display {
    /// Returns `None` for a session without a browser.
    pub(super) fn new(source: WholeDisplay) -> Option<Self> {
        let browser = source.session.browser?;
        let viewport = source.session.shape.viewport;
        Some(Self {
            frames: source.frames,
            browser,
            input: ViewerInput::new(source.computers, source.session),
            seen_state: None,
            in_flight: 0,
            request: None,
            is_failing: false,
            size: (viewport.width, viewport.height),
        })
    }

    /// Waits for the next frame for the page, as a message: the size of the display and the position of the changed
    /// part, then the part; or for the first failure after a frame. Waits while enough frames are in flight. Cancel-safe.
    pub(super) async fn next(&mut self) -> DisplayUpdate {
        if self.in_flight >= MAX_IN_FLIGHT {
            return std::future::pending().await;
        }
        loop {
            let (frames, browser, seen_state) = (&self.frames, self.browser, self.seen_state);
            let request = self.request.get_or_insert_with(|| {
                let frames = Arc::clone(frames);
                Box::pin(async move { frames.next_frame(browser, seen_state).await })
            });
            let result = request.await;
            self.request = None;
            match result {
                Ok(Some(frame)) => {
                    self.is_failing = false;
                    return DisplayUpdate::Frame(self.encode(&frame));
                }
                // The display has not changed.
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot read a frame of the display");
                    self.seen_state = None;
                    self.request = Some(Box::pin(async {
                        sleep(RETRY_BACKOFF).await;
                        Ok(None)
                    }));
                    if !std::mem::replace(&mut self.is_failing, true) {
                        return DisplayUpdate::Unavailable;
                    }
                }
            }
        }
    }

    fn encode(&mut self, frame: &Frame) -> Vec<u8> {
        self.seen_state = Some(frame.state);
        self.in_flight += 1;
        self.size = (frame.width.into(), frame.height.into());
        let head = [frame.width, frame.height, frame.x, frame.y].map(u16::to_be_bytes).concat();
        [head.as_slice(), &frame.jpeg].concat()
    }

    /// Handles the acknowledgement that the page drew a frame.
    pub(super) fn drawn(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Performs the input of a page message.
    pub(super) fn handle(&mut self, message: &PageMessage) {
        self.input.handle(message, self.size);
    }
}
