//! The bounds of data that is read from any store.

/// The maximum number of items of one store. A store with more is refused, not truncated.
pub(crate) const MAX_ITEMS: usize = 100_000;
/// The maximum number of URLs of an item that are read.
pub(crate) const MAX_URLS: usize = 20;
/// The maximum length of a URL of an item, in bytes.
pub(crate) const MAX_URL: usize = 2048;
/// The maximum number of fields of an item that are read.
pub(crate) const MAX_FIELDS: usize = 1000;
/// The maximum number of custom fields of an item that are used.
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
