//! New credentials and changes of credentials, checked but not yet sealed.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use url::Host;

use super::{MAX_VALUES, TotpSecret};
use crate::field::{
    FieldCode, Fields, InvalidInput, InvalidValue, check_max_bytes, check_max_length, check_no_control_characters,
};
use crate::name::LabelName;

/// The maximum number of characters of the name of a value.
pub const MAX_KEY: usize = 128;
/// The maximum number of bytes of a value.
pub const MAX_VALUE: usize = 8 * 1024;
/// The maximum number of characters of the name of an SSO provider.
pub const MAX_PROVIDER: usize = 255;

/// A new credential, checked but not yet sealed.
pub struct NewCredential {
    pub(super) name: LabelName,
    pub(super) domain: String,
    pub(super) values: BTreeMap<String, SecretString>,
    pub(super) sso_provider: Option<String>,
    pub(super) totp: Option<TotpSecret>,
}

/// The changes of a credential, checked but not yet sealed; `None` leaves a field unchanged.
pub struct CredentialUpdate {
    pub(super) name: Option<LabelName>,
    pub(super) sso_provider: Option<Option<String>>,
    pub(super) totp: Option<Option<TotpSecret>>,
    pub(super) values: BTreeMap<String, SecretString>,
    pub(super) remove: Vec<String>,
}

impl NewCredential {
    /// Checks the fields of a new credential. An empty SSO provider or TOTP secret is none.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(
        name: Option<&str>,
        domain: Option<&str>,
        values: Option<BTreeMap<String, SecretString>>,
        sso_provider: Option<&str>,
        totp_secret: Option<SecretString>,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_required("name", name, LabelName::parse_in_path);
        let domain = fields.take_required("domain", domain, parse_domain);
        let values = fields.take_required("values", values, parse_values);
        let sso_provider = fields.take_optional("sso_provider", sso_provider, parse_provider).flatten();
        let totp = fields.take_optional("totp_secret", totp_secret, parse_totp).flatten();
        fields.finish_with(|| Some(Self { name: name?, domain: domain?, values: values?, sso_provider, totp }))
    }
}

impl CredentialUpdate {
    /// Checks the changes of a credential. An empty or null SSO provider, or an empty TOTP secret, removes the present
    /// one. The values of `remove_value_keys` are deleted before `values` are added.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn parse(
        name: Option<&str>,
        sso_provider: Option<Option<String>>,
        totp_secret: Option<SecretString>,
        values: Option<BTreeMap<String, SecretString>>,
        remove_value_keys: Option<Vec<String>>,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_optional("name", name, LabelName::parse_in_path);
        let sso_provider = sso_provider.map(Option::unwrap_or_default);
        let sso_provider = fields.take_optional("sso_provider", sso_provider.as_deref(), parse_provider);
        let totp = fields.take_optional("totp_secret", totp_secret, parse_totp);
        let values = fields.take_optional("values", values, parse_values).unwrap_or_default();
        let remove = fields.take_optional("remove_value_keys", remove_value_keys, parse_keys).unwrap_or_default();
        fields.finish_with(|| Some(Self { name, sso_provider, totp, values, remove }))
    }
}

/// Parses the host name of a site. An IP address is refused: credentials are stored for names only.
pub(crate) fn parse_domain(text: &str) -> Result<String, InvalidValue> {
    let text = text.trim();
    check_max_length(text, 253)?;
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

fn parse_provider(text: &str) -> Result<Option<String>, InvalidValue> {
    let text = text.trim();
    check_max_length(text, MAX_PROVIDER)?;
    check_no_control_characters(text)?;
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[expect(clippy::needless_pass_by_value, reason = "all fields are parsed by value")]
fn parse_totp(text: SecretString) -> Result<Option<TotpSecret>, InvalidValue> {
    let text = text.expose_secret();
    if text.trim().is_empty() { Ok(None) } else { TotpSecret::parse(text).map(Some) }
}

fn parse_values(values: BTreeMap<String, SecretString>) -> Result<BTreeMap<String, SecretString>, InvalidValue> {
    if values.len() > MAX_VALUES {
        return Err(too_many());
    }
    InvalidValue::any(values.iter().filter_map(|(name, value)| {
        let too_long = check_max_bytes(value.expose_secret(), MAX_VALUE).err();
        // An invalid name is not repeated, because it may be a misplaced secret.
        check_key(name).err().or(too_long.map(|bad| bad.of(name)))
    }))?;
    Ok(values)
}

fn parse_keys(names: Vec<String>) -> Result<Vec<String>, InvalidValue> {
    if names.len() > MAX_VALUES {
        return Err(too_many());
    }
    InvalidValue::any(names.iter().enumerate().filter_map(|(at, name)| check_key(name).err().map(|bad| bad.of(at))))?;
    Ok(names)
}

fn check_key(name: &str) -> Result<(), InvalidValue> {
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
