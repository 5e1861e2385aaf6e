//! The settings of an auth connection.

use crate::ids::ProxyId;
use crate::login_page::HostPattern;

use super::CredentialRef;

/// The settings of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The hosts that a login may visit besides the domain and the well-known identity providers.
    pub allowed_domains: Vec<HostPattern>,
    /// True if a lost login is renewed without a person.
    pub auto_reauth: bool,
    /// True if health checks run.
    pub health_checks: bool,
    /// The interval of health checks, in seconds: [`MIN_INTERVAL`](Self::MIN_INTERVAL) to [`MAX_INTERVAL`](Self::MAX_INTERVAL).
    pub health_check_interval_seconds: u32,
    /// True if logins are recorded.
    pub record_session: bool,
    /// True if entered values are stored as a credential.
    pub save_credentials: bool,
    /// The credential of unattended logins.
    pub credential: Option<CredentialRef>,
    /// True if the credential was set with a key of the whole organization. Its provider then need not be shared with
    /// the project.
    pub organization_credential: bool,
    /// The URL where logins begin; `None`: the domain.
    pub login_url: Option<String>,
    /// The proxy of the browser.
    pub proxy: Option<ProxyId>,
}

impl Settings {
    /// The minimum interval of health checks, in seconds.
    pub const MIN_INTERVAL: u32 = 300;
    /// The maximum interval of health checks, in seconds.
    pub const MAX_INTERVAL: u32 = 86_400;
    /// The default interval of health checks, in seconds.
    pub const DEFAULT_INTERVAL: u32 = 3600;
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            allowed_domains: Vec::new(),
            auto_reauth: true,
            health_checks: true,
            health_check_interval_seconds: Self::DEFAULT_INTERVAL,
            record_session: false,
            save_credentials: true,
            credential: None,
            organization_credential: false,
            login_url: None,
            proxy: None,
        }
    }
}
