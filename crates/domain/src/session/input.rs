//! Requests for sessions and changes of sessions, and their checks.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::browser::{
    BrowserPolicy, BrowserRegion, Location, LocationChange, LocationRequest, Memory, Shape, StartUrl, Viewport,
};
use crate::engine::{Capability, EngineDescription, Engines, check_fields, choose};
use crate::extension::references;
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};
use crate::ids::InvocationId;
use crate::name::LabelName;
use crate::network::{AllowlistChange, AllowlistUpdateRequest, NetworkRequest, NewNetwork};
use crate::not_supported::NotSupported;
use crate::profile::ProfileRequest;
use crate::proxy::{ProxySelection, SelectedProxy, selected};
use crate::reference::Reference;
use crate::telemetry;

/// An unchecked viewport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewportRequest {
    /// The width in pixels.
    pub width: Option<i64>,
    /// The height in pixels.
    pub height: Option<i64>,
    /// The refresh rate in hertz.
    pub refresh_rate: Option<i64>,
}

impl ViewportRequest {
    fn parse(self) -> Result<Viewport, InvalidValue> {
        Viewport::parse(self.width, self.height, self.refresh_rate)
    }
}

/// The tags of a session: at most 50 pairs, with keys of 1 to 128 characters and values of up to 256 characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(BTreeMap<String, String>);

impl Tags {
    /// The maximum number of pairs.
    pub const MAX_PAIRS: usize = 50;
    /// The maximum number of characters of a key.
    pub const MAX_KEY: usize = 128;
    /// The maximum number of characters of a value.
    pub const MAX_VALUE: usize = 256;

    /// Checks tags.
    ///
    /// # Errors
    /// Returns the exceeded bound, with the key.
    pub fn parse(pairs: BTreeMap<String, String>) -> Result<Self, InvalidValue> {
        if pairs.len() > Self::MAX_PAIRS {
            return Err(InvalidValue::new(FieldCode::TooMany, "must have at most 50 pairs"));
        }
        for (key, value) in &pairs {
            let shown: String = key.chars().take(Self::MAX_KEY).collect();
            if key.is_empty() {
                return Err(InvalidValue::new(FieldCode::TooShort, "a key must have at least 1 character"));
            }
            if key.chars().nth(Self::MAX_KEY).is_some() {
                return Err(InvalidValue::new(FieldCode::TooLong, "a key must have at most 128 characters").of(shown));
            }
            if value.chars().nth(Self::MAX_VALUE).is_some() {
                return Err(InvalidValue::new(FieldCode::TooLong, "must have at most 256 characters").of(shown));
            }
            // PostgreSQL's text and terminals cannot hold NUL.
            if key.contains('\0') || value.contains('\0') {
                return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold NUL").of(shown.replace('\0', "")));
            }
        }
        Ok(Self(pairs))
    }

    /// Returns the pairs.
    #[must_use]
    pub fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

/// The unchecked request for a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionRequest {
    /// The engine. Default: the installation's.
    pub engine: Option<String>,
    /// Whether the browser has no display. Default: false, or true for an engine whose browsers have no display.
    pub headless: Option<bool>,
    /// Whether the browser hides that it is automated. Default: false.
    pub stealth: Option<bool>,
    /// Whether the session needs a GPU. Default: false.
    pub gpu: Option<bool>,
    /// Whether the browser runs in kiosk mode. Default: false.
    pub kiosk_mode: Option<bool>,
    /// The name. Default: none.
    pub name: Option<String>,
    /// The idle timeout in seconds. Default: 60.
    pub timeout_seconds: Option<i64>,
    /// The viewport. Default: 1920 × 1080.
    pub viewport: Option<ViewportRequest>,
    /// The policies of Chromium. Default: none.
    pub browser_policy: Option<Map<String, Value>>,
    /// The URL to open first. Default: none.
    pub start_url: Option<String>,
    /// The tags. Default: none.
    pub tags: Option<BTreeMap<String, String>>,
    /// The telemetry configuration. Default: off.
    pub telemetry: Option<telemetry::ConfigRequest>,
    /// The time zone and the locale. Default: the installation's time zone, and English of the United States.
    pub location: Option<LocationRequest>,
    /// The memory of the browser. Default: the node's.
    pub memory: Option<String>,
    /// The region. Default: the installation's.
    pub region: Option<String>,
    /// The profile, of the project. Default: none.
    pub profile: Option<ProfileRequest>,
    /// The proxy of the project, by id or name. Default: none.
    pub proxy: Option<String>,
    /// The way of the traffic, in place of `proxy`.
    pub proxy_selection: Option<ProxySelection>,
    /// The network configuration. Default: none.
    pub network: Option<NetworkRequest>,
    /// The extensions of the project, in the order of loading.
    pub extensions: Vec<Reference>,
    /// The id of an invocation of the project that has not ended. Default: none.
    pub invocation: Option<String>,
    /// The W3C capabilities of a WebDriver client, by name; at most [`MAX_CAPABILITIES`] bytes of JSON. Default: none.
    pub capabilities: Map<String, Value>,
}

/// The checked request for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// The shape of the browser, without profile, extensions, proxy and memory.
    pub shape: Shape,
    /// The requested memory.
    pub memory: Option<Memory>,
    /// The requested region.
    pub region: Option<BrowserRegion>,
    /// The profile, resolved when the session is created.
    pub profile: Option<ProfileRequest>,
    /// The extensions, resolved when the session is created.
    pub extensions: Vec<Reference>,
    /// The proxy, resolved when the session is created.
    pub proxy: Option<SelectedProxy>,
    /// The network configuration, resolved when the session is created.
    pub network: Option<NewNetwork>,
    /// The name.
    pub name: Option<LabelName>,
    /// The idle timeout in seconds.
    pub timeout_seconds: u32,
    /// The URL to open first.
    pub start_url: Option<StartUrl>,
    /// The tags.
    pub tags: Tags,
    /// The telemetry capture; `None`: nothing is captured.
    pub telemetry: Option<telemetry::Capture>,
    /// The invocation of the session.
    pub invocation: Option<InvocationId>,
    /// Whether a login runs in the session.
    pub for_login: bool,
    /// The W3C capabilities of a WebDriver client.
    pub capabilities: Map<String, Value>,
}

/// The error of checking a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// This installation does not support the request.
    #[error(transparent)]
    NotSupported(#[from] NotSupported),
}

/// The shortest idle timeout of a session or pool, in seconds.
pub const MIN_TIMEOUT_SECONDS: u32 = 10;
/// The maximum size of the W3C capabilities of a WebDriver client, in bytes of JSON.
pub const MAX_CAPABILITIES: usize = 4_096;
/// The longest idle timeout of a session or pool, in seconds: three days.
pub const MAX_TIMEOUT_SECONDS: u32 = 259_200;

/// Checks the idle timeout of a session or pool: 10 to 259200 seconds.
///
/// # Errors
/// `out_of_range` for any other number.
pub fn timeout_seconds(value: i64) -> Result<u32, InvalidValue> {
    within(value, MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS)
}

/// Returns the shape from the fields that sessions and pools have in common. Errors are added to `fields`.
pub fn shape(
    fields: &mut Fields,
    engine: &EngineDescription,
    (headless, stealth, kiosk_mode): (Option<bool>, Option<bool>, Option<bool>),
    viewport: Option<ViewportRequest>,
    policy: Option<Map<String, Value>>,
) -> Shape {
    let viewport = fields.take_optional("viewport", viewport, ViewportRequest::parse).unwrap_or_default();
    let policy = policy.filter(|map| !map.is_empty());
    Shape {
        engine: engine.name.clone(),
        headless: headless.unwrap_or_else(|| is_headless_by_default(engine)),
        stealth: stealth.unwrap_or(false),
        kiosk_mode: kiosk_mode.unwrap_or(false),
        viewport,
        policy: fields.take_optional("browser_policy", policy, BrowserPolicy::parse),
        extensions: Vec::new(),
        proxy: None,
        profile: None,
        memory: None,
        location: Location::default(),
        network: None,
    }
}

/// Returns whether browsers of an engine have no display unless a request says otherwise.
pub(crate) fn is_headless_by_default(engine: &EngineDescription) -> bool {
    engine.check(Capability::Display).is_err()
}

/// Returns the fields that sessions and pools have in common, for [`check_fields`].
pub(crate) fn common_fields(
    (headless, stealth, kiosk_mode): (Option<bool>, Option<bool>, Option<bool>),
    viewport: Option<ViewportRequest>,
    memory: Option<&str>,
) -> [(&'static str, Capability, bool); 7] {
    [
        ("headless", Capability::Headless, headless == Some(true)),
        ("headless", Capability::Display, headless == Some(false)),
        ("stealth", Capability::Stealth, stealth == Some(true)),
        ("kiosk_mode", Capability::KioskMode, kiosk_mode == Some(true)),
        ("viewport", Capability::Viewport, viewport.is_some()),
        // Only a display has a refresh rate that can be set.
        ("viewport.refresh_rate", Capability::Display, viewport.is_some_and(|size| size.refresh_rate.is_some())),
        ("memory", Capability::Memory, memory.is_some()),
    ]
}

/// Refuses features that this installation does not support, instead of ignoring them.
pub(crate) fn supported(gpu: Option<bool>, requested: &[(&'static str, bool)]) -> Result<(), NotSupported> {
    if gpu == Some(true) {
        return Err(NotSupported { field: "gpu", why: "this installation has no GPU for sessions".into() });
    }
    for &(field, requested) in requested {
        if requested {
            return Err(NotSupported { field, why: "this installation does not offer it".into() });
        }
    }
    Ok(())
}

/// Returns the error of a field that names no invocation of the project, or one that has ended.
pub(crate) fn no_invocation() -> InvalidValue {
    InvalidValue::new(FieldCode::ReferenceNotFound, "names no invocation of the project that has not ended")
}

/// Checks the size of W3C capabilities.
fn bounded(capabilities: &Map<String, Value>) -> Result<(), InvalidValue> {
    let bytes: usize = capabilities.iter().map(|(name, value)| name.len() + value.to_string().len()).sum();
    if bytes <= MAX_CAPABILITIES {
        return Ok(());
    }
    Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {MAX_CAPABILITIES} bytes of JSON")))
}

impl SessionRequest {
    /// Checks the request.
    ///
    /// # Errors
    /// Returns every field that breaks a rule, or the feature that this installation or the engine does not support.
    pub fn parse(self, engines: &dyn Engines) -> Result<NewSession, Refusal> {
        let mut fields = Fields::new();
        let engine = fields.take("engine", choose(engines, self.engine.as_deref()));
        let engine = engine.unwrap_or_else(|| engines.default_engine());
        let modes = (self.headless, self.stealth, self.kiosk_mode);
        let common = common_fields(modes, self.viewport, self.memory.as_deref());
        let has_location = self.location.is_some();
        if self.gpu == Some(true) && self.headless == Some(true) {
            fields.refuse("gpu", InvalidValue::new(FieldCode::MutuallyExclusive, "needs headless to be false"));
        }
        let name = fields.take_optional("name", self.name, |text| LabelName::parse_in_path(&text));
        let timeout = fields.take_optional("timeout_seconds", self.timeout_seconds, timeout_seconds);
        let mut shape = shape(&mut fields, &engine, modes, self.viewport, self.browser_policy);
        let start_url = fields.take_optional("start_url", self.start_url, |text| StartUrl::parse(&text));
        let location = fields.take_optional("location", self.location, |location| location.parse());
        shape.location = location.unwrap_or_default().onto(Location::default());
        let memory = fields.take_optional("memory", self.memory.as_deref(), Memory::parse);
        let region = fields.take_optional("region", self.region.as_deref(), BrowserRegion::parse);
        fields.take_optional("profile", self.profile.as_ref(), |profile| profile.which.parse());
        references(&self.extensions, &mut fields);
        let proxy = selected(&mut fields, self.proxy_selection.as_ref(), self.proxy.map(Some));
        let network = fields.take_optional("network", self.network.as_ref(), NetworkRequest::parse);
        let tags = fields.take_optional("tags", self.tags, Tags::parse);
        let capture = fields.take("telemetry", telemetry::on_create(self.telemetry.as_ref())).flatten();
        let invocation = fields.take_optional("invocation_id", self.invocation, |text| {
            text.parse::<InvocationId>().map_err(|_| no_invocation())
        });
        fields.take("capabilities", bounded(&self.capabilities));
        fields.finish()?;
        supported(self.gpu, &[])?;
        check_fields(&engine, &common)?;
        check_fields(
            &engine,
            &[
                ("browser_policy", Capability::Policies, shape.policy.is_some()),
                ("extensions", Capability::Extensions, !self.extensions.is_empty()),
                (proxy.as_ref().map_or("proxy", SelectedProxy::field), Capability::Network, proxy.is_some()),
                ("network", Capability::Network, network.is_some()),
                ("profile", Capability::Profiles, self.profile.is_some()),
                ("location", Capability::Location, has_location),
                ("telemetry", Capability::Telemetry, capture.is_some()),
            ],
        )?;
        Ok(NewSession {
            shape,
            memory,
            region,
            profile: self.profile,
            extensions: self.extensions,
            proxy,
            network,
            name,
            timeout_seconds: timeout.unwrap_or(60),
            start_url,
            tags: tags.unwrap_or_default(),
            telemetry: capture,
            invocation,
            for_login: false,
            capabilities: self.capabilities,
        })
    }
}

/// The unchecked request to change a session. `None` leaves a value unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionUpdateRequest {
    /// The new name; `Some(None)` and an empty name remove it.
    pub name: Option<Option<String>>,
    /// The new tags, which replace all tags.
    pub tags: Option<BTreeMap<String, String>>,
    /// The new viewport.
    pub viewport: Option<ViewportRequest>,
    /// Whether the viewport may change during a live view or a recording.
    pub force_viewport: bool,
    /// The change of the telemetry configuration.
    pub telemetry: Option<telemetry::ConfigRequest>,
    /// The profile, of the project, for a session that has none.
    pub profile: Option<ProfileRequest>,
    /// The new proxy of the project, by id or name; `Some(None)` and an empty text remove it.
    pub proxy: Option<Option<String>>,
    /// The URL to open after all other changes; an empty one opens nothing.
    pub start_url: Option<String>,
    /// The change of the time zone and the locale, before the URL is opened.
    pub location: Option<LocationRequest>,
    /// The new way of the traffic, in place of `proxy` and `disable_default_proxy`.
    pub proxy_selection: Option<ProxySelection>,
    /// Whether the session connects directly without the installation's proxy. There is no such proxy.
    pub disable_default_proxy: Option<bool>,
    /// The change of the allowed hosts.
    pub network: Option<AllowlistUpdateRequest>,
}

/// The checked request to change a session. `None` leaves a value unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionUpdate {
    /// The new name; `Some(None)` removes it.
    pub name: Option<Option<LabelName>>,
    /// The new tags, which replace all tags.
    pub tags: Option<Tags>,
    /// The new viewport, and whether it may change during a live view or a recording.
    pub viewport: Option<(Viewport, bool)>,
    /// Whether the new viewport names a refresh rate.
    pub sets_refresh_rate: bool,
    /// The new proxy, resolved when the session is changed.
    pub proxy: Option<SelectedProxy>,
    /// The change of the allowed hosts.
    pub allowlist: Option<AllowlistChange>,
    /// The profile to load, resolved when the session is changed.
    pub profile: Option<ProfileRequest>,
    /// The change of the telemetry configuration, applied to the current capture.
    pub telemetry: Option<telemetry::ConfigRequest>,
    /// The URL to open after all other changes.
    pub start_url: Option<StartUrl>,
    /// The change of the time zone and the locale.
    pub location: Option<LocationChange>,
}

impl SessionUpdateRequest {
    /// Checks the request.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(self) -> Result<SessionUpdate, Refusal> {
        let mut fields = Fields::new();
        let sets_refresh_rate = self.viewport.is_some_and(|size| size.refresh_rate.is_some());
        let name = fields.take_optional("name", self.name, |name| {
            name.filter(|text| !text.is_empty()).map(|text| LabelName::parse_in_path(&text)).transpose()
        });
        let tags = fields.take_optional("tags", self.tags, Tags::parse);
        let viewport = fields.take_optional("viewport", self.viewport, ViewportRequest::parse);
        fields.take_optional("profile", self.profile.as_ref(), |profile| profile.which.parse());
        let start_url = self.start_url.as_deref().filter(|text| !text.is_empty());
        let start_url = fields.take_optional("start_url", start_url, StartUrl::parse);
        let location = fields.take_optional("location", self.location, |location| location.parse());
        // The result depends on the current capture, but a contradiction within the request is found here.
        fields.take("telemetry", telemetry::check_change(self.telemetry.as_ref()));
        let proxy_id = self.proxy.map(|proxy| proxy.filter(|text| !text.is_empty()));
        let proxy = selected(&mut fields, self.proxy_selection.as_ref(), proxy_id);
        if self.proxy_selection.is_some() && self.disable_default_proxy.is_some() {
            let message = "takes the place of disable_default_proxy";
            fields.refuse("proxy", InvalidValue::new(FieldCode::MutuallyExclusive, message));
        }
        let allowlist = self.network.and_then(|network| network.parse(&mut fields));
        fields.finish()?;
        Ok(SessionUpdate {
            name,
            tags,
            viewport: viewport.map(|size| (size, self.force_viewport)),
            sets_refresh_rate,
            proxy,
            allowlist,
            profile: self.profile,
            telemetry: self.telemetry,
            start_url,
            location,
        })
    }
}

impl SessionUpdate {
    /// Checks that the engine of the session supports the changes.
    ///
    /// # Errors
    /// The refusal of the first field that the engine does not support.
    pub(crate) fn check_engine(&self, engine: &EngineDescription) -> Result<(), NotSupported> {
        let proxy = self.proxy.as_ref().map_or("proxy", SelectedProxy::field);
        check_fields(
            engine,
            &[
                ("viewport", Capability::Viewport, self.viewport.is_some()),
                ("viewport.refresh_rate", Capability::Display, self.sets_refresh_rate),
                (proxy, Capability::Network, self.proxy.is_some()),
                ("network", Capability::Network, self.allowlist.is_some()),
                ("profile", Capability::Profiles, self.profile.is_some()),
                ("location", Capability::Location, self.location.is_some()),
                ("telemetry", Capability::Telemetry, self.telemetry.is_some()),
            ],
        )
    }
}
