//! The record of a session.

use std::collections::BTreeMap;

use casement_domain::{
    SessionId,
    access::Scope,
    browser::{self, Installation, Locale, Shape},
    network::DeniedRequests,
    permission::{Action, Kind, Target, Verb, Which},
    profile::Profile,
    session::{Session, SessionState},
    telemetry::{Capture, Category, Delivery},
};
use serde::Serialize;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use url::Url;

use crate::{
    answer::Moment,
    cluster::Owner,
    network::{NetworkBody, ProxyBody},
    profile::ProfileBody,
    schema::ToSchema,
    token::{Permission, SessionTokens},
};

/// A browser session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserSession)]
pub(crate) struct SessionBody {
    session_id: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    /// The WebSocket URL of the Chrome DevTools Protocol, for the whole browser. In the answer to a key whose policy does
    /// not allow `browsers:use`, and for the session of a login also `auth_connections:use`, the token of this URL and of
    /// the others only permits to watch.
    cdp_ws_url: String,
    /// The WebSocket URL of WebDriver BiDi.
    webdriver_ws_url: String,
    /// The base URL of the session's own paths.
    base_url: String,
    /// The URL of a page that shows the browser.
    browser_live_view_url: String,
    /// The engine that started the browser.
    engine: String,
    headless: bool,
    stealth: bool,
    /// The memory of the browser: the largest of these sizes that its limit reaches, `1GiB` also below that. Absent if the
    /// engine does not limit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    memory: Option<&'static str>,
    /// The label of the installation, set by its operator. It does not say where the machine is.
    #[schema(value_type = String)]
    region: &'static str,
    /// The time zone and the locale of pages and workers. Absent if the engine does not set them.
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<Location>,
    gpu: bool,
    kiosk_mode: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The idle timeout in seconds.
    timeout_seconds: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<PoolReference>,
    viewport: Viewport,
    /// The present record of the profile that the session has loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileBody>,
    /// Whether the state of the session is saved into the profile when it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_save_changes: Option<bool>,
    /// The id of the proxy of the session's traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_id: Option<String>,
    /// The way of the session's traffic.
    proxy: ProxyBody,
    /// What the browser may reach, if it was created with such a configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    browser_policy: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, String>,
    usage: Usage,
    /// The time of the last use, from which the idle timeout counts, to a few seconds.
    #[schema(value_type = String, format = DateTime)]
    last_active_at: Moment,
    /// The telemetry that is captured, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    telemetry: Option<Captured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    deleted_at: Option<Moment>,
    /// Why the session ended, as in close frames; absent while it is active.
    #[serde(skip_serializing_if = "Option::is_none")]
    end_reason: Option<&'static str>,
    /// The same as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    end_message: Option<&'static str>,
}

/// The telemetry that is captured.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserTelemetry)]
pub(crate) struct Captured {
    /// Whether each category is captured: `console`, `page`, `interaction`, `network`, `control`, `connection`,
    /// `system`, `screenshot`, `captcha`.
    browser: BTreeMap<&'static str, Switch>,
    /// Whether the events are stored.
    storage: Switch,
    export: Export,
}

/// The export of the events.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserTelemetryExport)]
struct Export {
    otlp: Otlp,
}

/// The export to an OpenTelemetry collector.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserTelemetryOtlpExport)]
struct Otlp {
    enabled: bool,
    /// The id of the telemetry destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<String>,
}

/// Whether something is on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserTelemetryCategory)]
struct Switch {
    enabled: bool,
}

impl From<Capture> for Captured {
    fn from(capture: Capture) -> Self {
        let switch = |category: Category| (category.as_str(), Switch { enabled: capture.includes(category) });
        let Delivery { destination, stored } = capture.delivery();
        let destination = destination.map(|id| id.to_string());
        Self {
            browser: Category::ALL.into_iter().map(switch).collect(),
            storage: Switch { enabled: stored },
            export: Export { otlp: Otlp { enabled: destination.is_some(), destination } },
        }
    }
}

/// The time zone and the locale of a session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserLocation)]
struct Location {
    /// The BCP 47 tag.
    #[schema(value_type = String)]
    locale: &'static str,
    /// `override` if a request set the locale, else `default`.
    #[schema(value_type = String)]
    locale_source: &'static str,
    /// The IANA name.
    #[schema(value_type = String)]
    timezone: &'static str,
    /// `override` if a request set the time zone, else `default`.
    #[schema(value_type = String)]
    timezone_source: &'static str,
}

impl Location {
    fn new(location: browser::Location, installation: &Installation) -> Self {
        let source = |is_set: bool| if is_set { "override" } else { "default" };
        Self {
            locale: location.locale.unwrap_or(Locale::DEFAULT).as_str(),
            locale_source: source(location.locale.is_some()),
            timezone: location.time_zone.unwrap_or(installation.time_zone).as_str(),
            timezone_source: source(location.time_zone.is_some()),
        }
    }
}

/// The pool that a session was leased from.
#[derive(Debug, Serialize, ToSchema)]
struct PoolReference {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// The size of the display in pixels, and its maximum refresh rate.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Viewport {
    width: u32,
    height: u32,
    refresh_rate: u32,
}

/// The usage of a session.
#[derive(Debug, Serialize, ToSchema)]
struct Usage {
    /// The time from the creation of the session to now, or to its end, in milliseconds.
    uptime_ms: i64,
}

impl From<browser::Viewport> for Viewport {
    fn from(viewport: browser::Viewport) -> Self {
        Self { width: viewport.width, height: viewport.height, refresh_rate: viewport.refresh_rate }
    }
}

/// The URLs of a session.
pub(crate) struct Urls<'a> {
    base: String,
    socket_base: String,
    live: String,
    hub: String,
    /// The token that controls the session, as far as the caller may; two URLs contain it.
    token: String,
    /// Whether the caller may use the session. Otherwise all tokens only permit to watch.
    may_use: bool,
    /// The issuer of the other tokens.
    issuer: (&'a SessionTokens, SessionId, Owner, OffsetDateTime),
}

impl<'a> Urls<'a> {
    pub(crate) fn new(public: &Url, tokens: &'a SessionTokens, session: &Session) -> Self {
        Self::with_tokens(public, tokens, session, true)
    }

    /// Returns the URLs for a caller with this scope: their tokens permit no more than the caller's key. Whoever controls
    /// the live view of a login takes part in the login.
    pub(crate) fn for_caller(public: &Url, tokens: &'a SessionTokens, session: &Session, scope: &Scope) -> Self {
        let target = Target::InProject(session.project, Kind::Browsers, Which::Id(session.id.ulid()));
        let may_use = |target: Target| scope.permissions.allows(Action::new(target.kind(), Verb::Use), target);
        let logins = Target::InProject(session.project, Kind::AuthConnections, Which::Any);
        let may_use = may_use(target) && (!session.for_login || may_use(logins));
        Self::with_tokens(public, tokens, session, may_use)
    }

    fn with_tokens(public: &Url, tokens: &'a SessionTokens, session: &Session, may_use: bool) -> Self {
        let owner = Owner { node: session.node, project: session.project };
        let mut public = public.clone();
        public.set_query(None);
        public.set_fragment(None);
        let root = public.as_str().trim_end_matches('/');
        let base = format!("{root}/vm/{}", session.id);
        // The schemes http and https become ws and wss.
        let socket_base = base.strip_prefix("http").map_or_else(|| base.clone(), |rest| format!("ws{rest}"));
        Self {
            live: format!("{root}/live/{}", session.id),
            hub: format!("{root}/wd/hub"),
            base,
            socket_base,
            token: tokens.mint(session.id, owner, limited(Permission::Drive, may_use), session.created_at),
            may_use,
            issuer: (tokens, session.id, owner, session.created_at),
        }
    }

    pub(crate) fn cdp(&self) -> String {
        format!("{}/cdp?jwt={}", self.socket_base, self.token)
    }

    /// Returns the WebSocket URL of the DevTools protocol for one target.
    pub(crate) fn cdp_of_target(&self, target: &str) -> String {
        format!("{}/devtools/page/{target}?jwt={}", self.socket_base, self.token)
    }

    pub(crate) fn webdriver(&self) -> String {
        format!("{}/webdriver?jwt={}", self.socket_base, self.token)
    }

    /// Returns the base URL of WebDriver clients for this session alone.
    pub(crate) fn hub(&self) -> String {
        format!("{}/{}", self.hub, self.token)
    }

    /// Returns the URL of the live view with mouse and keyboard. Its token grants no other access to the session.
    pub(crate) fn live_view(&self) -> String {
        format!("{}?jwt={}", self.live, self.mint(Permission::Interact))
    }

    /// Returns the URL of the page that plays a recording. It is safe to share, because it is read-only.
    pub(crate) fn replay(&self, id: &str) -> String {
        format!("{}/replays/{id}?jwt={}", self.live, self.mint(Permission::View))
    }

    /// Returns the URL of the read-only live view, which is safe to share.
    pub(crate) fn watching(&self) -> String {
        format!("{}?jwt={}", self.live, self.mint(Permission::View))
    }

    fn mint(&self, permission: Permission) -> String {
        let (tokens, session, owner, issued_at) = self.issuer;
        tokens.mint(session, owner, limited(permission, self.may_use), issued_at)
    }
}

fn limited(permission: Permission, may_use: bool) -> Permission {
    if may_use { permission } else { Permission::View }
}

/// Returns the memory of the browsers of a shape; `None` if their engine does not limit it.
pub(crate) fn memory(shape: &Shape, installation: &Installation) -> Option<&'static str> {
    match shape.memory {
        Some(memory) => Some(memory.limit.name()),
        None => shape.engine.is_local().then(|| installation.memory.default.name()),
    }
}

impl SessionBody {
    pub(crate) fn new(
        session: Session,
        (profile, denied): (Option<Profile>, DeniedRequests),
        urls: &Urls<'_>,
        (installation, now): (&Installation, OffsetDateTime),
    ) -> Self {
        let uptime = session.uptime(now).whole_milliseconds();
        let end = match session.state {
            SessionState::Ended(reason) => Some(reason),
            SessionState::Starting | SessionState::Active => None,
        };
        Self {
            session_id: session.id.to_string(),
            created_at: Moment(session.created_at),
            cdp_ws_url: urls.cdp(),
            webdriver_ws_url: urls.webdriver(),
            base_url: urls.base.clone(),
            browser_live_view_url: urls.live_view(),
            engine: session.shape.engine.to_string(),
            headless: session.shape.headless,
            stealth: session.shape.stealth,
            memory: memory(&session.shape, installation),
            region: installation.region.as_str(),
            location: session.shape.engine.is_local().then(|| Location::new(session.shape.location, installation)),
            gpu: false,
            kiosk_mode: session.shape.kiosk_mode,
            name: session.name.map(|name| name.to_string()),
            timeout_seconds: session.timeout_seconds,
            pool: session
                .pool
                .map(|pool| PoolReference { id: pool.id.to_string(), name: pool.name.map(|name| name.to_string()) }),
            viewport: session.shape.viewport.into(),
            profile_save_changes: session.shape.profile.map(|loaded| loaded.save_changes),
            profile: profile.map(ProfileBody::from),
            proxy_id: session.shape.proxy.map(|id| id.to_string()),
            proxy: ProxyBody::new(session.shape.proxy.map(|id| id.to_string())),
            network: session.shape.network.map(|network| NetworkBody::of_session(network, denied)),
            start_url: session.start_url.map(|url| url.as_str().to_owned()),
            browser_policy: session.shape.policy.map(|policy| policy.as_map().clone()),
            tags: session.tags.as_map().clone(),
            telemetry: session.telemetry.map(Captured::from),
            usage: Usage { uptime_ms: i64::try_from(uptime).unwrap_or(i64::MAX) },
            last_active_at: Moment(session.last_active_at),
            deleted_at: session.ended_at.map(Moment),
            end_reason: end.map(|reason| reason.as_str()),
            end_message: end.map(|reason| reason.explanation()),
        }
    }
}
