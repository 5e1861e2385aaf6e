//! Key symbols of X11.

use std::ops::RangeInclusive;

/// A key, by the number of its X11 symbol.
pub(super) type KeySym = u32;

/// The left and the right Shift key.
pub(super) const SHIFT_KEYS: RangeInclusive<KeySym> = 0xffe1..=0xffe2;
pub(super) const CAPS_LOCK: KeySym = 0xffe5;

/// Returns true for a key that makes a letter a command: Control, Meta, Alt, Super and Hyper.
pub(super) fn is_command(key: KeySym) -> bool {
    matches!(key, 0xffe3..=0xffe4 | 0xffe7..=0xffee)
}

/// Returns true for F1 to F24.
pub(super) fn is_function(key: KeySym) -> bool {
    matches!(key, 0xffbe..=0xffd5)
}
