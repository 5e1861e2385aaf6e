//! Stops the server.

use std::io::Write as _;
use std::time::Duration;

use casement_domain::browser::{BrowserEngine, BrowserRepository, BrowserState};
use casement_domain::session::{EndSessionError, Session, SessionEvent, SessionRepository, Sessions};
use casement_domain::{BrowserId, NodeId, StoreError};
use futures_util::{StreamExt as _, stream};
use tracing::warn;

use super::Running;
use super::infrastructure::Infrastructure;
use crate::stop::StopOrder;

/// The timeout of ending all sessions: saving the largest profile may take ten minutes, closing its browser one. The
/// next start saves what is left.
const END_SESSIONS: Duration = Duration::from_secs(11 * 60);
/// The maximum number of sessions that end at once, because their data is read, packed and sealed.
const ENDS_AT_ONCE: usize = 8;
/// How long the end of all browsers waits for WebDriver servers that are starting one.
const REMOTE_STARTS: Duration = Duration::from_secs(15);

impl Running {
    /// Stops the server in order. Sessions continue unless they are to end too.
    pub(super) async fn stop(self, order: StopOrder) {
        let Self { server, infrastructure, services, jobs, writers, .. } = self;
        services.stop.cancel();
        services.local_waiters.close();
        jobs.change_feed.close();
        if let Err(error) = server.drain().await {
            warn!(%error, "the HTTP server did not stop cleanly");
        }
        // A cleanup that is aborted by this is repeated below, or by the next start.
        if let Err(error) = jobs.browser_cleanup.await {
            warn!(%error, "the browser cleanup did not stop cleanly");
        }
        let shutdown = async {
            jobs.apps.end_awaited_calls().await;
            jobs.apps.end_processes().await;
            end_sessions(&services.sessions, &*infrastructure.rows.sessions, infrastructure.node).await;
        };
        if order == StopOrder::EndSessions && tokio::time::timeout(END_SESSIONS, shutdown).await.is_err() {
            warn!("not all calls and sessions could be ended in time; the next start ends what is left");
        }
        jobs.heartbeat.cancel();
        infrastructure.engine.refuse_starts();
        match order {
            StopOrder::KeepSessions => {
                // No other process adopts spares.
                for browser in services.spares.clear() {
                    let _ = BrowserEngine::end(&infrastructure.engines, browser).await;
                }
                report_running_sessions(&infrastructure).await;
            }
            StopOrder::EndSessions => end_browsers(&infrastructure).await,
        }
        services.unfollowed.cancel();
        infrastructure.engine.detach().await;
        // The writers finish last, because ending sessions write records too.
        writers.finish().await;
    }
}

/// Prints the number of browsers that continue without the server, because a person who pressed Ctrl-C may think that
/// they ended.
async fn report_running_sessions(infrastructure: &Infrastructure) {
    let browsers = match infrastructure.rows.browsers.of_node(infrastructure.node).await {
        Ok(browsers) => browsers,
        Err(error) => return warn!(%error, "cannot list the browsers that continue"),
    };
    let count = |state| browsers.iter().filter(|browser| browser.state == state).count();
    let (leased, idle) = (count(BrowserState::Leased), count(BrowserState::Idle));
    if leased + idle == 0 {
        return;
    }
    let mut out = std::io::stdout().lock();
    let printed = writeln!(
        out,
        "\n  {} browsers go on without the server, {leased} of them in sessions; the next start finds them again.\n  \
         `casement stop --end-sessions` ends them too.",
        leased + idle
    );
    if let Err(error) = printed.and_then(|()| out.flush()) {
        warn!(%error, "cannot print the browsers that continue");
    }
}

/// Ends all browsers except those with data that is still to be saved.
async fn end_browsers(infrastructure: &Infrastructure) {
    let unsaved = match in_sessions(&*infrastructure.rows.browsers, infrastructure.node).await {
        Ok(unsaved) => unsaved,
        Err(error) => {
            return warn!(%error, "cannot list the data that is still to be saved; the next start ends all browsers");
        }
    };
    infrastructure.engines.end_remote_but(&unsaved).await;
    if let Err(error) = infrastructure.engine.end_all_but(&unsaved).await {
        warn!(%error, "not all browsers could be ended; the next start ends what is left");
    }
    // The session of a browser whose sandbox is refused is ended by its start.
    if tokio::time::timeout(REMOTE_STARTS, infrastructure.engines.until_no_remote_start()).await.is_err() {
        warn!("a WebDriver server is still starting browsers; the next start ends them");
    }
    if !unsaved.is_empty() {
        warn!(browsers = unsaved.len(), "the data of some sessions is not saved yet; the next start saves it");
    }
}

async fn end_sessions(sessions: &Sessions, rows: &dyn SessionRepository, node: NodeId) {
    let found = match rows.of_node(node).await {
        Ok(found) => found,
        Err(error) => return warn!(%error, "cannot list the sessions"),
    };
    let active = found.into_iter().filter(Session::is_active);
    let ends = stream::iter(active).for_each_concurrent(ENDS_AT_ONCE, async |session| {
        if let Err(EndSessionError::Store(error)) = sessions.end(session.id, SessionEvent::Delete).await {
            warn!(session = %session.id, %error, "cannot end a session");
        }
    });
    ends.await;
    let pending_cleanup = match sessions.pending_cleanup().await {
        Ok(pending_cleanup) => pending_cleanup,
        Err(error) => return warn!(%error, "cannot list the pending cleanups"),
    };
    let cleanups = stream::iter(pending_cleanup).for_each_concurrent(ENDS_AT_ONCE, async |browser| {
        if let Err(error) = sessions.clean_up_browser(&browser).await {
            warn!(browser = %browser.id, %error, "cannot save the data of a session");
        }
    });
    cleanups.await;
}

/// Returns the browsers of this node whose sessions continue, or have data that is not saved yet.
async fn in_sessions(browsers: &dyn BrowserRepository, node: NodeId) -> Result<Vec<BrowserId>, StoreError> {
    let found = browsers.of_node(node).await?;
    let in_session = found.iter().filter(|one| matches!(one.state, BrowserState::Leased | BrowserState::Ending));
    Ok(in_session.map(|one| one.id).collect())
}
