//! The keys that a viewer holds on a display: a key that goes down on the viewer's keyboard stays down on the display
//! until it goes up.
//!
//! The page names a key by its meaning in the viewer's layout and by its physical position. Down and up are matched by
//! the position, because the meaning may have changed in between, for example when Shift went up first.

use std::{collections::HashMap, time::Duration};

use casement_domain::computer::{Action, Chord, KeySym, Press, TypeText};

use super::input::Key;

/// The maximum number of keys that one viewer holds at once; further keys are pressed and released.
const MAX_HELD_KEYS: usize = 32;

/// A modifier: its bit in page messages, its name, and its key names on the left and on the right.
const MODIFIERS: [(u8, &str, [&str; 2]); 4] = [
    (1, "Alt", ["Alt_L", "Alt_R"]),
    (2, "Control", ["Control_L", "Control_R"]),
    (4, "Meta", ["Super_L", "Super_R"]),
    (8, "Shift", ["Shift_L", "Shift_R"]),
];
const SHIFT: u8 = 8;
const ALL: u8 = 15;

/// The keys that a viewer holds.
#[derive(Default)]
pub(super) struct HeldKeys {
    /// The held keys by position.
    keys: HashMap<String, KeySym>,
    /// The bit of each held modifier, by position.
    modifiers: HashMap<String, u8>,
}

impl HeldKeys {
    /// Returns the actions for a key message.
    pub(super) fn key(&mut self, key: &Key) -> Vec<Action> {
        let position = if key.code.is_empty() { &key.key } else { &key.code };
        if key.is_up() {
            return self.release(position).into_iter().collect();
        }
        if let Some(held) = self.keys.get(position) {
            // The key repeats; modifiers do not repeat.
            let repeat = Action::Key { key: *held, down: true };
            return if self.modifiers.contains_key(position) { Vec::new() } else { vec![repeat] };
        }
        if key.key == "AltGraph" {
            // Some keyboards press Control together with AltGr. AltGr only selects characters, which arrive as text.
            return self.release_modifiers(ALL & !SHIFT);
        }
        if key.key == "CapsLock" {
            return Vec::new();
        }
        if let Some((bit, _, names)) = MODIFIERS.iter().find(|(_, name, _)| *name == key.key) {
            let Some(symbol) = KeySym::named(names[usize::from(key.is_right())]) else { return Vec::new() };
            self.modifiers.insert(position.clone(), *bit);
            return vec![self.hold(position, symbol)];
        }
        let single = single_character(&key.key);
        if let Some(character) = single.filter(|_| !key.text.is_empty()) {
            // Modifiers that were pressed to type this character are part of it, not of a shortcut.
            let mut actions = self.release_modifiers(ALL & !SHIFT);
            actions.push(match KeySym::of_char(character).filter(|_| self.keys.len() < MAX_HELD_KEYS) {
                Some(symbol) => self.hold(position, symbol),
                None => Action::Type(TypeText { text: key.key.clone(), delay: Duration::ZERO }),
            });
            return actions;
        }
        let (mut actions, missing) = self.sync_modifiers(key.m);
        // Shift is held as a separate modifier, so the unshifted key is used.
        let name = match single {
            Some('+') => "plus".to_owned(),
            Some(character) => character.to_lowercase().collect(),
            None => key.key.clone(),
        };
        let symbol = Chord::parse(&name).ok().and_then(|chord| chord.keys().first().copied());
        match symbol.filter(|_| missing.is_empty() && self.keys.len() < MAX_HELD_KEYS) {
            Some(symbol) => actions.push(self.hold(position, symbol)),
            // The missing modifiers are held for this key only.
            None => actions.extend(press(&name, missing)),
        }
        actions
    }

    /// Releases the modifiers that are not in `bits`, because they went up outside of the page. Also returns the keys
    /// of the modifiers that are in `bits` and not held.
    pub(super) fn sync_modifiers(&mut self, bits: u8) -> (Vec<Action>, Vec<KeySym>) {
        let actions = self.release_modifiers(ALL & !bits);
        let held = self.modifiers.values().fold(0, |all, bit| all | bit);
        let missing = MODIFIERS.iter().filter(|(bit, ..)| bits & !held & bit != 0);
        (actions, missing.filter_map(|(_, _, names)| KeySym::named(names[0])).collect())
    }

    /// Releases all keys.
    pub(super) fn release_keys(&mut self) -> Vec<Action> {
        self.modifiers.clear();
        self.keys.drain().map(|(_, key)| Action::Key { key, down: false }).collect()
    }

    fn hold(&mut self, position: &str, key: KeySym) -> Action {
        self.keys.insert(position.to_owned(), key);
        Action::Key { key, down: true }
    }

    fn release(&mut self, position: &str) -> Option<Action> {
        self.modifiers.remove(position);
        self.keys.remove(position).map(|key| Action::Key { key, down: false })
    }

    /// Releases these modifiers.
    fn release_modifiers(&mut self, bits: u8) -> Vec<Action> {
        let matching = |(position, bit): (&String, &u8)| (bits & bit != 0).then(|| position.clone());
        let positions: Vec<String> = self.modifiers.iter().filter_map(matching).collect();
        positions.iter().filter_map(|position| self.release(position)).collect()
    }
}

fn single_character(text: &str) -> Option<char> {
    let mut characters = text.chars();
    characters.next().filter(|_| characters.next().is_none())
}

/// Returns the press of a key while others are held.
pub(super) fn press(name: &str, hold: Vec<KeySym>) -> Option<Action> {
    let chords = vec![Chord::parse(name).ok()?];
    Some(Action::Press(Press { chords, duration: Duration::ZERO, hold }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the actions in a short form with key symbols in hexadecimal: `+61` goes down, `-61` goes up, `61` is
    /// pressed and released.
    fn actions_for(held: &mut HeldKeys, messages: &[(&str, &str, &str, &str, u8)]) -> Vec<String> {
        let mut all = Vec::new();
        for (kind, key, code, text, m) in messages {
            let message = json!({ "k": kind, "key": key, "code": code, "text": text, "m": m });
            let actions = held.key(&serde_json::from_value(message).expect("a key"));
            all.extend(actions.into_iter().map(|action| match action {
                Action::Key { key, down } => format!("{}{:x}", if down { '+' } else { '-' }, key.value()),
                Action::Press(press) => format!("{:x}", press.chords[0].keys()[0].value()),
                other => format!("{other:?}"),
            }));
        }
        all
    }

    #[test]
    fn a_key_stays_down_until_it_goes_up_and_repeats_with_the_viewers_key() {
        let down = ("down", "ArrowRight", "ArrowRight", "", 0);
        let up = ("up", "ArrowRight", "ArrowRight", "", 0);
        assert_eq!(actions_for(&mut HeldKeys::default(), &[down, down, up, up]), ["+ff53", "+ff53", "-ff53"]);
    }

    #[test]
    fn a_key_that_went_down_goes_up_although_shift_went_up_before() {
        let mut held = HeldKeys::default();
        let shift = ("down", "Shift", "ShiftLeft", "", 8);
        let actions = actions_for(
            &mut held,
            &[shift, ("down", "A", "KeyA", "A", 8), ("up", "Shift", "ShiftLeft", "", 0), ("up", "a", "KeyA", "", 0)],
        );
        assert_eq!(actions, ["+ffe1", "+41", "-ffe1", "-41"]);
    }

    #[test]
    fn a_character_typed_with_control_and_alt_is_no_shortcut() {
        let mut held = HeldKeys::default();
        let control = ("down", "Control", "ControlLeft", "", 2);
        let third = ("down", "AltGraph", "AltRight", "", 0);
        assert_eq!(actions_for(&mut held, &[control, third, ("down", "@", "KeyQ", "@", 0)]), ["+ffe3", "-ffe3", "+40"]);
    }

    #[test]
    fn modifiers_that_changed_outside_the_page_are_synchronized() {
        let mut held = HeldKeys::default();
        // Control went down elsewhere: it is held for this key only.
        assert_eq!(actions_for(&mut held, &[("down", "c", "KeyC", "", 2)]), ["63"]);
        // Control went up elsewhere.
        let control = ("down", "Control", "ControlRight", "", 2);
        let actions = actions_for(&mut held, &[control, ("down", "F5", "F5", "", 0)]);
        assert_eq!(actions, ["+ffe3", "-ffe3", "+ffc2"]);
    }

    #[test]
    fn the_count_of_held_keys_is_bounded() {
        let mut held = HeldKeys::default();
        let codes: Vec<String> = (0..=MAX_HELD_KEYS).map(|n| format!("Key{n}")).collect();
        let keys: Vec<_> = codes.iter().map(|code| ("down", "a", code.as_str(), "a", 0)).collect();
        let actions = actions_for(&mut held, &keys);
        assert_eq!(actions.iter().filter(|action| action.starts_with('+')).count(), MAX_HELD_KEYS);
        assert_eq!(held.release_keys().len(), MAX_HELD_KEYS);
    }
}
