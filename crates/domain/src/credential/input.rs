//! What callers ask for, before and after it was checked.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use url::Host;

use super::{MAX_VALUES, TotpSecret};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue};
use crate::name::LabelName;

/// Characters of the name of a value.
const MAX_KEY: usize = 128;
/// Bytes of a value.
const MAX_VALUE: usize = 8 * 1024;
/// Characters of the name of a provider.
const MAX_PROVIDER: usize = 255;

/// A credential as asked for.
#[derive(Default)]
pub struct CreateCredential {
    /// Required.
    pub name: Option<String>,
    /// Required.
    pub domain: Option<String>,
    /// Required.
    pub values: Option<BTreeMap<String, SecretString>>,
    /// Default: none; empty is none.
    pub sso_provider: Option<String>,
    /// Default: none; empty is none.
    pub totp_secret: Option<SecretString>,
}

/// A credential as asked for, checked; not yet sealed.
pub(super) struct NewCredential {
    pub(super) name: LabelName,
    pub(super) domain: String,
    pub(super) values: BTreeMap<String, SecretString>,
    pub(super) sso_provider: Option<String>,
    pub(super) totp: Option<TotpSecret>,
}

/// Changes of a credential as asked for; what is absent stays as it is.
#[derive(Default)]
pub struct UpdateCredential {
    /// Another name.
    pub name: Option<String>,
    /// Empty or null: none.
    pub sso_provider: Option<Option<String>>,
    /// Empty: none.
    pub totp_secret: Option<SecretString>,
    /// To put in, over those of the same name.
    pub values: Option<BTreeMap<String, SecretString>>,
    /// To forget first.
    pub remove_value_keys: Option<Vec<String>>,
}

/// Changes as asked for, checked; not yet sealed.
pub(super) struct Changes {
    pub(super) name: Option<LabelName>,
    pub(super) sso_provider: Option<Option<String>>,
    pub(super) totp: Option<Option<TotpSecret>>,
    pub(super) values: BTreeMap<String, SecretString>,
    pub(super) remove: Vec<String>,
}

impl fmt::Debug for CreateCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateCredential").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for UpdateCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdateCredential").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CreateCredential {
    pub(super) fn parse(self) -> Result<NewCredential, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_required("name", self.name.as_deref(), LabelName::parse_in_path);
        let domain = fields.take_required("domain", self.domain.as_deref(), domain);
        let values = fields.take_required("values", self.values, values);
        let sso_provider = fields.take_optional("sso_provider", self.sso_provider.as_deref(), provider).flatten();
        let totp = fields.take_optional("totp_secret", self.totp_secret.as_ref(), totp).flatten();
        fields.finish()?;
        let (Some(name), Some(domain), Some(values)) = (name, domain, values) else {
            unreachable!("a refused field is an error")
        };
        Ok(NewCredential { name, domain, values, sso_provider, totp })
    }
}

impl UpdateCredential {
    pub(super) fn parse(self) -> Result<Changes, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_optional("name", self.name.as_deref(), LabelName::parse_in_path);
        let sso_provider = self.sso_provider.map(Option::unwrap_or_default);
        let sso_provider = fields.take_optional("sso_provider", sso_provider.as_deref(), provider);
        let totp = fields.take_optional("totp_secret", self.totp_secret.as_ref(), totp);
        let values = fields.take_optional("values", self.values, values).unwrap_or_default();
        let remove = fields.take_optional("remove_value_keys", self.remove_value_keys, keys).unwrap_or_default();
        fields.finish()?;
        Ok(Changes { name, sso_provider, totp, values, remove })
    }
}

/// The host name of a site. An address is none: nobody logs in to one by what is kept for a name.
pub(crate) fn domain(text: &str) -> Result<String, InvalidValue> {
    let text = text.trim();
    if text.chars().nth(253).is_some() {
        return Err(InvalidValue::new(FieldCode::TooLong, "must have at most 253 characters"));
    }
    match Host::parse(text) {
        Ok(Host::Domain(name)) if is_host_name(&name) => Ok(name),
        _ => Err(InvalidValue::new(FieldCode::InvalidFormat, "must be a host name, as example.com")),
    }
}

fn is_host_name(name: &str) -> bool {
    name.split('.').all(|label| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    })
}

fn provider(text: &str) -> Result<Option<String>, InvalidValue> {
    let text = text.trim();
    if text.chars().nth(MAX_PROVIDER).is_some() {
        return Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {MAX_PROVIDER} characters")));
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidValue::new(FieldCode::InvalidFormat, "may not hold control characters"));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn totp(text: &SecretString) -> Result<Option<TotpSecret>, InvalidValue> {
    let text = text.expose_secret();
    if text.trim().is_empty() { Ok(None) } else { TotpSecret::parse(text).map(Some) }
}

fn values(values: BTreeMap<String, SecretString>) -> Result<BTreeMap<String, SecretString>, InvalidValue> {
    if values.len() > MAX_VALUES {
        return Err(too_many());
    }
    InvalidValue::any(values.iter().filter_map(|(name, value)| {
        let long = value.expose_secret().len() > MAX_VALUE;
        let long = long.then(|| InvalidValue::new(FieldCode::TooLong, format!("must have at most {MAX_VALUE} bytes")));
        // What is no name is not repeated: it may be a secret in the wrong place.
        key(name).err().or(long.map(|bad| bad.of(name)))
    }))?;
    Ok(values)
}

fn keys(names: Vec<String>) -> Result<Vec<String>, InvalidValue> {
    if names.len() > MAX_VALUES {
        return Err(too_many());
    }
    InvalidValue::any(names.iter().enumerate().filter_map(|(at, name)| key(name).err().map(|bad| bad.of(at))))?;
    Ok(names)
}

fn key(name: &str) -> Result<(), InvalidValue> {
    let bad = |code, text: &str| Err(InvalidValue::new(code, format!("the name of a value {text}")));
    match name.chars().take(MAX_KEY + 1).count() {
        0 => bad(FieldCode::TooShort, "must have at least 1 character"),
        n if n > MAX_KEY => bad(FieldCode::TooLong, "must have at most 128 characters"),
        _ if name.chars().any(char::is_control) => bad(FieldCode::InvalidFormat, "may not hold control characters"),
        _ => Ok(()),
    }
}

pub(super) fn too_many() -> InvalidValue {
    InvalidValue::new(FieldCode::TooMany, format!("must be at most {MAX_VALUES}"))
}
