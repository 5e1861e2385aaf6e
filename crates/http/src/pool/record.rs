//! The record of a pool.

use casement_domain::{
    browser::Installation,
    pool::{Pool, PoolCounts},
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    answer::Moment,
    network::NetworkBody,
    schema::ToSchema,
    session::{Captured, Viewport, memory},
};

/// A pool of warm browsers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserPool)]
pub(crate) struct PoolBody {
    pub(super) id: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Browsers that are ready.
    available_count: u32,
    /// Browsers that are leased.
    acquired_count: u32,
    /// Why the last start of one of its browsers failed, at most 500 characters. Absent after a start that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_reason: Option<String>,
    /// Extensions in the order they are loaded.
    extension_ids: Vec<String>,
    /// The label of the installation, set by its operator. It does not say where the machine is.
    #[schema(value_type = String)]
    region: &'static str,
    /// The profile of its browsers.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_id: Option<String>,
    browser_pool_config: Config,
}

/// The configuration of a pool.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserPoolConfig)]
struct Config {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    size: u32,
    /// The maximum growth per minute, in percent of the size.
    fill_rate_per_minute: u32,
    /// The engine that starts its browsers.
    engine: String,
    headless: bool,
    stealth: bool,
    /// The memory of each browser: the largest of the named sizes that its limit reaches, `1GiB` also below that. Absent if
    /// the engine does not limit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    memory: Option<&'static str>,
    kiosk_mode: bool,
    /// The idle timeout of a lease.
    timeout_seconds: u32,
    viewport: Viewport,
    #[serde(skip_serializing_if = "Option::is_none")]
    browser_policy: Option<Map<String, Value>>,
    /// The profile of its browsers.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Resolved>,
    /// Whether idle browsers follow changes of the profile, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_on_profile_update: Option<bool>,
    /// The proxy of its browsers.
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_id: Option<String>,
    /// What its browsers may reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkBody>,
    /// Extensions in the order they are loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    extensions: Vec<Resolved>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_url: Option<String>,
    /// The telemetry that is captured of a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    telemetry: Option<Captured>,
}

/// A resource that was resolved when the pool was created or changed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserPoolReference)]
struct Resolved {
    id: String,
}

impl Resolved {
    fn to(id: impl ToString) -> Self {
        Self { id: id.to_string() }
    }
}

impl PoolBody {
    pub(crate) fn new((pool, counts): (Pool, PoolCounts), installation: &Installation) -> Self {
        let name = pool.name.map(|name| name.to_string());
        let config = pool.config;
        Self {
            id: pool.id.to_string(),
            created_at: Moment(pool.created_at),
            name: name.clone(),
            available_count: counts.available,
            acquired_count: counts.acquired,
            blocked_reason: pool.blocked_reason,
            extension_ids: config.shape.extensions.iter().map(ToString::to_string).collect(),
            region: installation.region.as_str(),
            profile_id: config.shape.profile.map(|profile| profile.id.to_string()),
            browser_pool_config: Config {
                name,
                size: config.size,
                fill_rate_per_minute: config.fill_rate_per_minute,
                engine: config.shape.engine.to_string(),
                headless: config.shape.headless,
                stealth: config.shape.stealth,
                memory: memory(&config.shape, installation),
                kiosk_mode: config.shape.kiosk_mode,
                timeout_seconds: config.timeout_seconds,
                viewport: config.shape.viewport.into(),
                browser_policy: config.shape.policy.map(|policy| policy.as_map().clone()),
                profile: config.shape.profile.map(|profile| Resolved::to(profile.id)),
                refresh_on_profile_update: config.shape.profile.map(|_| config.refresh_on_profile_update),
                proxy_id: config.shape.proxy.map(|id| id.to_string()),
                network: config.shape.network.map(NetworkBody::of_pool),
                extensions: config.shape.extensions.iter().map(Resolved::to).collect(),
                start_url: config.start_url.map(|url| url.as_str().to_owned()),
                telemetry: config.telemetry.map(Captured::from),
            },
        }
    }
}
