//! A browser outside of this sandbox: its first page, and the size of its pages.
//!
//! Its window may be managed by another program, be smaller than requested, or be on a screen with another scale. Where
//! the window does not give a page the exact size, the size is emulated. The emulation lasts as long as the session
//! that has set it, so that session stays attached.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::json;

use super::{BROWSER_TIMEOUT, Browser, FIRST_PAGE_TIMEOUT, Page, Version};
use crate::cdp::{CdpError, Endpoint};
use casement_agent_protocol::Viewport;

/// The scale of a page whose pixels are those of its picture.
const SCALE: f64 = 1.0;

/// The pages with an emulated size.
#[derive(Debug, Default)]
pub(super) struct HeldSizes {
    /// The sessions that hold the sizes, by target.
    sessions: Mutex<HashMap<String, String>>,
    /// True if windows do not give pages the exact size, so that new pages have an emulated one too.
    is_needed: AtomicBool,
}

impl HeldSizes {
    pub(super) fn remove(&self, target: &str) {
        self.sessions.lock().remove(target);
    }

    pub(super) fn session(&self, target: &str) -> Option<String> {
        self.sessions.lock().get(target).cloned()
    }
}

impl Browser {
    /// Connects to a remote browser and queries its version. `emulates_sizes` is true if an earlier connection to the
    /// same browser has emulated the sizes of pages.
    pub(crate) async fn connect_remote(
        endpoint: &Endpoint,
        viewport: Viewport,
        emulates_sizes: bool,
    ) -> Result<(Arc<Self>, Version), CdpError> {
        let (browser, version, notices) = Self::open_connection(endpoint, viewport).await?;
        browser.held_sizes.is_needed.store(emulates_sizes, Ordering::Relaxed);
        Ok((browser.listening(notices), version))
    }

    /// Proves that a page and the network service of a remote browser answer, and gives the page its size. A page is
    /// opened if there is none.
    pub(crate) async fn prove_remote_page(&self) -> Result<(), CdpError> {
        let page = self.probe_page(FIRST_PAGE_TIMEOUT).await?;
        self.probe_page_and_network(&page, FIRST_PAGE_TIMEOUT).await?;
        let viewport = self.viewport();
        self.resize_screen(&page, viewport).await;
        self.fit_remote(&page, viewport, true).await
    }

    /// Subscribes to the pages of a remote browser, also to those that are open. Each gets its size, and its dialogs
    /// are tracked.
    pub(crate) async fn follow_remote_pages(&self) -> Result<(), CdpError> {
        self.resizes_new.store(true, Ordering::Relaxed);
        self.cdp.send(None, "Target.setDiscoverTargets", json!({ "discover": true })).await
    }

    /// Returns true if the sizes of pages are emulated.
    pub(crate) fn emulates_sizes(&self) -> bool {
        self.held_sizes.is_needed.load(Ordering::Relaxed)
    }

    /// Resizes one page of a remote browser. If `is_requested` is true and its window does not give it the exact size,
    /// the sizes of all pages are emulated from now on. Otherwise a page that a client has resized keeps its size.
    pub(super) async fn fit_remote(&self, page: &Page, viewport: Viewport, is_requested: bool) -> Result<(), CdpError> {
        if !self.emulates_sizes() {
            match self.fit_window(page, viewport, is_requested).await {
                Ok(state) if !is_requested || state.hidden || state.scale == SCALE => return Ok(()),
                Ok(_) => {}
                Err(CdpError::Refused { .. }) if is_requested => {}
                Err(error) => return Err(error),
            }
            tracing::info!("the window of the remote browser does not give pages their size, which is emulated");
            self.held_sizes.is_needed.store(true, Ordering::Relaxed);
        }
        self.emulate_size(page, viewport).await
    }

    async fn emulate_size(&self, page: &Page, viewport: Viewport) -> Result<(), CdpError> {
        const METHOD: &str = "Emulation.setDeviceMetricsOverride";
        let session = match self.held_sizes.session(&page.target) {
            Some(session) => session,
            None => self.attach(page.target.clone(), BROWSER_TIMEOUT).await?.session,
        };
        let Viewport { width, height, .. } = viewport;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": SCALE, "mobile": false });
        self.cdp.call(Some(&session), METHOD, size, BROWSER_TIMEOUT).await?;
        self.held_sizes.sessions.lock().insert(page.target.clone(), session);
        let state = self.resized_state(page, viewport).await?;
        if state.has(viewport) { Ok(()) } else { Err(state.refused(METHOD)) }
    }

    /// Returns all pages as `/json/list` of a browser does, the page in front first.
    pub(crate) async fn listed_pages(&self) -> Result<serde_json::Value, CdpError> {
        let mut pages = self.page_addresses().await?;
        let order = self.open_pages.newest_first(pages.iter().map(|(target, _)| target.clone()).collect());
        let front = self.front_target().await.ok();
        pages.sort_by_key(|(target, _)| {
            let rank = order.iter().position(|listed| listed == target);
            (front.as_ref() != Some(target), rank)
        });
        let describe = |(id, url): (String, String)| json!({ "id": id, "type": "page", "url": url });
        Ok(pages.into_iter().map(describe).collect())
    }
}
