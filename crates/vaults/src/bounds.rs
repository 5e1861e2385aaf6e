//! How much of what a store says is taken, whatever its kind.

/// How many items of one store are looked at. One that has more is refused rather than cut.
pub(crate) const MAX_ITEMS: usize = 100_000;
/// Addresses of an item that are looked at.
pub(crate) const MAX_URLS: usize = 20;
/// Bytes of such an address.
pub(crate) const MAX_URL: usize = 2048;
/// Fields of an item that are looked at.
pub(crate) const MAX_FIELDS: usize = 1000;
/// Further fields of an item that are taken.
pub(crate) const MAX_VALUES: usize = 50;
/// Bytes of a field's value.
pub(crate) const MAX_VALUE: usize = 8 * 1024;
/// Characters of a title or a name.
const MAX_NAME: usize = 1000;

/// A title or a name, as much of it as is taken.
pub(crate) fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_NAME) {
        text.truncate(end);
    }
    text
}
