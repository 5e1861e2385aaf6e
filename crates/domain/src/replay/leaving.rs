//! What a session that ends leaves of recordings: each is made whole and kept, or told as failed.

use std::sync::Arc;

use time::OffsetDateTime;

use super::{KeptReplays, Replay, ReplayMachine, ReplayState};
use crate::blob::BlobError;
use crate::ids::{BrowserId, ReplayId, SessionId};
use crate::inside::InsideError;
use crate::session::{RemainsWake, Session, TRIED_FOR};
use crate::store_error::StoreError;

/// How often a machine is asked to make a film whole; each time it may take the better part of a minute.
const STOPS: usize = 8;

/// What this stands on.
#[derive(Clone)]
pub struct ReplayDeps {
    /// The recordings and their bytes.
    pub kept: KeptReplays,
    /// What records.
    pub machine: Arc<dyn ReplayMachine>,
    /// Who keeps what sessions leave.
    pub remains: Arc<dyn RemainsWake>,
}

/// The recordings of sessions that end.
#[derive(Clone)]
pub struct SessionReplays {
    deps: Option<ReplayDeps>,
}

/// It could not be kept; the same may work later.
pub(crate) struct Later;

impl From<StoreError> for Later {
    fn from(_: StoreError) -> Self {
        Self
    }
}

impl SessionReplays {
    /// On these ports.
    #[must_use]
    pub fn new(deps: ReplayDeps) -> Self {
        Self { deps: Some(deps) }
    }

    /// For an installation without recordings.
    #[must_use]
    pub fn none() -> Self {
        Self { deps: None }
    }

    /// The recordings of a session that are not settled.
    ///
    /// # Errors
    /// The store's failure.
    pub(crate) async fn left_by(&self, session: SessionId) -> Result<Vec<ReplayId>, StoreError> {
        match &self.deps {
            Some(deps) => deps.kept.rows().unsettled(session).await,
            None => Ok(Vec::new()),
        }
    }

    /// Has somebody keep what an ended session left, so that its caller need not wait for it.
    pub(crate) fn remind(&self) {
        if let Some(deps) = &self.deps {
            deps.remains.wake();
        }
    }

    /// Ends what still runs, before the browser is closed: pictures that stop coming would count as missed.
    pub(crate) async fn stop(&self, browser: BrowserId) {
        let Some(deps) = &self.deps else { return };
        // What fails is told when it is kept.
        let Ok(all) = deps.machine.list(browser).await else { return };
        for running in all.iter().filter(|one| one.state == ReplayState::Running) {
            let _ = deps.machine.stop(browser, running.id).await;
        }
    }

    /// Keeps the films of an ended session. Returns once each is settled: kept, or failed with its reason.
    ///
    /// # Errors
    /// [`Later`]: a film, or how it ended, could not be kept for now. The browser must stay until then.
    pub(crate) async fn keep(&self, ended: &Session, browser: BrowserId, films: &[ReplayId]) -> Result<(), Later> {
        let Some(deps) = self.deps.as_ref().filter(|_| !films.is_empty()) else { return Ok(()) };
        let noted = deps.kept.rows().of_session(ended.id).await?;
        let told = deps.machine.list(browser).await;
        for replay in noted.iter().filter(|noted| films.contains(&noted.id)) {
            let found = match &told {
                Ok(all) => all.iter().find(|one| one.id == replay.id).cloned(),
                Err(error) => Some(deps.failed(replay, &format!("the session's machine does not give it: {error}"))),
            };
            let found = found.unwrap_or_else(|| deps.failed(replay, "it had not begun when its session ended"));
            let settled = deps.keep(ended, browser, found).await?;
            deps.kept.rows().settle(&settled).await?;
        }
        Ok(())
    }

    /// The films of an ended session are given up.
    pub(crate) async fn lost(&self, ended: &Session, why: &str) {
        let Some(deps) = &self.deps else { return };
        // What fails here, the sweep finds.
        let Ok(noted) = deps.kept.rows().of_session(ended.id).await else { return };
        for replay in noted.iter().filter(|one| one.state == ReplayState::Running) {
            let _ = deps.kept.rows().settle(&deps.failed(replay, why)).await;
        }
    }
}

impl ReplayDeps {
    /// One recording as it stays: whole, or failed.
    async fn keep(&self, ended: &Session, browser: BrowserId, told: Replay) -> Result<Replay, Later> {
        let replay = match self.whole(browser, told.clone()).await {
            Ok(replay) => replay,
            Err(error) => return Ok(self.failed(&told, &format!("its film could not be made: {error}"))),
        };
        if replay.size_bytes == 0 {
            let why = replay.detail.clone().unwrap_or_else(|| "nothing was recorded".to_owned());
            return Ok(self.failed(&replay, &why));
        }
        if let Some(why) = self.kept.refuses(replay.size_bytes).await? {
            return Ok(self.failed(&replay, &why));
        }
        let film = match self.machine.read(browser, replay.id, 0, replay.size_bytes).await {
            Ok(film) => film,
            Err(error) => return Ok(self.failed(&replay, &format!("its film could not be read: {error}"))),
        };
        match self.kept.put(ended.id, replay.id, film).await {
            Ok(()) => Ok(replay),
            Err(BlobError::Content(error)) => Ok(self.failed(&replay, &format!("its film could not be read: {error}"))),
            Err(BlobError::Store(_)) if self.now() - ended.ended_at.unwrap_or(self.now()) < TRIED_FOR => Err(Later),
            Err(BlobError::Store(_)) => Ok(self.failed(&replay, "its film could not be stored")),
        }
    }

    /// The recording when its film is made.
    async fn whole(&self, browser: BrowserId, mut replay: Replay) -> Result<Replay, InsideError> {
        for _ in 0..STOPS {
            if replay.state != ReplayState::Running {
                return Ok(replay);
            }
            replay = self.machine.stop(browser, replay.id).await?;
        }
        match replay.state {
            ReplayState::Running => Err(InsideError::Failed("it took too long".to_owned())),
            ReplayState::Finished | ReplayState::Failed => Ok(replay),
        }
    }

    /// The recording without a film. That it was a whole one before does not help whoever looks for it.
    fn failed(&self, replay: &Replay, why: &str) -> Replay {
        let detail = match &replay.detail {
            Some(before) if before != why => format!("{before}; {why}"),
            _ => why.to_owned(),
        };
        Replay {
            finished_at: Some(replay.finished_at.unwrap_or_else(|| self.now())),
            state: ReplayState::Failed,
            size_bytes: 0,
            detail: Some(detail),
            ..replay.clone()
        }
    }

    fn now(&self) -> OffsetDateTime {
        self.kept.clock().now()
    }
}
