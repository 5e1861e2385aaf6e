//! The auth connection.

use time::OffsetDateTime;

use super::{Flow, FlowRequirement, ProviderScope, Settings};
use crate::credential::Credential;
use crate::ids::{AuthConnectionId, OrganizationId, ProfileId, ProjectId};
use crate::login_page::{AllowedHosts, HostPattern};
use crate::text_enum::text_enum;

text_enum! {
    /// The last known login state of the profile.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ConnectionStatus {
        /// The last login or health check found the profile logged in.
        Authenticated => "AUTHENTICATED",
        /// The profile is not logged in.
        NeedsAuth => "NEEDS_AUTH",
    }
}

/// A reference to the credential of unattended logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialRef {
    /// A credential of the project, by name.
    Named(String),
    /// One item of a credential provider.
    Item {
        /// The provider's name.
        provider: String,
        /// The path of the item at the provider.
        path: String,
    },
    /// The item of a credential provider for the domain.
    Auto {
        /// The provider's name.
        provider: String,
    },
    /// The item for the domain of the first of the organization's providers that has one, in their order.
    AutoAny,
}

/// The login of a profile to a site, kept valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConnection {
    /// The id.
    pub id: AuthConnectionId,
    /// The project.
    pub project: ProjectId,
    /// The organization.
    pub organization: OrganizationId,
    /// The site: a host name, in lower case.
    pub domain: String,
    /// The profile that logs in to the site.
    pub profile: ProfileId,
    /// The present name of the profile.
    pub profile_name: String,
    /// The status.
    pub status: ConnectionStatus,
    /// The settings.
    pub settings: Settings,
    /// The requirements of the last login that succeeded; `None` before the first one.
    pub needs: Option<Vec<FlowRequirement>>,
    /// The time at which the last health check ended, with any result.
    pub last_check_at: Option<OffsetDateTime>,
    /// The time of creation.
    pub created_at: OffsetDateTime,
    /// The time of the last change of the settings.
    pub updated_at: OffsetDateTime,
    /// The named credential, if it exists. Not stored with the connection.
    pub credential: Option<Credential>,
    /// The latest login flow. Not stored with the connection.
    pub flow: Option<Box<Flow>>,
}

impl AuthConnection {
    /// Returns the hosts that logins may visit.
    #[must_use]
    pub fn hosts(&self) -> AllowedHosts {
        AllowedHosts::new(&self.domain, self.settings.allowed_domains.clone())
    }

    /// Returns the credential providers that logins may use.
    #[must_use]
    pub fn provider_scope(&self) -> ProviderScope {
        let project = (!self.settings.organization_credential).then_some(self.project);
        ProviderScope { organization: self.organization, project }
    }

    /// Returns the URL where logins begin.
    #[must_use]
    pub fn start_url(&self) -> String {
        self.settings.login_url.clone().unwrap_or_else(|| format!("https://{}/", self.domain))
    }
}

/// A partial change of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionChange {
    /// The new hosts, which replace the old ones.
    pub allowed_domains: Option<Vec<HostPattern>>,
    /// See [`Settings`].
    pub auto_reauth: Option<bool>,
    /// See [`Settings`].
    pub health_checks: Option<bool>,
    /// See [`Settings`].
    pub health_check_interval_seconds: Option<u32>,
    /// See [`Settings`].
    pub record_session: Option<bool>,
    /// See [`Settings`].
    pub save_credentials: Option<bool>,
    /// The new credential, or none.
    pub credential: Option<Option<CredentialRef>>,
    /// See [`Settings`]; present if and only if `credential` is.
    pub organization_credential: Option<bool>,
    /// The new URL, or none.
    pub login_url: Option<Option<String>>,
    /// The new proxy, or none.
    pub proxy: Option<Option<crate::ids::ProxyId>>,
}

impl ConnectionChange {
    /// Returns the settings after the change.
    #[must_use]
    pub fn apply(&self, before: &Settings) -> Settings {
        let before = before.clone();
        Settings {
            allowed_domains: self.allowed_domains.clone().unwrap_or(before.allowed_domains),
            auto_reauth: self.auto_reauth.unwrap_or(before.auto_reauth),
            health_checks: self.health_checks.unwrap_or(before.health_checks),
            health_check_interval_seconds: self
                .health_check_interval_seconds
                .unwrap_or(before.health_check_interval_seconds),
            record_session: self.record_session.unwrap_or(before.record_session),
            save_credentials: self.save_credentials.unwrap_or(before.save_credentials),
            credential: self.credential.clone().unwrap_or(before.credential),
            organization_credential: self.organization_credential.unwrap_or(before.organization_credential),
            login_url: self.login_url.clone().unwrap_or(before.login_url),
            proxy: self.proxy.unwrap_or(before.proxy),
        }
    }
}
