//! Ends browsers, and detaches from them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use casement_domain::browser::{EngineError, EngineFault};
use casement_domain::ids::BrowserId;
use futures_util::{FutureExt, StreamExt, stream};

use crate::engine::Engine;
use crate::fault::failed;
use crate::running::{BrowserSlot, Ending};

/// The maximum number of browsers that are ended at a time.
const MAX_ENDING: usize = 8;
/// The pause before a failed end is retried.
const END_BACKOFF: Duration = Duration::from_secs(10);

impl Engine {
    /// Ends a browser completely. Concurrent callers wait for the same task, which continues if they stop waiting.
    pub(crate) async fn end_browser(&self, id: BrowserId) -> Result<(), EngineError> {
        let ending = {
            let mut slots = self.0.slots();
            match slots.get(&id) {
                Some(BrowserSlot::Ending(ending)) => ending.clone(),
                slot => {
                    let ending = self.start_ending(id, slot.cloned());
                    slots.insert(id, BrowserSlot::Ending(ending.clone()));
                    ending
                }
            }
        };
        ending.await.map_err(|message| failed(EngineFault::AgentError, message))
    }

    fn start_ending(&self, id: BrowserId, slot: Option<BrowserSlot>) -> Ending {
        // The watch stops first, so that no event is sent.
        if let Some(BrowserSlot::Running(running)) = &slot {
            running.stop_watching();
        }
        let engine = self.clone();
        let task = tokio::spawn(async move {
            if let Some(BrowserSlot::Starting(starting)) = slot {
                starting.cancelled.cancel();
                starting.has_finished.cancelled().await;
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

    /// Ends the browser again after [`END_BACKOFF`] until nothing of it is left: a failed start is not stored, and its
    /// caller may not request the end again.
    pub(crate) fn retry_end(&self, id: BrowserId) {
        let is_new = self.0.end_failed.lock().insert(id);
        if !is_new {
            return;
        }
        let engine = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(END_BACKOFF).await;
            let Some(engine) = engine.upgrade().map(Engine) else { return };
            engine.0.end_failed.lock().remove(&id);
            // A failure is retried by the same function.
            let _ = engine.end_browser(id).await;
        });
    }

    /// Removes every process, mount, socket and file of a browser.
    pub(crate) async fn remove_remains(&self, id: BrowserId) -> Result<(), String> {
        let name = id.to_string();
        self.close_sockets(id);
        self.0.host.end(&name).await.map_err(|error| {
            tracing::error!(browser = %id, %error, "cannot end a sandbox");
            format!("browser {id} could not be ended whole")
        })
    }

    /// Ends every browser that is neither in `keep` nor starting, and removes the remains of incomplete starts. Returns
    /// the ids of the ended browsers. Call [`Engine::find_running`] first to adopt those in `keep`.
    ///
    /// # Errors
    /// If something remains; the other browsers were ended nevertheless. Call it again.
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
        // An incomplete start has no record. No start may begin now, because the two could not be distinguished.
        let _making = self.0.start_lock.write().await;
        let spared = keep.iter().chain(self.0.slots().keys()).map(ToString::to_string).collect();
        let rest = self.0.host.sweep(&spared).await.map_err(|error| unswept(&error))?;
        ended.extend(rest.iter().filter_map(|id| id.parse::<BrowserId>().ok()));
        all.map(|()| ended)
    }

    /// Ends every browser that runs or is starting.
    ///
    /// # Errors
    /// See [`Engine::end_all_but`].
    pub async fn end_all(&self) -> Result<(), EngineError> {
        self.end_all_but(&[]).await
    }

    /// Ends every browser that runs or is starting, except those in `keep`.
    ///
    /// # Errors
    /// The first failure; the others were ended nevertheless.
    pub async fn end_all_but(&self, keep: &[BrowserId]) -> Result<(), EngineError> {
        let all = self.0.slots().keys().filter(|id| !keep.contains(id)).copied().collect();
        self.end_each(all).await
    }

    /// Refuses further starts, so that none begins while the others are being ended.
    pub fn refuse_starts(&self) {
        let _slots = self.0.slots();
        self.0.refuses_starts.store(true, Ordering::Relaxed);
    }

    /// Leaves the browsers running for the next server process. Ends those that are starting.
    pub async fn detach(self) {
        self.refuse_starts();
        let starting = {
            let slots = self.0.slots();
            slots.iter().filter(|(_, slot)| matches!(slot, BrowserSlot::Starting(_))).map(|(id, _)| *id).collect()
        };
        // The next server process sweeps the browsers that could not be ended.
        self.end_each(starting).await.ok();
        let mut slots = self.0.slots();
        // Set before the first slot is removed, so that concurrent work does not consider the running browsers ended.
        self.0.detached.store(true, Ordering::Relaxed);
        for (id, slot) in slots.drain() {
            if let BrowserSlot::Running(running) = slot {
                running.stop_watching();
                self.close_sockets(id);
            }
        }
    }

    /// Stops serving the socket of a sandbox that leads out.
    pub(crate) fn close_sockets(&self, id: BrowserId) {
        self.0.egress.close(&id.to_string());
        if let Some(remote) = self.0.remote.get() {
            remote.close(id);
        }
    }

    async fn end_each(&self, ids: Vec<BrowserId>) -> Result<(), EngineError> {
        let ends = stream::iter(ids).map(|id| self.end_browser(id)).buffer_unordered(MAX_ENDING);
        ends.fold(Ok(()), |all, one| async move { all.and(one) }).await
    }
}

fn unswept(error: &casement_sandbox::ListError) -> EngineError {
    tracing::error!(%error, "the sandboxes could not be swept");
    failed(EngineFault::AgentError, "the sandboxes could not be swept; the server's log says why")
}
