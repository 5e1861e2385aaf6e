//! Reports the state of the server to systemd, for services of `Type=notify`.

use sd_notify::NotifyState;
use tracing::warn;

/// Reports that the server is ready at this address.
pub(super) fn report_ready(url: &str) {
    report(&[NotifyState::Ready, NotifyState::Status(&format!("ready at {url}"))]);
}

/// Reports that the server drains: it goes on running, and takes no new sessions.
pub(super) fn report_draining() {
    report(&[NotifyState::Status("draining: no new sessions")]);
}

/// Reports that the server stops.
pub(super) fn report_stopping() {
    report(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// Does nothing if no service manager waits for it.
fn report(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "cannot report the state of the server to the service manager");
    }
}
