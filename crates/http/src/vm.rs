//! `/vm/{session_id}` and `/live/{session_id}`: into a session, with its token.

use std::any::Any;

use actix_web::{
    HttpRequest, HttpResponse,
    web::{self, Payload},
};
use casement_domain::{fs::Upload, session::ActivityGuard};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use url::Url;

use crate::{
    answer::Answer,
    body,
    caller::{Driver, Operator, SessionHolder, Viewer, WebDriverUser, no_session},
    connections::Registration,
    error::{ApiError, Code},
    fs::{MAX_UPLOAD, upload_response},
    live_view::{self, Access, LiveView, PageDialogs, WholeDisplay},
    relay::{BrowserConnector, Channel, ClientHandshake, EndSignal, Limits, Relay, RelayObserver},
    replay,
    session::Urls,
    telemetry::{Connection, Kind},
    token::Permission,
    webdriver::{BidiRelay, ClassicRequest, ClassicResponse, CommandKind, MAX_BODY_BYTES, WebDriverSessionId, forward},
};

/// What an open connection holds until it ends.
struct Open {
    _activity: ActivityGuard,
    _registered: Registration,
}

/// Everything that a connection into a session needs.
struct ConnectionContext {
    connector: std::sync::Arc<dyn BrowserConnector>,
    webdriver_url: Url,
    view_url: String,
    permission: Permission,
    request: HttpRequest,
    payload: Payload,
    end: EndSignal,
    observer: Option<Box<dyn RelayObserver>>,
    guard: Box<dyn Any>,
}

impl ConnectionContext {
    /// `kind`: of a connection that tells of itself.
    fn into(holder: SessionHolder, kind: Option<Kind>) -> Result<Self, ApiError> {
        let browser =
            holder.session.browser.ok_or_else(|| ApiError::internal("an active session without a browser"))?;
        let activity = holder.services().sessions.activity();
        let view = matches!(kind, Some(Kind::LiveView { .. }));
        let begun = if view { activity.begin_view(holder.session.id) } else { activity.begin(holder.session.id) };
        let activity = begun.ok_or_else(|| no_session(&holder.session.id.to_string()))?;
        let urls = Urls::new(&holder.api().public_url, &holder.services().tokens, &holder.session);
        let connection = kind.map(|kind| Connection::new(holder.services(), holder.session.id, kind));
        let observer = connection.map(|connection| Box::new(connection) as Box<dyn RelayObserver>);
        Ok(Self {
            connector: holder.services().session_connector.connector(browser),
            webdriver_url: urls.webdriver().parse().map_err(ApiError::internal)?,
            view_url: urls.watching(),
            permission: holder.permission,
            request: holder.request,
            payload: holder.payload,
            end: holder.end,
            observer,
            guard: Box::new(Open { _activity: activity, _registered: holder.registered }),
        })
    }

    async fn relay(self, channel: Channel, path: String, client: &ClientHandshake) -> Answer {
        let upstream = self.connector.dial(channel).await?;
        let Self { end, observer, guard, .. } = self;
        let relay = Relay { channel, path, end, limits: Limits::default(), observer, guard };
        Ok(relay.open(client, self.payload, upstream).await?)
    }
}

/// `GET /vm/{session_id}/cdp`
pub(crate) async fn cdp(Driver(holder): Driver) -> Answer {
    let client = ClientHandshake::read(&holder.request)?;
    let way = ConnectionContext::into(holder, Some(Kind::Cdp))?;
    let path = way.connector.cdp_path().await?;
    way.relay(Channel::Cdp, path, &client).await
}

/// `GET /vm/{session_id}/webdriver`
pub(crate) async fn bidi(Driver(holder): Driver) -> Answer {
    let client = ClientHandshake::read(&holder.request)?;
    let way = ConnectionContext::into(holder, Some(Kind::WebDriver))?;
    let upstream = way.connector.dial(Channel::WebDriver).await?;
    let relay = BidiRelay {
        webdriver_url: way.webdriver_url,
        end: way.end,
        limits: Limits::default(),
        observer: way.observer,
        guard: way.guard,
    };
    Ok(relay.open(&client, way.payload, upstream).await?)
}

/// `GET /vm/{session_id}/webdriver/session/{webdriver_id}`: the BiDi socket of a classic session.
pub(crate) async fn bidi_of_session(Driver(holder): Driver) -> Answer {
    let client = ClientHandshake::read(&holder.request)?;
    let id = WebDriverSessionId::parse(holder.request.match_info().get("webdriver_id").unwrap_or_default())
        .map_err(|error| ApiError::new(Code::NotFound, error.to_string()))?;
    ConnectionContext::into(holder, Some(Kind::WebDriver))?.relay(Channel::WebDriver, id.upstream_path(), &client).await
}

/// `/vm/{session_id}/wd/{tail}`
pub(crate) async fn classic(user: Result<WebDriverUser, ApiError>) -> Answer {
    command(user).await.map_err(ApiError::for_webdriver)
}

async fn command(user: Result<WebDriverUser, ApiError>) -> Answer {
    let WebDriverUser(mut holder) = user?;
    let body = body::read(&mut holder.payload, MAX_BODY_BYTES).await?;
    let path = holder.request.uri().path();
    // As it came: what is encoded stays encoded.
    let tail = path.splitn(5, '/').nth(4).unwrap_or_default();
    let command = ClassicRequest::check(holder.request.method(), tail, body)?;
    let kind = command.kind().clone();
    let (api, session) = (holder.shared_api(), holder.session.id);
    let way = ConnectionContext::into(holder, None)?;
    let upstream = way.connector.dial(Channel::WebDriver).await?;
    let ClassicResponse { response, created } = forward(command, upstream, &way.webdriver_url).await?;
    let (sessions, services) = (&api.classic_sessions, &api.services);
    if let Some(id) = &created {
        let connection = Connection::new(services, session, Kind::WebDriver);
        // The end of the browser that it was made in: another one may have taken its place by now.
        let open = (way.end.clone(), services.connections.register(session).1);
        sessions.created(session, id.clone(), connection, open, &services.runtime);
    }
    if let CommandKind::Within(id) | CommandKind::End(id) = &kind {
        sessions.answered(session, id);
    }
    if let CommandKind::End(id) = &kind
        && response.status().is_success()
    {
        sessions.ended(session, id, None);
    }
    Ok(response)
}

/// `GET /live/{session_id}`
pub(crate) async fn live_page(_: Viewer) -> HttpResponse {
    live_view::page()
}

/// `GET /live/assets/{name}`: the same for everybody.
pub(crate) async fn live_asset(name: web::Path<String>) -> Answer {
    live_view::asset(&name)
        .or_else(|| replay::asset(&name))
        .ok_or_else(|| ApiError::new(Code::RouteNotFound, "there is no such route"))
}

/// `PUT /live/{session_id}/uploads/{name}`: a file that a person lets fall onto the picture. It takes the place of one of that name.
pub(crate) async fn live_upload(Operator(holder): Operator) -> Answer {
    let path = live_view::upload_path(&holder.path("name")?)?;
    let services = holder.shared_api();
    let SessionHolder { session, request, payload, .. } = holder;
    if !services.services.sessions.activity().people_may_act(&session) {
        session.admits(false)?;
    }
    let (content, rest) = body::stream(&request, payload, MAX_UPLOAD)?;
    let file = stream::iter([Ok(Upload::File(path))]).chain(content.map_ok(Upload::Data)).boxed();
    upload_response(services.services.files.upload(&session, file).await, Some(rest)).await
}

/// `GET /live/{session_id}/socket`
pub(crate) async fn live_socket(Viewer(holder): Viewer) -> Answer {
    let display = (!holder.session.shape.headless).then(|| WholeDisplay {
        frames: holder.services().displays.clone(),
        computers: holder.services().computers.clone(),
        session: holder.session.clone(),
    });
    let pages = holder.services().displays.clone();
    let browser = holder.session.browser.filter(|_| holder.session.shape.headless);
    let dialogs = browser.map(|browser| PageDialogs { pages, browser });
    let (activity, session) = (holder.services().sessions.activity().clone(), holder.session.clone());
    let may_act = Box::new(move || activity.people_may_act(&session));
    let viewer = holder.services().ids.next().to_string().to_ascii_lowercase();
    let way = ConnectionContext::into(holder, Some(Kind::LiveView { id: viewer }))?;
    let (access, view_url) = match way.permission {
        Permission::Drive | Permission::Interact => (Access::Interact, Some(way.view_url)),
        Permission::View => (Access::View, None),
    };
    let view = LiveView {
        connector: way.connector,
        access,
        may_act,
        display,
        dialogs,
        view_url,
        end: way.end,
        observer: way.observer,
        guard: way.guard,
    };
    Ok(view.open(&way.request, way.payload).await?)
}
