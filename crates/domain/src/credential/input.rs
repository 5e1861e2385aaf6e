//! New credentials and changes of credentials, checked but not yet sealed.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use url::Host;

use super::totp_text::{MAX_TEXT, algorithm, digits, period};
use super::{MAX_VALUES, TotpOptions, TotpText};
use crate::field::{
    FieldCode, Fields, InvalidInput, InvalidValue, check_max_bytes, check_max_length, check_no_control_characters,
};
use crate::name::LabelName;
use crate::pattern::{host_name, label, trimmed, white};

/// The maximum number of characters of the name of a value.
pub const MAX_KEY: usize = 128;
/// The maximum number of bytes of a value.
pub const MAX_VALUE: usize = 8 * 1024;
/// The minimum and the maximum number of characters of a secret of one-time codes in base 32.
const TOTP_LENGTHS: std::ops::RangeInclusive<usize> = 16..=128;
/// The pattern of the secrets of one-time codes: base 32 or a URI; empty for none. It accepts every URI of `otpauth`.
pub const TOTP_PATTERN: &str =
    trimmed!("-*([A-Za-z2-7][-", white!(), r"]*){16,128}[-=", white!(), r"]*|[Oo][Tt][Pp][Aa][Uu][Tt][Hh]://[\s\S]*|");
/// The maximum number of characters of the name of an SSO provider.
pub const MAX_PROVIDER: usize = 255;

/// A new credential, checked but not yet sealed.
pub struct NewCredential {
    pub(super) name: LabelName,
    pub(super) domain: String,
    pub(super) values: BTreeMap<String, SecretString>,
    pub(super) sso_provider: Option<String>,
    pub(super) totp: Option<TotpText>,
}

/// The changes of a credential, checked but not yet sealed; `None` leaves a field unchanged.
pub struct CredentialUpdate {
    pub(super) name: Option<LabelName>,
    pub(super) sso_provider: Option<Option<String>>,
    pub(super) totp: Option<Option<TotpText>>,
    pub(super) values: BTreeMap<String, SecretString>,
    pub(super) remove: Vec<String>,
}

/// The unchecked secret of one-time codes with its parameters.
#[derive(Default)]
pub struct TotpRequest {
    /// The secret: base 32 or a URI; empty for none.
    pub secret: Option<SecretString>,
    /// `SHA1`, `SHA256` or `SHA512`.
    pub algorithm: Option<String>,
    /// The number of digits of a code.
    pub digits: Option<i64>,
    /// The number of seconds for which a code is valid.
    pub period: Option<i64>,
}

impl TotpRequest {
    /// Returns the secret; `Some(None)` for an empty one. The parameters of a URI precede the others.
    fn parse(self, fields: &mut Fields) -> Option<Option<TotpText>> {
        let has_options = self.algorithm.is_some() || self.digits.is_some() || self.period.is_some();
        let has_secret = self.secret.as_ref().is_some_and(|secret| !secret.expose_secret().trim().is_empty());
        let options = TotpOptions {
            algorithm: fields.take_optional("totp_algorithm", self.algorithm.as_deref(), algorithm),
            digits: fields.take_optional("totp_digits", self.digits, digits),
            period_seconds: fields.take_optional("totp_period", self.period, period),
        };
        if has_options && !has_secret {
            let why = "is required beside totp_algorithm, totp_digits and totp_period";
            fields.refuse("totp_secret", InvalidValue::new(FieldCode::Required, why));
            return None;
        }
        let text = fields.take_optional("totp_secret", self.secret, parse_totp)?;
        Some(text.map(|mut text| {
            text.options = text.options.or(options);
            text
        }))
    }
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
        totp: TotpRequest,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_required("name", name, LabelName::parse_in_path);
        let domain = fields.take_required("domain", domain, parse_domain);
        let values = fields.take_required("values", values, parse_values);
        let sso_provider = fields.take_optional("sso_provider", sso_provider, parse_provider).flatten();
        let totp = totp.parse(&mut fields).flatten();
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
        totp: TotpRequest,
        values: Option<BTreeMap<String, SecretString>>,
        remove_value_keys: Option<Vec<String>>,
    ) -> Result<Self, InvalidInput> {
        let mut fields = Fields::new();
        let name = fields.take_optional("name", name, LabelName::parse_in_path);
        let sso_provider = sso_provider.map(Option::unwrap_or_default);
        let sso_provider = fields.take_optional("sso_provider", sso_provider.as_deref(), parse_provider);
        let totp = totp.parse(&mut fields);
        let values = fields.take_optional("values", values, parse_values).unwrap_or_default();
        let remove = fields.take_optional("remove_value_keys", remove_value_keys, parse_keys).unwrap_or_default();
        fields.finish_with(|| Some(Self { name, sso_provider, totp, values, remove }))
    }
}

/// The pattern of the host names of sites. It also accepts addresses, and names that are too long.
pub const DOMAIN_PATTERN: &str = trimmed!(host_name!());
/// The pattern of the names of SSO providers; empty for none.
pub const PROVIDER_PATTERN: &str = trimmed!("(", label!(""), ")?");

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
fn parse_totp(text: SecretString) -> Result<Option<TotpText>, InvalidValue> {
    let text = text.expose_secret();
    check_max_length(text, MAX_TEXT)?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let text = TotpText::parse(text)?;
    let (min, max) = (TOTP_LENGTHS.start(), TOTP_LENGTHS.end());
    match text.length {
        n if n < *min => {
            let why = format!("must have at least {min} characters of base 32");
            Err(InvalidValue::new(FieldCode::TooShort, why))
        }
        n if n > *max => {
            Err(InvalidValue::new(FieldCode::TooLong, format!("must have at most {max} characters of base 32")))
        }
        _ => Ok(Some(text)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::{TotpAlgorithm, TotpParameters};

    const SECRET: &str = "GEZDGNBVGY3TQOJQ";

    fn read(request: TotpRequest) -> Result<Option<TotpText>, InvalidInput> {
        NewCredential::parse(Some("a"), Some("a.example"), Some(BTreeMap::new()), None, request).map(|new| new.totp)
    }

    fn request(secret: &str) -> TotpRequest {
        let algorithm = Some("SHA256".to_owned());
        TotpRequest { secret: Some(secret.into()), algorithm, digits: Some(7), period: Some(60) }
    }

    #[test]
    fn the_parameters_of_a_uri_precede_those_beside_it() {
        let parameters = |secret: &str| {
            let secret = read(request(secret)).expect("checked").expect("a secret").secret(TotpParameters::default());
            let TotpParameters { algorithm, digits, period_seconds } = secret.parameters();
            (algorithm, digits, period_seconds)
        };
        assert_eq!(parameters(SECRET), (TotpAlgorithm::Sha256, 7, 60));
        assert_eq!(parameters(&format!("otpauth://totp/?secret={SECRET}")), (TotpAlgorithm::Sha256, 7, 60));
        let uri = format!("otpauth://totp/?secret={SECRET}&digits=8&algorithm=SHA1");
        assert_eq!(parameters(&uri), (TotpAlgorithm::Sha1, 8, 60));
    }

    #[test]
    fn refused_parameters_of_codes_are_named() {
        let bad = |change: &dyn Fn(&mut TotpRequest)| {
            let mut request = request(SECRET);
            change(&mut request);
            let refused = read(request).expect_err("refused");
            refused.fields().iter().map(|one| (one.field.clone(), one.code)).collect::<Vec<_>>()
        };
        let one = |field: &str, code| vec![(field.to_owned(), code)];
        assert_eq!(bad(&|of| of.algorithm = Some("MD5".into())), one("totp_algorithm", FieldCode::NotAllowed));
        for digits in [5, 9, -1, i64::MAX] {
            assert_eq!(bad(&|of| of.digits = Some(digits)), one("totp_digits", FieldCode::OutOfRange));
        }
        for period in [0, 301, i64::MIN] {
            assert_eq!(bad(&|of| of.period = Some(period)), one("totp_period", FieldCode::OutOfRange));
        }
        for none in [None, Some("".into()), Some(" ".into())] {
            assert_eq!(bad(&|of| of.secret.clone_from(&none)), one("totp_secret", FieldCode::Required));
        }
        for (length, code) in [(15, FieldCode::TooShort), (129, FieldCode::TooLong)] {
            let text = "A".repeat(length);
            assert_eq!(bad(&|of| of.secret = Some(text.as_str().into())), one("totp_secret", code));
            let uri = format!("otpauth://totp/?secret={text}");
            assert_eq!(bad(&|of| of.secret = Some(uri.as_str().into())), one("totp_secret", code));
        }
        for length in [16, 128] {
            assert!(read(request(&"A".repeat(length))).expect("checked").is_some(), "{length}");
        }
    }
}
