//! Credential providers and their items.

use time::OffsetDateTime;
use url::Url;

use super::lookup::host_of;
use crate::auth_connection::ProviderScope;
use crate::credential::Sites;
use crate::ids::{CredentialProviderId, OrganizationId, ProjectId};
use crate::name::LabelName;
use crate::text_enum::text_enum;

text_enum! {
    /// The type of a provider.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProviderType {
        /// A 1Password Connect server.
        PasswordManager => "passwordmanager",
        /// A KeePass database in a file of the server.
        Keepass => "keepass",
    }
}

/// The name that the public clients use for [`ProviderType::PasswordManager`].
pub const ONEPASSWORD: &str = "onepassword";

impl ProviderType {
    /// Parses the name of a type, or [`ONEPASSWORD`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == ONEPASSWORD {
            return Some(Self::PasswordManager);
        }
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// The configured location of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderPlace {
    /// The URL of the server, if it is not the configured one of this installation.
    PasswordManager(Option<Url>),
    /// The name of the database in the configuration of this installation.
    Keepass(String),
}

impl ProviderPlace {
    /// Returns the type of the provider.
    #[must_use]
    pub fn kind(&self) -> ProviderType {
        match self {
            Self::PasswordManager(_) => ProviderType::PasswordManager,
            Self::Keepass(_) => ProviderType::Keepass,
        }
    }
}

/// A credential provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialProvider {
    /// The id.
    pub id: CredentialProviderId,
    /// The organization.
    pub organization: OrganizationId,
    /// The name, which is unique in the organization.
    pub name: LabelName,
    /// The location.
    pub place: ProviderPlace,
    /// True if the creator named the type [`ONEPASSWORD`].
    pub is_onepassword: bool,
    /// The access token, sealed for [`CredentialProvider::seal_place`].
    pub token: Vec<u8>,
    /// The time for which the list of items is cached, in seconds.
    pub cache_ttl_seconds: u32,
    /// True if logins are searched in the provider.
    pub enabled: bool,
    /// The priority: providers with lower numbers are searched first, older ones first among equals.
    pub priority: u32,
    /// The projects whose keys may use the provider. Keys of the whole organization always may.
    pub projects: Vec<ProjectId>,
    /// The time of creation.
    pub created_at: OffsetDateTime,
    /// The time of the last change.
    pub updated_at: OffsetDateTime,
}

impl CredentialProvider {
    /// The highest [`priority`](Self::priority).
    pub const LAST_PRIORITY: u32 = 1000;

    /// The maximum number of projects that may use a provider.
    pub const MAX_PROJECTS: usize = 100;

    /// Returns the name of the type, as the creator wrote it: the public clients know no other name than theirs.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self.place.kind() {
            ProviderType::PasswordManager if self.is_onepassword => ONEPASSWORD,
            kind => kind.as_str(),
        }
    }

    /// Returns whether logins in this scope may use the provider.
    #[must_use]
    pub fn is_shared_with(&self, scope: ProviderScope) -> bool {
        self.organization == scope.organization && scope.project.is_none_or(|project| self.projects.contains(&project))
    }

    /// Returns the place that the token of a provider is sealed for.
    #[must_use]
    pub fn seal_place(id: CredentialProviderId) -> String {
        format!("credential_providers/{id}/token")
    }
}

/// A change of a provider. `None` leaves a field unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderChange {
    /// The new name.
    pub name: Option<LabelName>,
    /// The new location, of the same type.
    pub place: Option<ProviderPlace>,
    /// The new token, sealed.
    pub token: Option<Vec<u8>>,
    /// The new time for which the list of items is cached, in seconds.
    pub cache_ttl_seconds: Option<u32>,
    /// True if logins are searched in the provider.
    pub enabled: Option<bool>,
    /// The new priority.
    pub priority: Option<u32>,
    /// The new projects that may use the provider.
    pub projects: Option<Vec<ProjectId>>,
}

/// A vault: a part of a provider that holds items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderVault {
    /// The id at the provider.
    pub id: String,
    /// The name.
    pub name: String,
}

/// A login that a provider holds, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderItem {
    /// The id at the provider.
    pub id: String,
    /// The title.
    pub title: String,
    /// The vault.
    pub vault: ProviderVault,
    /// The URLs of the item's sites, as the provider returns them.
    pub urls: Vec<String>,
    /// The sites on which the secrets may be typed.
    pub sites: Sites,
    /// The host names of the URLs.
    pub(super) hosts: Vec<String>,
    /// The time of the last change, if the provider reports it.
    pub changed_at: Option<OffsetDateTime>,
}

impl ProviderItem {
    /// Creates an item and parses its URLs.
    #[must_use]
    pub fn new(
        id: String,
        title: String,
        vault: ProviderVault,
        urls: Vec<String>,
        changed_at: Option<OffsetDateTime>,
    ) -> Self {
        let hosts = urls.iter().filter_map(|url| host_of(url)).collect();
        let sites = Sites::of_addresses(urls.iter().map(String::as_str));
        Self { id, title, vault, urls, sites, hosts, changed_at }
    }

    /// Returns the path: vault and title.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.vault.name, self.title)
    }

    /// Returns whether the path refers to the item, by names or by ids at the provider.
    #[must_use]
    pub(super) fn is_at(&self, path: &str) -> bool {
        let both = |left: &str, right: &str| {
            path.strip_prefix(left).and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| rest == right)
        };
        both(&self.vault.name, &self.title) || both(&self.vault.id, &self.id)
    }
}
