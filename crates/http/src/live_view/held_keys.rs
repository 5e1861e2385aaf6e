//! A viewer's keys on a display: what goes down on the viewer's keyboard goes down there, and stays down until it goes up.
//!
//! The page names a key by what it means in the viewer's layout, and by where it is. Down and up belong together by the place: what it
//! means may have changed in between, when Shift went up first.

use std::{collections::HashMap, time::Duration};

use casement_domain::computer::{Action, Chord, KeySym, Press, TypeText};

use super::input::Key;

/// Keys that one viewer may hold at once; what comes beyond is tapped.
const MAX_COUNT: usize = 32;

/// A modifier: its bit in what the page says, and its names on the left and on the right.
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
    /// By place.
    keys: HashMap<String, KeySym>,
    /// The bit of each modifier among them, by place.
    modifiers: HashMap<String, u8>,
}

impl HeldKeys {
    /// What is to be done for a message.
    pub(super) fn key(&mut self, key: &Key) -> Vec<Action> {
        let place = if key.code.is_empty() { &key.key } else { &key.code };
        if key.is_up() {
            return self.release(place).into_iter().collect();
        }
        if let Some(held) = self.keys.get(place) {
            // It repeats; a modifier has nothing to repeat.
            let again = Action::Key { key: *held, down: true };
            return if self.modifiers.contains_key(place) { Vec::new() } else { vec![again] };
        }
        if key.key == "AltGraph" {
            // Some keyboards press Control with it. It is there for the characters, which come as such.
            return self.release_all(ALL & !SHIFT);
        }
        if key.key == "CapsLock" {
            return Vec::new();
        }
        if let Some((bit, _, names)) = MODIFIERS.iter().find(|(_, name, _)| *name == key.key) {
            let Some(symbol) = KeySym::named(names[usize::from(key.is_right())]) else { return Vec::new() };
            self.modifiers.insert(place.clone(), *bit);
            return vec![self.hold(place, symbol)];
        }
        let single = one(&key.key);
        if let Some(character) = single.filter(|_| !key.text.is_empty()) {
            // Whatever was pressed to get this character is part of it, and no command.
            let mut actions = self.release_all(ALL & !SHIFT);
            actions.push(match KeySym::of_char(character).filter(|_| self.keys.len() < MAX_COUNT) {
                Some(symbol) => self.hold(place, symbol),
                None => Action::Type(TypeText { text: key.key.clone(), delay: Duration::ZERO }),
            });
            return actions;
        }
        let (mut actions, missing) = self.follow(key.m);
        // With Shift as a modifier of its own, the key is what lies below it.
        let name = match single {
            Some('+') => "plus".to_owned(),
            Some(character) => character.to_lowercase().collect(),
            None => key.key.clone(),
        };
        let symbol = Chord::parse(&name).ok().and_then(|chord| chord.keys().first().copied());
        match symbol.filter(|_| missing.is_empty() && self.keys.len() < MAX_COUNT) {
            Some(symbol) => actions.push(self.hold(place, symbol)),
            // Held for this key alone.
            None => actions.extend(press(&name, missing)),
        }
        actions
    }

    /// Lets go of the modifiers that are not among `bits`: they went up where the page did not see it. Answers also those that are
    /// among them and not held.
    pub(super) fn follow(&mut self, bits: u8) -> (Vec<Action>, Vec<KeySym>) {
        let actions = self.release_all(ALL & !bits);
        let held = self.modifiers.values().fold(0, |all, bit| all | bit);
        let missing = MODIFIERS.iter().filter(|(bit, ..)| bits & !held & bit != 0);
        (actions, missing.filter_map(|(_, _, names)| KeySym::named(names[0])).collect())
    }

    /// Lets go of everything.
    pub(super) fn nothing(&mut self) -> Vec<Action> {
        self.modifiers.clear();
        self.keys.drain().map(|(_, key)| Action::Key { key, down: false }).collect()
    }

    fn hold(&mut self, place: &str, key: KeySym) -> Action {
        self.keys.insert(place.to_owned(), key);
        Action::Key { key, down: true }
    }

    fn release(&mut self, place: &str) -> Option<Action> {
        self.modifiers.remove(place);
        self.keys.remove(place).map(|key| Action::Key { key, down: false })
    }

    /// Lets go of these modifiers.
    fn release_all(&mut self, bits: u8) -> Vec<Action> {
        let of = |(place, bit): (&String, &u8)| (bits & bit != 0).then(|| place.clone());
        let places: Vec<String> = self.modifiers.iter().filter_map(of).collect();
        places.iter().filter_map(|place| self.release(place)).collect()
    }
}

fn one(text: &str) -> Option<char> {
    let mut characters = text.chars();
    characters.next().filter(|_| characters.next().is_none())
}

/// A key that is tapped while others are held.
pub(super) fn press(name: &str, hold: Vec<KeySym>) -> Option<Action> {
    let chords = vec![Chord::parse(name).ok()?];
    Some(Action::Press(Press { chords, duration: Duration::ZERO, hold }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is done, in short: `+a` goes down, `-a` goes up, `a` is tapped.
    fn done(held: &mut HeldKeys, messages: &[(&str, &str, &str, &str, u8)]) -> Vec<String> {
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
    fn a_key_stays_down_until_it_goes_up_and_repeats_when_it_is_said_to() {
        let down = ("down", "ArrowRight", "ArrowRight", "", 0);
        let up = ("up", "ArrowRight", "ArrowRight", "", 0);
        assert_eq!(done(&mut HeldKeys::default(), &[down, down, up, up]), ["+ff53", "+ff53", "-ff53"]);
    }

    #[test]
    fn what_went_down_goes_up_though_shift_went_up_before() {
        let mut held = HeldKeys::default();
        let shift = ("down", "Shift", "ShiftLeft", "", 8);
        let seen = done(
            &mut held,
            &[shift, ("down", "A", "KeyA", "A", 8), ("up", "Shift", "ShiftLeft", "", 0), ("up", "a", "KeyA", "", 0)],
        );
        assert_eq!(seen, ["+ffe1", "+41", "-ffe1", "-41"]);
    }

    #[test]
    fn a_character_that_took_control_and_alt_is_no_command() {
        let mut held = HeldKeys::default();
        let control = ("down", "Control", "ControlLeft", "", 2);
        let third = ("down", "AltGraph", "AltRight", "", 0);
        assert_eq!(done(&mut held, &[control, third, ("down", "@", "KeyQ", "@", 0)]), ["+ffe3", "-ffe3", "+40"]);
    }

    #[test]
    fn modifiers_that_the_page_did_not_see_go_down_or_up_are_followed() {
        let mut held = HeldKeys::default();
        // Gone down elsewhere: held for this key alone.
        assert_eq!(done(&mut held, &[("down", "c", "KeyC", "", 2)]), ["63"]);
        // Gone up elsewhere.
        let control = ("down", "Control", "ControlRight", "", 2);
        let seen = done(&mut held, &[control, ("down", "F5", "F5", "", 0)]);
        assert_eq!(seen, ["+ffe3", "-ffe3", "+ffc2"]);
    }

    #[test]
    fn nobody_holds_more_keys_than_there_are() {
        let mut held = HeldKeys::default();
        let codes: Vec<String> = (0..=MAX_COUNT).map(|n| format!("Key{n}")).collect();
        let keys: Vec<_> = codes.iter().map(|code| ("down", "a", code.as_str(), "a", 0)).collect();
        let seen = done(&mut held, &keys);
        assert_eq!(seen.iter().filter(|action| action.starts_with('+')).count(), MAX_COUNT);
        assert_eq!(held.nothing().len(), MAX_COUNT);
    }
}
