//! What callers ask for, before and after it was checked.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::{CredentialProvider, ProviderPlace, ProviderSettings, ProviderType};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};
use crate::ids::ProjectId;
use crate::name::LabelName;

/// Characters of a token.
const MAX_TOKEN: usize = 8192;
/// Characters of a server's address.
const MAX_URL: usize = 2048;
/// Seconds: a day.
const MAX_TTL: u32 = 86_400;
/// Seconds.
const DEFAULT_TTL: u32 = 300;

/// A provider as asked for.
#[derive(Default)]
pub struct CreateProvider {
    /// Required.
    pub name: Option<String>,
    /// Required.
    pub provider_type: Option<String>,
    /// Required.
    pub token: Option<SecretString>,
    /// Of a server; default: the configured one.
    pub server_url: Option<String>,
    /// Of a file; required there.
    pub vault: Option<String>,
    /// Default: 300.
    pub cache_ttl_seconds: Option<i64>,
    /// The projects that it is lent to, by id. Default: none.
    pub project_ids: Option<Vec<String>>,
}

/// A provider as asked for, checked; not yet sealed.
pub(super) struct NewProvider {
    pub(super) name: LabelName,
    pub(super) place: ProviderPlace,
    pub(super) token: SecretString,
    pub(super) cache_ttl_seconds: u32,
    pub(super) projects: Vec<ProjectId>,
}

/// Changes of a provider as asked for; what is absent stays as it is.
#[derive(Default)]
pub struct UpdateProvider {
    /// Another name.
    pub name: Option<String>,
    /// Another token.
    pub token: Option<SecretString>,
    /// Another server; takes its token, too.
    pub server_url: Option<String>,
    /// Another file.
    pub vault: Option<String>,
    /// Believed for so long.
    pub cache_ttl_seconds: Option<i64>,
    /// Whether it is asked.
    pub enabled: Option<bool>,
    /// When it is asked.
    pub priority: Option<i64>,
    /// Others in place of the projects that it is lent to, by id.
    pub project_ids: Option<Vec<String>>,
}

/// Changes as asked for, checked; not yet sealed.
pub(super) struct Changes {
    pub(super) name: Option<LabelName>,
    pub(super) place: Option<ProviderPlace>,
    pub(super) token: Option<SecretString>,
    pub(super) cache_ttl_seconds: Option<u32>,
    pub(super) enabled: Option<bool>,
    pub(super) priority: Option<u32>,
    pub(super) projects: Option<Vec<ProjectId>>,
}

impl fmt::Debug for CreateProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateProvider").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for UpdateProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdateProvider").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CreateProvider {
    pub(super) fn parse(self, settings: &ProviderSettings) -> Result<NewProvider, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_required("name", self.name.as_deref(), LabelName::parse);
        let kind = fields.take_required("provider_type", self.provider_type.as_deref(), kind);
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
        let ttl = fields.take_optional("cache_ttl_seconds", self.cache_ttl_seconds, |n| within(n, 0, MAX_TTL));
        let projects = fields.take_optional("project_ids", self.project_ids, projects);
        fields.finish()?;
        let (Some(name), Some(place), Some(token)) = (name, place, token) else {
            unreachable!("a refused field is an error")
        };
        let (cache_ttl_seconds, projects) = (ttl.unwrap_or(DEFAULT_TTL), projects.unwrap_or_default());
        Ok(NewProvider { name, place, token, cache_ttl_seconds, projects })
    }
}

impl UpdateProvider {
    pub(super) fn parse(
        self,
        current: &CredentialProvider,
        settings: &ProviderSettings,
    ) -> Result<Changes, InvalidInput> {
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
                    // Whoever may change the address could else have the token sent to themselves.
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
        let ttl = fields.take_optional("cache_ttl_seconds", self.cache_ttl_seconds, |n| within(n, 0, MAX_TTL));
        let last = CredentialProvider::LAST_PRIORITY;
        let priority = fields.take_optional("priority", self.priority, |n| within(n, 0, last));
        let projects = fields.take_optional("project_ids", self.project_ids, projects);
        fields.finish()?;
        Ok(Changes { name, place, token, cache_ttl_seconds: ttl, enabled: self.enabled, priority, projects })
    }
}

fn unused(fields: &mut Fields, name: &str, given: bool) {
    if given {
        fields.refuse(name, InvalidValue::new(FieldCode::NotAllowed, "is not for this provider_type"));
    }
}

/// Each of them once. Whether there are such projects is seen when they are stored.
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

/// A project that the organization does not have.
pub(super) fn unknown_project(project: ProjectId) -> InvalidInput {
    let message = format!("{project} is not among the organization's projects");
    InvalidInput::of("project_ids", InvalidValue::new(FieldCode::ReferenceNotFound, message))
}

fn kind(text: &str) -> Result<ProviderType, InvalidValue> {
    ProviderType::parse(text)
        .ok_or_else(|| InvalidValue::new(FieldCode::NotAllowed, "must be passwordmanager or keepass"))
}

fn token(token: SecretString) -> Result<SecretString, InvalidValue> {
    let text = token.expose_secret();
    match text.chars().take(MAX_TOKEN + 1).count() {
        0 => Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 character")),
        n if n > MAX_TOKEN => Err(InvalidValue::new(FieldCode::TooLong, "must have at most 8192 characters")),
        _ if text.chars().any(char::is_control) => {
            Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold control characters"))
        }
        _ => Ok(token),
    }
}

/// The base address of a server. Who may be asked is not this rule's: the way out decides when it is.
fn server_url(text: &str) -> Result<Url, InvalidValue> {
    if text.chars().nth(MAX_URL).is_some() {
        return Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {MAX_URL} characters")));
    }
    let bad = |text: &str| InvalidValue::new(FieldCode::InvalidFormat, text);
    let mut url = Url::parse(text.trim()).map_err(|_| bad("must be an http or https URL"))?;
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
