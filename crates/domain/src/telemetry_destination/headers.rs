//! The headers of a destination.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use serde_json::{Map, Value};

use crate::field::{FieldCode, InvalidValue};

/// The maximum size of the names and values together, in bytes.
const MAX_BYTES: usize = 8192;
/// The headers that the export sets itself.
const RESERVED: [&str; 7] =
    ["connection", "content-encoding", "content-length", "content-type", "host", "te", "transfer-encoding"];

/// Changes of headers by their names: a value adds or replaces a header, `None` removes it.
#[derive(Clone, Default)]
pub struct HeaderEdits(BTreeMap<String, Option<SecretString>>);

impl fmt::Debug for HeaderEdits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl FromIterator<(String, Option<SecretString>)> for HeaderEdits {
    fn from_iter<T: IntoIterator<Item = (String, Option<SecretString>)>>(edits: T) -> Self {
        Self(edits.into_iter().collect())
    }
}

/// The opened headers by their canonical names.
#[derive(Clone, Default)]
pub(super) struct Headers(BTreeMap<String, SecretString>);

impl Headers {
    /// Returns the headers after the edits. The edits of an absent header are valid.
    ///
    /// # Errors
    /// Returns the rule that an edit breaks, below its name.
    pub(super) fn edited(mut self, edits: HeaderEdits) -> Result<Self, InvalidValue> {
        let mut edited = BTreeSet::new();
        for (name, value) in edits.0 {
            let shown: String = name.chars().take(64).collect();
            let canonical = canonical_name(&name).map_err(|bad| bad.of(&shown))?;
            if !edited.insert(canonical.clone()) {
                let twice = InvalidValue::new(FieldCode::MutuallyExclusive, "names a header that is given twice");
                return Err(twice.of(&shown));
            }
            match value {
                Some(value) => {
                    check_value(&value).map_err(|bad| bad.of(&shown))?;
                    self.0.insert(canonical, value);
                }
                None => drop(self.0.remove(&canonical)),
            }
        }
        let bytes: usize = self.0.iter().map(|(name, value)| name.len() + value.expose_secret().len()).sum();
        if bytes > MAX_BYTES {
            let rule = format!("must have at most {MAX_BYTES} bytes of names and values together");
            return Err(InvalidValue::new(FieldCode::TooLong, rule));
        }
        Ok(self)
    }

    /// Checks that the edits give or remove every header. A caller who may change the endpoint but does not know the values
    /// could otherwise have them sent to another server.
    ///
    /// # Errors
    /// `required` with the names that are missing.
    pub(super) fn check_all_given(&self, edits: &HeaderEdits) -> Result<(), InvalidValue> {
        let given: BTreeSet<String> = edits.0.keys().filter_map(|name| canonical_name(name).ok()).collect();
        let missing: Vec<&str> = self.0.keys().filter(|name| !given.contains(*name)).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let rule = format!(
            "must give the values of {} again for another endpoint, or null to remove them",
            missing.join(", ")
        );
        Err(InvalidValue::new(FieldCode::Required, rule))
    }

    /// Returns the canonical names, in order.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Returns the headers as JSON, to be sealed.
    pub(super) fn to_json(&self) -> SecretString {
        let members = self.0.iter().map(|(name, value)| (name.clone(), value.expose_secret().into()));
        Value::Object(members.collect::<Map<_, _>>()).to_string().into()
    }

    /// Parses [`to_json`](Self::to_json); `None` for another form.
    pub(super) fn of_json(json: &SecretSlice<u8>) -> Option<Self> {
        let members: Map<String, Value> = serde_json::from_slice(json.expose_secret()).ok()?;
        let value = |value: Value| value.as_str().map(SecretString::from);
        members.into_iter().map(|(name, text)| Some((name, value(text)?))).collect::<Option<_>>().map(Self)
    }

    pub(super) fn into_inner(self) -> BTreeMap<String, SecretString> {
        self.0
    }
}

/// The pattern of the names of headers. It also accepts those that the export sets itself.
pub const HEADER_NAME_PATTERN: &str = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";
/// The pattern of the values of headers.
pub const HEADER_VALUE_PATTERN: &str = r"^[!-~]([ \t!-~]*[!-~])?$";

/// Returns a name in the form `Content-Type`.
fn canonical_name(name: &str) -> Result<String, InvalidValue> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(InvalidValue::new(FieldCode::InvalidFormat, "must be the name of an HTTP header"));
    }
    if RESERVED.contains(&&*name.to_ascii_lowercase()) {
        return Err(InvalidValue::new(FieldCode::NotAllowed, "is set by the export itself"));
    }
    let part = |part: &str| {
        let (first, rest) = part.split_at(usize::from(!part.is_empty()));
        format!("{}{}", first.to_ascii_uppercase(), rest.to_ascii_lowercase())
    };
    Ok(name.split('-').map(part).collect::<Vec<_>>().join("-"))
}

fn check_value(value: &SecretString) -> Result<(), InvalidValue> {
    let text = value.expose_secret();
    let printable = |byte: u8| byte == b' ' || byte == b'\t' || byte.is_ascii_graphic();
    if text.is_empty() || text.trim() != text || !text.bytes().all(printable) {
        let rule = "must be the value of an HTTP header: printable ASCII, without blanks around it";
        return Err(InvalidValue::new(FieldCode::InvalidFormat, rule));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(pairs: &[(&str, Option<&str>)]) -> HeaderEdits {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.map(SecretString::from))).collect()
    }

    fn shown(headers: &Headers) -> Vec<(String, String)> {
        headers.0.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect()
    }

    #[test]
    fn edits_add_replace_and_remove_headers_regardless_of_case() {
        let given = edits(&[("authorization", Some("Bearer a")), ("x-scope-ORGID", Some("1"))]);
        let headers = Headers::default().edited(given).expect("valid");
        assert_eq!(headers.names(), ["Authorization", "X-Scope-Orgid"]);
        let given = edits(&[("AUTHORIZATION", Some("Bearer b")), ("X-Scope-OrgID", None), ("X-None", None)]);
        let headers = headers.edited(given).expect("valid");
        assert_eq!(shown(&headers), [("Authorization".to_owned(), "Bearer b".to_owned())]);
        let sealed = SecretSlice::from(headers.to_json().expose_secret().as_bytes().to_vec());
        assert_eq!(shown(&Headers::of_json(&sealed).expect("JSON")), shown(&headers));
    }

    #[test]
    fn what_http_does_not_take_is_refused_without_its_value() {
        let long = "x".repeat(MAX_BYTES);
        for (given, field) in [
            (&[("", Some("swordfish"))][..], "headers."),
            (&[("a b", Some("swordfish"))], "headers.a b"),
            (&[("A", Some("sword\nfish"))], "headers.A"),
            (&[("A", Some(""))], "headers.A"),
            (&[("A", Some(" swordfish"))], "headers.A"),
            (&[("A", Some("ä"))], "headers.A"),
            (&[("Content-length", Some("1"))], "headers.Content-length"),
            (&[("A", Some("1")), ("a", Some("2"))], "headers.a"),
            (&[("A", Some(&long))], "headers"),
        ] {
            let refused = Headers::default().edited(edits(given)).err().expect(field).at("headers");
            assert_eq!(refused.field, field);
            assert!(!refused.to_string().contains("swordfish"), "{refused}");
        }
        assert_eq!(format!("{:?}", edits(&[("A", Some("swordfish"))])), r#"{"A"}"#);
    }
}
