//! Wires replays: storage beyond the end of a session, and retention.

use std::sync::Arc;

use casement_chromium::Engine;
use casement_domain::blob::BlobStore;
use casement_domain::replay::{ReplayArchive, ReplayDeps, ReplayLimits, ReplayRepository, SessionReplays};
use casement_domain::session::CleanupWake;
use tokio::sync::Notify;

use crate::disk::DiskWatch;
use crate::settings::ServeSettings;
use crate::system::System;

/// Signals that the cleanup of ended sessions is pending. Clones share the signal.
#[derive(Clone, Debug, Default)]
pub(crate) struct CleanupSignal(Arc<Notify>);

impl CleanupSignal {
    /// Waits until the signal has been set since the last call.
    pub(crate) async fn signalled(&self) {
        self.0.notified().await;
    }
}

impl CleanupWake for CleanupSignal {
    fn wake(&self) {
        self.0.notify_one();
    }
}

/// Returns the stored replays.
pub(crate) fn archive(
    rows: Arc<dyn ReplayRepository>,
    blobs: Arc<dyn BlobStore>,
    settings: &ServeSettings,
    disk: DiskWatch,
) -> ReplayArchive {
    let retention = time::Duration::days(settings.replay_days.into());
    let limits = ReplayLimits { most_bytes: settings.replay_storage << 20, retention };
    ReplayArchive::new(rows, blobs, Arc::new(System), limits, Arc::new(disk))
}

/// Returns the use cases of replays when sessions end.
pub(crate) fn of_sessions(archive: ReplayArchive, engine: &Engine, pending_cleanup: CleanupSignal) -> SessionReplays {
    SessionReplays::new(ReplayDeps {
        stored: archive,
        machine: Arc::new(engine.clone()),
        pending_cleanup: Arc::new(pending_cleanup),
    })
}
