//! The window manager of a session's display.
//!
//! It makes the states of windows work (maximized, minimized, full screen), keeps windows within the display, and gives
//! the keyboard to the window in front. It draws nothing: no frame, no bar, no background.

mod file_dialog;
mod hints;
mod manager;
mod place;
mod shared;
mod window;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use x11rb::connection::Connection as _;
use x11rb::errors::{ConnectError, ConnectionError, ReplyOrIdError};
use x11rb::protocol::xproto::{ClientMessageEvent, ConnectionExt as _, EventMask, Window};
use x11rb::rust_connection::RustConnection;

use manager::Manager;
use shared::Shared;

pub(crate) use shared::BrowserWindows;

/// The timeout of the window manager's answer, also on a machine without a processor to spare.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The reason why an operation of the window manager failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WindowManagerError {
    #[error("the X server refused the window manager's connection: {0}")]
    Connect(#[from] ConnectError),
    #[error("the X server refused the window manager: {0}")]
    Start(#[from] ReplyOrIdError),
    #[error("the window manager's thread could not be started: {0}")]
    Thread(#[source] io::Error),
    #[error("the X server took no message to the window manager: {0}")]
    Send(#[from] ConnectionError),
    #[error("the window manager did not answer for {} s", TIMEOUT.as_secs())]
    Silent,
}

/// The running window manager. It ends with the X server.
#[derive(Debug)]
pub(crate) struct WindowManager {
    shared: Arc<Shared>,
    /// The window and the name of its messages.
    address: (Window, u32),
}

impl WindowManager {
    /// Starts the window manager of the display `name`, on which there is no window yet.
    pub(crate) fn start(name: &str) -> Result<Self, WindowManagerError> {
        let (connection, screen) = RustConnection::connect(Some(name))?;
        let shared = Arc::new(Shared::new());
        let manager = Manager::new(connection, screen, Arc::clone(&shared))?;
        let address = manager.address();
        let thread = std::thread::Builder::new().name("window-manager".to_owned());
        thread.spawn(move || manager.run()).map_err(WindowManagerError::Thread)?;
        Ok(Self { shared, address })
    }

    /// Decides whether windows with tabs fill the display from now on, whatever size they ask for.
    pub(crate) fn fill(&self, filling: bool) {
        self.shared.set_filling(filling);
    }

    /// Returns the browser's windows.
    pub(crate) fn browser_windows(&self) -> BrowserWindows {
        self.shared.browser_windows()
    }

    /// Returns once the window manager has acted on everything that happened on the display before; at once if it has
    /// ended. `connection` is any connection to the same display.
    pub(crate) fn settle(&self, connection: &RustConnection) -> Result<(), WindowManagerError> {
        let (window, name) = self.address;
        let number = self.shared.request();
        let message = ClientMessageEvent::new(32, window, name, [number, 0, 0, 0, 0]);
        connection.send_event(false, window, EventMask::NO_EVENT, message)?;
        connection.flush()?;
        self.shared.wait(number, TIMEOUT).then_some(()).ok_or(WindowManagerError::Silent)
    }
}
