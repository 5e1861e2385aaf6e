//! The routes `/vm/{session_id}` and `/live/{session_id}`: connections to a session and its live view.

use std::{any::Any, sync::Arc};

use actix_web::{
    HttpRequest, HttpResponse,
    web::{self, Payload},
};
use bytes::Bytes;
use casement_domain::{
    NotFound, SessionId,
    engine::{Capability, EngineName},
    fs::Upload,
    session::ActivityGuard,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use url::Url;

use crate::{
    answer::Answer,
    body,
    connections::Registration,
    error::{ApiError, Code},
    fs::{MAX_UPLOAD, upload_response},
    live_view::{self, Access, LiveView, PageDialogs, WholeDisplay},
    relay::{
        BrowserConnector, Channel, ClientHandshake, EndSignal, Limits, PING_INTERVAL, Relay, RelayObserver,
        RemoteSessionInfo, SessionFiles,
    },
    replay,
    request::{ActiveSession, LiveOperator, LiveViewer, Request, SessionCredential, WebDriverClient},
    selenium_files::FileCommand,
    session::Urls,
    session_files::{FilesOfSession, with_existing_directory},
    state::Api,
    telemetry::{Connection, Kind},
    token::Permission,
    webdriver::{
        BidiRelay, ClassicError, ClassicRequest, ClassicResponse, CommandKind, MAX_BODY_BYTES, RemoteAnswer,
        RemoteBidi, RemoteClassic, WebDriverSessionId, forward,
    },
};

/// The guards that an open connection owns until it ends.
struct Open {
    _activity: ActivityGuard,
    _registered: Registration,
}

/// The dependencies of a connection to a session.
struct ConnectionContext {
    connector: Arc<dyn BrowserConnector>,
    engine: EngineName,
    cdp_url: String,
    webdriver_url: Url,
    view_url: String,
    permission: Permission,
    request: HttpRequest,
    payload: Payload,
    end: EndSignal,
    files: Arc<dyn SessionFiles>,
    observer: Option<Box<dyn RelayObserver>>,
    guard: Box<dyn Any>,
}

impl ConnectionContext {
    /// Begins activity in the session, whose engine needs `capability`. A connection with a `kind` records its own
    /// telemetry events.
    fn new<C: SessionCredential>(
        request: Request<C>,
        capability: Capability,
        kind: Option<Kind>,
    ) -> Result<Self, ApiError> {
        let session = request.session();
        request.services().sessions.check_engine(session, capability)?;
        let browser = session.browser.ok_or_else(|| ApiError::internal("an active session without a browser"))?;
        let activity = request.services().sessions.activity();
        let is_view = matches!(kind, Some(Kind::LiveView { .. }));
        let may_act = request.permission() != Permission::View;
        let activity = if is_view { activity.begin_view(session.id, may_act) } else { activity.begin(session.id) };
        let activity = activity.ok_or_else(|| NotFound::new("browser session", session.id.to_string()))?;
        let urls = Urls::new(&request.api().public_url.get(), &request.services().tokens, session);
        let connection = kind.map(|kind| Connection::new(request.services(), session.id, kind));
        let observer = connection.map(|connection| Box::new(connection) as Box<dyn RelayObserver>);
        let connector = request.services().session_connector.connector(browser);
        let (engine, cdp_url) = (session.shape.engine.clone(), urls.cdp());
        let (webdriver_url, view_url) = (urls.webdriver().parse().map_err(ApiError::internal)?, urls.watching());
        let files: Arc<dyn SessionFiles> = match connector.remote_session() {
            Some(_) => Arc::new(request.api().remote_uploads.of(session.id)),
            None => Arc::new(FilesOfSession::new(request.services().files.clone(), session.clone())),
        };
        let (http, payload, access) = request.into_parts();
        Ok(Self {
            connector,
            engine,
            cdp_url,
            webdriver_url,
            view_url,
            permission: access.permission,
            request: http,
            payload,
            end: access.end,
            files,
            observer,
            guard: Box::new(Open { _activity: activity, _registered: access.registered }),
        })
    }

    async fn relay(self, channel: Channel, path: String, client: &ClientHandshake) -> Answer {
        let upstream = self.connector.dial_socket(channel).await?;
        let Self { end, files, observer, guard, .. } = self;
        let relay = Relay { channel, path, end, limits: Limits::default(), files: Some(files), observer, guard };
        Ok(relay.open(client, self.payload, upstream).await?)
    }
}

/// `GET /vm/{session_id}/cdp`: relays a DevTools connection.
pub(crate) async fn cdp(request: Request<ActiveSession>) -> Answer {
    let client = ClientHandshake::read(request.http())?;
    open_cdp(request, &client, None).await
}

/// Relays a DevTools connection to `path`. Default: to the whole browser, which is all that a remote one has.
pub(crate) async fn open_cdp<C: SessionCredential>(
    request: Request<C>,
    client: &ClientHandshake,
    path: Option<String>,
) -> Answer {
    let context = ConnectionContext::new(request, Capability::Cdp, Some(Kind::Cdp))?;
    let path = match path {
        Some(path) => path,
        // The path of a remote browser comes with its connection.
        None if context.connector.remote_session().is_some() => String::new(),
        None => context.connector.cdp_path().await?,
    };
    context.relay(Channel::Cdp, path, client).await
}

/// `GET /vm/{session_id}/webdriver`: relays a WebDriver BiDi connection.
pub(crate) async fn bidi(request: Request<ActiveSession>) -> Answer {
    let client = ClientHandshake::read(request.http())?;
    open_bidi(request, &client).await
}

/// Relays a WebDriver BiDi connection.
pub(crate) async fn open_bidi(request: Request<ActiveSession>, client: &ClientHandshake) -> Answer {
    let context = ConnectionContext::new(request, Capability::Bidi, Some(Kind::WebDriver))?;
    let remote = context.connector.remote_session().map(|session| RemoteBidi { session, engine: context.engine });
    let channel = if remote.is_some() { Channel::Bidi } else { Channel::WebDriver };
    let upstream = context.connector.dial(channel).await?;
    let relay = BidiRelay {
        webdriver_url: context.webdriver_url,
        remote,
        end: context.end,
        limits: Limits::default(),
        files: Some(context.files),
        observer: context.observer,
        guard: context.guard,
    };
    Ok(relay.open(client, context.payload, upstream).await?)
}

/// `GET /vm/{session_id}/webdriver/session/{webdriver_id}`: relays the BiDi connection of a classic session.
pub(crate) async fn bidi_of_session(request: Request<ActiveSession>) -> Answer {
    let client = ClientHandshake::read(request.http())?;
    let id = WebDriverSessionId::parse(request.http().match_info().get("webdriver_id").unwrap_or_default())
        .map_err(|error| ApiError::new(Code::NotFound, error.to_string()))?;
    open_bidi_of_session(request, &client, &id).await
}

/// Relays a BiDi connection of the classic session `id`.
async fn open_bidi_of_session<C: SessionCredential>(
    request: Request<C>,
    client: &ClientHandshake,
    id: &WebDriverSessionId,
) -> Answer {
    let context = ConnectionContext::new(request, Capability::Bidi, Some(Kind::WebDriver))?;
    match context.connector.remote_session() {
        Some(remote) if remote.id != id.as_str() => Err(ClassicError::UnknownSession.into()),
        Some(_) => context.relay(Channel::Bidi, String::new(), client).await,
        None => context.relay(Channel::WebDriver, id.upstream_path(), client).await,
    }
}

/// `/vm/{session_id}/wd/{tail}`: forwards a classic WebDriver command.
pub(crate) async fn classic(request: Result<Request<WebDriverClient>, ApiError>) -> Answer {
    command(request).await.map_err(ApiError::for_webdriver)
}

async fn command(request: Result<Request<WebDriverClient>, ApiError>) -> Answer {
    let request = request?;
    // The path is not decoded, because it is forwarded.
    let tail = request.http().uri().path().splitn(5, '/').nth(4).unwrap_or_default().to_owned();
    read_and_run(request, &tail).await
}

/// Reads the body of a classic command and runs it, as [`run_command`].
///
/// # Errors
/// Those of [`body::read`] and [`run_command`].
pub(crate) async fn read_and_run<C: SessionCredential>(mut request: Request<C>, tail: &str) -> Answer {
    if let Some(socket) = remote_socket(&request, tail)? {
        let client = ClientHandshake::read(request.http())?;
        return match socket {
            RemoteSocket::Cdp => open_cdp(request, &client, None).await,
            RemoteSocket::Bidi(id) => open_bidi_of_session(request, &client, &id).await,
        };
    }
    let command = FileCommand::of(request.http().method(), tail);
    let _slot = match command {
        Some(command) => command.slot(request.session()).await?,
        None => None,
    };
    let limit = command.and_then(FileCommand::max_body_bytes).unwrap_or(MAX_BODY_BYTES);
    let body = body::read(&mut request.take_payload()?, limit).await?;
    run_command(request, tail, body).await.map(|answered| answered.response)
}

/// A WebSocket of a remote browser's session, where a Selenium Grid has it.
enum RemoteSocket {
    Cdp,
    Bidi(WebDriverSessionId),
}

/// Returns the WebSocket that a command names. `tail` is the path below the base of the protocol.
fn remote_socket<C: SessionCredential>(request: &Request<C>, tail: &str) -> Result<Option<RemoteSocket>, ApiError> {
    let command = tail.strip_prefix("session/").and_then(|rest| rest.split_once('/'));
    let Some((id, socket @ ("se/cdp" | "se/bidi"))) = command else { return Ok(None) };
    let Some(remote) = connector(request)?.remote_session() else { return Ok(None) };
    let id = WebDriverSessionId::parse(id).ok().filter(|id| id.as_str() == remote.id);
    let id = id.ok_or(ClassicError::UnknownSession)?;
    Ok(Some(if socket == "se/cdp" { RemoteSocket::Cdp } else { RemoteSocket::Bidi(id) }))
}

/// Returns the connector to the session's browser.
fn connector<C: SessionCredential>(request: &Request<C>) -> Result<Arc<dyn BrowserConnector>, ApiError> {
    let browser = request.session().browser.ok_or_else(|| ApiError::internal("an active session without a browser"))?;
    Ok(request.services().session_connector.connector(browser))
}

/// Runs a classic command in the session. `tail` is the path below the base of the protocol, percent-encoded.
///
/// # Errors
/// Those of [`ClassicRequest::check`], and of the connection to the session.
pub(crate) async fn run_command<C: SessionCredential>(
    request: Request<C>,
    tail: &str,
    body: Bytes,
) -> Result<ClassicResponse, ApiError> {
    if let Some(remote) = connector(&request)?.remote_session() {
        return run_remote(request, &remote, tail, body).await;
    }
    if let Some(command) = FileCommand::of(request.http().method(), tail) {
        let id = request.services().ids.next().to_string().to_ascii_lowercase();
        let response = command.run(&request.services().files, request.session(), &id, body).await?;
        return Ok(ClassicResponse { response, created: None });
    }
    let body = with_existing_directory(&request.services().files, request.session(), tail, body).await;
    let command = ClassicRequest::check(request.http().method(), tail, body)?;
    let kind = command.kind().clone();
    let (api, session) = (request.shared_api(), request.session().id);
    let context = ConnectionContext::new(request, Capability::WebDriver, None)?;
    let upstream = context.connector.dial(Channel::WebDriver).await?;
    let answered = forward(command, upstream, &context.webdriver_url).await?;
    report(&api, session, &context.end, &kind, &answered);
    Ok(answered)
}

/// Runs a classic command in the session of a remote browser, as [`run_command`].
async fn run_remote<C: SessionCredential>(
    request: Request<C>,
    remote: &RemoteSessionInfo,
    tail: &str,
    body: Bytes,
) -> Result<ClassicResponse, ApiError> {
    let method = request.http().method().clone();
    let kind = CommandKind::of(&method, tail)?;
    let (api, session) = (request.shared_api(), request.session().id);
    let context = ConnectionContext::new(request, Capability::WebDriver, None)?;
    let classic = RemoteClassic {
        connector: context.connector.as_ref(),
        session: remote,
        engine: &context.engine,
        webdriver_url: &context.webdriver_url,
        cdp_url: &context.cdp_url,
    };
    let RemoteAnswer { answer, uploaded } = classic.run(&kind, &method, tail, body).await?;
    if let Some(path) = uploaded {
        api.remote_uploads.add(session, path);
    }
    report(&api, session, &context.end, &kind, &answer);
    Ok(answer)
}

/// Reports what a command did to the WebDriver sessions of `session`. `end`: the signal of the browser that ran the
/// command, which may have been replaced by another browser since.
fn report(api: &Api, session: SessionId, end: &EndSignal, kind: &CommandKind, answered: &ClassicResponse) {
    let (sessions, services) = (&api.classic_sessions, &api.services);
    if let Some(id) = &answered.created {
        let connection = Connection::new(services, session, Kind::WebDriver);
        let open = (end.clone(), services.connections.register(session).1);
        sessions.created(session, id.clone(), connection, open, &services.runtime);
    }
    if let CommandKind::Within(id) | CommandKind::End(id) = kind {
        sessions.answered(session, id);
    }
    if let CommandKind::End(id) = kind
        && answered.response.status().is_success()
    {
        sessions.ended(session, id, None);
    }
}

/// `GET /live/{session_id}`: returns the page of the live view.
pub(crate) async fn live_page(_: Request<LiveViewer>) -> HttpResponse {
    live_view::page()
}

/// `GET /live/assets/{name}`: returns a script or a style, which is the same for all sessions.
pub(crate) async fn live_asset(name: web::Path<String>) -> Answer {
    live_view::asset(&name)
        .or_else(|| replay::asset(&name))
        .ok_or_else(|| ApiError::new(Code::RouteNotFound, "there is no such route"))
}

/// `PUT /live/{session_id}/uploads/{name}`: stores a file that a person drops onto the live view, and replaces an
/// existing file of that name.
pub(crate) async fn live_upload(mut request: Request<LiveOperator>) -> Answer {
    let path = live_view::upload_path(&request.path("name")?)?;
    let session = request.session();
    if !request.services().sessions.activity().people_may_act(session) {
        session.admits(false)?;
    }
    let (content, rest) = request.body(MAX_UPLOAD)?;
    let file = stream::iter([Ok(Upload::File(path))]).chain(content.map_ok(Upload::Data)).boxed();
    upload_response(request.services().files.upload(request.session(), file).await, Some(rest)).await
}

/// `GET /live/{session_id}/socket`: opens the WebSocket of a viewer.
pub(crate) async fn live_socket(request: Request<LiveViewer>) -> Answer {
    let session_id = request.session().id;
    let display = (!request.session().shape.headless).then(|| WholeDisplay {
        frames: request.services().displays.clone(),
        computers: request.services().computers.clone(),
        session: request.session().clone(),
    });
    let pages = request.services().displays.clone();
    let browser = request.session().browser.filter(|_| request.session().shape.headless);
    let dialogs = browser.map(|browser| PageDialogs { pages, browser });
    let (activity, session) = (request.services().sessions.activity().clone(), request.session().clone());
    let may_act = Box::new(move || activity.people_may_act(&session));
    let api = request.shared_api();
    let viewer = request.services().ids.next().to_string().to_ascii_lowercase();
    let context = ConnectionContext::new(request, Capability::LiveView, Some(Kind::LiveView { id: viewer }))?;
    let (access, view_url) = match context.permission {
        Permission::Drive | Permission::Interact => (Access::Interact, Some(context.view_url)),
        Permission::View => (Access::View, None),
    };
    let Ok(place) = api.view_places.take(session_id, access == Access::Interact) else {
        return Ok(live_view::refuse_view(&context.request)?);
    };
    let view = LiveView {
        connector: context.connector,
        access,
        may_act,
        display,
        dialogs,
        view_url,
        ping_interval: PING_INTERVAL,
        end: context.end,
        observer: context.observer,
        guard: Box::new((context.guard, place)),
    };
    Ok(view.open(&context.request, context.payload).await?)
}
