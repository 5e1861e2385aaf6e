//! Controls a running browser over its debugging protocol.

mod active_page;
mod capture;
mod dialogs;
pub(crate) mod focused;
mod kiosk_windows;
mod on_display;
mod open_pages;
mod remote;
mod reopen;
mod tabs;
mod unstick;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::cdp::{Cdp, CdpError, Endpoint, Notice, text};
use crate::display::Display;
use crate::flags::WINDOW_FRAME;
use crate::own_page;
use casement_agent_protocol::Viewport;

pub(crate) use reopen::{OpenTabs, RESTART_PAGE};

/// The timeout of a call that does not depend on a page.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of the first page's first answer.
const FIRST_PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for a page to reach its new size before it is resized again.
const RESIZE_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum number of times that a page is resized.
const MAX_ATTEMPTS: usize = 4;
/// A URL without cookies that is never opened.
const UNUSED_URL: &str = "https://casement.invalid/";
/// The maximum number of pages that an operation on all pages reaches. A page can open any number.
const MAX_PAGES: usize = 64;

/// The version of the browser.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) product: String,
    pub(crate) user_agent: String,
}

/// A page and an attached session.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) target: String,
    pub(crate) session: String,
}

/// A browser that answers, over one open connection.
#[derive(Debug)]
pub(crate) struct Browser {
    pub(crate) cdp: Cdp,
    endpoint: Endpoint,
    /// The page of the liveness probe. Attached once, because attaching costs as much as the probe.
    probe_page: Mutex<Option<Page>>,
    viewport: Mutex<Viewport>,
    dialogs: dialogs::Dialogs,
    open_pages: open_pages::OpenPages,
    /// True if new pages are resized to the viewport.
    resizes_new: AtomicBool,
    kiosk: OnceLock<Arc<Display>>,
    held_sizes: remote::HeldSizes,
    display: on_display::OnDisplay,
}

impl Browser {
    /// Connects to the browser and queries its version. A restarted one opens [`RESTART_PAGE`] beside the restored
    /// pages.
    pub(crate) async fn connect(
        endpoint: &Endpoint,
        viewport: Viewport,
        is_restarted: bool,
    ) -> Result<(Arc<Self>, Version), CdpError> {
        let (browser, version, mut notices) = Self::open_connection(endpoint, viewport).await?;
        if is_restarted {
            browser.wait_for_restart_page().await?;
        } else {
            browser.wait_for_first_page(&mut notices).await?;
        }
        Ok((browser.listening(notices), version))
    }

    /// Connects to the browser and queries its version.
    async fn open_connection(
        endpoint: &Endpoint,
        viewport: Viewport,
    ) -> Result<(Self, Version, mpsc::Receiver<Notice>), CdpError> {
        let (cdp, notices) = Cdp::connect_within(endpoint, BROWSER_TIMEOUT).await?;
        let version = cdp.call(None, "Browser.getVersion", json!({}), BROWSER_TIMEOUT).await?;
        let browser = Self {
            cdp,
            endpoint: endpoint.clone(),
            probe_page: Mutex::new(None),
            viewport: Mutex::new(viewport),
            dialogs: dialogs::Dialogs::default(),
            open_pages: open_pages::OpenPages::default(),
            resizes_new: AtomicBool::new(false),
            kiosk: OnceLock::new(),
            held_sizes: remote::HeldSizes::default(),
            display: on_display::OnDisplay::default(),
        };
        let owned = |key: &str| text(&version[key]).to_owned();
        let version = Version { product: owned("product"), user_agent: owned("userAgent") };
        Ok((browser, version, notices))
    }

    /// Handles the notices of the browser from now on.
    fn listening(self, notices: mpsc::Receiver<Notice>) -> Arc<Self> {
        let browser = Arc::new(self);
        tokio::spawn(handle_notices(Arc::downgrade(&browser), notices));
        browser
    }

    /// Waits for the first page, because the port opens before the page exists, and attaches to it.
    async fn wait_for_first_page(&self, notices: &mut mpsc::Receiver<Notice>) -> Result<(), CdpError> {
        let discover = |on: bool| json!({ "discover": on });
        self.cdp.call(None, "Target.setDiscoverTargets", discover(true), BROWSER_TIMEOUT).await?;
        let announced = async {
            loop {
                let notice = notices.recv().await.ok_or(CdpError::Closed)?;
                let info = &notice.params["targetInfo"];
                if notice.method == "Target.targetCreated" && info["type"] == "page" {
                    return Ok(text(&info["targetId"]).to_owned());
                }
            }
        };
        let target = tokio::time::timeout(FIRST_PAGE_TIMEOUT, announced)
            .await
            .map_err(|_| CdpError::Timeout { method: "first page", after: FIRST_PAGE_TIMEOUT })??;
        self.cdp.send(None, "Target.setDiscoverTargets", discover(false)).await?;
        let page = self.attach(target, FIRST_PAGE_TIMEOUT).await?;
        self.set_probe_page(Some(page));
        Ok(())
    }

    /// Subscribes to all pages, and to their dialogs and crashes.
    pub(crate) async fn follow_pages(&self) -> Result<(), CdpError> {
        let page = self.probe_page(BROWSER_TIMEOUT).await?;
        self.track_dialogs(&page).await?;
        self.cdp.send(None, "Target.setDiscoverTargets", json!({ "discover": true })).await
    }

    /// Proves that the first page and the network service answer, and resizes a page without a display.
    pub(crate) async fn prove_first_page(&self, headless: bool) -> Result<(), CdpError> {
        let page = self.probe_page(FIRST_PAGE_TIMEOUT).await?;
        self.probe_page_and_network(&page, FIRST_PAGE_TIMEOUT).await?;
        let state = self.page_state(&page.session, FIRST_PAGE_TIMEOUT).await?;
        let viewport = self.viewport();
        if headless && !state.has(viewport) {
            self.fit(&page, viewport, false).await?;
        }
        Ok(())
    }

    /// Proves that the probe's page and the network service answer.
    pub(crate) async fn probe(&self, within: Duration) -> Result<(), CdpError> {
        let deadline = Instant::now() + within;
        let page = self.probe_page(within).await?;
        match self.probe_page_and_network(&page, remaining(deadline)).await {
            // A client has closed the page: another one is used, or created.
            Err(CdpError::Refused { .. }) => {
                self.set_probe_page(None);
                let page = self.probe_page(remaining(deadline)).await?;
                self.probe_page_and_network(&page, remaining(deadline)).await
            }
            other => other,
        }
    }

    /// Evaluates an expression in the page and queries the cookies of an unused URL, at the same time. Only Chromium's
    /// network service, a process of its own, knows cookies.
    async fn probe_page_and_network(&self, page: &Page, within: Duration) -> Result<(), CdpError> {
        let cookies = json!({ "urls": [UNUSED_URL] });
        let (page, network) = tokio::join!(
            self.evaluate(&page.session, "1", within),
            self.cdp.call(Some(&page.session), "Network.getCookies", cookies, within),
        );
        page.and(network).map(drop)
    }

    /// Begins to load `url` in the probe's page, without waiting for it.
    pub(crate) async fn open(&self, url: &str) -> Result<(), CdpError> {
        let page = self.probe_page(BROWSER_TIMEOUT).await?;
        self.cdp.send(Some(&page.session), "Page.navigate", json!({ "url": url })).await
    }

    /// Returns true if the browser itself, independent of its pages, does not answer in time.
    pub(crate) async fn is_unresponsive(&self, within: Duration) -> bool {
        let reply = self.cdp.call(None, "Browser.getVersion", json!({}), within).await;
        matches!(reply, Err(CdpError::Timeout { .. }))
    }

    /// Requests that the browser closes, without waiting for it.
    pub(crate) async fn close(&self) -> Result<(), CdpError> {
        self.cdp.send(None, "Browser.close", json!({})).await
    }

    /// Resizes all pages to `viewport`, and later also new ones.
    ///
    /// A page that a client has resized keeps its size. If all pages do, nothing changes.
    pub(crate) async fn resize(&self, viewport: Viewport) -> Result<(), CdpError> {
        let before = std::mem::replace(&mut *self.viewport.lock(), viewport);
        let mut visible = Vec::new();
        let mut is_screen_resized = false;
        let (mut is_any_resized, mut failure) = (false, None);
        for target in self.pages().await? {
            if self.block_of(&target).is_some() {
                continue;
            }
            let Ok(page) = self.attach(target, BROWSER_TIMEOUT).await else { continue };
            if !is_screen_resized {
                is_screen_resized = self.resize_screen(&page, viewport).await;
            }
            if let Ok(state) = self.page_state(&page.session, Duration::from_secs(2)).await {
                if !state.hidden {
                    visible.push((state.focused, page.target.clone()));
                }
                match self.fit(&page, viewport, true).await {
                    Ok(()) => is_any_resized = true,
                    Err(error) => failure = Some((error, page.target.clone())),
                }
            }
            self.detach(&page).await;
        }
        // A hidden page is resized in front, so the visible pages are brought to the front again, the focused one last.
        visible.sort_unstable();
        for (_, target) in visible {
            self.cdp.call(None, "Target.activateTarget", json!({ "targetId": target }), BROWSER_TIMEOUT).await?;
        }
        if let Some((error, target)) = failure.filter(|_| !is_any_resized) {
            *self.viewport.lock() = before;
            if let Ok(page) = self.attach(target, BROWSER_TIMEOUT).await {
                self.resize_screen(&page, before).await;
                self.detach(&page).await;
            }
            return Err(error);
        }
        // New windows open at the size of the command line, so each is resized from now on.
        self.resizes_new.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Resizes the screen that pages see, through any page. Returns false for an older browser, which cannot resize it;
    /// its pages are resized nevertheless.
    async fn resize_screen(&self, page: &Page, viewport: Viewport) -> bool {
        let resized = async {
            let screens =
                self.cdp.call(Some(&page.session), "Emulation.getScreenInfos", json!({}), BROWSER_TIMEOUT).await?;
            let size = json!({
                "screenId": screens["screenInfos"][0]["id"], "width": viewport.width, "height": viewport.height,
            });
            self.cdp.call(Some(&page.session), "Emulation.updateScreen", size, BROWSER_TIMEOUT).await
        };
        let error = resized.await.err();
        match &error {
            // A remote browser may have a screen of its own.
            Some(error) if self.endpoint.is_remote() => tracing::debug!(%error, "cannot resize the screen"),
            Some(error) => tracing::warn!(%error, "cannot resize the screen"),
            None => {}
        }
        error.is_none()
    }

    async fn page_opened(self: Arc<Self>, target: String) {
        if !self.open_pages.admit(&target) {
            return self.close_page(&target).await;
        }
        Arc::clone(&self).track_new_page(target.clone()).await;
        self.show_in_kiosk(&target).await;
        self.focus_new_page(&target).await;
        if self.resizes_new.load(Ordering::Relaxed) {
            self.resize_new(target).await;
        }
    }

    async fn resize_new(&self, target: String) {
        let resized = async {
            let page = self.attach(target, BROWSER_TIMEOUT).await?;
            let result = self.fit(&page, self.viewport(), false).await;
            self.detach(&page).await;
            result
        };
        if let Err(error) = resized.await {
            tracing::debug!(%error, "cannot resize a new page");
        }
    }

    /// Resizes one page. `may_raise` is true if the page may be brought to the front for it.
    async fn fit(&self, page: &Page, viewport: Viewport, may_raise: bool) -> Result<(), CdpError> {
        match self.endpoint.is_remote() {
            true => self.fit_remote(page, viewport, may_raise).await,
            false => self.fit_window(page, viewport, may_raise).await.map(drop),
        }
    }

    /// Resizes one page, by moving the edges of its window by the difference. Returns its last state.
    async fn fit_window(&self, page: &Page, viewport: Viewport, may_raise: bool) -> Result<PageState, CdpError> {
        let mut state = self.page_state(&page.session, BROWSER_TIMEOUT).await?;
        for _ in 0..MAX_ATTEMPTS {
            if state.has(viewport) || (state.hidden && !may_raise) {
                return Ok(state);
            }
            if state.hidden {
                let target = json!({ "targetId": page.target });
                self.cdp.call(None, "Target.activateTarget", target, BROWSER_TIMEOUT).await?;
                state = self.resized_state(page, viewport).await?;
                continue;
            }
            let before = self.move_edges(page, viewport, state).await?;
            let after = self.resized_state(page, viewport).await?;
            if (after.width, after.height) == (state.width, state.height) {
                // A client sets the size of the page, or the page reports a wrong one: further moves would not help.
                self.cdp.call(None, "Browser.setWindowBounds", before, BROWSER_TIMEOUT).await?;
                break;
            }
            state = after;
        }
        if state.has(viewport) {
            return Ok(state);
        }
        Err(state.refused("Browser.setWindowBounds"))
    }

    /// Moves the edges of the page's window, and returns the parameters that move them back.
    async fn move_edges(&self, page: &Page, viewport: Viewport, state: PageState) -> Result<Value, CdpError> {
        let target = json!({ "targetId": page.target });
        let window = self.cdp.call(None, "Browser.getWindowForTarget", target, BROWSER_TIMEOUT).await?;
        let side = |key: &str, want: u32, have: i64, guess: u32| {
            let now = window["bounds"][key].as_i64().unwrap_or_else(|| i64::from(guess));
            now + i64::from(want) - have
        };
        let bounds = json!({
            "width": side("width", viewport.width, state.width, viewport.width),
            "height": side("height", viewport.height, state.height, viewport.height + WINDOW_FRAME),
        });
        let params = |bounds: &Value| json!({ "windowId": window["windowId"], "bounds": bounds });
        self.cdp.call(None, "Browser.setWindowBounds", params(&bounds), BROWSER_TIMEOUT).await?;
        let sides = &window["bounds"];
        Ok(params(&json!({ "width": sides["width"], "height": sides["height"] })))
    }

    /// Returns the state of the page once it has its size, or after the timeout.
    async fn resized_state(&self, page: &Page, viewport: Viewport) -> Result<PageState, CdpError> {
        let deadline = Instant::now() + RESIZE_TIMEOUT;
        loop {
            let state = self.page_state(&page.session, BROWSER_TIMEOUT).await?;
            if state.has(viewport) || Instant::now() >= deadline {
                return Ok(state);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns the target and the URL of each open page.
    async fn page_addresses(&self) -> Result<Vec<(String, String)>, CdpError> {
        let reply = self.cdp.call(None, "Target.getTargets", json!({}), BROWSER_TIMEOUT).await?;
        let targets = reply["targetInfos"].as_array().map(Vec::as_slice).unwrap_or_default();
        let pages = targets.iter().filter(|info| info["type"] == "page" && !dialogs::is_print_preview(info));
        Ok(pages.map(|info| (text(&info["targetId"]).to_owned(), text(&info["url"]).to_owned())).collect())
    }

    async fn pages(&self) -> Result<Vec<String>, CdpError> {
        Ok(self.page_addresses().await?.into_iter().map(|(target, _)| target).take(MAX_PAGES).collect())
    }

    /// Returns the page of the liveness probe; if there is none, any page or a new one becomes it.
    async fn probe_page(&self, within: Duration) -> Result<Page, CdpError> {
        if let Some(page) = self.probe_page.lock().clone().filter(|page| !self.has_crashed(&page.target)) {
            return Ok(page);
        }
        let target = match self.pages().await?.into_iter().find(|target| !self.has_crashed(target)) {
            Some(target) => target,
            None => {
                let created =
                    self.cdp.call(None, "Target.createTarget", json!({ "url": "about:blank" }), within).await?;
                text(&created["targetId"]).to_owned()
            }
        };
        let page = self.attach(target, within).await?;
        self.set_probe_page(Some(page.clone()));
        Ok(page)
    }

    fn set_probe_page(&self, page: Option<Page>) {
        *self.probe_page.lock() = page;
    }

    pub(crate) fn viewport(&self) -> Viewport {
        *self.viewport.lock()
    }

    pub(crate) async fn attach(&self, target: String, within: Duration) -> Result<Page, CdpError> {
        let session = self.cdp.attach(&target, within).await?;
        Ok(Page { target, session })
    }

    pub(crate) async fn detach(&self, page: &Page) {
        self.dialogs.remove_session(&page.session);
        // The page and its session may be closed already.
        drop(self.cdp.send(None, "Target.detachFromTarget", json!({ "sessionId": page.session })).await);
    }

    async fn evaluate(&self, session: &str, expression: &str, within: Duration) -> Result<Value, CdpError> {
        let params = json!({ "expression": expression, "returnByValue": true });
        let mut reply = self.cdp.call(Some(session), "Runtime.evaluate", params, within).await?;
        Ok(reply["result"]["value"].take())
    }

    async fn page_state(&self, session: &str, within: Duration) -> Result<PageState, CdpError> {
        let expression =
            "[innerWidth, innerHeight, document.visibilityState === 'hidden', document.hasFocus(), devicePixelRatio]";
        let value = self.evaluate(session, expression, within).await?;
        Ok(PageState {
            width: value[0].as_i64().unwrap_or(0),
            height: value[1].as_i64().unwrap_or(0),
            hidden: value[2].as_bool().unwrap_or(true),
            focused: value[3].as_bool().unwrap_or(false),
            scale: value[4].as_f64().unwrap_or(1.0),
        })
    }
}

/// The state that a page reports of itself. A hostile page can report a wrong one.
#[derive(Debug, Clone, Copy)]
struct PageState {
    width: i64,
    height: i64,
    hidden: bool,
    focused: bool,
    /// The number of device pixels per pixel of the page.
    scale: f64,
}

impl PageState {
    fn has(self, viewport: Viewport) -> bool {
        (self.width, self.height) == (i64::from(viewport.width), i64::from(viewport.height))
    }

    /// Returns the error of a page that does not take its size.
    fn refused(self, method: &'static str) -> CdpError {
        CdpError::Refused { method, message: format!("the page stays at {} × {}", self.width, self.height) }
    }
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Returns whether a target is a page of callers: not one that the agent has opened for itself, nor a print preview.
pub(crate) fn is_page_of_caller(info: &Value) -> bool {
    info["type"] == "page" && !own_page::is(text(&info["url"])) && !dialogs::is_print_preview(info)
}

async fn handle_notices(browser: std::sync::Weak<Browser>, mut notices: mpsc::Receiver<Notice>) {
    while let Some(notice) = notices.recv().await {
        let Some(browser) = browser.upgrade() else { return };
        browser.dialogs.handle(&notice);
        match notice.method.as_str() {
            "Target.detachedFromTarget" => {
                let mut page = browser.probe_page.lock();
                if page.as_ref().is_some_and(|page| notice.params["sessionId"] == page.session.as_str()) {
                    *page = None;
                }
            }
            "Target.targetCreated" if is_page_of_caller(&notice.params["targetInfo"]) => {
                if let Some(target) = notice.params["targetInfo"]["targetId"].as_str().map(str::to_owned) {
                    let opening = browser.display.opening();
                    // In a task of its own, because a slow page must not delay other notices.
                    tokio::spawn(async move {
                        browser.page_opened(target).await;
                        drop(opening);
                    });
                }
            }
            "Target.targetDestroyed" => {
                let target = text(&notice.params["targetId"]);
                browser.open_pages.remove(target);
                browser.held_sizes.remove(target);
            }
            _ => {}
        }
    }
}
