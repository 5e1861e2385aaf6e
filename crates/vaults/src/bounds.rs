//! Bounds on what is read from a store of any kind.

/// The maximum of items of one store. A store with more is refused, not truncated.
pub(crate) const MAX_ITEMS: usize = 100_000;
/// The maximum of addresses of an item that are read.
pub(crate) const MAX_URLS: usize = 20;
/// The maximum length of such an address in bytes.
pub(crate) const MAX_URL: usize = 2048;
/// The maximum of fields of an item that are read.
pub(crate) const MAX_FIELDS: usize = 1000;
/// The maximum of custom fields of an item that are used.
pub(crate) const MAX_VALUES: usize = 50;
/// The maximum length of a field's value in bytes.
pub(crate) const MAX_VALUE: usize = 8 * 1024;
/// The maximum length of a title or a name in characters.
const MAX_NAME: usize = 1000;

/// Truncates a title or a name to the maximum.
pub(crate) fn truncated(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_NAME) {
        text.truncate(end);
    }
    text
}
