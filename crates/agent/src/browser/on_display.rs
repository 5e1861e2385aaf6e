//! The browser's windows on a display, and the keyboard in them.
//!
//! Chromium gives the keyboard of its first window, and of each new window with an empty page, to the address bar. Who
//! drives a browser expects it in the page.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use super::{BROWSER_TIMEOUT, Browser, MAX_PAGES, Page};
use crate::cdp::CdpError;
use crate::computer::signs::settle;
use crate::display::blocking;
use crate::x11::X11;
use casement_agent_protocol::Viewport;

/// The timeout for a window to fill the display, or to appear.
const WINDOW_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of one answer of a page, which may be a busy one.
const PAGE_TIMEOUT: Duration = Duration::from_millis(500);
/// The interval at which windows are looked at meanwhile.
const RETRY_BACKOFF: Duration = Duration::from_millis(5);
/// The pages of the browser itself, such as that of a new tab. A person who opens one may want to type an address.
const BROWSERS_OWN: &str = "chrome://";

/// The display of a browser that has one.
#[derive(Debug, Default)]
pub(super) struct OnDisplay {
    x11: OnceLock<Arc<X11>>,
    /// Held for reading while a new page is looked at.
    opening: Arc<RwLock<()>>,
}

impl OnDisplay {
    /// Announces that a new page will be looked at, until the result is dropped.
    pub(super) fn opening(&self) -> Option<OwnedRwLockReadGuard<()>> {
        self.x11.get().and_then(|_| Arc::clone(&self.opening).try_read_owned().ok())
    }
}

impl Browser {
    /// Notes the display that the browser's windows are on.
    pub(crate) fn show_on(&self, x11: Arc<X11>) {
        drop(self.display.x11.set(x11));
    }

    /// Waits until the window in front fills the display, and gives the keyboard to its page.
    pub(crate) async fn settle_on_display(&self, viewport: Viewport) -> Result<(), CdpError> {
        let front = self.front_target().await?;
        let attached = self.probe_page.lock().clone().filter(|page| page.target == front);
        let page = match &attached {
            Some(page) => page.clone(),
            None => self.attach(front, BROWSER_TIMEOUT).await?,
        };
        self.wait_for_window(&page, viewport).await;
        self.settle_display().await;
        let focused = self.cdp.call(Some(&page.session), "Page.bringToFront", json!({}), BROWSER_TIMEOUT).await;
        if attached.is_none() {
            self.detach(&page).await;
        }
        focused.map(drop)
    }

    /// Waits until the page's window has the size of the display. A busy page does not report it in time.
    async fn wait_for_window(&self, page: &Page, viewport: Viewport) {
        let deadline = Instant::now() + WINDOW_TIMEOUT;
        let expected = json!([viewport.width, viewport.height]);
        while Instant::now() < deadline {
            match self.evaluate(&page.session, "[outerWidth, outerHeight]", PAGE_TIMEOUT).await {
                Ok(size) if size == expected => return,
                Ok(_) => tokio::time::sleep(RETRY_BACKOFF).await,
                Err(error) => return tracing::debug!(%error, "the page in front does not report its window"),
            }
        }
        tracing::warn!("the browser's window does not fill the display");
    }

    /// Waits until the page in front has handled the input that it was sent before. Does not wait for a page that does
    /// not answer.
    pub(crate) async fn settle_front(&self) {
        let settled = async {
            let front = self.front_target().await?;
            if self.block_of(&front).is_some() {
                return Ok(());
            }
            let page = self.attach(front, PAGE_TIMEOUT).await?;
            let answered = self.evaluate(&page.session, "1", PAGE_TIMEOUT).await;
            self.detach(&page).await;
            answered.map(drop)
        };
        let settled: Result<(), CdpError> = settled.await;
        if let Err(error) = settled {
            tracing::debug!(%error, "the page in front does not answer after a shortcut");
        }
    }

    /// Waits until no new page is looked at any more.
    pub(crate) async fn settle_new_pages(&self) {
        drop(tokio::time::timeout(WINDOW_TIMEOUT, self.display.opening.write()).await);
    }

    /// Gives the keyboard to a new page if its window is new too and in front. A pop-up has it already.
    pub(super) async fn focus_new_page(&self, target: &str) {
        let Some(x11) = self.display.x11.get() else { return };
        if let Err(error) = self.focus_if_in_front(target, x11).await {
            tracing::debug!(%error, "cannot give the keyboard to a new page");
        }
    }

    async fn focus_if_in_front(&self, target: &str, x11: &X11) -> Result<(), CdpError> {
        let deadline = Instant::now() + WINDOW_TIMEOUT;
        while Instant::now() < deadline {
            let pages = self.pages_in_windows().await?;
            let Some((_, url, own)) = pages.iter().find(|(page, ..)| page == target) else { return Ok(()) };
            let is_tab = pages.iter().any(|(page, _, window)| page != target && window == own);
            if is_tab || url.starts_with(BROWSERS_OWN) {
                return Ok(());
            }
            // Chromium numbers its windows in the order of their creation, as the X server does.
            let windows: BTreeSet<i64> = pages.iter().map(|(.., window)| *window).collect();
            let shown = x11.browser_windows();
            if shown.count == windows.len() {
                let is_front = shown.front == windows.iter().position(|window| window == own);
                return if is_front { self.focus_page(target).await } else { Ok(()) };
            }
            // The window has not appeared yet.
            tokio::time::sleep(RETRY_BACKOFF).await;
        }
        Ok(())
    }

    /// Returns each open page with its URL and the number of its window.
    async fn pages_in_windows(&self) -> Result<Vec<(String, String, i64)>, CdpError> {
        let addresses = self.page_addresses().await?;
        let found = join_all(addresses.into_iter().take(MAX_PAGES).map(async |(page, url)| {
            let params = json!({ "targetId": page });
            let window = self.cdp.call(None, "Browser.getWindowForTarget", params, BROWSER_TIMEOUT).await.ok()?;
            Some((page, url, window["windowId"].as_i64()?))
        }));
        Ok(found.await.into_iter().flatten().collect())
    }

    /// Waits until the browser knows which of its windows has the keyboard. If it hears of that later, it gives the
    /// keyboard to the part of the window that had it before.
    async fn settle_display(&self) {
        let Some(x11) = self.display.x11.get().cloned() else { return };
        if let Err(error) = blocking(move || settle(&x11)).await {
            tracing::debug!(%error, "the browser's window does not accept input events");
        }
    }

    async fn focus_page(&self, target: &str) -> Result<(), CdpError> {
        let page = self.attach(target.to_owned(), BROWSER_TIMEOUT).await?;
        self.settle_display().await;
        let focused = self.cdp.call(Some(&page.session), "Page.bringToFront", json!({}), BROWSER_TIMEOUT).await;
        self.detach(&page).await;
        focused.map(drop)
    }
}
