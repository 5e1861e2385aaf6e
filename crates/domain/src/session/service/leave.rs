//! Saves the data that an ended session left in its browser (videos, profile and events), and then removes the browser.

use time::Duration;

use super::super::{EndReason, Session, SessionState};
use super::Sessions;
use crate::browser::{Browser, BrowserState};
use crate::ids::BrowserId;
use crate::profile::NotSaved;
use crate::store_error::StoreError;

/// The saving that the end of a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CleanupWait {
    /// Waits for the profile, so that the next session has it. Videos, which may be long, and events are saved later.
    ForProfile,
    /// Waits for nothing, because many sessions may end at once. The housekeeping saves everything.
    Deferred,
    /// Waits for everything. Used by the housekeeping.
    ForAll,
}

impl CleanupWait {
    /// Returns what the end for this reason waits for.
    pub(super) fn after(reason: EndReason) -> Self {
        if reason == EndReason::IdleTimeout { Self::Deferred } else { Self::ForProfile }
    }
}

impl Sessions {
    /// Returns the browsers of this node that are marked as ending: those of sessions that left data, those of deleted
    /// pools, those that another node marked, and those whose cleanup failed before.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn pending_cleanup(&self) -> Result<Vec<Browser>, StoreError> {
        let mut all = self.deps.browsers.of_node(self.deps.node).await?;
        all.retain(|browser| browser.state == BrowserState::Ending);
        Ok(all)
    }

    /// Cleans up all browsers of [`pending_cleanup`](Self::pending_cleanup), one after the other.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn clean_up_pending(&self) -> Result<(), StoreError> {
        for browser in self.pending_cleanup().await? {
            self.clean_up_browser(&browser).await?;
        }
        Ok(())
    }

    /// Saves the data that the session left in an ending browser, and removes the browser.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn clean_up_browser(&self, browser: &Browser) -> Result<(), StoreError> {
        // Another node may have ended the session, and its notification may have been lost.
        if let Some(session) = browser.session
            && let Some(ended) = self.deps.sessions.find(session).await?
        {
            self.let_go(&ended);
        }
        match self.unsaved(browser).await? {
            Some(ended) => self.save_and_clean_up(&ended, browser.id, CleanupWait::ForAll).await,
            None => self.clean_up(browser.id).await,
        }
        Ok(())
    }

    /// Saves the data that an ended session left and removes its browser. The node's housekeeping does the work that
    /// `wait` does not include, and the work that failed.
    pub(super) async fn save_and_clean_up(&self, ended: &Session, browser: BrowserId, wait: CleanupWait) {
        let Ok(videos) = self.deps.replays.left_by(ended.id).await else { return };
        let saves = ended.saves_its_profile();
        let later = !videos.is_empty() || self.deps.recorder.is_owed(ended);
        if !later && !saves {
            return self.clean_up(browser).await;
        }
        if wait == CleanupWait::Deferred || (wait == CleanupWait::ForProfile && !saves) {
            return self.deps.replays.wake_cleanup();
        }
        // Another task saves the profile of the browser, and also removes the browser.
        let Some(alone) = self.deps.profiles.alone(browser) else { return };
        if !videos.is_empty() {
            self.deps.replays.stop(browser).await;
        }
        if saves && !self.save_profile(ended, browser).await {
            return;
        }
        if wait == CleanupWait::ForProfile && later {
            drop(alone);
            return self.deps.replays.wake_cleanup();
        }
        if self.deps.replays.keep(ended, browser, &videos).await.is_ok() {
            self.deps.recorder.collect(ended, browser).await;
            self.clean_up(browser).await;
        }
    }

    /// Saves the profile. Returns `false` if saving must be retried later.
    async fn save_profile(&self, ended: &Session, browser: BrowserId) -> bool {
        if let Err(error) = self.deps.profiles.save(ended, browser).await {
            let since = ended.ended_at.map_or(Duration::ZERO, |at| self.deps.clock.now() - at);
            if error.is_retried(since) {
                self.deps.profiles.late(ended, &error);
                return false;
            }
            self.deps.profiles.lost(ended, &error);
        }
        true
    }

    /// Reports the profile and the videos of a session on a lost node as lost.
    pub(super) async fn lost_with_its_node(&self, ended: &Session) {
        if ended.state != SessionState::Ended(EndReason::NodeLost) {
            return;
        }
        if ended.saves_its_profile() {
            self.deps.profiles.lost(ended, &NotSaved::NodeLost);
        }
        self.deps.replays.lost(ended, &NotSaved::NodeLost.to_string()).await;
    }

    /// Returns the ended session that left data in the browser, if any.
    pub(super) async fn unsaved(&self, browser: &Browser) -> Result<Option<Session>, StoreError> {
        let Some(session) = browser.session else { return Ok(None) };
        let filmed = !self.deps.replays.left_by(session).await?.is_empty();
        let found = self.deps.sessions.find(session).await?;
        Ok(found.filter(|found| {
            let left = filmed || found.saves_its_profile() || self.deps.recorder.is_owed(found);
            matches!(found.state, SessionState::Ended(_)) && left
        }))
    }
}
