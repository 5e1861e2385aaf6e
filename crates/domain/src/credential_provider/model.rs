//! What a credential provider is, and what it has.

use time::OffsetDateTime;
use url::Url;

use super::lookup::host_of;
use crate::auth_connection::ProviderScope;
use crate::credential::Sites;
use crate::ids::{CredentialProviderId, OrganizationId, ProjectId};
use crate::name::LabelName;
use crate::text_enum::text_enum;

text_enum! {
    /// Kinds of stores.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProviderType {
        /// A 1Password Connect server.
        PasswordManager => "passwordmanager",
        /// A KeePass database, a file on the server's machine.
        Keepass => "keepass",
    }
}

impl ProviderType {
    /// As it is written, or by the name that the public client has for it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "onepassword" {
            return Some(Self::PasswordManager);
        }
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Where a provider's store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderPlace {
    /// The server's address, if it is not the one that this installation is configured with.
    PasswordManager(Option<Url>),
    /// By the name under which this installation's configuration names the file.
    Keepass(String),
}

impl ProviderPlace {
    /// Of which kind the store is.
    #[must_use]
    pub fn kind(&self) -> ProviderType {
        match self {
            Self::PasswordManager(_) => ProviderType::PasswordManager,
            Self::Keepass(_) => ProviderType::Keepass,
        }
    }
}

/// A store outside that knows logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialProvider {
    /// Which one.
    pub id: CredentialProviderId,
    /// Whose it is.
    pub organization: OrganizationId,
    /// Unique in the organization.
    pub name: LabelName,
    /// Where the store is.
    pub place: ProviderPlace,
    /// What opens it, sealed in [`CredentialProvider::seal_place`].
    pub token: Vec<u8>,
    /// For how long its list of items is believed, in seconds.
    pub cache_ttl_seconds: u32,
    /// Whether logins are looked for in it.
    pub enabled: bool,
    /// Lower is asked first; among equals the older one.
    pub priority: u32,
    /// The projects whose keys may log in with it. The organization's own keys always may.
    pub projects: Vec<ProjectId>,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// When it was last changed.
    pub updated_at: OffsetDateTime,
}

impl CredentialProvider {
    /// The highest [`priority`](Self::priority).
    pub const LAST_PRIORITY: u32 = 1000;

    /// To how many projects it may be lent.
    pub const MAX_PROJECTS: usize = 100;

    /// Whether it is there for logins in that scope.
    #[must_use]
    pub fn is_lent(&self, scope: ProviderScope) -> bool {
        self.organization == scope.organization && scope.project.is_none_or(|project| self.projects.contains(&project))
    }

    /// Where the token of that provider is sealed.
    #[must_use]
    pub fn seal_place(id: CredentialProviderId) -> String {
        format!("credential_providers/{id}/token")
    }
}

/// What changes of a provider; what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderChange {
    /// Another name.
    pub name: Option<LabelName>,
    /// Another place, of the same kind.
    pub place: Option<ProviderPlace>,
    /// Another token, sealed.
    pub token: Option<Vec<u8>>,
    /// Believed for so long, in seconds.
    pub cache_ttl_seconds: Option<u32>,
    /// Whether it is asked.
    pub enabled: Option<bool>,
    /// When it is asked.
    pub priority: Option<u32>,
    /// Others in place of the projects that it is lent to.
    pub projects: Option<Vec<ProjectId>>,
}

/// A part of a store that holds items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderVault {
    /// The store's own identifier.
    pub id: String,
    /// What people call it.
    pub name: String,
}

/// A login that a store has, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderItem {
    /// The store's own identifier.
    pub id: String,
    /// What people call it.
    pub title: String,
    /// Where it lies.
    pub vault: ProviderVault,
    /// The sites it is for, as the store has them.
    pub urls: Vec<String>,
    /// Where its secrets may be typed.
    pub sites: Sites,
    /// The host names of those addresses.
    pub(super) hosts: Vec<String>,
    /// When the store last changed it, if it says so.
    pub changed_at: Option<OffsetDateTime>,
}

impl ProviderItem {
    /// An item; what its addresses name is read once, here.
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

    /// How people name it: vault and title.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.vault.name, self.title)
    }

    /// Whether that path means it: by names, or by the store's identifiers.
    #[must_use]
    pub(super) fn is_at(&self, path: &str) -> bool {
        let both = |left: &str, right: &str| {
            path.strip_prefix(left).and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| rest == right)
        };
        both(&self.vault.name, &self.title) || both(&self.vault.id, &self.id)
    }
}
