//! New windows on a display, such as those of contexts of clients. Chromium opens each one pixel smaller than the
//! display, so that no window manager treats it as full screen, and in a kiosk with tabs and address bar. No window
//! manager runs, so each is given what the first window has.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{BROWSER_TIMEOUT, Browser};
use crate::cdp::CdpError;
use crate::display::{Display, DisplayError};
use casement_agent_protocol::Viewport;

/// The number of times that a new window is looked at, and the pause between: it is announced before it is shown.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The reason why a window does not fill the display.
#[derive(Debug, thiserror::Error)]
enum PlaceError {
    #[error(transparent)]
    Browser(#[from] CdpError),
    #[error(transparent)]
    Display(#[from] DisplayError),
}

/// The display of new windows.
#[derive(Debug)]
pub(crate) struct NewWindows {
    pub(crate) display: Arc<Display>,
    /// The size of the window on the command line of Chromium.
    pub(crate) opened: Viewport,
    pub(crate) is_kiosk: bool,
}

impl NewWindows {
    /// Returns the size of a new window that no page has sized.
    fn first_size(&self, display: (u16, u16)) -> (u16, u16) {
        let side = |opened: u32, display: u16| u16::try_from(opened).unwrap_or(u16::MAX).min(display.saturating_sub(1));
        (side(self.opened.width, display.0), side(self.opened.height, display.1))
    }
}

impl Browser {
    /// Has new windows fill the display from now on.
    pub(crate) fn fill_display(&self, windows: NewWindows) {
        // A browser has one display.
        drop(self.new_windows.set(windows));
    }

    /// Has the window of a new page fill the display, unless it is a window of another size.
    pub(super) async fn place_window(&self, target: &str) {
        let Some(windows) = self.new_windows.get() else { return };
        for _ in 0..ATTEMPTS {
            match self.try_place_window(windows, target).await {
                Ok(false) => return,
                Ok(true) => {}
                // The page has no window yet, or none any more.
                Err(error) => tracing::debug!(%error, "cannot place a new window"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns false if nothing is left to do.
    async fn try_place_window(&self, windows: &NewWindows, target: &str) -> Result<bool, PlaceError> {
        let size = windows.first_size(windows.display.size().await?);
        let page = json!({ "targetId": target });
        let window = self.cdp.call(None, "Browser.getWindowForTarget", page, BROWSER_TIMEOUT).await?;
        let side = |name: &str| window["bounds"][name].as_i64();
        let sides = [side("left"), side("top"), side("width"), side("height")];
        if sides != [0, 0, i64::from(size.0), i64::from(size.1)].map(Some) {
            return Ok(false);
        }
        if windows.is_kiosk && window["bounds"]["windowState"] == "normal" {
            let full = json!({ "windowId": window["windowId"], "bounds": { "windowState": "fullscreen" } });
            self.cdp.call(None, "Browser.setWindowBounds", full, BROWSER_TIMEOUT).await?;
        }
        windows.display.fill_with_windows_of(size).await?;
        Ok(true)
    }
}
