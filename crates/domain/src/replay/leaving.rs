//! Saves the recordings of ending sessions: each is completed and stored, or marked as failed.

use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use super::{Replay, ReplayArchive, ReplayMachine, ReplayState};
use crate::blob::BlobError;
use crate::ids::{BrowserId, ReplayId, SessionId};
use crate::session::{CleanupWake, SAVE_RETRY_TIMEOUT, Session};
use crate::session_operation::OperationError;
use crate::store_error::StoreError;

/// The maximum number of attempts to complete a video; each may take almost a minute.
const MAX_STOP_ATTEMPTS: usize = 8;
/// The timeout for all videos of a session. Without it a compromised sandbox could prevent its own end.
const TIMEOUT: Duration = Duration::hours(1);
/// The reason of a video whose bytes could not be stored.
const NOT_STORED_REASON: &str = "its video could not be stored";

/// The dependencies of [`SessionReplays`].
#[derive(Clone)]
pub struct ReplayDeps {
    /// The stored recordings and their bytes.
    pub stored: ReplayArchive,
    /// Records in sandboxes.
    pub machine: Arc<dyn ReplayMachine>,
    /// The waker of the cleanup.
    pub pending_cleanup: Arc<dyn CleanupWake>,
}

/// The recordings of ending sessions.
#[derive(Clone)]
pub struct SessionReplays {
    deps: Option<ReplayDeps>,
}

/// The error of a recording that cannot be stored now; a later attempt may succeed.
pub(crate) struct RetryLater;

impl SessionReplays {
    /// Creates the recordings of ending sessions.
    #[must_use]
    pub fn new(deps: ReplayDeps) -> Self {
        Self { deps: Some(deps) }
    }

    /// Creates the instance for an installation without recordings.
    #[must_use]
    pub fn none() -> Self {
        Self { deps: None }
    }

    /// Returns the recordings of a session that are not settled.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub(crate) async fn left_by(&self, session: SessionId) -> Result<Vec<ReplayId>, StoreError> {
        match &self.deps {
            Some(deps) => deps.stored.rows().unsettled(session).await,
            None => Ok(Vec::new()),
        }
    }

    /// Wakes the cleanup, which saves the recordings in the background.
    pub(crate) fn wake_cleanup(&self) {
        if let Some(deps) = &self.deps {
            deps.pending_cleanup.wake();
        }
    }

    /// Stops the running recording before the browser is closed, because later frames would count as dropped.
    pub(crate) async fn stop(&self, browser: BrowserId) {
        let Some(deps) = &self.deps else { return };
        // Errors are reported when the recording is stored.
        let Ok(all) = deps.machine.list(browser).await else { return };
        // One recording runs at a time, so at most one is stopped even if the sandbox reports more.
        if let Some(running) = all.iter().find(|one| one.state == ReplayState::Running) {
            let _ = deps.machine.stop(browser, running.id).await;
        }
    }

    /// Stores the videos of an ended session. Returns when each recording is settled: stored, or failed with a reason.
    ///
    /// # Errors
    /// [`RetryLater`] if a video or its state could not be stored now. The browser must exist until a retry succeeds.
    pub(crate) async fn keep(
        &self,
        ended: &Session,
        browser: BrowserId,
        videos: &[ReplayId],
    ) -> Result<(), RetryLater> {
        let Some(deps) = self.deps.as_ref().filter(|_| !videos.is_empty()) else { return Ok(()) };
        let began = deps.now();
        let noted = match deps.stored.rows().of_session(ended.id).await {
            Ok(noted) => noted,
            Err(error) => return deps.give_up(ended, &error),
        };
        let reported = deps.machine.list(browser).await;
        for replay in noted.iter().filter(|noted| videos.contains(&noted.id)) {
            let settled = match deps.reported(videos, replay, &reported) {
                Ok(_) if deps.now() - began >= TIMEOUT => deps.failed(replay, "the session's machine took too long"),
                Ok(found) => deps.keep(ended, browser, found).await?,
                Err(failed) => failed,
            };
            // `reconcile_lost` settles the recording as failed after its browser has ended.
            if let Err(error) = deps.stored.rows().settle(&settled).await {
                deps.give_up(ended, &error)?;
            }
        }
        Ok(())
    }

    /// Marks the running recordings of an ended session as failed.
    pub(crate) async fn lost(&self, ended: &Session, why: &str) {
        let Some(deps) = &self.deps else { return };
        // The periodic cleanup retries after errors.
        let Ok(noted) = deps.stored.rows().of_session(ended.id).await else { return };
        for replay in noted.iter().filter(|one| one.state == ReplayState::Running) {
            let _ = deps.stored.rows().settle(&deps.failed(replay, why)).await;
        }
    }
}

impl ReplayDeps {
    /// Returns a recording as the sandbox reports it, or as failed if the report is missing or invalid.
    fn reported(
        &self,
        videos: &[ReplayId],
        noted: &Replay,
        reported: &Result<Vec<Replay>, OperationError>,
    ) -> Result<Replay, Replay> {
        let all = reported
            .as_ref()
            .map_err(|error| self.failed(noted, &format!("the session's machine does not give it: {error}")))?;
        let found = all.iter().find(|one| one.id == noted.id);
        let found = found.ok_or_else(|| self.failed(noted, "it had not begun when its session ended"))?;
        // One recording runs at a time, so a second running one is an error.
        let mut running = all.iter().filter(|one| one.state == ReplayState::Running && videos.contains(&one.id));
        match running.next() {
            Some(first) if found.state == ReplayState::Running && first.id != found.id => {
                Err(self.failed(found, "the session's machine tells of several that run"))
            }
            _ => Ok(found.clone()),
        }
    }

    /// Completes and stores one recording. Returns its final state: finished or failed.
    async fn keep(&self, ended: &Session, browser: BrowserId, reported: Replay) -> Result<Replay, RetryLater> {
        let replay = match self.whole(browser, reported.clone()).await {
            Ok(replay) => replay,
            Err(error) => return Ok(self.failed(&reported, &format!("its video could not be made: {error}"))),
        };
        if replay.size_bytes == 0 {
            let why = replay.detail.clone().unwrap_or_else(|| "nothing was recorded".to_owned());
            return Ok(self.failed(&replay, &why));
        }
        match self.stored.refuses(replay.size_bytes).await {
            Ok(None) => {}
            Ok(Some(why)) => return Ok(self.failed(&replay, &why)),
            Err(error) => return self.give_up(ended, &error).map(|()| self.failed(&replay, NOT_STORED_REASON)),
        }
        let video = match self.machine.read(browser, replay.id, 0, replay.size_bytes).await {
            Ok(video) => video,
            Err(error) => return Ok(self.failed(&replay, &format!("its video could not be read: {error}"))),
        };
        match self.stored.put(ended.id, replay.id, video).await {
            Ok(()) => Ok(replay),
            Err(BlobError::Content(error)) => {
                Ok(self.failed(&replay, &format!("its video could not be read: {error}")))
            }
            // A store that is away is waited for: its content is whole when it is back.
            Err(BlobError::Unavailable(_)) => Err(RetryLater),
            Err(BlobError::Store(_)) if self.is_tried(ended) => Err(RetryLater),
            Err(BlobError::Store(_)) => Ok(self.failed(&replay, NOT_STORED_REASON)),
        }
    }

    /// Returns whether storing is still retried.
    fn is_tried(&self, ended: &Session) -> bool {
        self.now() - ended.ended_at.unwrap_or(self.now()) < SAVE_RETRY_TIMEOUT
    }

    /// Decides whether to continue without storing the state: a broken store may fail forever, an unavailable one not.
    fn give_up(&self, ended: &Session, error: &StoreError) -> Result<(), RetryLater> {
        match error {
            StoreError::Broken { .. } if !self.is_tried(ended) => Ok(()),
            StoreError::Broken { .. } | StoreError::Unavailable { .. } => Err(RetryLater),
        }
    }

    /// Waits until the video is complete.
    async fn whole(&self, browser: BrowserId, mut replay: Replay) -> Result<Replay, OperationError> {
        for _ in 0..MAX_STOP_ATTEMPTS {
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

    /// Returns the recording as failed, without a video.
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
        self.stored.clock().now()
    }
}
