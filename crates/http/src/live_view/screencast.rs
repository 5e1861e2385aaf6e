//! One viewer's DevTools connection: the tab that it follows, and the screencast of that tab.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    cdp::{Cdp, Disconnected, Incoming},
    input::{DroppedFiles, TabSize},
    tabs::{Tabs, is_id},
};

/// The bounds of the sides of a frame, in pixels.
const MAX_SIDE: u32 = 1920;
const MIN_SIDE: u32 = 64;
const JPEG_QUALITY: u8 = 70;
/// The maximum number of frames in flight to the page. More would be outdated on arrival; fewer would leave a slow
/// connection idle.
const MAX_IN_FLIGHT: usize = 2;
/// The maximum number of tabs that are probed at once to find the tab in front.
const MAX_PROBES: usize = 20;
/// The size and frame interval of a screencast that only reports whether the tab is in front.
const PROBE_SIDE: u32 = 64;
const PROBE_FRAME_INTERVAL: u32 = 1_000_000;
/// The maximum number of pending commands. Each new tab causes one; a browser that responds to none is unusable.
const MAX_PENDING_COMMANDS: usize = 1024;

/// A command whose response is pending.
enum PendingCommand {
    Discovery,
    Titles,
    Follow(String),
    Probe(String),
    /// Reads the zoom of the current tab.
    Zoom,
    Visibility {
        tab: String,
        session: String,
    },
    /// Reads the page's position on the display, for files that were dropped at this pixel of the display.
    Position {
        x: f64,
        y: f64,
        files: Vec<String>,
    },
}

struct Current {
    tab: String,
    session: Option<String>,
}

pub(super) struct Screencast {
    cdp: Cdp,
    /// Whether [`super::display`] shows the whole display, so that tabs are followed here without their frames.
    has_display: bool,
    pub(super) tabs: Tabs,
    pub(super) size: TabSize,
    current: Option<Current>,
    pending: HashMap<u64, PendingCommand>,
    is_discovered: bool,
    bounds: (u32, u32),
    in_flight: usize,
    unacknowledged: Option<u64>,
}

impl Screencast {
    pub(super) async fn start(mut cdp: Cdp, has_display: bool) -> Result<Self, Disconnected> {
        let id = cdp.send(None, "Target.setDiscoverTargets", json!({ "discover": true })).await?;
        Ok(Self {
            cdp,
            has_display,
            tabs: Tabs::default(),
            size: TabSize::default(),
            current: None,
            pending: HashMap::from([(id, PendingCommand::Discovery)]),
            is_discovered: false,
            bounds: (1280, 1280),
            in_flight: 0,
            unacknowledged: None,
        })
    }

    /// Waits for the next message of the browser. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Incoming, Disconnected> {
        self.cdp.next().await
    }

    pub(super) fn current_tab(&self) -> Option<&str> {
        self.current.as_ref().map(|current| current.tab.as_str())
    }

    /// Requests the titles of the tabs, unless a request is pending: events report navigations, but a page sets its
    /// title later.
    pub(super) async fn request_titles(&mut self) -> Result<(), Disconnected> {
        if self.pending.values().any(|pending| matches!(pending, PendingCommand::Titles)) {
            return Ok(());
        }
        let id = self.cdp.send(None, "Target.getTargets", json!({})).await?;
        self.expect(id, PendingCommand::Titles)
    }

    /// Registers the command whose response has this id.
    fn expect(&mut self, id: u64, command: PendingCommand) -> Result<(), Disconnected> {
        if self.pending.len() >= MAX_PENDING_COMMANDS {
            return Err(Disconnected);
        }
        self.pending.insert(id, command);
        Ok(())
    }

    /// Handles a message of the browser. Returns a JPEG if it was a frame of the followed tab.
    pub(super) async fn handle(&mut self, incoming: Incoming) -> Result<Option<Vec<u8>>, Disconnected> {
        if let Some(id) = incoming.id {
            if let Some(pending) = self.pending.remove(&id) {
                self.handle_response(pending, &incoming.result).await?;
            }
            return Ok(None);
        }
        match incoming.method.as_str() {
            "Target.targetCreated" | "Target.targetInfoChanged" => {
                self.target_changed(&incoming.params["targetInfo"]).await?
            }
            "Target.targetDestroyed" | "Target.targetCrashed" => {
                self.target_closed(&incoming.params["targetId"]).await?
            }
            "Page.screencastFrame" if self.is_current(&incoming) => return self.frame(&incoming.params).await,
            "Page.screencastVisibilityChanged" if self.is_current(&incoming) && incoming.params["visible"] == false => {
                self.probe().await?;
            }
            _ => {}
        }
        Ok(None)
    }

    fn is_current(&self, incoming: &Incoming) -> bool {
        let session = self.current.as_ref().and_then(|current| current.session.as_deref());
        session.is_some() && session == incoming.session.as_deref()
    }

    async fn target_changed(&mut self, info: &Value) -> Result<(), Disconnected> {
        match self.tabs.upsert(info) {
            // A new tab opens in front; the tabs that exist at the start are all reported at once.
            Some(new) if self.is_discovered || self.current.is_none() => self.follow(new).await,
            _ => Ok(()),
        }
    }

    async fn target_closed(&mut self, id: &Value) -> Result<(), Disconnected> {
        let Some(id) = id.as_str() else { return Ok(()) };
        self.tabs.remove(id);
        if self.current_tab() != Some(id) {
            return Ok(());
        }
        self.current = None;
        match self.tabs.newest() {
            Some(newest) => self.follow(newest).await,
            None => Ok(()),
        }
    }

    async fn handle_response(&mut self, pending: PendingCommand, result: &Value) -> Result<(), Disconnected> {
        match pending {
            PendingCommand::Discovery => {
                self.is_discovered = true;
                // Finds the tab that is in front.
                self.probe().await
            }
            PendingCommand::Titles => {
                self.tabs.refresh(&result["targetInfos"]);
                Ok(())
            }
            PendingCommand::Follow(tab) => match (session_of(result), &mut self.current) {
                (Some(session), Some(current)) if current.tab == tab => {
                    current.session = Some(session.to_owned());
                    self.tabs.mark_changed();
                    self.start_screencast().await
                }
                (Some(session), _) => self.detach(session).await,
                (None, _) => Ok(()),
            },
            PendingCommand::Probe(tab) => match session_of(result) {
                Some(session) => {
                    let params = json!({ "expression": "document.visibilityState", "returnByValue": true });
                    let id = self.cdp.send(Some(session), "Runtime.evaluate", params).await?;
                    self.expect(id, PendingCommand::Visibility { tab, session: session.to_owned() })
                }
                None => Ok(()),
            },
            PendingCommand::Zoom => {
                let zoom = result["cssVisualViewport"]["zoom"].as_f64().filter(|zoom| *zoom > 0.0);
                self.size.zoom = zoom.unwrap_or(self.size.zoom);
                Ok(())
            }
            PendingCommand::Position { x, y, files } => {
                let offset = |index: usize| result["result"]["value"][index].as_f64().unwrap_or_default();
                self.dispatch_drop(x - offset(0), y - offset(1), &files).await
            }
            PendingCommand::Visibility { tab, session } => {
                self.detach(&session).await?;
                if result["result"]["value"] == "visible" { self.follow(tab).await } else { Ok(()) }
            }
        }
    }

    /// Queries whether one of the other tabs is in front. In a headless browser all are, and the current one stays.
    async fn probe(&mut self) -> Result<(), Disconnected> {
        let others = self.tabs.others(self.current_tab());
        let pending = self
            .pending
            .values()
            .filter(|pending| {
                !matches!(pending, PendingCommand::Follow(_) | PendingCommand::Titles | PendingCommand::Zoom)
            })
            .count();
        for tab in others.into_iter().take(MAX_PROBES.saturating_sub(pending)) {
            let id = self.attach(&tab).await?;
            self.expect(id, PendingCommand::Probe(tab))?;
        }
        Ok(())
    }

    async fn follow(&mut self, tab: String) -> Result<(), Disconnected> {
        if self.current_tab() == Some(tab.as_str()) {
            return Ok(());
        }
        if let Some(session) = self.current.take().and_then(|current| current.session) {
            self.detach(&session).await?;
        }
        self.in_flight = 0;
        self.unacknowledged = None;
        let id = self.attach(&tab).await?;
        self.expect(id, PendingCommand::Follow(tab.clone()))?;
        self.current = Some(Current { tab, session: None });
        Ok(())
    }

    async fn attach(&mut self, tab: &str) -> Result<u64, Disconnected> {
        self.cdp.send(None, "Target.attachToTarget", json!({ "targetId": tab, "flatten": true })).await
    }

    async fn detach(&mut self, session: &str) -> Result<(), Disconnected> {
        self.cdp.send(None, "Target.detachFromTarget", json!({ "sessionId": session })).await.map(drop)
    }

    async fn start_screencast(&mut self) -> Result<(), Disconnected> {
        let (width, height) = self.bounds;
        let params = match self.has_display {
            false => json!({ "format": "jpeg", "quality": JPEG_QUALITY, "maxWidth": width, "maxHeight": height }),
            true => {
                json!({ "format": "jpeg", "maxWidth": PROBE_SIDE, "maxHeight": PROBE_SIDE, "everyNthFrame": PROBE_FRAME_INTERVAL })
            }
        };
        self.send_to_tab("Page.startScreencast", params).await
    }

    /// Sends a command to the followed tab, if there is one.
    pub(super) async fn send_to_tab(&mut self, method: &str, params: Value) -> Result<(), Disconnected> {
        let Some(session) = self.current.as_ref().and_then(|current| current.session.as_deref()) else { return Ok(()) };
        self.cdp.send(Some(session), method, params).await.map(drop)
    }

    /// Brings a tab to the front and follows it.
    pub(super) async fn activate(&mut self, tab: String) -> Result<(), Disconnected> {
        if !self.tabs.has(&tab) {
            return Ok(());
        }
        self.cdp.send(None, "Target.activateTarget", json!({ "targetId": tab })).await?;
        self.follow(tab).await
    }

    /// Limits frames to the size of the page's canvas.
    pub(super) async fn set_bounds(&mut self, width: u32, height: u32) -> Result<(), Disconnected> {
        let bounds = (width.clamp(MIN_SIDE, MAX_SIDE), height.clamp(MIN_SIDE, MAX_SIDE));
        if self.has_display || bounds == self.bounds {
            return Ok(());
        }
        self.bounds = bounds;
        self.start_screencast().await
    }

    async fn frame(&mut self, params: &Value) -> Result<Option<Vec<u8>>, Disconnected> {
        if self.has_display {
            return Ok(None);
        }
        let metadata = &params["metadata"];
        let side = |name: &str| metadata[name].as_f64().unwrap_or_default();
        self.size = TabSize { width: side("deviceWidth"), height: side("deviceHeight"), zoom: self.size.zoom };
        // A page whose zoom changes is drawn again.
        self.request_zoom().await?;
        let jpeg = params["data"].as_str().and_then(|data| STANDARD.decode(data).ok());
        self.in_flight += 1;
        // The browser creates the next frame when this one is acknowledged, so a slow page gets fewer frames and no
        // outdated ones.
        let number = params["sessionId"].as_u64().unwrap_or_default();
        if self.in_flight < MAX_IN_FLIGHT {
            self.acknowledge(number).await?;
        } else {
            self.unacknowledged = Some(number);
        }
        Ok(jpeg)
    }

    /// Requests the zoom of the current tab.
    async fn request_zoom(&mut self) -> Result<(), Disconnected> {
        let session = self.current.as_ref().and_then(|current| current.session.as_deref());
        if session.is_none() || self.pending.values().any(|pending| matches!(pending, PendingCommand::Zoom)) {
            return Ok(());
        }
        let id = self.cdp.send(session, "Page.getLayoutMetrics", json!({})).await?;
        self.expect(id, PendingCommand::Zoom)
    }

    /// Drops files of the session onto the tab: at a position of a display of this size, or of the tab's picture.
    pub(super) async fn drop_files(
        &mut self,
        dropped: DroppedFiles,
        display: Option<(u32, u32)>,
    ) -> Result<(), Disconnected> {
        let DroppedFiles { x, y, paths } = dropped;
        let Some((width, height)) = display else {
            let (x, y) = self.size.point(x, y);
            return self.dispatch_drop(x, y, &paths).await;
        };
        let Some(session) = self.current.as_ref().and_then(|current| current.session.as_deref()) else { return Ok(()) };
        // The window's decorations and toolbars are assumed to be above the page.
        let params = json!({
            "expression": "[screenX + (outerWidth - innerWidth) / 2, screenY + outerHeight - innerHeight]",
            "returnByValue": true,
        });
        let id = self.cdp.send(Some(session), "Runtime.evaluate", params).await?;
        let (x, y) = TabSize { width: width.into(), height: height.into(), zoom: 1.0 }.point(x, y);
        self.expect(id, PendingCommand::Position { x, y, files: paths })
    }

    async fn dispatch_drop(&mut self, x: f64, y: f64, files: &[String]) -> Result<(), Disconnected> {
        let data = json!({ "items": [], "files": files, "dragOperationsMask": 1 });
        for kind in ["dragEnter", "dragOver", "drop"] {
            let event = json!({ "type": kind, "x": x.max(0.0), "y": y.max(0.0), "data": data });
            self.send_to_tab("Input.dispatchDragEvent", event).await?;
        }
        Ok(())
    }

    /// Handles the acknowledgement that the page drew a frame.
    pub(super) async fn drawn(&mut self) -> Result<(), Disconnected> {
        self.in_flight = self.in_flight.saturating_sub(1);
        match self.unacknowledged.take() {
            Some(number) => self.acknowledge(number).await,
            None => Ok(()),
        }
    }

    async fn acknowledge(&mut self, number: u64) -> Result<(), Disconnected> {
        self.send_to_tab("Page.screencastFrameAck", json!({ "sessionId": number })).await
    }
}

/// Returns the id of the session in a response.
fn session_of(result: &Value) -> Option<&str> {
    result["sessionId"].as_str().filter(|name| is_id(name))
}
