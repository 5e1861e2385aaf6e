//! The request bodies of sessions.

use std::collections::BTreeMap;

use casement_domain::{
    browser::LocationRequest,
    engine::Engines,
    field::{FieldCode, Fields, InvalidValue},
    profile::ProfileRequest,
    reference,
    session::{self, Refusal, SessionRequest, SessionUpdateRequest},
    telemetry::{Category, ConfigRequest, ExportRequest},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    error::ApiError,
    from_fields::{from_fields, option},
    json::nullable,
    network::{NetworkInput, NetworkUpdate, ProxyInput},
    schema::ToSchema,
};

/// A session to create. Every field is optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CreateBrowser {
    /// The engine that starts the browser, by its name as `GET /engines` lists it. Default: `local`, or the first one if
    /// the installation has no such engine.
    pub(crate) engine: Option<String>,
    /// Whether the browser runs without a display. Default: false, or true for an engine without displays.
    pub(crate) headless: Option<bool>,
    /// Whether signs of automation are hidden. Default: false.
    pub(crate) stealth: Option<bool>,
    /// Whether the browser uses a GPU. Requires `headless: false` and an installation with a GPU. Default: false.
    pub(crate) gpu: Option<bool>,
    /// Whether the display shows only the page; headful only. Default: false.
    pub(crate) kiosk_mode: Option<bool>,
    /// The name: 1 to 255 characters, unique among the project's active sessions.
    pub(crate) name: Option<String>,
    /// The idle timeout in seconds, 10 to 259200. Default: 60.
    pub(crate) timeout_seconds: Option<i64>,
    /// The profile to load.
    pub(crate) profile: Option<Profile>,
    /// The time zone and the locale of pages and workers.
    pub(crate) location: Option<LocationInput>,
    /// The memory of the browser: `1GiB`, `2GiB`, `4GiB`, `8GiB` or `16GiB`. Default: the node's. A session of more than
    /// the default counts as its multiple in the limits of sessions.
    pub(crate) memory: Option<String>,
    /// The region: `us-east`, `us-west`, `eu-west` or `ap-southeast`. Only the installation's own is accepted.
    pub(crate) region: Option<String>,
    /// A proxy of the project, by id or name.
    pub(crate) proxy_id: Option<String>,
    /// The way of the traffic, in place of `proxy_id`. Default: directly.
    pub(crate) proxy: Option<ProxyInput>,
    /// What the browser may reach. Default: what the operator allows for all sessions.
    pub(crate) network: Option<NetworkInput>,
    /// Extensions of the project, loaded in this order.
    pub(crate) extensions: Option<Vec<Reference>>,
    /// The size of the display. Default: 1920 × 1080.
    pub(crate) viewport: Option<ViewportInput>,
    /// Chrome policies by name, at most 5 MiB of JSON.
    pub(crate) browser_policy: Option<Map<String, Value>>,
    /// An alias of `browser_policy`.
    pub(crate) chrome_policy: Option<Map<String, Value>>,
    /// An absolute URL to open first. The response does not wait for the navigation.
    pub(crate) start_url: Option<String>,
    /// The tags, at most 50: keys of 1 to 128, values of up to 256 characters.
    pub(crate) tags: Option<BTreeMap<String, String>>,
    /// The telemetry to capture. Default: none.
    pub(crate) telemetry: Option<Telemetry>,
    /// The id of an invocation of the project, to which the session then belongs.
    pub(crate) invocation_id: Option<String>,
}

/// A resource of the project, by either its id or its name.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Reference {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
}

from_fields!(Reference => reference::Reference { id, name });

/// Returns the request if `fields` has no refusals.
///
/// # Errors
/// `invalid_input` with the refusals of `fields` and of the domain's `parse`.
pub(crate) fn checked<W: Clone, T>(
    request: W,
    fields: Fields,
    parse: impl FnOnce(W) -> Result<T, Refusal>,
) -> Result<W, ApiError> {
    let Err(ours) = fields.finish() else { return Ok(request) };
    let theirs = match parse(request) {
        Err(Refusal::Invalid(theirs)) => theirs.fields().to_vec(),
        Err(Refusal::NotSupported(_)) | Ok(_) => Vec::new(),
    };
    let mut all = Fields::new();
    for error in theirs.into_iter().chain(ours.fields().iter().cloned()) {
        all.refuse(&error.field, InvalidValue::new(error.code, error.message));
    }
    Err(all.finish().err().unwrap_or(ours).into())
}

/// A profile to load, by id or name.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ProfileReference)]
pub(crate) struct Profile {
    id: Option<String>,
    name: Option<String>,
    /// Whether the state of the session is saved when it ends. Default: false.
    save_changes: Option<bool>,
}

impl From<Profile> for ProfileRequest {
    fn from(Profile { id, name, save_changes }: Profile) -> Self {
        Self { which: reference::Reference { id, name }, save_changes: save_changes.unwrap_or(false) }
    }
}

/// The time zone and the locale of a session.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = BrowserLocationInput)]
pub(crate) struct LocationInput {
    /// The IANA name, as `Europe/Berlin`. Default: the installation's time zone.
    timezone: Option<String>,
    /// The BCP 47 tag, as `de-CH`. Default: `en-US`.
    locale: Option<String>,
}

impl From<LocationInput> for LocationRequest {
    fn from(LocationInput { timezone, locale }: LocationInput) -> Self {
        Self { time_zone: timezone.map(Some), locale: locale.map(Some) }
    }
}

/// A change of the time zone and the locale; an absent member leaves its value unchanged, null sets the default.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = BrowserLocationUpdate)]
pub(crate) struct LocationUpdate {
    /// The IANA name, as `Europe/Berlin`.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    timezone: Option<Option<String>>,
    /// The BCP 47 tag, as `de-CH`.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    locale: Option<Option<String>>,
}

impl From<LocationUpdate> for LocationRequest {
    fn from(LocationUpdate { timezone, locale }: LocationUpdate) -> Self {
        Self { time_zone: timezone, locale }
    }
}

/// The size of the display in pixels.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ViewportInput {
    /// The width, 1 to 16384. Required.
    #[schema(required, nullable = false)]
    width: Option<i64>,
    /// The height, 1 to 16384. Required.
    #[schema(required, nullable = false)]
    height: Option<i64>,
    /// The refresh rate in hertz, 1 to 1000. Default: derived from the area.
    refresh_rate: Option<i64>,
    /// For updates: whether the size may change while a viewer is connected. Default: false.
    force: Option<bool>,
}

from_fields!(ViewportInput => session::ViewportRequest { width, height, refresh_rate });

/// The telemetry to capture.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Telemetry {
    /// Whether any telemetry is captured.
    enabled: Option<bool>,
    /// Single categories: `console`, `page`, `interaction`, `network`, `control`, `connection`, `system`, `screenshot`,
    /// `captcha`.
    #[schema(value_type = Option<BTreeMap<String, Toggle>>)]
    browser: Option<BTreeMap<String, Option<Toggle>>>,
    /// Whether the events are stored. Default: yes. Off only with a destination, and only when the capture begins.
    storage: Option<Toggle>,
    /// The export of the events. Default: none.
    export: Option<TelemetryExport>,
}

/// The export of the events of a session.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct TelemetryExport {
    /// The export to an OpenTelemetry collector.
    otlp: Option<OtlpExport>,
}

/// The export to an OpenTelemetry collector.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct OtlpExport {
    /// Whether the events are exported. Default: yes with a destination.
    enabled: Option<bool>,
    /// The telemetry destination, by id or name.
    destination: Option<Reference>,
}

from_fields!(OtlpExport => ExportRequest { enabled, destination via option, ..ExportRequest::default() });

/// Whether a category is captured.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct Toggle {
    enabled: Option<bool>,
}

/// Returns the telemetry to capture. Unknown categories are refused.
pub(crate) fn config_request(telemetry: Option<Telemetry>, fields: &mut Fields) -> Option<ConfigRequest> {
    let Telemetry { enabled, browser, storage, export } = telemetry?;
    let browser = browser.map(|map| map.into_iter().filter_map(|named| category(named, fields)).collect());
    let stored = storage.and_then(|storage| storage.enabled);
    let export = export.and_then(|export| export.otlp).unwrap_or_default().into();
    Some(ConfigRequest { enabled, browser, stored, export })
}

fn category((name, toggle): (String, Option<Toggle>), fields: &mut Fields) -> Option<(Category, bool)> {
    let Some(category) = Category::parse(&name) else {
        let known = Category::ALL.map(Category::as_str).join(", ");
        let shown: String = name.chars().take(64).collect();
        fields.refuse(
            "telemetry.browser",
            InvalidValue::new(FieldCode::NotAllowed, format!("is not one of {known}")).of(shown),
        );
        return None;
    };
    Some((category, toggle?.enabled?))
}

/// Returns the policy from the field that has one; two different policies are refused.
pub(crate) fn policy(
    browser_policy: Option<Map<String, Value>>,
    chrome_policy: Option<Map<String, Value>>,
    fields: &mut Fields,
) -> Option<Map<String, Value>> {
    match (browser_policy, chrome_policy) {
        (Some(one), Some(other)) if one != other => {
            let message = "is an alias of browser_policy, and the two values differ";
            fields.refuse("chrome_policy", InvalidValue::new(FieldCode::MutuallyExclusive, message));
            Some(one)
        }
        (one, other) => one.or(other),
    }
}

impl CreateBrowser {
    /// # Errors
    /// `invalid_input` if a field that only this body has is refused.
    pub(crate) fn into_request(self, engines: &dyn Engines) -> Result<SessionRequest, ApiError> {
        let mut fields = Fields::new();
        let request = SessionRequest {
            engine: self.engine,
            headless: self.headless,
            stealth: self.stealth,
            gpu: self.gpu,
            kiosk_mode: self.kiosk_mode,
            name: self.name,
            timeout_seconds: self.timeout_seconds,
            viewport: self.viewport.map(Into::into),
            browser_policy: policy(self.browser_policy, self.chrome_policy, &mut fields),
            start_url: self.start_url,
            tags: self.tags,
            telemetry: config_request(self.telemetry, &mut fields),
            location: self.location.map(Into::into),
            memory: self.memory,
            region: self.region,
            profile: self.profile.map(Into::into),
            proxy: self.proxy_id,
            proxy_selection: self.proxy.map(Into::into),
            network: self.network.map(Into::into),
            extensions: self.extensions.unwrap_or_default().into_iter().map(Into::into).collect(),
            invocation: self.invocation_id,
            capabilities: Map::new(),
        };
        checked(request, fields, |request| request.parse(engines))
    }
}

/// The changes of a session; an absent field leaves its value unchanged.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct UpdateBrowser {
    /// The new name; `""` or null removes the name.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    name: Option<Option<String>>,
    /// Replaces all tags; `{}` removes them.
    tags: Option<BTreeMap<String, String>>,
    /// The telemetry to capture.
    telemetry: Option<Telemetry>,
    /// A proxy of the project, by id or name, for new connections; `""` or null removes it.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    proxy_id: Option<Option<String>>,
    /// Whether a stealth session connects directly, without the installation's proxy. There is no such proxy.
    disable_default_proxy: Option<bool>,
    /// The way of the traffic for new connections, in place of `proxy_id` and `disable_default_proxy`.
    proxy: Option<ProxyInput>,
    /// The change of the allowed hosts. Connections to hosts that are no longer allowed are closed.
    network: Option<NetworkUpdate>,
    /// The profile to load, if none is loaded yet.
    profile: Option<Profile>,
    /// The time zone and the locale of pages and workers. Another one restarts the browser with its pages, and ends
    /// connections to it.
    location: Option<LocationUpdate>,
    /// An absolute URL to open after all other changes; `""` leaves the page. The response does not wait for the
    /// navigation.
    start_url: Option<String>,
    /// The new size of the display.
    viewport: Option<ViewportInput>,
}

impl UpdateBrowser {
    /// # Errors
    /// `invalid_input` if a field that only this body has is refused.
    pub(crate) fn into_request(self) -> Result<SessionUpdateRequest, ApiError> {
        let mut fields = Fields::new();
        let request = SessionUpdateRequest {
            name: self.name,
            tags: self.tags,
            force_viewport: self.viewport.and_then(|viewport| viewport.force).unwrap_or(false),
            viewport: self.viewport.map(Into::into),
            telemetry: config_request(self.telemetry, &mut fields),
            profile: self.profile.map(Into::into),
            proxy: self.proxy_id,
            start_url: self.start_url,
            location: self.location.map(Into::into),
            proxy_selection: self.proxy.map(Into::into),
            disable_default_proxy: self.disable_default_proxy,
            network: self.network.map(Into::into),
        };
        checked(request, fields, SessionUpdateRequest::parse)
    }
}
