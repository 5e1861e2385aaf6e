//! A remote browser: the agent connects to it, and again when the connection is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::time::timeout;

use super::start::check_config;
use super::{End, PROBE_TIMEOUT, Supervisor, send_result, unresponsive};
use crate::browser::{Browser, Version};
use crate::browser_handle::RunningBrowser;
use crate::cdp::CdpError;
use crate::chromium::StartError;
use crate::remote_forward;
use crate::reply::Refusal;
use casement_agent_protocol::{ErrorCode, ExitReason, FailureCode, State};

/// The time within which a connection must be opened at the start. It counts only while the server serves the socket:
/// without a server, the idle timeout of the session decides.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout of one try, and the pause after a failed one, which doubles each time.
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_BACKOFF: Duration = Duration::from_millis(5);
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// The pause before a lost connection is opened again, for a connection that is lost again and again.
const LOST_PAUSE: Duration = Duration::from_millis(50);

impl Supervisor {
    /// Drives the remote browser until it is lost or a shutdown is requested. A shutdown does not close the browser.
    pub(super) async fn run_remote(&mut self) -> End {
        let shutdown = Arc::clone(&self.shutdown);
        let started = tokio::select! {
            started = self.start_remote() => started,
            () = shutdown.notified() => return End::requested(),
        };
        let mut browser = match started {
            Ok(browser) => browser,
            Err(error) => return End::failed(error),
        };
        loop {
            tokio::select! {
                () = browser.cdp.closed() => {}
                () = unresponsive(&self.browser) => {
                    let detail = format!("the remote browser did not answer for {} s", PROBE_TIMEOUT.as_secs());
                    return End::exited(ExitReason::Hung, detail);
                }
                () = shutdown.notified() => return End::requested(),
                Some(restart) = self.restarts.recv() => {
                    let refusal = Refusal::new(ErrorCode::NotSupported, "a remote browser is not started from here");
                    send_result(Some(restart.result), Err(refusal));
                    continue;
                }
            }
            let connected = tokio::select! {
                connected = self.reconnect(&browser) => connected,
                () = shutdown.notified() => return End::requested(),
            };
            browser = match connected {
                Ok(browser) => browser,
                Err(error) => return self.lost(&error),
            };
        }
    }

    async fn start_remote(&self) -> Result<Arc<Browser>, StartError> {
        let (config, status) = (&self.config, self.browser.status());
        check_config(config)?;
        let port = TcpListener::bind(("127.0.0.1", config.debugging_port)).await;
        let port = port.map_err(|e| StartError::new(FailureCode::Other, format_args!("the debugging port: {e}")))?;
        tokio::spawn(remote_forward::serve(port, self.browser.clone()));
        let (browser, version) = self.connect(false, START_TIMEOUT).await?;
        status.add_stage("attach");
        browser.prove_remote_page().await?;
        status.add_stage("evaluated");
        if let Some(url) = &config.start_url {
            browser.open(url).await?;
        }
        browser.follow_remote_pages().await?;
        self.use_remote(&browser, version);
        Ok(browser)
    }

    /// Connects again, with the state of the browser unchanged.
    async fn reconnect(&self, lost: &Browser) -> Result<Arc<Browser>, CdpError> {
        let lost_at = Instant::now();
        tracing::warn!("the connection to the remote browser is lost");
        self.browser.status().update(|status| status.state = State::Starting);
        self.browser.replace(None);
        tokio::time::sleep(LOST_PAUSE).await;
        let within = Duration::from_secs(self.config.reconnect_seconds);
        let connected = async {
            loop {
                let (browser, version) = self.connect(lost.emulates_sizes(), within).await?;
                match browser.follow_remote_pages().await {
                    Ok(()) => return Ok((browser, version)),
                    Err(error) => tracing::debug!(%error, "the connection to the remote browser is lost again"),
                }
            }
        };
        // A running recording continues in a new part.
        let (_paused, connected) = tokio::join!(self.replays.pause(), connected);
        let (browser, version) = connected?;
        self.use_remote(&browser, version);
        tracing::info!(elapsed_ms = lost_at.elapsed().as_millis(), "connected to the remote browser again");
        Ok(browser)
    }

    /// Makes the browser available to all operations.
    fn use_remote(&self, browser: &Arc<Browser>, version: Version) {
        self.browser.replace(Some(RunningBrowser { browser: Arc::clone(browser), display: None, pid: None }));
        self.browser.status().update(|status| {
            status.browser_version = version.product;
            status.user_agent = version.user_agent;
        });
        self.set_ready();
    }

    /// Tries to connect until `total` after the first failure.
    async fn connect(&self, emulates_sizes: bool, total: Duration) -> Result<(Arc<Browser>, Version), CdpError> {
        let endpoint = self.browser.endpoint();
        let (mut failing_since, mut backoff) = (None, MIN_BACKOFF);
        loop {
            let tried_at = Instant::now();
            let failing: Duration = failing_since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
            let within = total.saturating_sub(failing).clamp(MAX_BACKOFF, TRY_TIMEOUT);
            let connecting = Browser::connect_remote(&endpoint, self.browser.viewport(), emulates_sizes);
            let late = Err(CdpError::Timeout { method: "connect", after: within });
            let error = match timeout(within, connecting).await.unwrap_or(late) {
                Ok(connected) => return Ok(connected),
                Err(error) => error,
            };
            match error {
                CdpError::NotServed => failing_since = None,
                error if failing_since.get_or_insert(tried_at).elapsed() >= total => return Err(error),
                error => tracing::debug!(%error, "cannot connect to the remote browser"),
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Returns the end of a browser that could not be reached again.
    fn lost(&self, error: &CdpError) -> End {
        self.telemetry.report_reconnect_failure();
        let reason = match error {
            CdpError::Timeout { .. } => ExitReason::Hung,
            _ => ExitReason::Crashed,
        };
        let seconds = self.config.reconnect_seconds;
        End::exited(reason, format!("the remote browser could not be reached again within {seconds} s: {error}"))
    }
}
