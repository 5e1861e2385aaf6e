//! What we ask of a running browser: does the page answer, open an address, a picture of the page, another size.

mod active_page;
mod dialogs;
mod open_pages;
mod reopen;
mod unstick;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::cdp::{Cdp, CdpError, Notice};
use crate::flags::WINDOW_FRAME;
use casement_agent_protocol::{Region, Viewport};

pub(crate) use reopen::{MARKED, OpenTabs};

/// Deadline of a call that does not depend on a page.
const BROWSER: Duration = Duration::from_secs(10);
/// Deadline of the first page's first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(30);
/// Deadline of a picture; a page can be as large as its viewport allows and is drawn without a graphics card.
const PICTURE: Duration = Duration::from_secs(30);
/// How long a page may take to show its new size before it is told once more.
const SETTLE: Duration = Duration::from_millis(500);
/// How often a page is told its size.
const ATTEMPTS: usize = 4;
/// Has no cookies, and is never opened.
const NO_SITE: &str = "https://casement.invalid/";
/// Pages looked at when all of them matter. A page could open any number.
const MAX_PAGES: usize = 64;

/// What the browser says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) product: String,
    pub(crate) user_agent: String,
}

/// A page and the session attached to it.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) target: String,
    pub(crate) session: String,
}

/// A browser that answers, over one connection that stays open.
#[derive(Debug)]
pub(crate) struct Browser {
    pub(crate) cdp: Cdp,
    port: u16,
    /// The page that is proven to answer at a hand-out; attached once and kept, because attaching costs as much as asking.
    page: Mutex<Option<Page>>,
    viewport: Mutex<Viewport>,
    dialogs: dialogs::Dialogs,
    open_pages: open_pages::OpenPages,
    /// Whether the dialogs of new pages are to be heard of.
    handles_dialogs: AtomicBool,
    /// Whether new pages are to be given the size of the viewport.
    fits_new: AtomicBool,
}

impl Browser {
    /// Connects to the browser at `path` on `port` and asks what it is. `anew`: it was started anew, and opens [`MARKED`] beside what
    /// it restores.
    pub(crate) async fn connect(
        port: u16,
        path: &str,
        viewport: Viewport,
        anew: bool,
    ) -> Result<(Arc<Self>, Version), CdpError> {
        let (cdp, mut notices) = tokio::time::timeout(BROWSER, Cdp::connect(port, path))
            .await
            .map_err(|_| CdpError::Timeout { method: "connect", after: BROWSER })??;
        let version = cdp.call(None, "Browser.getVersion", json!({}), BROWSER).await?;
        let browser = Self {
            cdp,
            port,
            page: Mutex::new(None),
            viewport: Mutex::new(viewport),
            dialogs: dialogs::Dialogs::default(),
            open_pages: open_pages::OpenPages::default(),
            handles_dialogs: AtomicBool::new(false),
            fits_new: AtomicBool::new(false),
        };
        if anew {
            browser.await_marked_page().await?;
        } else {
            browser.await_first_page(&mut notices).await?;
        }
        let browser = Arc::new(browser);
        tokio::spawn(heed(Arc::downgrade(&browser), notices));
        let text = |key: &str| version[key].as_str().unwrap_or_default().to_owned();
        Ok((browser, Version { product: text("product"), user_agent: text("userAgent") }))
    }

    /// The port opens before the first page exists: wait for its announcement, then attach to it.
    async fn await_first_page(&self, notices: &mut mpsc::Receiver<Notice>) -> Result<(), CdpError> {
        let discover = |on: bool| json!({ "discover": on });
        self.cdp.call(None, "Target.setDiscoverTargets", discover(true), BROWSER).await?;
        let announced = async {
            loop {
                let notice = notices.recv().await.ok_or(CdpError::Closed)?;
                let info = &notice.params["targetInfo"];
                if notice.method == "Target.targetCreated" && info["type"] == "page" {
                    return Ok(info["targetId"].as_str().unwrap_or_default().to_owned());
                }
            }
        };
        let target = tokio::time::timeout(FIRST_ANSWER, announced)
            .await
            .map_err(|_| CdpError::Timeout { method: "first page", after: FIRST_ANSWER })??;
        self.cdp.report(None, "Target.setDiscoverTargets", discover(false)).await?;
        let page = self.attach(target, FIRST_ANSWER).await?;
        self.keep(Some(page));
        Ok(())
    }

    /// From now on the browser tells of its pages; without a display, also of the dialogs that they open.
    pub(crate) async fn follow_pages(&self, headless: bool) -> Result<(), CdpError> {
        if headless {
            self.subscribe_all_dialogs().await?;
        }
        self.cdp.report(None, "Target.setDiscoverTargets", json!({ "discover": true })).await
    }

    /// Proves that the first page and the network answer, and gives a page without a display its exact size.
    pub(crate) async fn first_answer(&self, headless: bool) -> Result<(), CdpError> {
        let page = self.buffered(FIRST_ANSWER).await?;
        self.answers(&page, FIRST_ANSWER).await?;
        let seen = self.look(&page.session, FIRST_ANSWER).await?;
        let viewport = self.viewport();
        if headless && !seen.has(viewport) {
            self.fit(&page, viewport, false).await?;
        }
        Ok(())
    }

    /// Proves within `within` that the open page answers, and the network.
    pub(crate) async fn prove(&self, within: Duration) -> Result<(), CdpError> {
        let deadline = Instant::now() + within;
        let page = self.buffered(within).await?;
        match self.answers(&page, left(deadline)).await {
            // Closed by a client meanwhile: the browser has another page, or gets one.
            Err(CdpError::Refused { .. }) => {
                self.keep(None);
                let page = self.buffered(left(deadline)).await?;
                self.answers(&page, left(deadline)).await
            }
            other => other,
        }
    }

    /// The page evaluates an expression, and Chromium's network service, which is a process of its own, says which cookies a site has
    /// that does not exist: nobody else knows of cookies. Both are asked at once.
    async fn answers(&self, page: &Page, within: Duration) -> Result<(), CdpError> {
        let cookies = json!({ "urls": [NO_SITE] });
        let (page, network) = tokio::join!(
            self.evaluate(&page.session, "1", within),
            self.cdp.call(Some(&page.session), "Network.getCookies", cookies, within),
        );
        page.and(network).map(drop)
    }

    /// Begins to open `url` in the open page and does not wait for it.
    pub(crate) async fn open(&self, url: &str) -> Result<(), CdpError> {
        let page = self.buffered(BROWSER).await?;
        self.cdp.report(Some(&page.session), "Page.navigate", json!({ "url": url })).await
    }

    /// Whether the browser itself, whatever its pages do, says nothing within `within`.
    pub(crate) async fn is_silent(&self, within: Duration) -> bool {
        let requested = self.cdp.call(None, "Browser.getVersion", json!({}), within).await;
        matches!(requested, Err(CdpError::Timeout { .. }))
    }

    /// Asks the browser to close.
    pub(crate) async fn close(&self) -> Result<(), CdpError> {
        self.cdp.report(None, "Browser.close", json!({})).await
    }

    /// A PNG of `region` of the page in front, in device pixels.
    pub(crate) async fn capture(&self, region: Region) -> Result<Vec<u8>, CdpError> {
        let page = self.front().await?;
        // A page with a dialog is in no picture before somebody has answered that.
        let taken = tokio::select! {
            biased;
            dialog = self.dialog_opens(&page.target) => Err(CdpError::Dialog(dialog.to_string())),
            taken = self.capture_page(&page, region) => taken,
        };
        self.detach(&page).await;
        let encoded = taken?;
        base64::engine::general_purpose::STANDARD.decode(encoded["data"].as_str().unwrap_or_default()).map_err(|e| {
            CdpError::Refused { method: "Page.captureScreenshot", message: format!("the picture is not readable: {e}") }
        })
    }

    async fn capture_page(&self, page: &Page, region: Region) -> Result<Value, CdpError> {
        let metrics = self.cdp.call(Some(&page.session), "Page.getLayoutMetrics", json!({}), BROWSER).await?;
        // The clip counts from the corner of the document, a region from the corner of what is shown.
        let scrolled = |key: &str| metrics["cssVisualViewport"][key].as_f64().unwrap_or(0.0);
        let clip = json!({
            "x": f64::from(region.x) + scrolled("pageX"),
            "y": f64::from(region.y) + scrolled("pageY"),
            "width": region.width, "height": region.height, "scale": 1,
        });
        let params = json!({ "format": "png", "clip": clip, "optimizeForSpeed": true });
        self.cdp.call(Some(&page.session), "Page.captureScreenshot", params, PICTURE).await
    }

    /// Brings every page to the size of `viewport`, and those opened later too.
    ///
    /// One that a client has given a size of its own keeps that. If all do, nothing is changed.
    pub(crate) async fn resize(&self, viewport: Viewport) -> Result<(), CdpError> {
        let before = std::mem::replace(&mut *self.viewport.lock(), viewport);
        let mut in_front = Vec::new();
        let mut screen_follows = false;
        let (mut fitted, mut buffered) = (false, None);
        for target in self.pages().await? {
            // It would not answer before somebody has answered its dialog.
            if self.dialog_of(&target).is_some() {
                continue;
            }
            let Ok(page) = self.attach(target, BROWSER).await else { continue };
            if !screen_follows {
                screen_follows = self.resize_screen(&page, viewport).await;
            }
            if let Ok(seen) = self.look(&page.session, Duration::from_secs(2)).await {
                if !seen.hidden {
                    in_front.push((seen.focused, page.target.clone()));
                }
                match self.fit(&page, viewport, true).await {
                    Ok(()) => fitted = true,
                    Err(error) => buffered = Some((error, page.target.clone())),
                }
            }
            self.detach(&page).await;
        }
        // A page behind others takes its size only when it comes to the front: put back what was there, the focused one last.
        in_front.sort_unstable();
        for (_, target) in in_front {
            self.cdp.call(None, "Target.activateTarget", json!({ "targetId": target }), BROWSER).await?;
        }
        if let Some((error, target)) = buffered.filter(|_| !fitted) {
            *self.viewport.lock() = before;
            if let Ok(page) = self.attach(target, BROWSER).await {
                self.resize_screen(&page, before).await;
                self.detach(&page).await;
            }
            return Err(error);
        }
        // New windows still open at the size of the command line: from now on each is told.
        self.fits_new.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes what pages take for the screen as large as `viewport`; any page can be asked for all. Answers whether it was done: an
    /// older browser cannot, and its pages have their size all the same.
    async fn resize_screen(&self, page: &Page, viewport: Viewport) -> bool {
        let resized = async {
            let screens = self.cdp.call(Some(&page.session), "Emulation.getScreenInfos", json!({}), BROWSER).await?;
            let size = json!({
                "screenId": screens["screenInfos"][0]["id"], "width": viewport.width, "height": viewport.height,
            });
            self.cdp.call(Some(&page.session), "Emulation.updateScreen", size, BROWSER).await
        };
        let error = resized.await.err();
        if let Some(error) = &error {
            tracing::warn!(%error, "the screen keeps its size");
        }
        error.is_none()
    }

    async fn page_opened(self: Arc<Self>, target: String) {
        if !self.open_pages.admit(&target) {
            return self.close_page(&target).await;
        }
        if self.handles_dialogs.load(Ordering::Relaxed) {
            Arc::clone(&self).subscribe_new(target.clone()).await;
        }
        if self.fits_new.load(Ordering::Relaxed) {
            self.fit_new(target).await;
        }
    }

    async fn fit_new(&self, target: String) {
        let fitted = async {
            let page = self.attach(target, BROWSER).await?;
            let result = self.fit(&page, self.viewport(), false).await;
            self.detach(&page).await;
            result
        };
        if let Err(error) = fitted.await {
            tracing::debug!(%error, "a new page was not resized");
        }
    }

    /// Brings one page to size by moving its window's edges as far as the page differs from what it should be.
    async fn fit(&self, page: &Page, viewport: Viewport, may_raise: bool) -> Result<(), CdpError> {
        let mut seen = self.look(&page.session, BROWSER).await?;
        for _ in 0..ATTEMPTS {
            if seen.has(viewport) || (seen.hidden && !may_raise) {
                return Ok(());
            }
            if seen.hidden {
                let target = json!({ "targetId": page.target });
                self.cdp.call(None, "Target.activateTarget", target, BROWSER).await?;
                seen = self.settled(page, viewport).await?;
                continue;
            }
            let before = self.move_edges(page, viewport, seen).await?;
            let after = self.settled(page, viewport).await?;
            if (after.width, after.height) == (seen.width, seen.height) {
                // A client gives it a size of its own, or it says so: moved once more, the edges would only go astray.
                self.cdp.call(None, "Browser.setWindowBounds", before, BROWSER).await?;
                break;
            }
            seen = after;
        }
        if seen.has(viewport) {
            return Ok(());
        }
        let message = format!("the page stays at {} × {}", seen.width, seen.height);
        Err(CdpError::Refused { method: "Browser.setWindowBounds", message })
    }

    /// Answers what puts them back.
    async fn move_edges(&self, page: &Page, viewport: Viewport, seen: Seen) -> Result<Value, CdpError> {
        let target = json!({ "targetId": page.target });
        let window = self.cdp.call(None, "Browser.getWindowForTarget", target, BROWSER).await?;
        let side = |key: &str, want: u32, have: i64, guess: u32| {
            let now = window["bounds"][key].as_i64().unwrap_or_else(|| i64::from(guess));
            now + i64::from(want) - have
        };
        let bounds = json!({
            "width": side("width", viewport.width, seen.width, viewport.width),
            "height": side("height", viewport.height, seen.height, viewport.height + WINDOW_FRAME),
        });
        let params = |bounds: &Value| json!({ "windowId": window["windowId"], "bounds": bounds });
        self.cdp.call(None, "Browser.setWindowBounds", params(&bounds), BROWSER).await?;
        let sides = &window["bounds"];
        Ok(params(&json!({ "width": sides["width"], "height": sides["height"] })))
    }

    /// The page as it is once it has its size, or after the time it gets for that.
    async fn settled(&self, page: &Page, viewport: Viewport) -> Result<Seen, CdpError> {
        let deadline = Instant::now() + SETTLE;
        loop {
            let seen = self.look(&page.session, BROWSER).await?;
            if seen.has(viewport) || Instant::now() >= deadline {
                return Ok(seen);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn pages(&self) -> Result<Vec<String>, CdpError> {
        let answer = self.cdp.call(None, "Target.getTargets", json!({}), BROWSER).await?;
        let infos = answer["targetInfos"].as_array().map(Vec::as_slice).unwrap_or_default();
        let pages = infos.iter().filter(|info| info["type"] == "page").filter_map(|info| info["targetId"].as_str());
        Ok(pages.take(MAX_PAGES).map(str::to_owned).collect())
    }

    /// The kept page, or else any page, or else a new one.
    async fn buffered(&self, within: Duration) -> Result<Page, CdpError> {
        if let Some(page) = self.page.lock().clone() {
            return Ok(page);
        }
        let target = match self.pages().await?.into_iter().next() {
            Some(target) => target,
            None => {
                let made = self.cdp.call(None, "Target.createTarget", json!({ "url": "about:blank" }), within).await?;
                made["targetId"].as_str().unwrap_or_default().to_owned()
            }
        };
        let page = self.attach(target, within).await?;
        self.keep(Some(page.clone()));
        Ok(page)
    }

    fn keep(&self, page: Option<Page>) {
        *self.page.lock() = page;
    }

    pub(crate) fn viewport(&self) -> Viewport {
        *self.viewport.lock()
    }

    pub(crate) async fn attach(&self, target: String, within: Duration) -> Result<Page, CdpError> {
        let params = json!({ "targetId": target, "flatten": true });
        let answer = self.cdp.call(None, "Target.attachToTarget", params, within).await?;
        Ok(Page { target, session: answer["sessionId"].as_str().unwrap_or_default().to_owned() })
    }

    pub(crate) async fn detach(&self, page: &Page) {
        self.dialogs.forget(&page.session);
        // The page may be gone, and its session with it.
        drop(self.cdp.report(None, "Target.detachFromTarget", json!({ "sessionId": page.session })).await);
    }

    async fn evaluate(&self, session: &str, expression: &str, within: Duration) -> Result<Value, CdpError> {
        let params = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.cdp.call(Some(session), "Runtime.evaluate", params, within).await?;
        Ok(answer["result"]["value"].take())
    }

    async fn look(&self, session: &str, within: Duration) -> Result<Seen, CdpError> {
        let requested = "[innerWidth, innerHeight, document.visibilityState === 'hidden', document.hasFocus()]";
        let value = self.evaluate(session, requested, within).await?;
        Ok(Seen {
            width: value[0].as_i64().unwrap_or(0),
            height: value[1].as_i64().unwrap_or(0),
            hidden: value[2].as_bool().unwrap_or(true),
            focused: value[3].as_bool().unwrap_or(false),
        })
    }
}

/// How a page says it is shown. A hostile page can lie here, about itself only.
#[derive(Debug, Clone, Copy)]
struct Seen {
    width: i64,
    height: i64,
    hidden: bool,
    focused: bool,
}

impl Seen {
    fn has(self, viewport: Viewport) -> bool {
        (self.width, self.height) == (i64::from(viewport.width), i64::from(viewport.height))
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

async fn heed(browser: std::sync::Weak<Browser>, mut notices: mpsc::Receiver<Notice>) {
    while let Some(notice) = notices.recv().await {
        let Some(browser) = browser.upgrade() else { return };
        browser.dialogs.heed(&notice);
        match notice.method.as_str() {
            "Target.detachedFromTarget" => {
                let mut page = browser.page.lock();
                if page.as_ref().is_some_and(|page| notice.params["sessionId"] == page.session.as_str()) {
                    *page = None;
                }
            }
            "Target.targetCreated" if notice.params["targetInfo"]["type"] == "page" => {
                if let Some(target) = notice.params["targetInfo"]["targetId"].as_str().map(str::to_owned) {
                    // Beside this: a page that is slow must not hold up what else there is to hear.
                    tokio::spawn(async move { browser.page_opened(target).await });
                }
            }
            "Target.targetDestroyed" => {
                browser.open_pages.left(notice.params["targetId"].as_str().unwrap_or_default());
            }
            _ => {}
        }
    }
}
