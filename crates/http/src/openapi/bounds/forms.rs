//! The forms of bounds: ranges, lengths, patterns, closed lists.

use casement_domain::{
    browser::{BrowserRegion, StartUrl, Viewport},
    computer,
    engine::EngineName,
    field,
    fs::{self, AbsolutePath},
    name::{LabelName, SlugName},
    network::{self, Destination, PrivateHost},
    session,
    telemetry_destination::{HEADER_NAME_PATTERN, HEADER_VALUE_PATTERN},
};
use serde_json::{Value, json};

pub(super) fn range(low: i64, high: u32) -> Value {
    json!({"minimum": low, "maximum": high})
}

pub(super) fn text(low: usize, high: usize) -> Value {
    json!({"minLength": low, "maxLength": high})
}

pub(super) fn formed(pattern: &str, high: usize) -> Value {
    json!({"pattern": pattern, "maxLength": high})
}

pub(super) fn items(low: usize, high: usize) -> Value {
    json!({"minItems": low, "maxItems": high})
}

pub(super) fn items_of(low: usize, high: usize, item: Value) -> Value {
    json!({"minItems": low, "maxItems": high, "items": item})
}

pub(super) fn map(high: usize, key: Value, value: Value) -> Value {
    json!({"maxProperties": high, "propertyNames": key, "additionalProperties": value})
}

pub(super) fn one_of(words: &[&str]) -> Value {
    json!({"enum": words})
}

/// A text without NUL.
pub(super) const NO_NUL: &str = r"^[^\x00]*$";

pub(super) fn slug() -> Value {
    json!({"pattern": SlugName::PATTERN})
}

pub(super) fn label() -> Value {
    json!({"pattern": LabelName::PATTERN})
}

pub(super) fn label_in_path() -> Value {
    json!({"pattern": LabelName::PATTERN_IN_PATH})
}

pub(super) fn path() -> Value {
    formed(AbsolutePath::PATTERN, fs::MAX_PATH_BYTES)
}

pub(super) fn tags() -> Value {
    map(session::Tags::MAX_PAIRS, text(1, session::Tags::MAX_KEY), text(0, session::Tags::MAX_VALUE))
}

pub(super) fn plain(high: usize) -> Value {
    json!({"pattern": field::PLAIN_PATTERN, "minLength": 1, "maxLength": high})
}

/// A reference with an id or a name.
pub(super) fn one_given() -> Value {
    let given = |field: &str| json!({"required": [field], "properties": {field: {"type": "string"}}});
    json!({"anyOf": [given("id"), given("name")]})
}

/// A reference with an id or a name, or none.
pub(super) fn one_given_or_null() -> Value {
    json!({"anyOf": [{"type": "null"}, one_given()]})
}

/// The headers of a request. The schema cannot express the maximum of all together.
pub(super) fn headers() -> Value {
    let value = json!({"pattern": HEADER_VALUE_PATTERN});
    json!({"propertyNames": {"pattern": HEADER_NAME_PATTERN}, "additionalProperties": value})
}

/// The name of an engine.
pub(super) fn engine() -> Value {
    json!({"pattern": EngineName::PATTERN})
}

pub(super) fn memory() -> Value {
    one_of(&["1GiB", "2GiB", "4GiB", "8GiB", "16GiB"])
}

pub(super) fn region() -> Value {
    one_of(&BrowserRegion::ALL.map(BrowserRegion::as_str))
}

pub(super) fn hosts(low: usize, high: usize) -> Value {
    items_of(low, high, formed(Destination::ROUTED_PATTERN, network::MAX_PATTERN))
}

pub(super) fn private_hosts(high: usize) -> Value {
    items_of(0, high, formed(PrivateHost::PATTERN, PrivateHost::MAX_LENGTH))
}

pub(super) fn allowed_hosts() -> Value {
    items_of(1, network::MAX_ALLOWED_HOSTS, formed(Destination::ALLOWED_PATTERN, network::MAX_PATTERN))
}

/// A URL to open first. An update takes an empty text too.
pub(super) fn start_url(or_empty: bool) -> Value {
    let pattern = if or_empty { format!("^$|{}", StartUrl::PATTERN) } else { StartUrl::PATTERN.to_owned() };
    json!({"pattern": pattern, "not": {"pattern": StartUrl::SCRIPT_PATTERN}, "maxLength": StartUrl::MAX_LENGTH})
}

pub(super) fn side() -> Value {
    range(1, Viewport::MAX_SIDE)
}

/// A coordinate; the display of the session may be smaller.
pub(super) fn coordinate() -> Value {
    range(0, Viewport::MAX_SIDE - 1)
}

pub(super) fn held_keys() -> Value {
    items(0, computer::MAX_HELD)
}
