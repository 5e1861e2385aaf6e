//! Watches a browser through one open connection to its agent and through its sandbox's first process. Nothing is
//! polled.

use std::sync::{Arc, Weak};
use std::time::Duration;

use casement_agent_protocol::{Event, ExitReason, State};
use casement_sandbox::MemoryLimit;

use crate::engine::{Engine, Inner};
use crate::events::{BrowserExitReason, EngineEvent};
use crate::fault;
use crate::running::Running;

/// The number of times that a live agent's event stream may break before the browser counts as crashed, and the pause
/// between two tries.
const MAX_TRIES: usize = 3;
const RETRY_BACKOFF: Duration = Duration::from_secs(1);
/// The timeout for the last event of an agent that has ended.
const LAST_EVENT_TIMEOUT: Duration = Duration::from_millis(200);

/// The reason why the browser is unusable, and a text for the log.
type End = (BrowserExitReason, String);

impl Engine {
    /// Watches the browser until it ends or the watch is cancelled.
    pub(crate) fn watch(&self, running: &Arc<Running>) {
        let (inner, watched) = (Arc::downgrade(&self.0), Arc::downgrade(running));
        let limit = running.memory_bytes.saturating_add(self.0.config.disk_bytes);
        let task = tokio::spawn(async move {
            let Some(running) = watched.upgrade() else { return };
            let (reason, detail) = until_end(&running, limit).await;
            report(&inner, &running, reason, &detail);
        });
        running.set_watch_task(task.abort_handle());
    }
}

fn report(inner: &Weak<Inner>, running: &Running, reason: BrowserExitReason, detail: &str) {
    // The rest is Chromium's output, which may contain content of pages.
    let how = detail.split(';').next().unwrap_or_default();
    tracing::warn!(browser = %running.id, reason = reason.as_str(), how = fault::shorten(how.to_owned()), "a browser ended by itself");
    if reason == BrowserExitReason::Oom {
        running.mark_out_of_memory();
    }
    if let Some(inner) = inner.upgrade() {
        inner.listeners.notify(EngineEvent { browser: running.id, reason });
    }
}

async fn until_end(running: &Running, memory_limit: u64) -> End {
    let sandbox = &running.sandbox;
    let mut listening = std::pin::pin!(listen(running));
    let ended = tokio::select! {
        biased;
        reported = &mut listening => Err(reported),
        ended = sandbox.exited() => Ok(ended),
        end = killed_for_memory(running) => Err(end),
        end = over_memory(running, memory_limit) => return end,
    };
    let reported = match ended {
        Err(reported) => reported,
        // The agent's last event may still be on its way.
        Ok(Ok(())) => tokio::time::timeout(LAST_EVENT_TIMEOUT, listening)
            .await
            .unwrap_or_else(|_| (BrowserExitReason::Crashed, "its sandbox ended".to_owned())),
        Ok(Err(error)) => {
            tracing::error!(browser = %running.id, %error, "cannot watch a sandbox; watching only its agent");
            listening.await
        }
    };
    // The kernel's report decides, because the agent does not know why a process was killed.
    if sandbox.oom_killed() { (BrowserExitReason::Oom, reported.1) } else { reported }
}

/// Returns when the kernel has killed a process because the memory was full. Killing a page's process may not end the
/// browser.
async fn killed_for_memory(running: &Running) -> End {
    if let Err(error) = running.sandbox.out_of_memory().await {
        tracing::warn!(browser = %running.id, %error, "cannot watch the memory of a sandbox");
        return std::future::pending().await;
    }
    (BrowserExitReason::Oom, "a process of it was killed for its memory".to_owned())
}

/// Returns when a sandbox without a kernel limit exceeds its memory. The agent measures the memory too, but it can be
/// stopped from inside.
async fn over_memory(running: &Running, limit: u64) -> End {
    if running.sandbox.memory != MemoryLimit::None {
        return std::future::pending().await;
    }
    running.sandbox.over_memory(limit).await;
    (BrowserExitReason::Oom, "the memory limit of the session was exceeded".to_owned())
}

/// Refreshes the browser's debugging path: a previous server process may have requested a restart.
async fn refresh_path(running: &Running) {
    if running.remote.is_some() {
        return;
    }
    let moved = match running.agent.status().await {
        Ok(status) if status.state == State::Ready => running.set_cdp_path(status.browser_ws_path),
        // The agent sends another event when the browser is ready.
        Ok(_) => Ok(()),
        Err(error) => Err(running.failed(&error)),
    };
    if let Err(error) = moved {
        tracing::warn!(browser = %running.id, %error, "cannot query a browser's debugging path");
    }
}

/// Returns when the agent reports the end of the browser, or does not answer.
async fn listen(running: &Running) -> End {
    let mut tries = MAX_TRIES;
    loop {
        match running.agent.events().await {
            Ok(mut events) => loop {
                match events.next().await {
                    Ok(Some(Event::Exited { reason, detail })) => {
                        let reason = match reason {
                            ExitReason::Oom => BrowserExitReason::Oom,
                            ExitReason::Closed => BrowserExitReason::Closed,
                            ExitReason::Hung => BrowserExitReason::Hung,
                            _ => BrowserExitReason::Crashed,
                        };
                        return (reason, detail);
                    }
                    Ok(Some(Event::Ready)) => {
                        tries = MAX_TRIES;
                        refresh_path(running).await;
                    }
                    Ok(Some(_)) => tries = MAX_TRIES,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(browser = %running.id, %error, "the event stream of an agent broke");
                        break;
                    }
                }
            },
            Err(error) => tracing::debug!(browser = %running.id, %error, "cannot open the event stream of an agent"),
        }
        if tries == 0 {
            return (BrowserExitReason::Crashed, "its agent does not answer".to_owned());
        }
        tries -= 1;
        tokio::time::sleep(RETRY_BACKOFF).await;
    }
}
