//! The first start of the browser, and its restarts.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Processes, Supervisor, first_request};
use crate::browser::{Browser, OpenTabs, RESTART_PAGE};
use crate::browser_handle::RunningBrowser;
use crate::cdp::{CdpError, Endpoint};
use crate::chromium::{Chromium, StartError};
use crate::display::{Display, DisplayError};
use crate::flags::{self, Plan};
use crate::restart_queue::ResultSender;
use crate::{downloads, forward};
use casement_agent_protocol::extension::RestartRequest;
use casement_agent_protocol::{AgentConfig, FailureCode, MAX_SIDE, PROTOCOL_VERSION, State, Viewport};

/// The timeout for Chromium to list an accepted extension, and the interval of the queries.
const EXTENSIONS_TIMEOUT: Duration = Duration::from_secs(3);
const RETRY_BACKOFF: Duration = Duration::from_millis(50);

/// The parameters of a start of Chromium.
struct Start<'a> {
    viewport: Viewport,
    /// The tabs of the previous browser; `None` for the first start.
    previous: Option<&'a OpenTabs>,
    restore: bool,
}

impl Supervisor {
    /// Starts the browser for the first time. If the start is deferred, `caller` becomes the caller of the request that
    /// started the browser.
    pub(super) async fn start(&mut self, caller: &mut Option<ResultSender>) -> Result<Processes, StartError> {
        let display = self.prepare().await?;
        let mut request = RestartRequest::default();
        if self.config.held {
            let (first, result) = first_request(&mut self.restarts).await;
            (request, *caller) = (first, Some(result));
        }
        self.install_pending(&request).await?;
        let start = Start { viewport: self.config.viewport, previous: None, restore: request.profile };
        let processes = self.launch(display, start).await?;
        if let (Some(url), Some(running)) = (&self.config.start_url, self.browser.running()) {
            running.browser.open(url).await?;
        }
        self.check_extensions().await?;
        self.set_ready();
        Ok(processes)
    }

    /// Starts the forwarder and the display.
    async fn prepare(&self) -> Result<Option<Arc<Display>>, StartError> {
        let config = &self.config;
        check_config(config)?;
        let forwarder = forward::bind(config.forwarder_port)
            .await
            .map_err(|e| StartError::new(FailureCode::Other, format_args!("the forwarder's port: {e}")))?;
        tokio::spawn(forward::serve(forwarder, config.egress_socket.clone(), Arc::clone(&self.failed_tunnels)));
        if config.headless {
            return Ok(None);
        }
        let display = Display::start(&config.xvfb, config.viewport).await?;
        self.browser.status().add_stage("display");
        Ok(Some(Arc::new(display)))
    }

    /// Closes the browser in an orderly way and starts it again with its profile.
    pub(super) async fn restart(&self, processes: &mut Processes, request: &RestartRequest) -> Result<(), StartError> {
        let started_at = Instant::now();
        // A running recording continues in a new part.
        let _paused = self.replays.pause().await;
        let previous = match self.browser.ready() {
            Some(running) if !request.profile => running.browser.open_tabs().await,
            _ => OpenTabs::default(),
        };
        let status = self.browser.status();
        status.update(|status| status.state = State::Starting);
        if request.profile {
            // Another profile replaces the data that Chromium could still write.
            processes.chromium.kill_group().await;
        } else {
            self.close_for_profile(&mut processes.chromium).await;
        }
        self.browser.replace(None);
        self.chromedriver.end().await;
        self.install_pending(request).await?;
        if let Some(location) = &request.location {
            status.update(|status| status.location = Some(location.clone()));
        }
        let viewport = request.viewport.unwrap_or_else(|| self.browser.viewport());
        let mut display = processes.display.take();
        if let (Some(current), Some(size)) = (&display, request.viewport) {
            match current.resize(size).await {
                Err(DisplayError::OutOfRange(..)) => {
                    current.end().await;
                    display = Some(Arc::new(Display::start(&self.config.xvfb, size).await?));
                }
                other => other?,
            }
        }
        *processes = self.launch(display, Start { viewport, previous: Some(&previous), restore: true }).await?;
        status.update(|status| status.viewport = viewport);
        let checked = self.check_extensions().await;
        // The browser is usable without the refused extension.
        if matches!(&checked, Ok(()) | Err(StartError { code: FailureCode::Extension, .. })) {
            self.set_ready();
        }
        tracing::info!(elapsed_ms = started_at.elapsed().as_millis(), "Chromium was restarted");
        checked
    }

    /// Moves the pending extensions and the pending profile of this start to the directories that Chromium reads.
    async fn install_pending(&self, request: &RestartRequest) -> Result<(), StartError> {
        let failed = |error: io::Error| {
            StartError::new(FailureCode::Other, format_args!("putting what was brought in into its place: {error}"))
        };
        self.extensions.install(&request.extensions).map_err(failed)?;
        if request.profile {
            self.profiles.install().await.map_err(failed)?;
        }
        Ok(())
    }

    /// Starts Chromium and waits until its page answers.
    async fn launch(&self, display: Option<Arc<Display>>, start: Start<'_>) -> Result<Processes, StartError> {
        let (config, status) = (&self.config, self.browser.status());
        let Start { viewport, previous, restore } = start;
        let extensions = self.extensions.paths();
        let location = status.current().location.unwrap_or_default();
        let plan = Plan {
            viewport,
            location: &location,
            extensions: &extensions,
            first_page: previous.map(|_| RESTART_PAGE),
            restore,
        };
        if let Some(display) = &display {
            // `--window-size` would do this too, but for every pop-up as well.
            display.fill(true);
        }
        let mut chromium = Chromium::spawn(config, &plan, display.as_deref().map(Display::name))?;
        status.add_stage("spawn");
        let path = chromium.debugging_path().await?;
        let endpoint = Endpoint::Local { port: config.debugging_port, path: path.clone() };
        status.add_stage("devtools_port");
        let (browser, version) = Browser::connect(&endpoint, viewport, previous.is_some()).await?;
        status.add_stage("attach");
        if !config.restricts_downloads {
            browser.cdp.send(None, "Browser.setDownloadBehavior", downloads::behavior(&config.profile)).await?;
        }
        browser.prove_first_page(config.headless).await?;
        if let Some(display) = &display {
            browser.show_on(display.x11());
        }
        browser.follow_pages().await?;
        if let Some(previous) = previous {
            browser.show_restored(previous).await?;
            if config.headless
                && let Err(error) = browser.resize(viewport).await
            {
                tracing::warn!(%error, "cannot resize the restored pages");
            }
        }
        if let Some(display) = &display {
            if let Err(error) = browser.settle_on_display(viewport).await {
                tracing::warn!(%error, "cannot give the keyboard to the page");
            }
            display.fill(config.kiosk_mode);
            if config.kiosk_mode {
                browser.fill_screen_of(Arc::clone(display));
            }
        }
        status.add_stage("evaluated");
        self.browser.replace(Some(RunningBrowser { browser, display: display.clone(), pid: chromium.pid() }));
        let argv = chromium.argv();
        status.update(|status| {
            status.browser_ws_path = path;
            status.browser_version = version.product;
            status.user_agent = version.user_agent;
            status.chromium_argv = argv;
        });
        Ok(Processes { chromium, display })
    }

    pub(super) fn set_ready(&self) {
        self.browser.status().update(|status| status.state = State::Ready);
    }

    /// Checks that Chromium has loaded every extension, and removes those that it refused.
    async fn check_extensions(&self) -> Result<(), StartError> {
        if self.extensions.loaded().is_empty() {
            return Ok(());
        }
        let Some(running) = self.browser.running() else { return Ok(()) };
        let deadline = Instant::now() + EXTENSIONS_TIMEOUT;
        let refused = loop {
            let Some(paths) = running.browser.extensions().await? else {
                tracing::warn!("this browser does not list its extensions");
                return Ok(());
            };
            let missing = self.extensions.missing(&paths);
            if missing.is_empty() || Instant::now() >= deadline {
                break missing;
            }
            tokio::time::sleep(RETRY_BACKOFF).await;
        };
        if refused.is_empty() {
            return Ok(());
        }
        self.extensions.remove(&refused);
        let message = format!("Chromium does not take the extension {}", refused.join(", "));
        Err(StartError::new(FailureCode::Extension, message))
    }
}

pub(super) fn check_config(config: &AgentConfig) -> Result<(), StartError> {
    let refuse = |what: String| Err(StartError::new(FailureCode::Config, what));
    // A configuration of this version or an older one is accepted, also from a newer server.
    if config.version > PROTOCOL_VERSION {
        return refuse(format!("version {} is not spoken here", config.version));
    }
    let sides = [config.viewport.width, config.viewport.height];
    if sides.iter().any(|side| !(1..=MAX_SIDE).contains(side)) {
        return refuse(format!("viewport: width and height must be between 1 and {MAX_SIDE}"));
    }
    match flags::reserved(&config.extra_chromium_args) {
        Some(flag) => refuse(format!("the switch {flag} is not allowed")),
        None => Ok(()),
    }
}

impl From<DisplayError> for StartError {
    fn from(error: DisplayError) -> Self {
        Self::new(FailureCode::Display, error)
    }
}

impl From<CdpError> for StartError {
    fn from(error: CdpError) -> Self {
        let code = match error {
            CdpError::Connect(_) | CdpError::NotServed => FailureCode::DebuggingPort,
            CdpError::Closed => FailureCode::BrowserSpawn,
            CdpError::Timeout { .. } | CdpError::Refused { .. } | CdpError::Blocked(_) => FailureCode::PageUnresponsive,
        };
        Self::new(code, error)
    }
}
