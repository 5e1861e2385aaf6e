//! The `agent` socket: the session's operations over HTTP/1.1.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};

use crate::browser_state::BrowserStates;
use crate::computer::Computer;
use crate::curl::Curl;
use crate::event_stream::StatusReports;
use crate::extension::Extensions;
use crate::fs::{self, Watches};
use crate::login_page::LoginPage;
use crate::process::Processes;
use crate::profile::Profiles;
use crate::replay::Replays;
use crate::reply::{Answer, Body, Refusal, empty, ok, read};
use crate::restart::RestartOperation;
use crate::screen::ScreenOperations;
use crate::script::{Repl, Scripts};
use crate::server_contact::ServerContact;
use crate::session_log;
use crate::telemetry::Telemetry;
use crate::view::Views;
use crate::webmcp::WebMcp;
use casement_agent_protocol::extension::RESTART;
use casement_agent_protocol::{ErrorCode, PROTOCOL_VERSION, VERSION_HEADER};

/// The maximum number of open connections.
const MAX_CONNECTIONS: usize = 256;

/// All operations of the session.
#[derive(Debug)]
pub(crate) struct Operations {
    pub(crate) contact: Arc<ServerContact>,
    pub(crate) shutdown: Arc<Notify>,
    pub(crate) reports: StatusReports,
    pub(crate) screen: ScreenOperations,
    pub(crate) restart: RestartOperation,
    pub(crate) states: BrowserStates,
    pub(crate) computer: Arc<Computer>,
    pub(crate) curl: Curl,
    pub(crate) login_page: LoginPage,
    pub(crate) processes: Processes,
    pub(crate) watches: Arc<Watches>,
    pub(crate) profiles: Arc<Profiles>,
    pub(crate) extensions: Arc<Extensions>,
    pub(crate) replays: Arc<Replays>,
    pub(crate) repl: Repl,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) views: Views,
    pub(crate) webmcp: WebMcp,
}

/// Serves callers until the task is dropped.
pub(crate) async fn serve(listener: UnixListener, operations: Operations) {
    let operations = Arc::new(operations);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((caller, _)) => {
                let operations = Arc::clone(&operations);
                tokio::spawn(async move {
                    serve_connection(caller, operations).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the agent socket");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve_connection(caller: UnixStream, operations: Arc<Operations>) {
    let service = service_fn(move |request| {
        let operations = Arc::clone(&operations);
        async move { Ok::<_, Infallible>(operations.handle(request).await) }
    });
    let connection = http1::Builder::new().max_buf_size(64 << 10).serve_connection(TokioIo::new(caller), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to the agent broke");
    }
}

impl Operations {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let _pending = self.contact.begin_request();
        self.route(request).await.unwrap_or_else(Refusal::into_response)
    }

    async fn route(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        if head.method == Method::GET && head.uri.path() == "/v1/status" {
            // Served for every version, because the response contains the version of this agent.
            return ok(&self.reports.status.current());
        }
        check_version(&head.headers)?;
        self.check_remote(head.uri.path())?;
        match (&head.method, head.uri.path()) {
            (&Method::GET, "/v1/ready") => ok(&self.reports.wait_until_ready().await),
            (&Method::GET, "/v1/events") => Ok(self.reports.events()),
            (&Method::POST, "/v1/handout") => self.screen.hand_out(read(body).await?).await,
            (&Method::POST, "/v1/screenshot") => self.screen.screenshot(read(body).await?).await,
            (&Method::POST, "/v1/viewport") => self.screen.resize(read(body).await?).await,
            (&Method::POST, RESTART) => self.restart.serve(read(body).await?).await,
            (&Method::POST, "/v1/shutdown") => {
                self.shutdown.notify_one();
                Ok(empty())
            }
            _ => self.route_area(&head, body).await,
        }
    }

    /// Refuses what a remote browser does not have: its files and programs are elsewhere.
    fn check_remote(&self, path: &str) -> Result<(), Refusal> {
        let has_area = |area: &str| path.strip_prefix("/v1/").is_some_and(|rest| rest.starts_with(area));
        let is_local = path == RESTART || ["process/", "fs/", "profile/", "extension/"].into_iter().any(has_area);
        if is_local && self.screen.browser.is_remote() {
            let message = "the browser of this session is remote: its files and programs are not in this sandbox";
            return Err(Refusal::new(ErrorCode::NotSupported, message));
        }
        Ok(())
    }

    /// Routes `/v1/<area>/<operation>`.
    async fn route_area(&self, head: &Parts, body: Incoming) -> Answer {
        let path = head.uri.path();
        let (area, _operation) = path.strip_prefix("/v1/").and_then(|rest| rest.split_once('/')).unwrap_or_default();
        match area {
            "browser_state" => self.states.serve(head, body).await,
            "computer" => self.computer.serve(head, body).await,
            "curl" => self.curl.serve(head, body).await,
            "login_page" => self.login_page.serve(head, body).await,
            "process" => self.processes.serve(head, body).await,
            "fs" => fs::serve(&self.watches, head, body).await,
            "profile" => self.profiles.serve(head, body).await,
            "extension" => self.extensions.serve(head, body).await,
            "session_log" => session_log::serve(head, body).await,
            "replay" => self.replays.serve(head, body).await,
            "repl" => self.repl.serve(head, body).await,
            "script" => self.scripts.serve(head, body).await,
            "telemetry" => self.telemetry.serve(head, body).await,
            "webmcp" => self.webmcp.serve(head, body).await,
            "view" => self.views.serve(head, body).await,
            _ => Err(Refusal::no_operation(path)),
        }
    }
}

fn check_version(headers: &http::HeaderMap) -> Result<(), Refusal> {
    let version = headers.get(VERSION_HEADER).map(|value| value.to_str().ok().and_then(|v| v.parse::<u32>().ok()));
    match version {
        None => Ok(()),
        Some(Some(version)) if version <= PROTOCOL_VERSION => Ok(()),
        Some(_) => {
            let message = format!("this agent speaks version {PROTOCOL_VERSION}");
            Err(Refusal::new(ErrorCode::UnsupportedVersion, message))
        }
    }
}
