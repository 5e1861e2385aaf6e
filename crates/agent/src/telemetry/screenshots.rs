//! Pictures of what the session shows: when a navigation has come to rest, and every ten seconds while something changes.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::event::Event;
use super::unconfirmed::UnconfirmedEvents;
use crate::picture;
use crate::state::AgentState;
use casement_agent_protocol::telemetry::{Category, MAX_PNG_BYTES, SourceKind};
use casement_agent_protocol::{Region, Viewport};

/// How often it is looked whether something changed.
const INTERVAL: Duration = Duration::from_secs(10);
/// Between two pictures, however often pages come to rest.
const BACKOFF: Duration = Duration::from_secs(1);

/// Takes pictures, one at a time.
pub(super) struct Screenshots {
    core: Arc<AgentState>,
    on: bool,
    wanted: Option<Instant>,
    /// One is being taken.
    taking: bool,
    last: Vec<u8>,
    sender: mpsc::Sender<Vec<u8>>,
    receiver: Option<mpsc::Receiver<Vec<u8>>>,
}

impl Screenshots {
    pub(super) fn new(core: Arc<AgentState>) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        Self { core, on: false, wanted: None, taking: false, last: Vec::new(), sender, receiver: Some(receiver) }
    }

    /// Where the pictures come out.
    pub(super) fn done(&mut self) -> mpsc::Receiver<Vec<u8>> {
        self.receiver.take().unwrap_or_else(|| mpsc::channel(1).1)
    }

    pub(super) fn turn(&mut self, on: bool) {
        if on && !self.on {
            self.wanted = Some(Instant::now() + INTERVAL);
        }
        self.on = on;
    }

    /// There is something to see.
    pub(super) fn want(&mut self) {
        if self.on {
            let soon = Instant::now();
            self.wanted = Some(self.wanted.map_or(soon, |at| at.min(soon)));
        }
    }

    /// When the next one is to be taken.
    pub(super) fn next(&self) -> Option<Instant> {
        self.wanted.filter(|_| self.on && !self.taking)
    }

    /// Takes one, if it is time.
    pub(super) fn tick(&mut self) {
        if self.next().is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.taking = true;
        self.wanted = Some(Instant::now() + INTERVAL);
        let (core, sender) = (Arc::clone(&self.core), self.sender.clone());
        tokio::spawn(async move {
            let png = take(&core).await.unwrap_or_else(|error| {
                tracing::debug!(error, "no picture for the telemetry");
                Vec::new()
            });
            // Not more often than this, whatever pages do.
            tokio::time::sleep(BACKOFF).await;
            drop(sender.send(png).await);
        });
    }

    /// One was taken; an empty one was not. What looks like the one before is not told.
    pub(super) fn taken(&mut self, png: Vec<u8>, buffered: &UnconfirmedEvents) {
        self.taking = false;
        if png.is_empty() || png == self.last || !self.on {
            return;
        }
        let encoded = base64::engine::general_purpose::STANDARD.encode(&png);
        self.last = png;
        buffered
            .add(Event::new("monitor_screenshot", Category::Screenshot, SourceKind::LocalProcess).with("png", encoded));
    }
}

/// A picture of everything, no larger than one may be.
async fn take(core: &AgentState) -> Result<Vec<u8>, String> {
    let live = core.ready().ok_or("the browser is not ready")?;
    let Viewport { width, height, .. } = core.viewport();
    let region = Region { x: 0, y: 0, width, height };
    let _place = core.pictures.acquire().await;
    let png = match &live.display {
        Some(display) => display.capture(region).await.map_err(|error| error.to_string())?,
        None => live.browser.capture(region).await.map_err(|error| error.to_string())?,
    };
    if png.len() <= MAX_PNG_BYTES {
        return Ok(png);
    }
    let smaller = tokio::task::spawn_blocking(move || picture::at_most(&png, MAX_PNG_BYTES)).await;
    smaller.map_err(|error| error.to_string())?.ok_or_else(|| "the picture cannot be made smaller".to_owned())
}
