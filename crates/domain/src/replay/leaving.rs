//! What a session that ends leaves of recordings: each is made whole and kept, or told as failed.

use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use super::{Replay, ReplayArchive, ReplayMachine, ReplayState};
use crate::blob::BlobError;
use crate::ids::{BrowserId, ReplayId, SessionId};
use crate::session::{CleanupWake, Session, TRIED_FOR};
use crate::session_operation::OperationError;
use crate::store_error::StoreError;

/// How often a machine is asked to make a film whole; each time it may take the better part of a minute.
const STOPS: usize = 8;
/// How long a machine may take over all its films. It may not be what it was, and would keep its sandbox for ever.
const TIMEOUT: Duration = Duration::hours(1);
/// Why a film is lost whose bytes could not be stored.
const UNSTORED: &str = "its film could not be stored";

/// What this stands on.
#[derive(Clone)]
pub struct ReplayDeps {
    /// The recordings and their bytes.
    pub kept: ReplayArchive,
    /// What records.
    pub machine: Arc<dyn ReplayMachine>,
    /// Who keeps what sessions leave.
    pub pending_cleanup: Arc<dyn CleanupWake>,
}

/// The recordings of sessions that end.
#[derive(Clone)]
pub struct SessionReplays {
    deps: Option<ReplayDeps>,
}

/// It could not be kept; the same may work later.
pub(crate) struct RetryLater;

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
            deps.pending_cleanup.wake();
        }
    }

    /// Ends what still runs, before the browser is closed: pictures that stop coming would count as missed.
    pub(crate) async fn stop(&self, browser: BrowserId) {
        let Some(deps) = &self.deps else { return };
        // What fails is told when it is kept.
        let Ok(all) = deps.machine.list(browser).await else { return };
        // One runs at a time. Whoever tells of more is not waited for more often.
        if let Some(running) = all.iter().find(|one| one.state == ReplayState::Running) {
            let _ = deps.machine.stop(browser, running.id).await;
        }
    }

    /// Keeps the films of an ended session. Returns once each is settled: kept, or failed with its reason.
    ///
    /// # Errors
    /// [`RetryLater`]: a film, or how it ended, could not be kept for now. The browser must stay until then.
    pub(crate) async fn keep(
        &self,
        ended: &Session,
        browser: BrowserId,
        videos: &[ReplayId],
    ) -> Result<(), RetryLater> {
        let Some(deps) = self.deps.as_ref().filter(|_| !videos.is_empty()) else { return Ok(()) };
        let began = deps.now();
        let noted = match deps.kept.rows().of_session(ended.id).await {
            Ok(noted) => noted,
            Err(error) => return deps.give_up(ended, &error),
        };
        let told = deps.machine.list(browser).await;
        for replay in noted.iter().filter(|noted| videos.contains(&noted.id)) {
            let settled = match deps.told(videos, replay, &told) {
                Ok(_) if deps.now() - began >= TIMEOUT => deps.failed(replay, "the session's machine took too long"),
                Ok(found) => deps.keep(ended, browser, found).await?,
                Err(failed) => failed,
            };
            // A note that cannot be settled fails once its browser is gone.
            if let Err(error) = deps.kept.rows().settle(&settled).await {
                deps.give_up(ended, &error)?;
            }
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
    /// What a machine tells of one of these films, or how that one failed.
    fn told(
        &self,
        videos: &[ReplayId],
        noted: &Replay,
        told: &Result<Vec<Replay>, OperationError>,
    ) -> Result<Replay, Replay> {
        let all = told
            .as_ref()
            .map_err(|error| self.failed(noted, &format!("the session's machine does not give it: {error}")))?;
        let found = all.iter().find(|one| one.id == noted.id);
        let found = found.ok_or_else(|| self.failed(noted, "it had not begun when its session ended"))?;
        // One runs at a time, so there is nothing to wait for of others.
        let mut running = all.iter().filter(|one| one.state == ReplayState::Running && videos.contains(&one.id));
        match running.next() {
            Some(first) if found.state == ReplayState::Running && first.id != found.id => {
                Err(self.failed(found, "the session's machine tells of several that run"))
            }
            _ => Ok(found.clone()),
        }
    }

    /// One recording as it stays: whole, or failed.
    async fn keep(&self, ended: &Session, browser: BrowserId, told: Replay) -> Result<Replay, RetryLater> {
        let replay = match self.whole(browser, told.clone()).await {
            Ok(replay) => replay,
            Err(error) => return Ok(self.failed(&told, &format!("its film could not be made: {error}"))),
        };
        if replay.size_bytes == 0 {
            let why = replay.detail.clone().unwrap_or_else(|| "nothing was recorded".to_owned());
            return Ok(self.failed(&replay, &why));
        }
        match self.kept.refuses(replay.size_bytes).await {
            Ok(None) => {}
            Ok(Some(why)) => return Ok(self.failed(&replay, &why)),
            Err(error) => return self.give_up(ended, &error).map(|()| self.failed(&replay, UNSTORED)),
        }
        let video = match self.machine.read(browser, replay.id, 0, replay.size_bytes).await {
            Ok(video) => video,
            Err(error) => return Ok(self.failed(&replay, &format!("its film could not be read: {error}"))),
        };
        match self.kept.put(ended.id, replay.id, video).await {
            Ok(()) => Ok(replay),
            Err(BlobError::Content(error)) => Ok(self.failed(&replay, &format!("its film could not be read: {error}"))),
            Err(BlobError::Store(_)) if self.is_tried(ended) => Err(RetryLater),
            Err(BlobError::Store(_)) => Ok(self.failed(&replay, UNSTORED)),
        }
    }

    /// Whether what the session left is still worth another try.
    fn is_tried(&self, ended: &Session) -> bool {
        self.now() - ended.ended_at.unwrap_or(self.now()) < TRIED_FOR
    }

    /// Whether to go on without the notes. A store that is away comes back; one that refuses may do so for ever.
    fn give_up(&self, ended: &Session, error: &StoreError) -> Result<(), RetryLater> {
        match error {
            StoreError::Broken { .. } if !self.is_tried(ended) => Ok(()),
            StoreError::Broken { .. } | StoreError::Unavailable { .. } => Err(RetryLater),
        }
    }

    /// The recording when its film is made.
    async fn whole(&self, browser: BrowserId, mut replay: Replay) -> Result<Replay, OperationError> {
        for _ in 0..STOPS {
            if replay.state != ReplayState::Running {
                return Ok(replay);
            }
            replay = self.machine.stop(browser, replay.id).await?;
        }
        match replay.state {
            ReplayState::Running => Err(OperationError::Failed("it took too long".to_owned())),
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
