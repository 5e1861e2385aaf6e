//! What an ended session leaves in its browser is kept, its films, its profile and its events, and then the browser is buried.

use time::Duration;

use super::super::{EndReason, Session, SessionState, TRIED_FOR};
use super::Sessions;
use crate::browser::{Browser, BrowserState};
use crate::ids::BrowserId;
use crate::profile::NotSaved;
use crate::store_error::StoreError;

/// Who waits for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Until its profile is saved, so that the next session has it. Not for films, which may be long, nor for events.
    ItsCaller,
    /// Many may end at once: the housekeeping keeps what they left.
    Nobody,
    /// The housekeeping, until everything is done.
    Housekeeping,
}

impl Sessions {
    /// The browsers of this node that are marked as ending: of sessions that left something, of deleted pools, marked by another node,
    /// and those whose burial failed before. For the node's housekeeping.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn pending_cleanup(&self) -> Result<Vec<Browser>, StoreError> {
        let mut all = self.deps.browsers.of_node(self.deps.node).await?;
        all.retain(|browser| browser.state == BrowserState::Ending);
        Ok(all)
    }

    /// Lays all of [`pending_cleanup`](Self::remains) to rest, one after the other.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn clean_up_pending(&self) -> Result<(), StoreError> {
        for browser in self.pending_cleanup().await? {
            self.clean_up_browser(&browser).await?;
        }
        Ok(())
    }

    /// Buries a browser whose time is over, after what its session left is kept.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn clean_up_browser(&self, browser: &Browser) -> Result<(), StoreError> {
        match self.unsaved(browser).await? {
            Some(ended) => self.take_leave(&ended, browser.id, Waits::Housekeeping).await,
            None => self.clean_up(browser.id).await,
        }
        Ok(())
    }

    /// Keeps what an ended session left and buries its browser. What nobody is to wait for, and what fails for now, is left to the
    /// node's housekeeping.
    pub(super) async fn take_leave(&self, ended: &Session, browser: BrowserId, waits: Waits) {
        let Ok(videos) = self.deps.replays.left_by(ended.id).await else { return };
        let saves = ended.saves_its_profile();
        let later = !videos.is_empty() || self.deps.recorder.is_owed(ended);
        if !later && !saves {
            return self.clean_up(browser).await;
        }
        if waits == Waits::Nobody || (waits == Waits::ItsCaller && !saves) {
            return self.deps.replays.remind();
        }
        // Whoever is at it buries the browser, too.
        let Some(alone) = self.deps.profiles.alone(browser) else { return };
        if !videos.is_empty() {
            self.deps.replays.stop(browser).await;
        }
        if saves && !self.save_profile(ended, browser).await {
            return;
        }
        if waits == Waits::ItsCaller && later {
            drop(alone);
            return self.deps.replays.remind();
        }
        if self.deps.replays.keep(ended, browser, &videos).await.is_ok() {
            self.deps.recorder.collect(ended, browser).await;
            self.clean_up(browser).await;
        }
    }

    /// `false` if it is to be tried again later.
    async fn save_profile(&self, ended: &Session, browser: BrowserId) -> bool {
        if let Err(error) = self.deps.profiles.save(ended, browser).await {
            let since = ended.ended_at.map_or(Duration::ZERO, |at| self.deps.clock.now() - at);
            if matches!(error, NotSaved::Keeping(_)) && since < TRIED_FOR {
                self.deps.profiles.late(ended, &error);
                return false;
            }
            self.deps.profiles.lost(ended, &error);
        }
        true
    }

    /// What a session of a node that is gone had is gone, too.
    pub(super) async fn lost_with_its_node(&self, ended: &Session) {
        if ended.state != SessionState::Ended(EndReason::NodeLost) {
            return;
        }
        if ended.saves_its_profile() {
            self.deps.profiles.lost(ended, &NotSaved::NodeGone);
        }
        self.deps.replays.lost(ended, &NotSaved::NodeGone.to_string()).await;
    }

    /// The ended session that left something to be kept in that browser.
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
