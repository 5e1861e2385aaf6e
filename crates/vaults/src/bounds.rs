//! How much of what a store says is taken, whatever its kind.

/// How many items of one store are looked at. One that has more is refused rather than cut.
pub(crate) const MOST_ITEMS: usize = 100_000;
/// Addresses of an item that are looked at.
pub(crate) const MOST_URLS: usize = 20;
/// Bytes of such an address.
pub(crate) const LONGEST_URL: usize = 2048;
/// Fields of an item that are looked at.
pub(crate) const MOST_FIELDS: usize = 1000;
/// Further fields of an item that are taken.
pub(crate) const MOST_VALUES: usize = 50;
/// Bytes of a field's value.
pub(crate) const LONGEST_VALUE: usize = 8 * 1024;
/// Characters of a title or a name.
const LONGEST_NAME: usize = 1000;

/// A title or a name, as much of it as is taken.
pub(crate) fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_NAME) {
        text.truncate(end);
    }
    text
}
