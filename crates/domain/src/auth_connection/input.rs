//! What callers ask for, before and after it was checked.

use super::{ConnectionChange, CredentialRef, Settings};
use crate::credential::domain;
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};
use crate::login_page::{AllowedHosts, HostPattern};
use crate::name::SlugName;

/// Hosts that a connection may list.
const MAX_DOMAINS: usize = 50;
/// Characters of a provider's name, and of the path of an item.
const MAX_TEXT: usize = 1024;
/// Characters of a login's address.
const MAX_URL: usize = 2048;

/// A credential as it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialInput {
    /// Of the project.
    pub name: Option<String>,
    /// A credential provider.
    pub provider: Option<String>,
    /// An item of it.
    pub path: Option<String>,
    /// Whether the item is found by the domain.
    pub auto: Option<bool>,
}

/// A proxy as it came in: by exactly one of both; neither clears.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyInput {
    /// Its id.
    pub id: Option<String>,
    /// Its name.
    pub name: Option<String>,
}

/// A connection, or what is to change of it, as it came in. What is absent takes its default, or stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionInput {
    /// Required of a new one, fixed ever after.
    pub domain: Option<String>,
    /// Required of a new one, fixed ever after.
    pub profile_name: Option<String>,
    /// See [`Settings`](super::Settings).
    pub allowed_domains: Option<Vec<String>>,
    /// See [`Settings`](super::Settings).
    pub auto_reauth: Option<bool>,
    /// See [`Settings`](super::Settings).
    pub health_checks: Option<bool>,
    /// In seconds.
    pub health_check_interval: Option<i64>,
    /// See [`Settings`](super::Settings).
    pub record_session: Option<bool>,
    /// See [`Settings`](super::Settings).
    pub save_credentials: Option<bool>,
    /// `{}` clears.
    pub credential: Option<CredentialInput>,
    /// Empty clears.
    pub login_url: Option<String>,
    /// `{}` clears.
    pub proxy: Option<ProxyInput>,
}

/// A login as it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginInput {
    /// Instead of the connection's.
    pub proxy: Option<ProxyInput>,
    /// Instead of the connection's.
    pub record_session: Option<bool>,
}

/// Checked as far as it can be without looking anything up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CheckedInput {
    /// Everything but the proxy.
    pub(super) change: ConnectionChange,
    /// By id or name; it is looked up.
    pub(super) proxy: Option<Option<String>>,
}

/// A new connection, checked so far.
pub(super) struct NewConnection {
    pub(super) domain: String,
    pub(super) profile: SlugName,
    pub(super) wish: CheckedInput,
}

impl ConnectionInput {
    pub(super) fn new_connection(self) -> Result<NewConnection, InvalidInput> {
        let mut fields = Fields::new();
        let domain = fields.take_required("domain", self.domain.as_deref(), domain);
        let profile = fields.take_required("profile_name", self.profile_name.as_deref(), SlugName::parse);
        let wish = self.wish(&mut fields, domain.as_deref(), &Settings::default());
        fields.finish()?;
        let (Some(domain), Some(profile)) = (domain, profile) else { unreachable!("a refused field is an error") };
        Ok(NewConnection { domain, profile, wish })
    }

    /// Changes of a connection at `domain` that is told this now.
    pub(super) fn change(self, domain: &str, now: &Settings) -> Result<CheckedInput, InvalidInput> {
        let mut fields = Fields::new();
        let wish = self.wish(&mut fields, Some(domain), now);
        fields.finish()?;
        Ok(wish)
    }

    fn wish(self, fields: &mut Fields, domain: Option<&str>, now: &Settings) -> CheckedInput {
        let allowed = fields.take_optional("allowed_domains", self.allowed_domains, patterns);
        let interval = |seconds| within(seconds, 300, 86_400);
        let interval = fields.take_optional("health_check_interval", self.health_check_interval, interval);
        let credential = fields.take_optional("credential", self.credential, CredentialInput::parse);
        let listed = || allowed.clone().unwrap_or_else(|| now.allowed_domains.clone());
        let hosts = domain.map(|domain| AllowedHosts::new(domain, listed()));
        // What stays must fit what changes.
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
        let proxy = fields.take_optional("proxy", self.proxy, ProxyInput::parse);
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
        CheckedInput { change, proxy }
    }
}

impl ProxyInput {
    /// By id or name; `None` for none.
    pub(super) fn parse(self) -> Result<Option<String>, InvalidValue> {
        match (self.id, self.name) {
            (Some(_), Some(_)) => {
                Err(InvalidValue::new(FieldCode::MutuallyExclusive, "takes an id or a name, not both"))
            }
            (one, other) => Ok(one.or(other).filter(|text| !text.is_empty())),
        }
    }
}

impl CredentialInput {
    fn parse(self) -> Result<Option<CredentialRef>, InvalidValue> {
        let text = |text: Option<String>, name: &str| match text {
            Some(text) if text.trim().is_empty() => {
                Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 character").of(name))
            }
            Some(text) if text.chars().nth(MAX_TEXT).is_some() => {
                Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {MAX_TEXT} characters")).of(name))
            }
            Some(text) if text.chars().any(char::is_control) => {
                Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold control characters").of(name))
            }
            other => Ok(other.map(|text| text.trim().to_owned())),
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
    if text.chars().nth(MAX_URL).is_some() {
        return Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {MAX_URL} characters")));
    }
    let format =
        || InvalidValue::new(FieldCode::InvalidFormat, "must be an http or https address without user and password");
    let url = url::Url::parse(text).map_err(|_| format())?;
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
        return Err(format());
    }
    if hosts.is_some_and(|hosts| hosts.check(url.as_str()).is_err()) {
        return Err(InvalidValue::new(FieldCode::NotAllowed, "must be at the domain or a host of allowed_domains"));
    }
    Ok(Some(url.into()))
}
