//! The inputs of pools, unchecked, and their checks.

use serde_json::{Map, Value};

use super::PoolConfig;
use crate::browser::{BrowserPolicy, BrowserRegion, Memory, Shape, StartUrl, Viewport};
use crate::engine::{Capability, EngineDescription, Engines, check_fields, choose, describe};
use crate::error::UseCaseError;
use crate::extension::references;
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};
use crate::name::SlugName;
use crate::network::{Network, NetworkRequest, NewNetwork, StaleNetwork};
use crate::reference::Reference;
use crate::session::{NotSupported, ViewportRequest, common_fields, is_headless_by_default, shape, timeout_seconds};
use crate::telemetry;

/// The unchecked fields of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolRequest {
    /// Required on create.
    pub size: Option<i64>,
    /// Default: 25.
    pub fill_rate_per_minute: Option<i64>,
    /// Default: none. Empty on update: as it is.
    pub name: Option<String>,
    /// Default: 600.
    pub timeout_seconds: Option<i64>,
    /// The engine. Default: the installation's.
    pub engine: Option<String>,
    /// Default: false, or true for an engine whose browsers have no display.
    pub headless: Option<bool>,
    /// Default: false.
    pub stealth: Option<bool>,
    /// Default: false.
    pub kiosk_mode: Option<bool>,
    /// Default: 1920 × 1080.
    pub viewport: Option<ViewportRequest>,
    /// Default: none; empty clears.
    pub browser_policy: Option<Map<String, Value>>,
    /// Default: none; empty clears.
    pub start_url: Option<String>,
    /// Default: off.
    pub telemetry: Option<telemetry::ConfigRequest>,
    /// Whether idle browsers should follow the profile.
    pub refresh_on_profile_update: Option<bool>,
    /// The memory of each browser. Default: the node's.
    pub memory: Option<String>,
    /// The region. Default: the installation's.
    pub region: Option<String>,
    /// A profile of the project. An empty id clears.
    pub profile: Option<Reference>,
    /// A proxy of the project, by id or name. Empty clears.
    pub proxy: Option<String>,
    /// The network configuration; an empty one clears.
    pub network: Option<NetworkRequest>,
    /// Extensions of the project, in the order they are loaded; empty clears.
    pub extensions: Option<Vec<Reference>>,
}

/// The requested changes of a pool; a field that is `None` stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolUpdateRequest {
    /// The fields of create.
    pub input: PoolRequest,
    /// Whether idle browsers of the old configuration are destroyed at once.
    pub discard_all_idle: bool,
    /// The network configuration that the pool must have; an empty one: none.
    pub expected_network: Option<NetworkRequest>,
}

use crate::session::Refusal;

impl PoolUpdateRequest {
    /// Checks that a pool has the expected network configuration. Proxies are compared by their ids.
    pub(super) fn check_expected(&self, stored: Option<&Network>) -> Result<(), UseCaseError<StaleNetwork>> {
        let Some(expected) = &self.expected_network else { return Ok(()) };
        let expected = expected.parse().map_err(|bad| InvalidInput::of("expected_network", bad))?;
        if expected.describes(stored) { Ok(()) } else { Err(StaleNetwork.into()) }
    }
}

impl PoolRequest {
    /// Returns the profile to load; `None` if none is named or the present one is cleared.
    pub(super) fn requested_profile(&self) -> Option<&Reference> {
        self.profile.as_ref().filter(|profile| profile.id.as_deref() != Some(""))
    }

    /// Returns the requested region, if it is one.
    pub(super) fn requested_region(&self) -> Option<BrowserRegion> {
        BrowserRegion::parse(self.region.as_deref()?).ok()
    }

    /// Returns the requested memory, if it is valid.
    pub(super) fn requested_memory(&self) -> Option<Memory> {
        Memory::parse(self.memory.as_deref()?).ok()
    }

    fn common(&self, fields: &mut Fields) -> Option<SlugName> {
        let name = self.name.as_deref().filter(|text| !text.is_empty());
        let name = fields.take_optional("name", name, SlugName::parse);
        fields.take_optional("memory", self.memory.as_deref(), Memory::parse);
        fields.take_optional("region", self.region.as_deref(), BrowserRegion::parse);
        fields.take_optional("profile", self.requested_profile(), Reference::parse);
        references(self.extensions.as_deref().unwrap_or_default(), fields);
        fields.take_optional("network", self.network.as_ref(), NetworkRequest::parse);
        name
    }

    /// Returns the checked network configuration; `None` if the request has none.
    pub(super) fn requested_network(&self) -> Result<Option<NewNetwork>, InvalidInput> {
        let parsed = self.network.as_ref().map(NetworkRequest::parse).transpose();
        parsed.map_err(|bad| InvalidInput::of("network", bad))
    }

    /// Returns the name and configuration of a new pool.
    ///
    /// # Errors
    /// Returns the invalid fields, or the feature that this installation or the engine does not support.
    pub fn parse(self, engines: &dyn Engines) -> Result<(Option<SlugName>, PoolConfig), Refusal> {
        let mut fields = Fields::new();
        let engine = fields.take("engine", choose(engines, self.engine.as_deref()));
        let engine = engine.unwrap_or_else(|| engines.default_engine());
        let name = self.common(&mut fields);
        let telemetry = fields.take("telemetry", telemetry::on_create(self.telemetry.as_ref())).flatten();
        let has_profile = self.requested_profile().is_some();
        let refresh =
            fields.take("refresh_on_profile_update", refresh(self.refresh_on_profile_update, has_profile)).flatten();
        let size = fields.take_required("size", self.size, size);
        let rate = fields.take_optional("fill_rate_per_minute", self.fill_rate_per_minute, fill_rate);
        let timeout = fields.take_optional("timeout_seconds", self.timeout_seconds, timeout_seconds);
        let start_url = self.start_url.as_deref().filter(|text| !text.is_empty());
        let start_url = fields.take_optional("start_url", start_url, StartUrl::parse);
        let shape = shape(
            &mut fields,
            &engine,
            (self.headless, self.stealth, self.kiosk_mode),
            self.viewport,
            self.browser_policy.clone(),
        );
        fields.finish()?;
        self.check_engine(&engine, &shape, telemetry.is_some())?;
        Ok((
            name,
            PoolConfig {
                size: size.unwrap_or(1),
                fill_rate_per_minute: rate.unwrap_or(25),
                timeout_seconds: timeout.unwrap_or(600),
                shape,
                start_url,
                refresh_on_profile_update: refresh.unwrap_or(has_profile),
                telemetry,
            },
        ))
    }

    /// Returns the new name (`None`: unchanged) and configuration of an existing pool.
    ///
    /// # Errors
    /// Returns the invalid fields, or the feature that this installation or the engine does not support.
    pub fn parse_onto(
        self,
        old: &PoolConfig,
        engines: &dyn Engines,
    ) -> Result<(Option<SlugName>, PoolConfig), Refusal> {
        let mut fields = Fields::new();
        let mut new = old.clone();
        let engine = match &self.engine {
            Some(requested) => fields.take("engine", choose(engines, Some(requested))),
            None => None,
        };
        let engine = engine.unwrap_or_else(|| describe(engines, &old.shape.engine));
        if engine.name != old.shape.engine {
            set_engine(&mut new.shape, &engine);
        }
        let name = self.common(&mut fields);
        let telemetry = telemetry::on_change(self.telemetry.as_ref(), old.telemetry.as_ref());
        set(&mut new.telemetry, fields.take("telemetry", telemetry));
        // A new profile is followed by default; without a profile there is nothing to follow.
        let has_profile = match &self.profile {
            Some(_) => self.requested_profile().is_some(),
            None => old.shape.profile.is_some(),
        };
        let follows = if self.profile.is_some() { has_profile } else { old.refresh_on_profile_update };
        let requested =
            refresh(self.refresh_on_profile_update, has_profile).map(|requested| requested.unwrap_or(follows));
        set(&mut new.refresh_on_profile_update, fields.take("refresh_on_profile_update", requested));
        set(&mut new.size, fields.take_optional("size", self.size, size));
        set(
            &mut new.fill_rate_per_minute,
            fields.take_optional("fill_rate_per_minute", self.fill_rate_per_minute, fill_rate),
        );
        set(&mut new.timeout_seconds, fields.take_optional("timeout_seconds", self.timeout_seconds, timeout_seconds));
        set(&mut new.shape.headless, self.headless);
        set(&mut new.shape.stealth, self.stealth);
        set(&mut new.shape.kiosk_mode, self.kiosk_mode);
        let viewport =
            fields.take_optional("viewport", self.viewport, |v| Viewport::parse(v.width, v.height, v.refresh_rate));
        set(&mut new.shape.viewport, viewport);
        let policy = self.browser_policy.clone();
        set(
            &mut new.shape.policy,
            fields.take_optional("browser_policy", policy, |map| {
                if map.is_empty() { Ok(None) } else { BrowserPolicy::parse(map).map(Some) }
            }),
        );
        set(
            &mut new.start_url,
            fields.take_optional("start_url", self.start_url.as_deref(), |text| {
                if text.is_empty() { Ok(None) } else { StartUrl::parse(text).map(Some) }
            }),
        );
        fields.finish()?;
        self.check_engine(&engine, &new.shape, new.telemetry.is_some())?;
        Ok((name, new))
    }

    /// Checks that the engine supports what the request asks for, and what the pool has and the request leaves as it is.
    fn check_engine(&self, engine: &EngineDescription, shape: &Shape, has_telemetry: bool) -> Result<(), NotSupported> {
        let modes = (self.headless, self.stealth.or(Some(shape.stealth)), self.kiosk_mode.or(Some(shape.kiosk_mode)));
        let extensions = self.extensions.as_ref().map_or(shape.extensions.len(), Vec::len);
        let proxy = self.proxy.as_ref().map_or(shape.proxy.is_some(), |text| !text.is_empty());
        let network = match &self.network {
            Some(requested) => *requested != NetworkRequest::default(),
            None => shape.network.is_some(),
        };
        let profile = if self.profile.is_some() { self.requested_profile().is_some() } else { shape.profile.is_some() };
        check_fields(engine, &[("engine", Capability::Pools, true)])?;
        check_fields(engine, &common_fields(modes, self.viewport, self.memory.as_deref()))?;
        check_fields(
            engine,
            &[
                ("browser_policy", Capability::Policies, shape.policy.is_some()),
                ("extensions", Capability::Extensions, extensions > 0),
                ("proxy_id", Capability::Network, proxy),
                ("network", Capability::Network, network),
                ("profile", Capability::Profiles, profile),
                ("telemetry", Capability::Telemetry, has_telemetry),
            ],
        )
    }
}

/// Gives a pool another engine. What every browser has gets the default of the engine where its value cannot stay.
fn set_engine(shape: &mut Shape, engine: &EngineDescription) {
    shape.engine = engine.name.clone();
    shape.headless |= is_headless_by_default(engine);
    if engine.check(Capability::Memory).is_err() {
        shape.memory = None;
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// Checks whether idle browsers can follow the profile as requested.
fn refresh(requested: Option<bool>, has_profile: bool) -> Result<Option<bool>, InvalidValue> {
    if requested == Some(true) && !has_profile {
        return Err(InvalidValue::new(FieldCode::MutuallyExclusive, "needs a profile"));
    }
    Ok(requested)
}

/// The maximum size of a pool. It is a sanity bound; the limits of project and organization are what counts.
pub const MAX_SIZE: u32 = 100_000;
/// The maximum growth of a pool per minute, in percent of its size.
pub const MAX_FILL_RATE_PERCENT: u32 = 100;

fn size(value: i64) -> Result<u32, InvalidValue> {
    within(value, 1, MAX_SIZE)
}

fn fill_rate(value: i64) -> Result<u32, InvalidValue> {
    within(value, 1, MAX_FILL_RATE_PERCENT)
}
