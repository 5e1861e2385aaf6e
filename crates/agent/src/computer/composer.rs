//! Compose and dead keys for pages without a display: a sequence of keys writes one character.
//!
//! Chromium composes the keys of a display by itself. Here the sequences are those of X11, from the file that every
//! machine with Chromium has.

use std::collections::{BTreeMap, HashMap};
use std::io;

use serde_json::json;
use xkeysym::Keysym;

use super::input_error::InputError;
use super::key_sym::{KeySym, MULTI_KEY, composes};
use super::page_input::{KEY_EVENT, PageInput};
use super::us_keys::{self, ALT, CONTROL, Definition, META};

/// The file of the sequences.
const FILE: &str = "/usr/share/X11/locale/en_US.UTF-8/Compose";
/// The maximum number of keys of a sequence.
const MAX_KEYS: usize = 16;
/// What is shown for the Compose key until the sequence goes on.
const COMPOSE_SIGN: char = '·';

/// The number of a key that an input method takes.
const PROCESS: u16 = 229;

/// The sequences and the keys of the one that has begun.
#[derive(Debug, Default)]
pub(super) struct Composer {
    table: Option<BTreeMap<Vec<KeySym>, String>>,
    keys: Vec<KeySym>,
    /// The pressed keys of sequences. A page sees the release of dead keys only.
    pressed: Vec<KeySym>,
}

/// What a pressed key does to the composition.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Composed {
    /// The key is no part of a composition.
    No,
    /// The sequence goes on; the text is shown meanwhile.
    Begun(String),
    /// The sequence ends with this text; it is empty if there is no such sequence.
    Text(String),
}

impl Composer {
    /// Adds a pressed key.
    ///
    /// # Errors
    /// The machine has no file of sequences.
    fn press(&mut self, key: KeySym) -> io::Result<Composed> {
        if self.keys.is_empty() && !composes(key) || is_modifier(key) {
            return Ok(Composed::No);
        }
        if self.table.is_none() {
            self.table = Some(parse(&std::fs::read_to_string(FILE)?));
        }
        let before = self.shown();
        self.keys.push(key);
        let next = self.table.iter().flat_map(|table| table.range(self.keys.clone()..)).next();
        let composed = match next {
            Some((keys, text)) if *keys == self.keys => Composed::Text(text.clone()),
            Some((keys, _)) if keys.starts_with(&self.keys) && self.keys.len() < MAX_KEYS => {
                return Ok(Composed::Begun(self.shown()));
            }
            // There is no such sequence: one of Compose is dropped, while dead keys write their accent.
            _ if self.keys.contains(&MULTI_KEY) => Composed::Text(String::new()),
            _ => Composed::Text(before + &us_keys::character(key).map(String::from).unwrap_or_default()),
        };
        self.keys.clear();
        Ok(composed)
    }

    /// Forgets the sequence that has begun.
    pub(super) fn cancel(&mut self) {
        self.keys.clear();
    }

    /// Returns what is shown for the keys so far: the accents of dead keys, and the characters after the Compose key.
    fn shown(&self) -> String {
        if self.keys == [MULTI_KEY] {
            return COMPOSE_SIGN.into();
        }
        // A dead key that is pressed twice writes its accent.
        let accent = |key: KeySym| self.table.as_ref()?.get([key; 2].as_slice()).cloned();
        let shown = |key: &KeySym| us_keys::character(*key).map(String::from).or_else(|| accent(*key));
        self.keys.iter().filter_map(shown).collect()
    }
}

impl PageInput {
    /// Applies a key to the composition, as an input method does; returns false if it is no part of one.
    pub(super) async fn compose(
        &mut self,
        key: KeySym,
        definition: Option<&Definition>,
        down: bool,
    ) -> Result<bool, InputError> {
        if !down {
            let Some(at) = self.composer.pressed.iter().position(|pressed| *pressed == key) else { return Ok(false) };
            self.composer.pressed.remove(at);
            if composes(key) && key != MULTI_KEY && !self.at_dialog() {
                self.send(KEY_EVENT, json!({ "type": "keyUp", "key": "Dead" })).await?;
            }
            return Ok(true);
        }
        if self.modifiers & (ALT | CONTROL | META) != 0 {
            return Ok(false);
        }
        // Shift selects another character of the key.
        let written = definition.and_then(|definition| definition.text.as_deref()).and_then(single_symbol);
        let composed = self.composer.press(written.unwrap_or(key));
        let composed = composed.map_err(|error| InputError::NeedsDisplay(format!("cannot read {FILE}: {error}")))?;
        let (text, is_done) = match composed {
            Composed::No => return Ok(false),
            Composed::Begun(shown) => (shown, false),
            Composed::Text(text) => (text, true),
        };
        if !is_done {
            self.composer.pressed.push(key);
        }
        if self.at_dialog() {
            self.typed.extend(is_done.then_some(text));
            return Ok(true);
        }
        let code = definition.map_or("", |definition| &definition.code);
        let event = json!({ "type": "rawKeyDown", "key": "Process", "code": code, "windowsVirtualKeyCode": PROCESS });
        self.send(KEY_EVENT, event).await?;
        if is_done && !text.is_empty() {
            self.send("Input.insertText", json!({ "text": text })).await?;
        } else {
            let end = text.chars().map(char::len_utf16).sum::<usize>();
            let shown = json!({ "text": text, "selectionStart": end, "selectionEnd": end });
            self.send("Input.imeSetComposition", shown).await?;
        }
        Ok(true)
    }
}

/// Returns the symbol of a text of one character.
fn single_symbol(text: &str) -> Option<KeySym> {
    let mut characters = text.chars();
    let character = characters.next().filter(|c| characters.next().is_none() && !c.is_control())?;
    Some(of_character(character))
}

/// Returns the symbol of a character.
fn of_character(character: char) -> KeySym {
    let point = u32::from(character);
    if point < 0x100 { point } else { 0x0100_0000 | point }
}

fn is_modifier(key: KeySym) -> bool {
    matches!(key, 0xffe1..=0xffee | 0xfe03 | 0xff7f)
}

/// Reads lines such as `<Multi_key> <o> <e> : "œ" oe`. Lines of another form are left out.
fn parse(file: &str) -> BTreeMap<Vec<KeySym>, String> {
    let names = names();
    let line = |line: &str| {
        let (keys, text) = line.split_once(':').filter(|_| line.starts_with('<'))?;
        let keys: Option<Vec<KeySym>> = keys.split_whitespace().map(|key| symbol(key, &names)).collect();
        let text = text.trim_start().strip_prefix('"')?;
        let text = text.strip_prefix('\\').map_or_else(|| text.split('"').next(), |escaped| escaped.get(..1))?;
        Some((keys.filter(|keys| keys.len() <= MAX_KEYS)?, text.to_owned()))
    };
    file.lines().filter_map(line).collect()
}

/// Returns the symbols of the key names.
fn names() -> HashMap<&'static str, KeySym> {
    let named = |raw: u32| Keysym::new(raw).name().map(|name| (name.trim_start_matches("XK_"), raw));
    (0x20..=0xffff).filter_map(named).collect()
}

/// Returns the symbol of a key in angle brackets. Characters are their code point.
fn symbol(key: &str, names: &HashMap<&'static str, KeySym>) -> Option<KeySym> {
    let name = key.strip_prefix('<')?.strip_suffix('>')?;
    let code_point = || u32::from_str_radix(name.strip_prefix('U')?, 16).ok().and_then(char::from_u32);
    let raw = names.get(name).copied();
    let character = match raw {
        Some(raw) if raw < 0xfe00 => Keysym::new(raw).key_char(),
        Some(raw) => return Some(raw),
        None => code_point(),
    };
    character.map(of_character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(keys: &[KeySym]) -> Vec<Composed> {
        let mut composer = Composer::default();
        keys.iter().map(|key| composer.press(*key).expect("the file of X11")).collect()
    }

    #[test]
    fn dead_keys_and_compose_write_what_x11_says() {
        let text = |text: &str| Composed::Text(text.to_owned());
        let begun = |text: &str| Composed::Begun(text.to_owned());
        assert_eq!(pressed(&[0xfe51, 'e'.into()]), [begun("´"), text("é")]);
        assert_eq!(pressed(&[0xfe51, 'E'.into(), 'e'.into()]), [begun("´"), text("É"), Composed::No]);
        assert_eq!(pressed(&[0xfe57, ' '.into()]), [begun("¨"), text("\"")]);
        assert_eq!(pressed(&[0xff20, 'o'.into(), 'e'.into()]), [begun("·"), begun("o"), text("œ")]);
        assert_eq!(pressed(&[0xff20, 0xffe1, 'O'.into(), 'E'.into()])[3], text("Œ"));
        assert_eq!(pressed(&[0xfe53, 0x0100_03b1]), [begun("~"), text("ᾶ")], "a Greek letter by its code point");
        assert_eq!(pressed(&[0xff20, 'q'.into(), 'z'.into()])[1..], [text(""), Composed::No], "no such sequence");
        assert_eq!(pressed(&[0xfe51, 'x'.into()])[1], text("´x"));
        assert_eq!(pressed(&[0xfe51, 0xff51])[1], text("´"));
    }
}
