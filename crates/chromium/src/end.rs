//! Ending browsers, and letting them be.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::BrowserId;
use futures_util::{FutureExt, StreamExt, stream};

use crate::engine::Engine;
use crate::fault::failed;
use crate::running::{BrowserSlot, Ending};

/// How many browsers are ended at a time when all of them are.
const AT_ONCE: usize = 8;
/// When what could not be ended whole is ended again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

impl Engine {
    /// Ends everything of a browser. Whoever asks at the same time waits for the same work, which goes on when they leave.
    pub(crate) async fn end_browser(&self, id: BrowserId) -> Result<(), EngineError> {
        let ending = {
            let mut slots = self.0.slots();
            match slots.get(&id) {
                Some(BrowserSlot::Ending(ending)) => ending.clone(),
                place => {
                    let ending = self.begin_end(id, place.cloned());
                    slots.insert(id, BrowserSlot::Ending(ending.clone()));
                    ending
                }
            }
        };
        ending.await.map_err(|message| failed(EngineFault::AgentError, message))
    }

    fn begin_end(&self, id: BrowserId, place: Option<BrowserSlot>) -> Ending {
        // Before anything of it ends, so that its end is no news.
        if let Some(BrowserSlot::Running(running)) = &place {
            running.unwatch();
        }
        let engine = self.clone();
        let task = tokio::spawn(async move {
            if let Some(BrowserSlot::Starting(starting)) = place {
                starting.unwanted.cancel();
                starting.over.cancelled().await;
            }
            let ended = engine.remove_remains(id).await;
            engine.0.slots().remove(&id);
            if ended.is_err() {
                engine.retry_end(id);
            }
            ended
        });
        async move { task.await.unwrap_or_else(|error| Err(error.to_string())) }.boxed().shared()
    }

    /// Whoever asked may not ask again: of a start that failed nothing is stored. The rest of a browser is ended until nothing is left.
    pub(crate) fn retry_end(&self, id: BrowserId) {
        let is_new = self.0.unended.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        if !is_new {
            return;
        }
        let engine = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(AGAIN_AFTER).await;
            let Some(engine) = engine.upgrade().map(Engine) else { return };
            engine.0.unended.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            // Where it fails it comes here again.
            let _ = engine.end_browser(id).await;
        });
    }

    /// Leaves no process, mount, socket or file of a browser.
    pub(crate) async fn remove_remains(&self, id: BrowserId) -> Result<(), String> {
        let name = id.to_string();
        self.0.egress.close(&name);
        self.0.host.end(&name).await.map_err(|error| {
            tracing::error!(browser = %id, %error, "a sandbox could not be ended");
            format!("browser {id} could not be ended whole")
        })
    }

    /// Ends every browser that is neither in `keep` nor being started, and what is left of starts that were never completed.
    /// Returns the ids of those that were ended. Take up the ones to keep with [`Engine::find_running`] first.
    ///
    /// # Errors
    /// If something remains; the others were ended nevertheless. Call it again.
    pub async fn sweep(&self, keep: &[BrowserId]) -> Result<Vec<BrowserId>, EngineError> {
        let found = self.0.host.list().await.map_err(|error| unswept(&error))?;
        let keep: HashSet<BrowserId> = keep.iter().copied().collect();
        let strangers: Vec<BrowserId> = found
            .iter()
            .filter_map(|sandbox| sandbox.id.parse().ok())
            .filter(|id| !keep.contains(id) && !matches!(self.0.slots().get(id), Some(BrowserSlot::Starting(_))))
            .collect();
        let mut ended = strangers.clone();
        let all = self.end_each(strangers).await;
        // What never came up has no record. Nothing may begin now: it would look like that.
        let _making = self.0.making.write().await;
        let spared = keep.iter().chain(self.0.slots().keys()).map(ToString::to_string).collect();
        let rest = self.0.host.sweep(&spared).await.map_err(|error| unswept(&error))?;
        ended.extend(rest.iter().filter_map(|id| id.parse::<BrowserId>().ok()));
        all.map(|()| ended)
    }

    /// Ends every browser that runs or is being started.
    ///
    /// # Errors
    /// See [`Engine::end_all_but`].
    pub async fn end_all(&self) -> Result<(), EngineError> {
        self.end_all_but(&[]).await
    }

    /// Ends every browser that runs or is being started, but for those in `keep`.
    ///
    /// # Errors
    /// The first that could not be ended; the others were ended nevertheless.
    pub async fn end_all_but(&self, keep: &[BrowserId]) -> Result<(), EngineError> {
        let all = self.0.slots().keys().filter(|id| !keep.contains(id)).copied().collect();
        self.end_each(all).await
    }

    /// Leaves the browsers running without a server, for its next life. Those that are being started are ended.
    pub async fn detach(self) {
        let starting = {
            let slots = self.0.slots();
            slots.iter().filter(|(_, place)| matches!(place, BrowserSlot::Starting(_))).map(|(id, _)| *id).collect()
        };
        // What could not be ended, the next life sweeps.
        self.end_each(starting).await.ok();
        let mut slots = self.0.slots();
        // Before the first of them goes: whoever is still at work must not take the living for gone.
        self.0.detached.store(true, Ordering::Relaxed);
        for (id, place) in slots.drain() {
            if let BrowserSlot::Running(running) = place {
                running.unwatch();
                self.0.egress.close(&id.to_string());
            }
        }
    }

    async fn end_each(&self, ids: Vec<BrowserId>) -> Result<(), EngineError> {
        let ends = stream::iter(ids).map(|id| self.end_browser(id)).buffer_unordered(AT_ONCE);
        ends.fold(Ok(()), |all, one| async move { all.and(one) }).await
    }
}

fn unswept(error: &casement_sandbox::ListError) -> EngineError {
    tracing::error!(%error, "the sandboxes could not be swept");
    failed(EngineFault::AgentError, "the sandboxes could not be swept; the server's log says why")
}
