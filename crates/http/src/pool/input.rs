//! Request bodies of pools.

use casement_domain::{
    engine::Engines,
    field::{FieldCode, Fields, InvalidValue},
    pool,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    error::ApiError,
    network::NetworkInput,
    schema::ToSchema,
    session::{Reference, Telemetry, ViewportInput, checked, config_request, policy},
};

/// A pool to create, or changes of one.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = BrowserPoolInput)]
pub(crate) struct PoolInput {
    /// The number of browsers. Required on create.
    size: Option<i64>,
    /// The maximum growth per minute, in percent of the size, 1 to 100. Default: 25.
    fill_rate_per_minute: Option<i64>,
    /// Letters, digits, `.`, `_`, `-`; unique in the project. On update, `""` keeps it.
    name: Option<String>,
    /// The idle timeout of a lease, 10 to 259200. Default: 600.
    timeout_seconds: Option<i64>,
    /// The engine that starts the browsers, by its name as `GET /engines` lists it. Default: `local`, or the first one if
    /// the installation has no such engine. On update, another engine ends idle browsers.
    engine: Option<String>,
    /// Default: false, or true for an engine without displays.
    headless: Option<bool>,
    /// Default: false.
    stealth: Option<bool>,
    /// Default: false.
    kiosk_mode: Option<bool>,
    /// The profile to load, read-only. On update, `{"id": ""}` removes it.
    profile: Option<Reference>,
    /// Whether idle browsers follow changes of the profile. Default: true with a profile.
    refresh_on_profile_update: Option<bool>,
    /// A proxy of the project, by id or name. On update, `""` removes it.
    proxy_id: Option<String>,
    /// The memory of each browser: `1GiB`, `2GiB`, `4GiB`, `8GiB` or `16GiB`. Default: the node's. On update, another
    /// size ends idle browsers.
    memory: Option<String>,
    /// The region: `us-east`, `us-west`, `eu-west` or `ap-southeast`. Only the installation's own is accepted.
    region: Option<String>,
    /// What the browsers may reach. On update, `{}` removes it; changed `allowed_hosts` replace idle browsers at once.
    network: Option<NetworkInput>,
    /// On update: the network configuration that the pool must have, with ids of proxies; `{}` for none.
    expected_network: Option<NetworkInput>,
    /// Extensions of the project, loaded in this order. On update, `[]` removes them.
    extensions: Option<Vec<Reference>>,
    /// Size of the display. Default: 1920 × 1080.
    viewport: Option<ViewportInput>,
    /// Chrome policies by name, at most 5 MiB of JSON. On update, `{}` removes them.
    browser_policy: Option<Map<String, Value>>,
    /// An alias of `browser_policy`.
    chrome_policy: Option<Map<String, Value>>,
    /// An absolute URL that a lease opens first. On update, `""` removes it.
    start_url: Option<String>,
    /// The telemetry to capture. Default: none.
    telemetry: Option<Telemetry>,
    /// On update: whether idle browsers of the old configuration are ended at once. Default: false.
    discard_all_idle: Option<bool>,
}

impl PoolInput {
    /// # Errors
    /// Returns `invalid_input` if a field is refused that the domain does not have.
    pub(super) fn create(self, engines: &dyn Engines) -> Result<pool::PoolRequest, ApiError> {
        let mut fields = Fields::new();
        if self.expected_network.is_some() {
            fields.refuse("expected_network", InvalidValue::new(FieldCode::NotAllowed, "is only for updates"));
        }
        let input = self.common(&mut fields);
        checked(input, fields, |input| input.parse(engines))
    }

    /// # Errors
    /// Returns `invalid_input` if a field is refused that the domain does not have.
    pub(super) fn update(mut self, engines: &dyn Engines) -> Result<pool::PoolUpdateRequest, ApiError> {
        let expected_network = self.expected_network.take().map(Into::into);
        let discard_all_idle = self.discard_all_idle.unwrap_or(false);
        let mut fields = Fields::new();
        // The old configuration of the pool is not known here, but its fields follow the rules of a new pool, which
        // requires only a size.
        let as_new =
            |input: pool::PoolRequest| pool::PoolRequest { size: input.size.or(Some(1)), ..input }.parse(engines);
        let input = self.common(&mut fields);
        Ok(pool::PoolUpdateRequest { input: checked(input, fields, as_new)?, discard_all_idle, expected_network })
    }

    fn common(self, fields: &mut Fields) -> pool::PoolRequest {
        pool::PoolRequest {
            size: self.size,
            fill_rate_per_minute: self.fill_rate_per_minute,
            name: self.name,
            timeout_seconds: self.timeout_seconds,
            engine: self.engine,
            headless: self.headless,
            stealth: self.stealth,
            kiosk_mode: self.kiosk_mode,
            viewport: self.viewport.map(Into::into),
            browser_policy: policy(self.browser_policy, self.chrome_policy, fields),
            start_url: self.start_url,
            telemetry: config_request(self.telemetry, fields),
            memory: self.memory,
            region: self.region,
            refresh_on_profile_update: self.refresh_on_profile_update,
            profile: self.profile.map(Into::into),
            proxy: self.proxy_id,
            network: self.network.map(Into::into),
            extensions: self.extensions.map(|all| all.into_iter().map(Into::into).collect()),
        }
    }
}

/// The options of a deletion.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct DeletePool {
    /// Whether sessions that are leased from it end. Default: false; then a pool with leases is not deleted.
    pub(super) force: Option<bool>,
}

/// The browser to release.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ReleaseBrowser {
    /// The session that was acquired.
    pub(super) session_id: String,
    /// Accepted, but the browser always ends, because its state cannot be cleaned reliably.
    #[expect(dead_code, reason = "only its type is checked")]
    reuse: Option<bool>,
}
