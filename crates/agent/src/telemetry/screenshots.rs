//! Screenshots of the session: after each navigation, and every ten seconds while something changes.

use std::time::Duration;

use base64::Engine as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::event::Event;
use super::unconfirmed::UnconfirmedEvents;
use crate::browser_handle::BrowserHandle;
use crate::picture;
use crate::screen_capture::ScreenCapture;
use casement_agent_protocol::telemetry::{Category, MAX_PNG_BYTES, SourceKind};
use casement_agent_protocol::{Region, Viewport};

/// The interval of screenshots without a request.
const INTERVAL: Duration = Duration::from_secs(10);
/// The shortest pause between two screenshots.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// Takes screenshots, one at a time.
pub(super) struct Screenshots {
    browser: BrowserHandle,
    screen: ScreenCapture,
    is_enabled: bool,
    /// The time of the next screenshot.
    due_at: Option<Instant>,
    /// True while a screenshot is being taken.
    is_taking: bool,
    last: Vec<u8>,
    sender: mpsc::Sender<Vec<u8>>,
    receiver: Option<mpsc::Receiver<Vec<u8>>>,
}

impl Screenshots {
    pub(super) fn new(browser: BrowserHandle, screen: ScreenCapture) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        Self {
            browser,
            screen,
            is_enabled: false,
            due_at: None,
            is_taking: false,
            last: Vec::new(),
            sender,
            receiver: Some(receiver),
        }
    }

    /// Takes the receiver of the screenshots.
    pub(super) fn results(&mut self) -> mpsc::Receiver<Vec<u8>> {
        self.receiver.take().unwrap_or_else(|| mpsc::channel(1).1)
    }

    pub(super) fn set_enabled(&mut self, is_enabled: bool) {
        if is_enabled && !self.is_enabled {
            self.due_at = Some(Instant::now() + INTERVAL);
        }
        self.is_enabled = is_enabled;
    }

    /// Requests a screenshot as soon as possible.
    pub(super) fn request(&mut self) {
        if self.is_enabled {
            let now = Instant::now();
            self.due_at = Some(self.due_at.map_or(now, |at| at.min(now)));
        }
    }

    /// Returns the time of the next screenshot.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due_at.filter(|_| self.is_enabled && !self.is_taking)
    }

    /// Starts the next screenshot if it is due.
    pub(super) fn tick(&mut self) {
        if self.next().is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.is_taking = true;
        self.due_at = Some(Instant::now() + INTERVAL);
        let (browser, screen, sender) = (self.browser.clone(), self.screen.clone(), self.sender.clone());
        tokio::spawn(async move {
            let png = take(&browser, &screen).await.unwrap_or_else(|error| {
                tracing::debug!(error, "cannot take a screenshot for the telemetry");
                Vec::new()
            });
            tokio::time::sleep(MIN_PAUSE).await;
            drop(sender.send(png).await);
        });
    }

    /// Adds the event of a screenshot, unless it failed (an empty PNG) or equals the previous one.
    pub(super) fn report(&mut self, png: Vec<u8>, events: &UnconfirmedEvents) {
        self.is_taking = false;
        if png.is_empty() || png == self.last || !self.is_enabled {
            return;
        }
        let encoded = base64::engine::general_purpose::STANDARD.encode(&png);
        self.last = png;
        events
            .add(Event::new("monitor_screenshot", Category::Screenshot, SourceKind::LocalProcess).with("png", encoded));
    }
}

/// Takes a screenshot of everything, scaled down to the largest size of an event.
async fn take(browser: &BrowserHandle, screen: &ScreenCapture) -> Result<Vec<u8>, String> {
    let running = browser.ready().ok_or("the browser is not ready")?;
    let Viewport { width, height, .. } = browser.viewport();
    let region = Region { x: 0, y: 0, width, height };
    let png = screen.png(&running, region).await.map_err(|error| error.to_string())?;
    if png.len() <= MAX_PNG_BYTES {
        return Ok(png);
    }
    let smaller = tokio::task::spawn_blocking(move || picture::scaled_to(&png, MAX_PNG_BYTES)).await;
    smaller.map_err(|error| error.to_string())?.ok_or_else(|| "the picture cannot be made smaller".to_owned())
}
