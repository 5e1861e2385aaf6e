//! Serves the one socket that leads out of the sandbox of a remote browser.

use std::collections::HashMap;
use std::os::unix::net::UnixListener as StdUnixListener;

use casement_chromium::RemotePort;
use casement_domain::BrowserId;
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::task::AbortHandle;
use tracing::error;

use super::grids::Grids;

/// Leads connections of sandboxes to the CDP of their sessions on WebDriver servers, and nowhere else.
pub(crate) struct RemoteSockets {
    grids: Grids,
    served: Mutex<HashMap<BrowserId, AbortHandle>>,
}

impl RemoteSockets {
    pub(crate) fn new(grids: Grids) -> Self {
        Self { grids, served: Mutex::default() }
    }
}

impl RemotePort for RemoteSockets {
    fn serve(&self, browser: BrowserId, record: &str, listener: StdUnixListener) {
        let Some(remote) = self.grids.parse(record) else {
            error!(%browser, "the engine of a remote browser is not configured: its sandbox has no connection");
            return;
        };
        let listener = match UnixListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return error!(%browser, %error, "cannot serve the socket of a remote browser"),
        };
        let serving = async move { remote.engine.serve_cdp(listener, (*remote.session).clone()).await };
        if let Some(before) = self.served.lock().insert(browser, tokio::spawn(serving).abort_handle()) {
            before.abort();
        }
    }

    fn close(&self, browser: BrowserId) {
        if let Some(serving) = self.served.lock().remove(&browser) {
            serving.abort();
        }
    }
}
