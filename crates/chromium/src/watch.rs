//! Watching a browser: one open connection to its agent and its sandbox's first process. Nothing is polled.

use std::sync::{Arc, Weak};
use std::time::Duration;

use casement_agent_protocol::{Event, ExitReason, State};
use casement_sandbox::MemoryLimit;

use crate::engine::{Engine, Inner};
use crate::events::{BrowserExitReason, EngineEvent, What};
use crate::fault;
use crate::running::Running;

/// How often an agent that lives may break off its events before it counts as gone, and how long it is waited for.
const TRIES: usize = 3;
const BETWEEN: Duration = Duration::from_secs(1);
/// How long the last word of an agent may take that has ended.
const LAST_WORD: Duration = Duration::from_millis(200);

/// Why the browser is of no use, and a word for the log.
type End = (BrowserExitReason, String);

impl Engine {
    /// Watches the browser until it is gone or nobody cares any more.
    pub(crate) fn watch(&self, running: &Arc<Running>) {
        let (inner, watched) = (Arc::downgrade(&self.0), Arc::downgrade(running));
        let limit = self.0.config.memory_bytes.saturating_add(self.0.config.disk_bytes);
        let task = tokio::spawn(async move {
            let Some(running) = watched.upgrade() else { return };
            let (why, detail) = until_end(&running, limit).await;
            report(&inner, &running, why, &detail);
        });
        running.watched_by(task.abort_handle());
    }
}

fn report(inner: &Weak<Inner>, running: &Running, why: BrowserExitReason, detail: &str) {
    // What Chromium itself wrote comes after the first part, and may hold what its pages are about.
    let how = detail.split(';').next().unwrap_or_default();
    tracing::warn!(browser = %running.id, ?why, how = fault::shorten(how.to_owned()), "a browser is gone");
    if why == BrowserExitReason::Oom {
        running.mark_out_of_memory();
    }
    if let Some(inner) = inner.upgrade() {
        inner.listeners.tell(EngineEvent { browser: running.id, what: What::Exited(why) });
    }
}

async fn until_end(running: &Running, memory_limit: u64) -> End {
    let sandbox = &running.sandbox;
    let mut listening = std::pin::pin!(listen(running));
    let ended = tokio::select! {
        biased;
        told = &mut listening => Err(told),
        ended = sandbox.exited() => Ok(ended),
        end = killed_for_memory(running) => Err(end),
        end = over_memory(running, memory_limit) => return end,
    };
    let told = match ended {
        Err(told) => told,
        // The agent's last word may still be on its way.
        Ok(Ok(())) => tokio::time::timeout(LAST_WORD, listening)
            .await
            .unwrap_or_else(|_| (BrowserExitReason::Crashed, "its sandbox ended".to_owned())),
        Ok(Err(error)) => {
            tracing::error!(browser = %running.id, %error, "a sandbox cannot be watched; its agent is");
            listening.await
        }
    };
    // The kernel's word counts: whom it killed for memory, the agent sees only end.
    if sandbox.oom_killed() { (BrowserExitReason::Oom, told.1) } else { told }
}

/// Returns when the kernel has killed a part of it: a page takes no process with it that anybody waits for.
async fn killed_for_memory(running: &Running) -> End {
    if let Err(error) = running.sandbox.out_of_memory().await {
        tracing::warn!(browser = %running.id, %error, "the memory of a sandbox cannot be watched");
        return std::future::pending().await;
    }
    (BrowserExitReason::Oom, "a process of it was killed for its memory".to_owned())
}

/// Returns when a sandbox whose memory nothing limits holds more than it may. Its agent looks, too, and can be stopped from inside.
async fn over_memory(running: &Running, limit: u64) -> End {
    if running.sandbox.memory != MemoryLimit::None {
        return std::future::pending().await;
    }
    running.sandbox.over_memory(limit).await;
    (BrowserExitReason::Oom, "the memory limit of the session was exceeded".to_owned())
}

/// Learns where the browser answers: it may have been started anew by the order of a server that has died since.
async fn learn(running: &Running) {
    let moved = match running.agent.status().await {
        Ok(status) if status.state == State::Ready => running.moved(status.browser_ws_path),
        // It is said again when it is ready.
        Ok(_) => Ok(()),
        Err(error) => Err(running.failed(&error)),
    };
    if let Err(error) = moved {
        tracing::warn!(browser = %running.id, %error, "where a browser answers is not known");
    }
}

/// Returns when the agent says that the browser is gone, or nobody answers.
async fn listen(running: &Running) -> End {
    let mut tries = TRIES;
    loop {
        match running.agent.events().await {
            Ok(mut events) => loop {
                match events.next().await {
                    Ok(Some(Event::Exited { reason, detail })) => {
                        let why = match reason {
                            ExitReason::Oom => BrowserExitReason::Oom,
                            ExitReason::Closed => BrowserExitReason::Closed,
                            ExitReason::Hung => BrowserExitReason::Hung,
                            _ => BrowserExitReason::Crashed,
                        };
                        return (why, detail);
                    }
                    Ok(Some(Event::Ready)) => {
                        tries = TRIES;
                        learn(running).await;
                    }
                    Ok(Some(_)) => tries = TRIES,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(browser = %running.id, %error, "the events of an agent broke off");
                        break;
                    }
                }
            },
            Err(error) => tracing::debug!(browser = %running.id, %error, "an agent does not tell its events"),
        }
        if tries == 0 {
            return (BrowserExitReason::Crashed, "its agent does not answer".to_owned());
        }
        tries -= 1;
        tokio::time::sleep(BETWEEN).await;
    }
}
