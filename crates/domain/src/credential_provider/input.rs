//! Requests that concern credential providers, and their checks.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::{CredentialProvider, ONEPASSWORD, ProviderChange, ProviderPlace, ProviderSettings, ProviderType};
use crate::field::{
    FieldCode, Fields, InvalidInput, InvalidValue, check_length, check_max_length, check_no_control_characters, within,
};
use crate::ids::ProjectId;
use crate::name::LabelName;
use crate::web_url;

/// The maximum number of characters of a token.
pub const MAX_TOKEN: usize = 8192;
/// The maximum number of characters of the URL of a server.
pub const MAX_URL: usize = 2048;
/// The longest lifetime of the cached list of items, in seconds.
pub const MAX_TTL_SECONDS: u32 = 86_400;
const DEFAULT_TTL_SECONDS: u32 = 300;

/// The unchecked fields of a new provider.
#[derive(Default)]
pub struct ProviderRequest {
    /// The name; required.
    pub name: Option<String>,
    /// The type; required.
    pub provider_type: Option<String>,
    /// The access token; required.
    pub token: Option<SecretString>,
    /// The URL of a Connect server. Default: that of the configuration.
    pub server_url: Option<String>,
    /// The name of a KeePass database; required for that type.
    pub vault: Option<String>,
    /// The time for which the list of items is cached, in seconds. Default: 300.
    pub cache_ttl_seconds: Option<i64>,
    /// The ids of the projects that may use the provider. Default: none.
    pub project_ids: Option<Vec<String>>,
}

/// A new provider, checked but not yet sealed.
pub(super) struct NewProvider {
    pub(super) name: LabelName,
    pub(super) place: ProviderPlace,
    pub(super) is_onepassword: bool,
    pub(super) token: SecretString,
    pub(super) cache_ttl_seconds: u32,
    pub(super) projects: Vec<ProjectId>,
}

/// The unchecked changes of a provider; an absent field stays unchanged.
#[derive(Default)]
pub struct ProviderUpdateRequest {
    /// The new name.
    pub name: Option<String>,
    /// The new token.
    pub token: Option<SecretString>,
    /// The new URL of the server; requires a token.
    pub server_url: Option<String>,
    /// The new database.
    pub vault: Option<String>,
    /// The new time for which the list of items is cached, in seconds.
    pub cache_ttl_seconds: Option<i64>,
    /// True to use the provider.
    pub enabled: Option<bool>,
    /// The new position in the order of use.
    pub priority: Option<i64>,
    /// The ids of the projects that may use the provider, which replace the present ones.
    pub project_ids: Option<Vec<String>>,
}

impl fmt::Debug for ProviderRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for ProviderUpdateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderUpdateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ProviderRequest {
    pub(super) fn parse(self, settings: &ProviderSettings) -> Result<NewProvider, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_required("name", self.name.as_deref(), LabelName::parse);
        let kind = fields.take_required("provider_type", self.provider_type.as_deref(), kind);
        let is_onepassword = self.provider_type.as_deref() == Some(ONEPASSWORD);
        let token = fields.take_required("token", self.token, token);
        let place = kind.and_then(|kind| match kind {
            ProviderType::PasswordManager => {
                unused(&mut fields, "vault", self.vault.is_some());
                if self.server_url.is_none() && settings.server_url.is_none() {
                    fields.take_required("server_url", None::<&str>, server_url)?;
                }
                let url = match self.server_url.as_deref() {
                    Some(text) => Some(fields.take("server_url", server_url(text))?),
                    None => None,
                };
                Some(ProviderPlace::PasswordManager(url))
            }
            ProviderType::Keepass => {
                unused(&mut fields, "server_url", self.server_url.is_some());
                let vault = fields.take_required("vault", self.vault.as_deref(), |name| vault(name, settings))?;
                Some(ProviderPlace::Keepass(vault))
            }
        });
        let ttl = fields.take_optional("cache_ttl_seconds", self.cache_ttl_seconds, |n| within(n, 0, MAX_TTL_SECONDS));
        let projects = fields.take_optional("project_ids", self.project_ids, projects);
        let (cache_ttl_seconds, projects) = (ttl.unwrap_or(DEFAULT_TTL_SECONDS), projects.unwrap_or_default());
        fields.finish_with(|| {
            let (name, place, token) = (name?, place?, token?);
            Some(NewProvider { name, place, is_onepassword, token, cache_ttl_seconds, projects })
        })
    }
}

impl ProviderUpdateRequest {
    /// Returns the change, and the new token, which is not yet sealed.
    pub(super) fn parse(
        self,
        current: &CredentialProvider,
        settings: &ProviderSettings,
    ) -> Result<(ProviderChange, Option<SecretString>), InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_optional("name", self.name.as_deref(), LabelName::parse);
        let has_token = self.token.is_some();
        let token = fields.take_optional("token", self.token, token);
        let place = match &current.place {
            ProviderPlace::PasswordManager(known) => {
                unused(&mut fields, "vault", self.vault.is_some());
                let url = fields.take_optional("server_url", self.server_url.as_deref(), server_url);
                let moved = url.filter(|url| Some(url) != known.as_ref());
                if moved.is_some() && !has_token {
                    // Otherwise a caller who may change the URL could have the token sent to another server.
                    fields
                        .refuse("token", InvalidValue::new(FieldCode::Required, "is required with another server_url"));
                }
                moved.map(|url| ProviderPlace::PasswordManager(Some(url)))
            }
            ProviderPlace::Keepass(_) => {
                unused(&mut fields, "server_url", self.server_url.is_some());
                let vault = fields.take_optional("vault", self.vault.as_deref(), |name| vault(name, settings));
                vault.map(ProviderPlace::Keepass)
            }
        };
        let ttl = fields.take_optional("cache_ttl_seconds", self.cache_ttl_seconds, |n| within(n, 0, MAX_TTL_SECONDS));
        let last = CredentialProvider::LAST_PRIORITY;
        let priority = fields.take_optional("priority", self.priority, |n| within(n, 0, last));
        let projects = fields.take_optional("project_ids", self.project_ids, projects);
        fields.finish()?;
        let (cache_ttl_seconds, enabled) = (ttl, self.enabled);
        Ok((ProviderChange { name, place, token: None, cache_ttl_seconds, enabled, priority, projects }, token))
    }
}

fn unused(fields: &mut Fields, name: &str, given: bool) {
    if given {
        fields.refuse(name, InvalidValue::new(FieldCode::NotAllowed, "is not for this provider_type"));
    }
}

/// Parses the ids, without duplicates. The store checks that the projects exist.
fn projects(ids: Vec<String>) -> Result<Vec<ProjectId>, InvalidValue> {
    if ids.len() > CredentialProvider::MAX_PROJECTS {
        return Err(InvalidValue::new(
            FieldCode::TooMany,
            format!("must be at most {}", CredentialProvider::MAX_PROJECTS),
        ));
    }
    let parse = |(at, id): (usize, &String)| id.parse::<ProjectId>().map_err(|_| no_project().of(at));
    let (good, bad): (Vec<_>, Vec<_>) = ids.iter().enumerate().map(parse).partition(Result::is_ok);
    InvalidValue::any(bad.into_iter().filter_map(Result::err))?;
    let mut projects: Vec<ProjectId> = Vec::new();
    for project in good.into_iter().filter_map(Result::ok) {
        if !projects.contains(&project) {
            projects.push(project);
        }
    }
    Ok(projects)
}

fn no_project() -> InvalidValue {
    InvalidValue::new(FieldCode::ReferenceNotFound, "is not among the organization's projects")
}

/// Returns the error of a project that the organization does not have.
pub(super) fn unknown_project(project: ProjectId) -> InvalidInput {
    let message = format!("{project} is not among the organization's projects");
    InvalidInput::of("project_ids", InvalidValue::new(FieldCode::ReferenceNotFound, message))
}

fn kind(text: &str) -> Result<ProviderType, InvalidValue> {
    ProviderType::parse(text)
        .ok_or_else(|| InvalidValue::new(FieldCode::NotAllowed, "must be passwordmanager or keepass"))
}

fn token(token: SecretString) -> Result<SecretString, InvalidValue> {
    check_length(token.expose_secret(), MAX_TOKEN)?;
    check_no_control_characters(token.expose_secret())?;
    Ok(token)
}

/// Parses the base URL of a server. The egress checks the address when it connects.
fn server_url(text: &str) -> Result<Url, InvalidValue> {
    check_max_length(text, MAX_URL)?;
    let bad = |text: &str| InvalidValue::new(FieldCode::InvalidFormat, text);
    let mut url = web_url::read(text).ok_or_else(|| bad("must be an http or https URL"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(bad("must be an http or https URL"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("may not hold a user name or password"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(bad("must end behind its path"));
    }
    let base = url.path().trim_end_matches('/').to_owned();
    url.set_path(&base);
    Ok(url)
}

fn vault(name: &str, settings: &ProviderSettings) -> Result<String, InvalidValue> {
    if settings.vaults.contains(name) {
        Ok(name.to_owned())
    } else {
        Err(InvalidValue::new(
            FieldCode::ReferenceNotFound,
            "is not among the vaults that this server is configured with",
        ))
    }
}
