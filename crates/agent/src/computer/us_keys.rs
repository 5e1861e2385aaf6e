//! The keys of a US keyboard, as the browser's debugging protocol describes them.

use std::borrow::Cow;

use super::key_sym::KeySym;

/// The bits of modifiers in the debugging protocol.
pub(super) const ALT: u8 = 1;
pub(super) const CONTROL: u8 = 2;
pub(super) const META: u8 = 4;
pub(super) const SHIFT: u8 = 8;

/// The properties of a key in the events of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) key: Cow<'static, str>,
    pub(super) code: Cow<'static, str>,
    /// The Windows virtual key code, which is `keyCode` on every platform.
    pub(super) number: u16,
    /// 0 for most keys, 1 for the left one of two, 2 for the right one, 3 for the number pad.
    pub(super) location: u8,
    /// The text that the key writes.
    pub(super) text: Option<String>,
    /// The bit of the modifier, or 0 for other keys.
    pub(super) modifier: u8,
}

/// The symbol, `key`, `code`, number, location and modifier of a key.
type Row = (u32, &'static str, &'static str, u16, u8, u8);

const NAMED: &[Row] = &[
    (0xff08, "Backspace", "Backspace", 8, 0, 0),
    (0xff09, "Tab", "Tab", 9, 0, 0),
    (0xfe20, "Tab", "Tab", 9, 0, 0),
    (0xff0d, "Enter", "Enter", 13, 0, 0),
    (0xff13, "Pause", "Pause", 19, 0, 0),
    (0xff14, "ScrollLock", "ScrollLock", 145, 0, 0),
    (0xff1b, "Escape", "Escape", 27, 0, 0),
    (0xffff, "Delete", "Delete", 46, 0, 0),
    (0xff50, "Home", "Home", 36, 0, 0),
    (0xff51, "ArrowLeft", "ArrowLeft", 37, 0, 0),
    (0xff52, "ArrowUp", "ArrowUp", 38, 0, 0),
    (0xff53, "ArrowRight", "ArrowRight", 39, 0, 0),
    (0xff54, "ArrowDown", "ArrowDown", 40, 0, 0),
    (0xff55, "PageUp", "PageUp", 33, 0, 0),
    (0xff56, "PageDown", "PageDown", 34, 0, 0),
    (0xff57, "End", "End", 35, 0, 0),
    (0xff61, "PrintScreen", "PrintScreen", 44, 0, 0),
    (0xff63, "Insert", "Insert", 45, 0, 0),
    (0xff67, "ContextMenu", "ContextMenu", 93, 0, 0),
    (0xff6a, "Help", "Help", 47, 0, 0),
    (0xff7f, "NumLock", "NumLock", 144, 0, 0),
    (0xff8d, "Enter", "NumpadEnter", 13, 3, 0),
    (0xff95, "Home", "Numpad7", 36, 3, 0),
    (0xff96, "ArrowLeft", "Numpad4", 37, 3, 0),
    (0xff97, "ArrowUp", "Numpad8", 38, 3, 0),
    (0xff98, "ArrowRight", "Numpad6", 39, 3, 0),
    (0xff99, "ArrowDown", "Numpad2", 40, 3, 0),
    (0xff9a, "PageUp", "Numpad9", 33, 3, 0),
    (0xff9b, "PageDown", "Numpad3", 34, 3, 0),
    (0xff9c, "End", "Numpad1", 35, 3, 0),
    (0xff9d, "Clear", "Numpad5", 12, 3, 0),
    (0xff9e, "Insert", "Numpad0", 45, 3, 0),
    (0xff9f, "Delete", "NumpadDecimal", 46, 3, 0),
    (0xffaa, "*", "NumpadMultiply", 106, 3, 0),
    (0xffab, "+", "NumpadAdd", 107, 3, 0),
    (0xffac, ",", "NumpadComma", 108, 3, 0),
    (0xffad, "-", "NumpadSubtract", 109, 3, 0),
    (0xffae, ".", "NumpadDecimal", 110, 3, 0),
    (0xffaf, "/", "NumpadDivide", 111, 3, 0),
    (0xffbd, "=", "NumpadEqual", 187, 3, 0),
    (0xffe1, "Shift", "ShiftLeft", 16, 1, SHIFT),
    (0xffe2, "Shift", "ShiftRight", 16, 2, SHIFT),
    (0xffe3, "Control", "ControlLeft", 17, 1, CONTROL),
    (0xffe4, "Control", "ControlRight", 17, 2, CONTROL),
    (0xffe5, "CapsLock", "CapsLock", 20, 0, 0),
    (0xffe7, "Meta", "MetaLeft", 91, 1, META),
    (0xffe8, "Meta", "MetaRight", 92, 2, META),
    (0xffe9, "Alt", "AltLeft", 18, 1, ALT),
    (0xffea, "Alt", "AltRight", 18, 2, ALT),
    (0xffeb, "Meta", "MetaLeft", 91, 1, META),
    (0xffec, "Meta", "MetaRight", 92, 2, META),
    (0xfe03, "AltGraph", "AltRight", 18, 2, 0),
    (0x1008_ff11, "AudioVolumeDown", "AudioVolumeDown", 174, 0, 0),
    (0x1008_ff12, "AudioVolumeMute", "AudioVolumeMute", 173, 0, 0),
    (0x1008_ff13, "AudioVolumeUp", "AudioVolumeUp", 175, 0, 0),
    (0x1008_ff14, "MediaPlayPause", "MediaPlayPause", 179, 0, 0),
    (0x1008_ff15, "MediaStop", "MediaStop", 178, 0, 0),
    (0x1008_ff16, "MediaTrackPrevious", "MediaTrackPrevious", 177, 0, 0),
    (0x1008_ff17, "MediaTrackNext", "MediaTrackNext", 176, 0, 0),
    (0x1008_ff18, "BrowserHome", "BrowserHome", 172, 0, 0),
    (0x1008_ff19, "LaunchMail", "LaunchMail", 180, 0, 0),
    (0x1008_ff1b, "BrowserSearch", "BrowserSearch", 170, 0, 0),
    (0x1008_ff26, "BrowserBack", "BrowserBack", 166, 0, 0),
    (0x1008_ff27, "BrowserForward", "BrowserForward", 167, 0, 0),
    (0x1008_ff28, "BrowserStop", "BrowserStop", 169, 0, 0),
    (0x1008_ff29, "BrowserRefresh", "BrowserRefresh", 168, 0, 0),
    (0x1008_ff30, "BrowserFavorites", "BrowserFavorites", 171, 0, 0),
    (0x1008_ff73, "BrowserRefresh", "BrowserRefresh", 168, 0, 0),
];

/// The plain and the shifted character, `code` and number of each key.
const SIGNS: &[(char, char, &str, u16)] = &[
    ('`', '~', "Backquote", 192),
    ('1', '!', "Digit1", 49),
    ('2', '@', "Digit2", 50),
    ('3', '#', "Digit3", 51),
    ('4', '$', "Digit4", 52),
    ('5', '%', "Digit5", 53),
    ('6', '^', "Digit6", 54),
    ('7', '&', "Digit7", 55),
    ('8', '*', "Digit8", 56),
    ('9', '(', "Digit9", 57),
    ('0', ')', "Digit0", 48),
    ('-', '_', "Minus", 189),
    ('=', '+', "Equal", 187),
    ('[', '{', "BracketLeft", 219),
    (']', '}', "BracketRight", 221),
    ('\\', '|', "Backslash", 220),
    (';', ':', "Semicolon", 186),
    ('\'', '"', "Quote", 222),
    (',', '<', "Comma", 188),
    ('.', '>', "Period", 190),
    ('/', '?', "Slash", 191),
];

/// Returns the character of a symbol, if it has one.
pub(super) fn character(key: KeySym) -> Option<char> {
    match key {
        0x20..=0x7e | 0xa0..=0xff => char::from_u32(key),
        0x0100_0100..=0x0110_ffff => char::from_u32(key & 0x00ff_ffff),
        _ => None,
    }
}

/// Returns true if a US keyboard writes the character with Shift.
pub(super) fn is_shifted(key: KeySym) -> bool {
    character(key).is_some_and(|c| c.is_ascii_uppercase() || SIGNS.iter().any(|(_, shifted, ..)| *shifted == c))
}

/// Returns the letter that a key writes while Caps Lock is on: the capital one without Shift, the small one with it; `None`
/// for other keys.
pub(super) fn with_caps(key: KeySym, shift: bool) -> Option<KeySym> {
    let letter = character(key).filter(|c| c.is_alphabetic())?;
    let mut changed: Vec<char> = if shift { letter.to_lowercase().collect() } else { letter.to_uppercase().collect() };
    // Some letters have no single capital one.
    let point = u32::from(changed.pop().filter(|_| changed.is_empty())?);
    Some(if point < 0x100 { point } else { 0x0100_0000 | point })
}

/// Returns the definition of `key` with or without Shift; `None` for symbols that no US keyboard has.
pub(super) fn definition(key: KeySym, shift: bool) -> Option<Definition> {
    if let Some(c) = character(key) {
        return Some(of_character(c, shift));
    }
    if let Some((_, name, code, number, location, modifier)) = NAMED.iter().find(|row| row.0 == key) {
        let text = match *code {
            "Enter" | "NumpadEnter" => Some("\r".to_owned()),
            _ if name.len() == 1 => Some((*name).to_owned()),
            _ => None,
        };
        let (key, code) = (Cow::Borrowed(*name), Cow::Borrowed(*code));
        return Some(Definition { key, code, number: *number, location: *location, text, modifier: *modifier });
    }
    let plain = |key: String, code: String, number, location, text| Definition {
        key: key.into(),
        code: code.into(),
        number,
        location,
        text,
        modifier: 0,
    };
    match key {
        // The digits of the number pad.
        0xffb0..=0xffb9 => {
            let figure = key - 0xffb0;
            let number = 96 + u16::try_from(figure).ok()?;
            Some(plain(figure.to_string(), format!("Numpad{figure}"), number, 3, Some(figure.to_string())))
        }
        // F1 to F24.
        0xffbe..=0xffd5 => {
            let figure = key - 0xffbe;
            let number = 112 + u16::try_from(figure).ok()?;
            let name = format!("F{}", figure + 1);
            Some(plain(name.clone(), name, number, 0, None))
        }
        _ => None,
    }
}

fn of_character(c: char, shift: bool) -> Definition {
    let shown = |key: char, code: Cow<'static, str>, number| Definition {
        key: key.to_string().into(),
        code,
        number,
        location: 0,
        text: Some(key.to_string()),
        modifier: 0,
    };
    if c.is_ascii_alphabetic() {
        let upper = c.to_ascii_uppercase();
        let key = if shift { upper } else { c };
        return shown(key, format!("Key{upper}").into(), u16::from(upper as u8));
    }
    if c == ' ' {
        return shown(' ', "Space".into(), 32);
    }
    match SIGNS.iter().find(|(plain, shifted, ..)| *plain == c || *shifted == c) {
        Some((_, shifted, code, number)) => shown(if shift { *shifted } else { c }, (*code).into(), *number),
        // No key has this character, so the page receives the character alone, as from an input method.
        None => shown(c, "".into(), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_show_as_on_a_keyboard() {
        let shown = |key, shift| {
            let found = definition(key, shift).expect("a key");
            (found.key.into_owned(), found.code.into_owned(), found.number, found.text)
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(shown('a'.into(), false), ("a".into(), "KeyA".into(), 65, text("a")));
        assert_eq!(shown('a'.into(), true), ("A".into(), "KeyA".into(), 65, text("A")));
        assert_eq!(shown('1'.into(), true), ("!".into(), "Digit1".into(), 49, text("!")));
        assert_eq!(shown('+'.into(), true), ("+".into(), "Equal".into(), 187, text("+")));
        assert_eq!(shown(0xffc2, false), ("F5".into(), "F5".into(), 116, None));
        assert_eq!(shown(0xffb7, false), ("7".into(), "Numpad7".into(), 103, text("7")));
        assert_eq!(shown(0xff0d, false), ("Enter".into(), "Enter".into(), 13, text("\r")));
        assert_eq!(shown(0x0101_f600, false), ("😀".into(), String::new(), 0, text("😀")));
        assert_eq!(definition(0xffe1, false).map(|shift| shift.modifier), Some(SHIFT));
        assert_eq!(definition(0x1008_ffff, false), None);
        let caps = |c: char, shift| with_caps(c.into(), shift);
        assert_eq!([caps('a', false), caps('A', true), caps('ä', false)], ['A', 'a', 'Ä'].map(|c| Some(c.into())));
        assert_eq!([caps('1', false), caps('ß', false), with_caps(0xff0d, false)], [None; 3]);
        assert!(is_shifted('A'.into()) && is_shifted('?'.into()) && !is_shifted('a'.into()) && !is_shifted('Ä'.into()));
    }
}
