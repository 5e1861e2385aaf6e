//! Requests that concern connections, and their checks.

use super::{ConnectionChange, CredentialRef, Settings};
use crate::credential::parse_domain;
use crate::field::{
    FieldCode, Fields, InvalidInput, InvalidValue, check_length, check_max_length, check_no_control_characters, within,
};
use crate::login_page::{AllowedHosts, HostPattern};
use crate::name::SlugName;
use crate::reference::Reference;
use crate::web_url;

/// The maximum number of hosts that a connection may list.
pub const MAX_DOMAINS: usize = 50;
/// The maximum number of characters of the name of a provider and of the path of an item.
pub const MAX_TEXT: usize = 1024;
/// The maximum number of characters of the URL of a login.
pub const MAX_URL: usize = 2048;

/// The unchecked reference to a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialRequest {
    /// The name of a credential of the project.
    pub name: Option<String>,
    /// The name of a credential provider.
    pub provider: Option<String>,
    /// The path of an item of the provider.
    pub path: Option<String>,
    /// True if the item is found by the domain.
    pub auto: Option<bool>,
}

/// The unchecked fields of a connection, or changes of it. An absent field takes its default, or stays unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionRequest {
    /// The host name of the site. Required for a new connection; cannot be changed.
    pub domain: Option<String>,
    /// The name of the profile. Required for a new connection; cannot be changed.
    pub profile_name: Option<String>,
    /// See [`Settings`].
    pub allowed_domains: Option<Vec<String>>,
    /// See [`Settings`].
    pub auto_reauth: Option<bool>,
    /// See [`Settings`].
    pub health_checks: Option<bool>,
    /// The interval of health checks, in seconds.
    pub health_check_interval: Option<i64>,
    /// See [`Settings`].
    pub record_session: Option<bool>,
    /// See [`Settings`].
    pub save_credentials: Option<bool>,
    /// The credential; `{}` removes it.
    pub credential: Option<CredentialRequest>,
    /// The URL where logins begin; an empty text removes it.
    pub login_url: Option<String>,
    /// The proxy; `{}` removes it.
    pub proxy: Option<Reference>,
}

/// The checked fields, before their references are looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CheckedUpdate {
    /// All fields except the proxy.
    pub(super) change: ConnectionChange,
    /// The id or name of the proxy to look up.
    pub(super) proxy: Option<Option<String>>,
}

/// A checked new connection, before its references are looked up.
pub(super) struct NewConnection {
    pub(super) domain: String,
    pub(super) profile: SlugName,
    pub(super) update: CheckedUpdate,
}

impl ConnectionRequest {
    pub(super) fn new_connection(self) -> Result<NewConnection, InvalidInput> {
        let mut fields = Fields::new();
        let domain = fields.take_required("domain", self.domain.as_deref(), parse_domain);
        let profile = fields.take_required("profile_name", self.profile_name.as_deref(), SlugName::parse);
        let update = self.update(&mut fields, domain.as_deref(), &Settings::default());
        fields.finish_with(|| Some(NewConnection { domain: domain?, profile: profile?, update }))
    }

    /// Checks the changes of a connection at `domain` with the present settings.
    pub(super) fn change(self, domain: &str, now: &Settings) -> Result<CheckedUpdate, InvalidInput> {
        let mut fields = Fields::new();
        let update = self.update(&mut fields, Some(domain), now);
        fields.finish_with(|| Some(update))
    }

    fn update(self, fields: &mut Fields, domain: Option<&str>, now: &Settings) -> CheckedUpdate {
        let allowed = fields.take_optional("allowed_domains", self.allowed_domains, patterns);
        let interval = |seconds| within(seconds, Settings::MIN_INTERVAL, Settings::MAX_INTERVAL);
        let interval = fields.take_optional("health_check_interval", self.health_check_interval, interval);
        let credential = fields.take_optional("credential", self.credential, CredentialRequest::parse);
        let listed = || allowed.clone().unwrap_or_else(|| now.allowed_domains.clone());
        let hosts = domain.map(|domain| AllowedHosts::new(domain, listed()));
        // The present URL must fit the new hosts.
        if let (Some(hosts), Some(_), None, Some(stays)) = (&hosts, &allowed, &self.login_url, &now.login_url)
            && hosts.check(stays).is_err()
        {
            let bad = InvalidValue::new(
                FieldCode::NotAllowed,
                "must hold the host of login_url, or come with another login_url",
            );
            fields.refuse("allowed_domains", bad);
        }
        let login_url = fields.take_optional("login_url", self.login_url, |text| login_url(&text, hosts.as_ref()));
        let proxy = fields.take_optional("proxy", self.proxy.as_ref(), parse_proxy);
        let change = ConnectionChange {
            allowed_domains: allowed,
            auto_reauth: self.auto_reauth,
            health_checks: self.health_checks,
            health_check_interval_seconds: interval,
            record_session: self.record_session,
            save_credentials: self.save_credentials,
            credential,
            organization_credential: None,
            login_url,
            proxy: None,
        };
        CheckedUpdate { change, proxy }
    }
}

/// Returns the id or name of a proxy; `None` for none.
pub(super) fn parse_proxy(proxy: &Reference) -> Result<Option<String>, InvalidValue> {
    Ok(proxy.parse_optional()?.filter(|text| !text.is_empty()).map(str::to_owned))
}

impl CredentialRequest {
    fn parse(self) -> Result<Option<CredentialRef>, InvalidValue> {
        let text = |text: Option<String>, name: &str| {
            let Some(text) = text else { return Ok(None) };
            // The maximum applies to the text with its outer blanks, the minimum to the text without them.
            check_length(text.trim(), MAX_TEXT)
                .and_then(|()| check_max_length(&text, MAX_TEXT))
                .and_then(|()| check_no_control_characters(&text))
                .map_err(|bad| bad.of(name))?;
            Ok(Some(text.trim().to_owned()))
        };
        let (name, provider, path) =
            (text(self.name, "name")?, text(self.provider, "provider")?, text(self.path, "path")?);
        match (name, provider, path, self.auto.unwrap_or(false)) {
            (None, None, None, false) => Ok(None),
            (Some(name), None, None, false) => Ok(Some(CredentialRef::Named(name))),
            (None, Some(provider), Some(path), false) => Ok(Some(CredentialRef::Item { provider, path })),
            (None, Some(provider), None, true) => Ok(Some(CredentialRef::Auto { provider })),
            (None, None, None, true) => Ok(Some(CredentialRef::AutoAny)),
            (None, Some(_), None, false) => Err(InvalidValue::new(FieldCode::Required, "needs a path, or auto: true")),
            (None, None, ..) => Err(InvalidValue::new(FieldCode::Required, "needs a provider").of("provider")),
            _ => Err(InvalidValue::new(
                FieldCode::MutuallyExclusive,
                "takes a name, or a provider with a path, or auto: true, with a provider or without",
            )),
        }
    }
}

fn patterns(texts: Vec<String>) -> Result<Vec<HostPattern>, InvalidValue> {
    if texts.len() > MAX_DOMAINS {
        return Err(InvalidValue::new(FieldCode::TooMany, format!("must be at most {MAX_DOMAINS}")));
    }
    let parsed = texts.iter().enumerate().map(|(at, text)| {
        HostPattern::parse(text.trim())
            .map_err(|bad| InvalidValue::new(FieldCode::InvalidFormat, bad.to_string()).of(at))
    });
    let (good, bad): (Vec<_>, Vec<_>) = parsed.partition(Result::is_ok);
    InvalidValue::any(bad.into_iter().filter_map(Result::err))?;
    Ok(good.into_iter().filter_map(Result::ok).collect())
}

fn login_url(text: &str, hosts: Option<&AllowedHosts>) -> Result<Option<String>, InvalidValue> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    check_max_length(text, MAX_URL)?;
    let format =
        || InvalidValue::new(FieldCode::InvalidFormat, "must be an http or https address without user and password");
    let url = web_url::read(text).ok_or_else(format)?;
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
        return Err(format());
    }
    if hosts.is_some_and(|hosts| hosts.check(url.as_str()).is_err()) {
        return Err(InvalidValue::new(FieldCode::NotAllowed, "must be at the domain or a host of allowed_domains"));
    }
    Ok(Some(url.into()))
}
