//! The names of keys, as in X11, and chords of keys.

use crate::field::{FieldCode, InvalidValue};

/// The name and the value of every symbol, five or six per line.
const SYMBOLS: &str = include_str!("keysyms.txt");
/// The maximum length of the name of a key, in bytes.
const MAX_NAME: usize = 64;
/// The maximum number of keys of a chord.
const MAX_CHORD: usize = 8;
/// Common names of keys besides their X11 names, in any case.
const ALIASES: &[(&str, &str)] = &[
    ("ctrl", "Control_L"),
    ("control", "Control_L"),
    ("shift", "Shift_L"),
    ("alt", "Alt_L"),
    ("option", "Alt_L"),
    ("altgr", "ISO_Level3_Shift"),
    // On most keyboards the symbol of this name is on the same key as Alt, but people mean the key beside it.
    ("meta", "Super_L"),
    ("meta_l", "Super_L"),
    ("meta_r", "Super_R"),
    ("super", "Super_L"),
    ("cmd", "Super_L"),
    ("command", "Super_L"),
    ("win", "Super_L"),
    ("windows", "Super_L"),
    ("enter", "Return"),
    ("esc", "Escape"),
    ("del", "Delete"),
    ("ins", "Insert"),
    ("capslock", "Caps_Lock"),
    ("numlock", "Num_Lock"),
    ("scrolllock", "Scroll_Lock"),
    ("printscreen", "Print"),
    ("contextmenu", "Menu"),
    ("compose", "Multi_key"),
    ("pageup", "Page_Up"),
    ("pagedown", "Page_Down"),
    ("pgup", "Page_Up"),
    ("pgdn", "Page_Down"),
    ("arrowleft", "Left"),
    ("arrowright", "Right"),
    ("arrowup", "Up"),
    ("arrowdown", "Down"),
];

/// A key, by its symbol. The keyboard of the session maps symbols to physical keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeySym(u32);

impl KeySym {
    /// Returns the key with this name: an X11 key symbol (`Return`, `plus`, `F5`, `Cyrillic_a`), a character (`a`, `+`,
    /// `€`), a code point (`U20AC`), or a common name (`Ctrl`, `Enter`, `Esc`, `ArrowLeft`). Names of more than one
    /// letter are also found in another case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut characters = name.chars();
        if let (Some(character), None) = (characters.next(), characters.next()) {
            return Self::of_char(character);
        }
        if name.len() > MAX_NAME {
            return None;
        }
        let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map(|(_, symbol)| *symbol);
        let name = alias.unwrap_or(name);
        // The exact case comes first, because `Aacute` and `aacute` differ.
        symbols()
            .find(|(symbol, _)| *symbol == name)
            .or_else(|| symbols().find(|(symbol, _)| symbol.eq_ignore_ascii_case(name)))
            .and_then(|(_, value)| u32::from_str_radix(value, 16).ok())
            .map(Self)
            .or_else(|| Self::of_code_point(name))
    }

    /// Returns the key that types a character. Line breaks and tabs have keys of their own.
    #[must_use]
    pub fn of_char(character: char) -> Option<Self> {
        let point = u32::from(character);
        match character {
            '\n' | '\r' => Some(Self(0xff0d)),
            '\t' => Some(Self(0xff09)),
            _ if character.is_control() => None,
            _ if point < 0x100 => Some(Self(point)),
            _ => Some(Self(0x0100_0000 | point)),
        }
    }

    fn of_code_point(name: &str) -> Option<Self> {
        let digits = name.strip_prefix('U').filter(|digits| (4..=6).contains(&digits.len()))?;
        Self::of_char(u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)?)
    }

    /// Returns the number of the X11 key symbol; characters beyond Latin-1 are `0x01000000` plus their code point.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }
}

fn symbols() -> impl Iterator<Item = (&'static str, &'static str)> {
    SYMBOLS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .filter_map(|s| s.split_once('='))
}

/// Keys that are pressed together, in order: `Ctrl+Shift+a`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chord(Vec<KeySym>);

impl Chord {
    /// Parses a key, or several joined with `+`. The plus key itself is `plus`, or a `+` in the place of a name:
    /// `Ctrl++`.
    ///
    /// # Errors
    /// `not_allowed` for the name of no key; `too_many`.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let keys = names(text).into_iter().map(|name| KeySym::named(name).ok_or_else(|| unknown(name)));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        if keys.len() > MAX_CHORD {
            return Err(InvalidValue::new(FieldCode::TooMany, format!("must join at most {MAX_CHORD} keys")));
        }
        Ok(Self(keys))
    }

    /// Returns the keys, at least one.
    #[must_use]
    pub fn keys(&self) -> &[KeySym] {
        &self.0
    }
}

fn names(text: &str) -> Vec<&str> {
    // `+` is a key in the place of a name: alone, and at the end of `Ctrl++`.
    let (text, plus) = match text.strip_suffix('+') {
        Some("") => return vec!["+"],
        Some(rest) => match rest.strip_suffix('+') {
            Some(rest) => (rest, Some("+")),
            None => (text, None),
        },
        None => (text, None),
    };
    text.split('+').chain(plus).collect()
}

fn unknown(name: &str) -> InvalidValue {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    InvalidValue::new(
        FieldCode::NotAllowed,
        format!("\"{shown}\" is no key; X11 key symbols are: Return, Ctrl, F5, plus"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_symbol_character_code_point_and_usual_name() {
        for (name, value) in [
            ("Return", 0xff0d),
            ("return", 0xff0d),
            ("Enter", 0xff0d),
            ("a", 0x61),
            ("A", 0x41),
            ("+", 0x2b),
            ("plus", 0x2b),
            ("F5", 0xffc2),
            ("f5", 0xffc2),
            ("Aacute", 0xc1),
            ("aacute", 0xe1),
            ("ä", 0xe4),
            ("€", 0x0100_20ac),
            ("EuroSign", 0x0100_20ac),
            ("U20AC", 0x0100_20ac),
            ("😀", 0x0101_f600),
            ("CTRL", 0xffe3),
            ("Control_R", 0xffe4),
            ("BackSpace", 0xff08),
            ("Backspace", 0xff08),
            ("KP_1", 0xffb1),
            ("dead_acute", 0xfe51),
            ("Multi_key", 0xff20),
            ("space", 0x20),
            (" ", 0x20),
            ("XF86Back", 0x1008_ff26),
        ] {
            assert_eq!(KeySym::named(name).map(KeySym::value), Some(value), "{name}");
        }
        for name in ["", "NoSuchKey", "\u{7}", "U12", "UD800", "F99", &"x".repeat(100)] {
            assert_eq!(KeySym::named(name), None, "{name}");
        }
    }

    #[test]
    fn chords_are_joined_with_a_plus_that_can_be_a_key_itself() {
        let parse =
            |text| Chord::parse(text).map(|chord| chord.keys().iter().map(|key| key.value()).collect::<Vec<_>>());
        assert_eq!(parse("Ctrl+t"), Ok(vec![0xffe3, 0x74]));
        assert_eq!(parse("ctrl+shift+a"), Ok(vec![0xffe3, 0xffe1, 0x61]));
        assert_eq!(parse("Ctrl+plus"), Ok(vec![0xffe3, 0x2b]));
        assert_eq!(parse("Ctrl++"), Ok(vec![0xffe3, 0x2b]));
        assert_eq!(parse("+"), Ok(vec![0x2b]));
        for bad in ["", "Ctrl+", "+a", "Ctrl+nope", "++", "Ctrl+\u{0}"] {
            assert_eq!(parse(bad).map_err(|bad| bad.code), Err(FieldCode::NotAllowed), "{bad}");
        }
        assert_eq!(parse(&["a"; 9].join("+")).map_err(|bad| bad.code), Err(FieldCode::TooMany));
    }
}
