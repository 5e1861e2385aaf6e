//! New windows of a kiosk, such as those of contexts of clients. Chromium opens each one with tabs and an address bar,
//! although its first window shows only the page.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{BROWSER_TIMEOUT, Browser};
use crate::cdp::CdpError;
use crate::display::{Display, DisplayError};

/// The number of times that a new window is looked at, and the pause between: it is announced before it is shown.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The reason why a window does not show only its page.
#[derive(Debug, thiserror::Error)]
enum KioskError {
    #[error(transparent)]
    Browser(#[from] CdpError),
    #[error(transparent)]
    Display(#[from] DisplayError),
}

impl Browser {
    /// Has each new window that fills this display show only its page from now on.
    pub(crate) fn fill_screen_of(&self, display: Arc<Display>) {
        // A browser has one display.
        drop(self.kiosk.set(display));
    }

    /// Has the window of a new page show only the page in a kiosk, unless it is a window of another size.
    pub(super) async fn show_in_kiosk(&self, target: &str) {
        let Some(display) = self.kiosk.get() else { return };
        for _ in 0..ATTEMPTS {
            match self.try_fill_screen(display, target).await {
                Ok(()) => return,
                // The page has no window yet, or none any more.
                Err(error) => tracing::debug!(%error, "cannot show a new window in full screen"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_fill_screen(&self, display: &Display, target: &str) -> Result<(), KioskError> {
        let (width, height) = display.size().await?;
        let page = json!({ "targetId": target });
        let window = self.cdp.call(None, "Browser.getWindowForTarget", page, BROWSER_TIMEOUT).await?;
        let bounds = &window["bounds"];
        // Chromium opens it one pixel smaller than the display, and the window manager adds the pixel.
        let fills = |side: &str, display: u16| bounds[side].as_i64().is_some_and(|side| side >= i64::from(display) - 1);
        if bounds["windowState"] == "normal" && fills("width", width) && fills("height", height) {
            let full = json!({ "windowId": window["windowId"], "bounds": { "windowState": "fullscreen" } });
            self.cdp.call(None, "Browser.setWindowBounds", full, BROWSER_TIMEOUT).await?;
        }
        Ok(())
    }
}
