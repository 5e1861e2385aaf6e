//! The forms of bounds: ranges, lengths, patterns, closed lists.

use casement_domain::{
    browser::{BrowserRegion, Viewport},
    computer,
    engine::EngineName,
    fs, name, network, session,
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

/// A name that is part of paths; it may not have the shape of an id.
pub(super) const SLUG: &str = "^[A-Za-z0-9._-]+$";
/// The same, or an empty text, by which an update keeps the name.
pub(super) const SLUG_OR_EMPTY: &str = "^[A-Za-z0-9._-]*$";
/// A name for people: no control characters, not only blanks.
pub(super) const LABEL: &str = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$";
/// A name for people that is part of paths.
pub(super) const LABEL_IN_PATH: &str = r"^[^/\x00-\x1f\x7f-\x9f]*[^/\s\x00-\x1f\x7f-\x9f][^/\x00-\x1f\x7f-\x9f]*$";
/// A text without control characters.
pub(super) const PLAIN: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
/// A text without NUL.
pub(super) const NO_NUL: &str = r"^[^\x00]*$";
pub(super) const HOST_NAME: &str =
    r"^([A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$";
/// A host name in which a label may be `*` or `**`.
pub(super) const ALLOWED_DOMAIN: &str =
    r"^((\*\*?|[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)\.)+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$";
/// A host name, `*.` and a host name, an address or a network.
pub(super) const BYPASS_HOST: &str = r"^(\*\.)?([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$|^(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}(/([0-9]|[12][0-9]|3[0-2]))?$|^[0-9A-Fa-f:]*:[0-9A-Fa-f:]*(/[0-9]{1,3})?$";
/// An id of this service.
pub(super) const ID: &str = "^[0-7][0-9a-hjkmnp-tv-z]{25}$";
/// An absolute URL of http or https.
pub(super) const HTTP_URL: &str = r"^https?://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[1-9][0-9]{0,3})?(/[!-~]*)?$";
/// The names of folders, with a slash between them.
pub(super) const OBJECT_PREFIX: &str = "^([A-Za-z0-9_=-][A-Za-z0-9_.=-]*/)*([A-Za-z0-9_=-][A-Za-z0-9_.=-]*)?$";
/// The name of a region of a store.
pub(super) const BUCKET_REGION: &str = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$";
/// An absolute URL of any scheme but that of scripts.
pub(super) const ANY_URL: &str =
    r"^(?![Jj][Aa][Vv][Aa][Ss][Cc][Rr][Ii][Pp][Tt]:)[A-Za-z][A-Za-z0-9+.-]*:[^\s\x00-\x1f\x7f-\x9f]+$";
/// The URL of an extension's page in the Chrome Web Store.
pub(super) const STORE_URL: &str = r"^https://chromewebstore\.google\.com/detail/([a-z-]+/)?[a-p]{32}$";
/// A path within a package.
pub(super) const PACKAGE_PATH: &str =
    r"^([A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}/)*[A-Za-z0-9_-][A-Za-z0-9_.-]{0,249}\.(py|ts|mts|js|mjs|cjs)$";
pub(super) const ABSOLUTE_PATH: &str = r"^/[^\x00]*$";
pub(super) const OCTAL_MODE: &str = "^[01]?[0-7]{3}$";
pub(super) const BASE32: &str = "^([A-Za-z2-7]{8}){1,100}$";
pub(super) const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";
pub(super) const HEADER_NAME: &str = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";
/// Printable ASCII without blanks around it.
pub(super) const HEADER_VALUE: &str = r"^[!-~]([ \t!-~]*[!-~])?$";
/// The size of a display.
pub(super) const SIZE: &str = r"^([1-9][0-9]{0,3}|1[0-5][0-9]{3}|16[0-2][0-9]{2}|163[0-7][0-9]|1638[0-4])x([1-9][0-9]{0,3}|1[0-5][0-9]{3}|16[0-2][0-9]{2}|163[0-7][0-9]|1638[0-4])$";
/// A date-time, or an age such as `5m`.
pub(super) const DATE_TIME_OR_AGE: &str = r"^([0-9]{1,6}[smhd])+$|^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])([T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])?)?$";

pub(super) fn slug() -> Value {
    json!({"pattern": SLUG, "minLength": 1, "maxLength": name::MAX_LENGTH})
}

pub(super) fn label() -> Value {
    json!({"pattern": LABEL, "minLength": 1, "maxLength": name::MAX_LENGTH})
}

pub(super) fn label_in_path() -> Value {
    json!({"pattern": LABEL_IN_PATH, "minLength": 1, "maxLength": name::MAX_LENGTH})
}

pub(super) fn path() -> Value {
    formed(ABSOLUTE_PATH, fs::MAX_PATH_BYTES)
}

pub(super) fn tags() -> Value {
    map(session::Tags::MAX_PAIRS, text(1, session::Tags::MAX_KEY), text(0, session::Tags::MAX_VALUE))
}

pub(super) fn plain(high: usize) -> Value {
    json!({"pattern": PLAIN, "minLength": 1, "maxLength": high})
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
    let value = json!({"pattern": HEADER_VALUE});
    json!({"propertyNames": {"pattern": HEADER_NAME}, "additionalProperties": value})
}

/// The name of an engine.
pub(super) fn engine() -> Value {
    formed("^[a-z][a-z0-9-]*$", EngineName::MAX_LENGTH)
}

pub(super) fn memory() -> Value {
    one_of(&["1GiB", "2GiB", "4GiB", "8GiB", "16GiB"])
}

pub(super) fn region() -> Value {
    one_of(&BrowserRegion::ALL.map(BrowserRegion::as_str))
}

/// A host name, or `*.` and a host name.
const NAME_OR_SUBDOMAINS: &str = r"(\*\.)?([A-Za-z0-9_-]{1,63}\.)*[A-Za-z_][A-Za-z0-9_-]{0,62}";

pub(super) fn hosts(low: usize, high: usize) -> Value {
    let host = json!({"pattern": format!("^{NAME_OR_SUBDOMAINS}$"), "minLength": 1, "maxLength": 253});
    items_of(low, high, host)
}

/// The private hosts, with or without a port.
pub(super) fn private_hosts(high: usize) -> Value {
    items_of(0, high, text(1, network::MAX_PATTERN))
}

/// Host names, `*.` and a host name, addresses and networks. The schema knows neither which are public nor all rules of IPv6 addresses.
pub(super) fn destinations(low: usize, high: usize) -> Value {
    let byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    let v4 = format!(r"{byte}(\.{byte}){{3}}(/([0-9]|[12][0-9]|3[0-2]))?");
    let v6 = r"\[[0-9A-Fa-f:]*:[0-9A-Fa-f:]*\]|[0-9A-Fa-f:]*:[0-9A-Fa-f:]*/[0-9]{1,3}";
    let pattern = format!("^({NAME_OR_SUBDOMAINS}|{v4}|{v6})$");
    items_of(low, high, json!({"pattern": pattern, "minLength": 1, "maxLength": network::MAX_PATTERN}))
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
