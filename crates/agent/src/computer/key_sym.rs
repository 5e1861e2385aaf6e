//! Key symbols of X11.

use std::ops::RangeInclusive;

/// A key, by the number of its X11 symbol.
pub(super) type KeySym = u32;

/// The left and the right Shift key.
pub(super) const SHIFT_KEYS: RangeInclusive<KeySym> = 0xffe1..=0xffe2;
pub(super) const CAPS_LOCK: KeySym = 0xffe5;
/// The Compose key.
pub(super) const MULTI_KEY: KeySym = 0xff20;

/// Returns true for a key that makes a letter a command: Control, Meta, Alt, Super and Hyper.
pub(super) fn is_command(key: KeySym) -> bool {
    matches!(key, 0xffe3..=0xffe4 | 0xffe7..=0xffee)
}

/// Returns whether a key of the keypad needs Num Lock on or off for its symbol; `None` for other keys.
pub(super) fn number_lock(key: KeySym) -> Option<bool> {
    match key {
        0xffac | 0xffae | 0xffb0..=0xffb9 => Some(true),
        0xff95..=0xff9f => Some(false),
        _ => None,
    }
}

/// Returns true for the keys that begin a composition: Compose and the dead keys.
pub(super) fn composes(key: KeySym) -> bool {
    key == MULTI_KEY || (0xfe50..=0xfe93).contains(&key)
}

/// Returns true for F1 to F24.
pub(super) fn is_function(key: KeySym) -> bool {
    matches!(key, 0xffbe..=0xffd5)
}
