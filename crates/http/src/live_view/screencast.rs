//! One viewer's DevTools side: which tab it follows, and that tab's screencast.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    cdp::{Cdp, Incoming, Lost},
    input::{DroppedFiles, TabSize},
    tabs::{Tabs, is_id},
};

/// The longest side of a frame, in pixels.
const MAX_SIDE: u32 = 1920;
const MIN_SIDE: u32 = 64;
const QUALITY: u8 = 70;
/// Frames under way to the page. More would only be old when they arrive; fewer would leave a slow line idle.
const MAX_IN_FLIGHT: usize = 2;
/// Hidden tabs asked at once for the one that is in front.
const MAX_PROBES: usize = 20;
/// A picture that nobody looks at: only whether the tab is in front is of interest.
const UNSEEN: u32 = 64;
const HARDLY_EVER: u32 = 1_000_000;
/// Answers that may stand out. Many tabs opened at once are as many questions; a browser that answers none is of no use.
const MAX_AWAITED: usize = 1024;

/// What an answer is awaited for.
enum PendingAnswer {
    Discovery,
    Titles,
    Follow(String),
    Probe(String),
    Visibility {
        tab: String,
        session: String,
    },
    /// Where the page is on the display, for files that were let fall at this pixel of it.
    Place {
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
    /// The display is shown as a whole, by other means: here the tabs are followed only.
    display: bool,
    pub(super) tabs: Tabs,
    pub(super) size: TabSize,
    current: Option<Current>,
    awaited: HashMap<u64, PendingAnswer>,
    discovered: bool,
    bounds: (u32, u32),
    in_flight: usize,
    unacknowledged: Option<u64>,
}

impl Screencast {
    pub(super) async fn start(mut cdp: Cdp, display: bool) -> Result<Self, Lost> {
        let id = cdp.send(None, "Target.setDiscoverTargets", json!({ "discover": true })).await?;
        Ok(Self {
            cdp,
            display,
            tabs: Tabs::default(),
            size: TabSize::default(),
            current: None,
            awaited: HashMap::from([(id, PendingAnswer::Discovery)]),
            discovered: false,
            bounds: (1280, 1280),
            in_flight: 0,
            unacknowledged: None,
        })
    }

    /// Waits for the browser; safe to drop while it waits.
    pub(super) async fn next(&mut self) -> Result<Incoming, Lost> {
        self.cdp.next().await
    }

    pub(super) fn current_tab(&self) -> Option<&str> {
        self.current.as_ref().map(|current| current.tab.as_str())
    }

    /// Asks what the tabs are called: events tell of navigations, and a page names itself later. One question at a time.
    pub(super) async fn ask_titles(&mut self) -> Result<(), Lost> {
        if self.awaited.values().any(|awaited| matches!(awaited, PendingAnswer::Titles)) {
            return Ok(());
        }
        let id = self.cdp.send(None, "Target.getTargets", json!({})).await?;
        self.expect(id, PendingAnswer::Titles)
    }

    /// Notes what the answer with this number will be for.
    fn expect(&mut self, id: u64, answer: PendingAnswer) -> Result<(), Lost> {
        if self.awaited.len() >= MAX_AWAITED {
            return Err(Lost);
        }
        self.awaited.insert(id, answer);
        Ok(())
    }

    /// Handles a message of the browser; answers a JPEG if it was a frame of the tab that is followed.
    pub(super) async fn handle(&mut self, incoming: Incoming) -> Result<Option<Vec<u8>>, Lost> {
        if let Some(id) = incoming.id {
            if let Some(awaited) = self.awaited.remove(&id) {
                self.answered(awaited, &incoming.result).await?;
            }
            return Ok(None);
        }
        match incoming.method.as_str() {
            "Target.targetCreated" | "Target.targetInfoChanged" => {
                self.appeared(&incoming.params["targetInfo"]).await?
            }
            "Target.targetDestroyed" | "Target.targetCrashed" => self.vanished(&incoming.params["targetId"]).await?,
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

    async fn appeared(&mut self, info: &Value) -> Result<(), Lost> {
        match self.tabs.put(info) {
            // A tab that opens comes to the front; those that were there before are all reported at once.
            Some(new) if self.discovered || self.current.is_none() => self.follow(new).await,
            _ => Ok(()),
        }
    }

    async fn vanished(&mut self, id: &Value) -> Result<(), Lost> {
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

    async fn answered(&mut self, awaited: PendingAnswer, result: &Value) -> Result<(), Lost> {
        match awaited {
            PendingAnswer::Discovery => {
                self.discovered = true;
                // Of several tabs, the one that is really in front.
                self.probe().await
            }
            PendingAnswer::Titles => {
                self.tabs.refresh(&result["targetInfos"]);
                Ok(())
            }
            PendingAnswer::Follow(tab) => match (session_of(result), &mut self.current) {
                (Some(session), Some(current)) if current.tab == tab => {
                    current.session = Some(session.to_owned());
                    self.tabs.touch();
                    self.cast().await
                }
                (Some(session), _) => self.detach(session).await,
                (None, _) => Ok(()),
            },
            PendingAnswer::Probe(tab) => match session_of(result) {
                Some(session) => {
                    let ask = json!({ "expression": "document.visibilityState", "returnByValue": true });
                    let id = self.cdp.send(Some(session), "Runtime.evaluate", ask).await?;
                    self.expect(id, PendingAnswer::Visibility { tab, session: session.to_owned() })
                }
                None => Ok(()),
            },
            PendingAnswer::Place { x, y, files } => {
                let side = |at: usize| result["result"]["value"][at].as_f64().unwrap_or_default();
                self.let_fall(x - side(0), y - side(1), &files).await
            }
            PendingAnswer::Visibility { tab, session } => {
                self.detach(&session).await?;
                if result["result"]["value"] == "visible" { self.follow(tab).await } else { Ok(()) }
            }
        }
    }

    /// Asks the other tabs whether they are in front; in a headless browser all are, and the current one stays.
    async fn probe(&mut self) -> Result<(), Lost> {
        let others = self.tabs.others(self.current_tab());
        let awaited = self
            .awaited
            .values()
            .filter(|awaited| !matches!(awaited, PendingAnswer::Follow(_) | PendingAnswer::Titles))
            .count();
        for tab in others.into_iter().take(MAX_PROBES.saturating_sub(awaited)) {
            let id = self.attach(&tab).await?;
            self.expect(id, PendingAnswer::Probe(tab))?;
        }
        Ok(())
    }

    async fn follow(&mut self, tab: String) -> Result<(), Lost> {
        if self.current_tab() == Some(tab.as_str()) {
            return Ok(());
        }
        if let Some(session) = self.current.take().and_then(|current| current.session) {
            self.detach(&session).await?;
        }
        self.in_flight = 0;
        self.unacknowledged = None;
        let id = self.attach(&tab).await?;
        self.expect(id, PendingAnswer::Follow(tab.clone()))?;
        self.current = Some(Current { tab, session: None });
        Ok(())
    }

    async fn attach(&mut self, tab: &str) -> Result<u64, Lost> {
        self.cdp.send(None, "Target.attachToTarget", json!({ "targetId": tab, "flatten": true })).await
    }

    async fn detach(&mut self, session: &str) -> Result<(), Lost> {
        self.cdp.send(None, "Target.detachFromTarget", json!({ "sessionId": session })).await.map(drop)
    }

    async fn cast(&mut self) -> Result<(), Lost> {
        let (width, height) = self.bounds;
        let how = match self.display {
            false => json!({ "format": "jpeg", "quality": QUALITY, "maxWidth": width, "maxHeight": height }),
            true => json!({ "format": "jpeg", "maxWidth": UNSEEN, "maxHeight": UNSEEN, "everyNthFrame": HARDLY_EVER }),
        };
        self.on_tab("Page.startScreencast", how).await
    }

    /// A command to the tab that is followed; none, if there is no such tab now.
    pub(super) async fn on_tab(&mut self, method: &str, params: Value) -> Result<(), Lost> {
        let Some(session) = self.current.as_ref().and_then(|current| current.session.as_deref()) else { return Ok(()) };
        self.cdp.send(Some(session), method, params).await.map(drop)
    }

    /// Brings a tab to the front and follows it.
    pub(super) async fn activate(&mut self, tab: String) -> Result<(), Lost> {
        if !self.tabs.has(&tab) {
            return Ok(());
        }
        self.cdp.send(None, "Target.activateTarget", json!({ "targetId": tab })).await?;
        self.follow(tab).await
    }

    /// Frames no larger than the page's canvas.
    pub(super) async fn fit(&mut self, width: u32, height: u32) -> Result<(), Lost> {
        let bounds = (width.clamp(MIN_SIDE, MAX_SIDE), height.clamp(MIN_SIDE, MAX_SIDE));
        if self.display || bounds == self.bounds {
            return Ok(());
        }
        self.bounds = bounds;
        self.cast().await
    }

    async fn frame(&mut self, params: &Value) -> Result<Option<Vec<u8>>, Lost> {
        if self.display {
            return Ok(None);
        }
        let metadata = &params["metadata"];
        let side = |name: &str| metadata[name].as_f64().unwrap_or_default();
        self.size = TabSize { width: side("deviceWidth"), height: side("deviceHeight") };
        let jpeg = params["data"].as_str().and_then(|data| STANDARD.decode(data).ok());
        self.in_flight += 1;
        // The browser makes the next frame when this one is acknowledged: a slow page gets fewer, never older ones.
        let number = params["sessionId"].as_u64().unwrap_or_default();
        if self.in_flight < MAX_IN_FLIGHT {
            self.acknowledge(number).await?;
        } else {
            self.unacknowledged = Some(number);
        }
        Ok(jpeg)
    }

    /// Lets files of the session fall onto the tab: on a display of this size, or on the picture of the tab alone.
    pub(super) async fn drop_files(&mut self, dropped: DroppedFiles, display: Option<(u32, u32)>) -> Result<(), Lost> {
        let DroppedFiles { x, y, paths } = dropped;
        let Some((width, height)) = display else {
            let (x, y) = self.size.point(x, y);
            return self.let_fall(x, y, &paths).await;
        };
        let Some(session) = self.current.as_ref().and_then(|current| current.session.as_deref()) else { return Ok(()) };
        // All of a window's frame that is no page lies above it.
        let ask = json!({
            "expression": "[screenX + (outerWidth - innerWidth) / 2, screenY + outerHeight - innerHeight]",
            "returnByValue": true,
        });
        let id = self.cdp.send(Some(session), "Runtime.evaluate", ask).await?;
        let (x, y) = TabSize { width: width.into(), height: height.into() }.point(x, y);
        self.expect(id, PendingAnswer::Place { x, y, files: paths })
    }

    async fn let_fall(&mut self, x: f64, y: f64, files: &[String]) -> Result<(), Lost> {
        let data = json!({ "items": [], "files": files, "dragOperationsMask": 1 });
        for kind in ["dragEnter", "dragOver", "drop"] {
            let event = json!({ "type": kind, "x": x.max(0.0), "y": y.max(0.0), "data": data });
            self.on_tab("Input.dispatchDragEvent", event).await?;
        }
        Ok(())
    }

    /// The page drew a frame.
    pub(super) async fn drawn(&mut self) -> Result<(), Lost> {
        self.in_flight = self.in_flight.saturating_sub(1);
        match self.unacknowledged.take() {
            Some(number) => self.acknowledge(number).await,
            None => Ok(()),
        }
    }

    async fn acknowledge(&mut self, number: u64) -> Result<(), Lost> {
        self.on_tab("Page.screencastFrameAck", json!({ "sessionId": number })).await
    }
}

/// The name of the session that an answer tells of.
fn session_of(result: &Value) -> Option<&str> {
    result["sessionId"].as_str().filter(|name| is_id(name))
}
