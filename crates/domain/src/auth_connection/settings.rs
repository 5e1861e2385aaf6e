//! What a connection may be told.

use crate::ids::ProxyId;
use crate::login_page::HostPattern;

use super::CredentialRef;

/// What a connection is told, in force now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Hosts where a login may go beside the domain and those that need no listing.
    pub allowed_domains: Vec<HostPattern>,
    /// Whether a login that is gone is made anew by itself.
    pub auto_reauth: bool,
    /// Whether it is looked now and then if the login still holds.
    pub health_checks: bool,
    /// How often, 300 to 86400 seconds.
    pub health_check_interval_seconds: u32,
    /// Whether logins are recorded.
    pub record_session: bool,
    /// Whether what a login was given is kept as a credential.
    pub save_credentials: bool,
    /// What logs in by itself.
    pub credential: Option<CredentialRef>,
    /// Whether that was chosen with a key of the whole organization: then a credential provider need not be lent to the project.
    pub organization_credential: bool,
    /// Where a login begins; `None`: at the domain.
    pub login_url: Option<String>,
    /// What a login's browser is sent through.
    pub proxy: Option<ProxyId>,
}

impl Settings {
    /// How often a login is looked at, unless told otherwise, in seconds.
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
