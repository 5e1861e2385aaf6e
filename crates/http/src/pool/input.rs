//! What callers send about pools.

use casement_domain::{field::Fields, pool};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{
    error::ApiError,
    session::{Reference, Telemetry, ViewportInput, checked, policy, wish},
};

/// A pool to create, or what to change of one.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = BrowserPoolInput)]
pub(crate) struct PoolInput {
    /// How many browsers it holds. Required on create.
    size: Option<i64>,
    /// How much it may grow per minute, in percent of its size, 1 to 100. Default: 25.
    fill_rate_per_minute: Option<i64>,
    /// Letters, digits, `.`, `_`, `-`; unique in the project. On update, `""` leaves it as it is.
    name: Option<String>,
    /// How long a lease may be idle, 10 to 259200. Default: 600.
    timeout_seconds: Option<i64>,
    /// Default: false.
    headless: Option<bool>,
    /// Default: false.
    stealth: Option<bool>,
    /// Default: false.
    kiosk_mode: Option<bool>,
    /// State to load, read-only. On update, `{"id": ""}` takes it away.
    profile: Option<Reference>,
    /// Whether idle browsers follow changes of the profile. Default: true with a profile.
    refresh_on_profile_update: Option<bool>,
    /// A proxy of the project, by id or name. On update, `""` takes it away.
    proxy_id: Option<String>,
    /// Extensions of the project, loaded in this order. On update, `[]` takes them away.
    extensions: Option<Vec<Reference>>,
    /// Size of the display. Default: 1920 × 1080.
    viewport: Option<ViewportInput>,
    /// Chrome policies by name, at most 5 MiB of JSON. On update, `{}` takes them away.
    browser_policy: Option<Map<String, Value>>,
    /// Another name of `browser_policy`.
    chrome_policy: Option<Map<String, Value>>,
    /// An absolute URL that a lease opens first. On update, `""` takes it away.
    start_url: Option<String>,
    /// What is captured. Default: nothing.
    telemetry: Option<Telemetry>,
    /// On update: whether idle browsers of the old configuration are ended at once. Default: false.
    discard_all_idle: Option<bool>,
}

impl PoolInput {
    /// # Errors
    /// `invalid_input`, if anything is refused that the domain has no word for.
    pub(super) fn create(self) -> Result<pool::PoolInput, ApiError> {
        let mut fields = Fields::new();
        let input = self.common(&mut fields);
        checked(input, fields, pool::PoolInput::parse)
    }

    /// # Errors
    /// `invalid_input`, if anything is refused that the domain has no word for.
    pub(super) fn update(self) -> Result<pool::UpdatePool, ApiError> {
        let discard_all_idle = self.discard_all_idle.unwrap_or(false);
        let mut fields = Fields::new();
        // The pool's old configuration is not at hand, but the rules for what is given are those of a new pool, which
        // needs nothing but a size.
        let as_new = |input: pool::PoolInput| pool::PoolInput { size: input.size.or(Some(1)), ..input }.parse();
        let input = self.common(&mut fields);
        Ok(pool::UpdatePool { input: checked(input, fields, as_new)?, discard_all_idle })
    }

    fn common(self, fields: &mut Fields) -> pool::PoolInput {
        pool::PoolInput {
            size: self.size,
            fill_rate_per_minute: self.fill_rate_per_minute,
            name: self.name,
            timeout_seconds: self.timeout_seconds,
            headless: self.headless,
            stealth: self.stealth,
            kiosk_mode: self.kiosk_mode,
            viewport: self.viewport.map(Into::into),
            browser_policy: policy(self.browser_policy, self.chrome_policy, fields),
            start_url: self.start_url,
            telemetry: wish(self.telemetry, fields),
            refresh_on_profile_update: self.refresh_on_profile_update,
            profile: self.profile.map(Into::into),
            proxy: self.proxy_id,
            extensions: self.extensions.map(|all| all.into_iter().map(Into::into).collect()),
        }
    }
}

/// How to delete a pool.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct DeletePool {
    /// Whether sessions that are leased from it end. Default: false; then a pool with leases is not deleted.
    pub(super) force: Option<bool>,
}

/// Which browser to give back.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ReleaseBrowser {
    /// The session that was acquired.
    pub(super) session_id: String,
    /// Accepted; the browser ends either way, for what a caller could have touched cannot be cleaned in place.
    #[expect(dead_code, reason = "only its type is checked")]
    reuse: Option<bool>,
}
