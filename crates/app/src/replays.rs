//! Recordings, put together: what outlives their session, and for how long.

use std::sync::Arc;

use casement_blobs::LocalBlobs;
use casement_chromium::Engine;
use casement_domain::replay::{ReplayArchive, ReplayDeps, ReplayLimits, ReplayRepository, SessionReplays};
use casement_domain::session::CleanupWake;
use tokio::sync::Notify;

use crate::disk::DiskWatch;
use crate::settings::ServeSettings;
use crate::system::System;

/// Says that ended sessions left something; whoever keeps it hears at once. Clones are the same bell.
#[derive(Clone, Debug, Default)]
pub(crate) struct CleanupSignal(Arc<Notify>);

impl CleanupSignal {
    /// Returns when it was rung since the last time.
    pub(crate) async fn signalled(&self) {
        self.0.notified().await;
    }
}

impl CleanupWake for CleanupSignal {
    fn wake(&self) {
        self.0.notify_one();
    }
}

/// The recordings and their films.
pub(crate) fn kept(
    rows: Arc<dyn ReplayRepository>,
    blobs: Arc<LocalBlobs>,
    settings: &ServeSettings,
    disk: DiskWatch,
) -> ReplayArchive {
    let kept_for = time::Duration::days(settings.replay_days.into());
    let limits = ReplayLimits { most_bytes: settings.replay_storage << 20, kept_for };
    ReplayArchive::new(rows, blobs, Arc::new(System), limits, Arc::new(disk))
}

/// What is done with them when sessions end.
pub(crate) fn of_sessions(kept: ReplayArchive, engine: &Engine, pending_cleanup: CleanupSignal) -> SessionReplays {
    SessionReplays::new(ReplayDeps {
        kept,
        machine: Arc::new(engine.clone()),
        pending_cleanup: Arc::new(pending_cleanup),
    })
}
