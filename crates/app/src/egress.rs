//! Gives every sandbox its way out: the engine's port over the egress proxy.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use casement_egress::{Egress, EgressHandle};
use casement_webdriver::EgressPort;
use tokio::net::UnixListener;
use tokio::runtime::Handle;

/// The ways out that are open.
pub(crate) struct WaysOut {
    egress: Egress,
    runtime: Handle,
    open: Mutex<HashMap<String, EgressHandle>>,
}

impl WaysOut {
    /// None yet. Must be called inside the main runtime, which serves them.
    pub(crate) fn new(egress: Egress) -> Self {
        Self { egress, runtime: Handle::current(), open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, EgressHandle>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EgressPort for WaysOut {
    fn serve(&self, session: &str, listener: UnixListener) {
        let _entered = self.runtime.enter();
        let handle = self.egress.serve(session.to_owned(), listener);
        // One that was open under this id is dropped, which closes it.
        self.open().insert(session.to_owned(), handle);
    }

    fn close(&self, session: &str) {
        let closed = self.open().remove(session);
        if let Some(handle) = closed {
            self.runtime.spawn(handle.close());
        }
    }
}
