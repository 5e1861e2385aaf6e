//! What a connection is.

use time::OffsetDateTime;

use super::{Flow, FlowRequirement, ProviderScope, Settings};
use crate::credential::Credential;
use crate::ids::{AuthConnectionId, OrganizationId, ProfileId, ProjectId};
use crate::login_page::{AllowedHosts, HostPattern};
use crate::text_enum::text_enum;

text_enum! {
    /// Whether the profile is logged in, as far as is known.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ConnectionStatus {
        /// The last flow, or the last look, found it logged in.
        Authenticated => "AUTHENTICATED",
        /// It is not.
        NeedsAuth => "NEEDS_AUTH",
    }
}

/// What logs in by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialRef {
    /// A credential of the project.
    Named(String),
    /// One item of a credential provider.
    Item {
        /// The provider's name.
        provider: String,
        /// The item, in the provider's own words.
        path: String,
    },
    /// The item that a credential provider has for the domain.
    Auto {
        /// The provider's name.
        provider: String,
    },
    /// The item that the first of the organization's providers has for the domain, in their order.
    AutoAny,
}

/// What keeps a profile logged in to a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConnection {
    /// Which one.
    pub id: AuthConnectionId,
    /// In which project.
    pub project: ProjectId,
    /// Whose it is.
    pub organization: OrganizationId,
    /// The site: a host name, in lower case.
    pub domain: String,
    /// What is kept logged in.
    pub profile: ProfileId,
    /// What that is called now.
    pub profile_name: String,
    /// Whether it is logged in.
    pub status: ConnectionStatus,
    /// What it is told.
    pub settings: Settings,
    /// What the last login that succeeded was asked for; `None`: none has yet.
    pub needs: Option<Vec<FlowRequirement>>,
    /// When it was last looked whether the login holds, whatever was found.
    pub last_check_at: Option<OffsetDateTime>,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// When it was last told something else.
    pub updated_at: OffsetDateTime,
    /// The credential that it names, if there is one of that name. Not stored with it.
    pub credential: Option<Credential>,
    /// Its latest login. Not stored with it.
    pub flow: Option<Box<Flow>>,
}

impl AuthConnection {
    /// Where its logins may go.
    #[must_use]
    pub fn hosts(&self) -> AllowedHosts {
        AllowedHosts::new(&self.domain, self.settings.allowed_domains.clone())
    }

    /// Which credential providers its logins may ask.
    #[must_use]
    pub fn provider_scope(&self) -> ProviderScope {
        let project = (!self.settings.organization_credential).then_some(self.project);
        ProviderScope { organization: self.organization, project }
    }

    /// Where its logins begin.
    #[must_use]
    pub fn start_url(&self) -> String {
        self.settings.login_url.clone().unwrap_or_else(|| format!("https://{}/", self.domain))
    }
}

/// What changes of a connection; what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionChange {
    /// Others in place of those before.
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
    /// Another, or none.
    pub credential: Option<Option<CredentialRef>>,
    /// See [`Settings`]; goes with `credential`.
    pub organization_credential: Option<bool>,
    /// Another, or none.
    pub login_url: Option<Option<String>>,
    /// Another, or none.
    pub proxy: Option<Option<crate::ids::ProxyId>>,
}

impl ConnectionChange {
    /// The settings after it.
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
