//! The keyboard of the display: the symbols of its keys, and spare keys that get missing symbols.
//!
//! A program is notified of a changed keyboard in the order of its events, but reads the changed symbols only when it
//! processes the notification. So a symbol is never removed from a key before the browser has processed all events of
//! that key: after each change, and before the next, the browser is pinged, and it answers in the order of the events.

use std::collections::{HashMap, HashSet};

use x11rb::protocol::xkb::{ConnectionExt as _, Group, ID};
use x11rb::protocol::xproto::{ConnectionExt as _, KeyButMask, ModMask};
use x11rb::protocol::xtest::ConnectionExt as _;

use super::announce::announce;
use super::key_sym::{CAPS_LOCK, KeySym, SHIFT_KEYS, is_command, number_lock};
use super::signs::settle;
use crate::display::DisplayError;
use crate::x11::X11;

const KEY_PRESS: u8 = 2;
const KEY_RELEASE: u8 = 3;
/// The number of symbols of a key: two levels of two groups.
const COLUMNS: usize = 4;

/// The keys of the display's keyboard and their symbols.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    first: u8,
    /// The symbols of every key from the first on.
    keys: Vec<[KeySym; COLUMNS]>,
    /// The keys that had no symbol at first, with the one longest unused first.
    spare: Vec<u8>,
    /// The active one of two groups.
    group: usize,
    caps: bool,
    /// The keys of the pressed symbols. No other symbol gets these keys meanwhile.
    held: HashMap<KeySym, u8>,
}

/// A key and its need of Shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keystroke {
    pub(super) code: u8,
    pub(super) shift: bool,
}

impl Keyboard {
    /// Reads the current state of the keyboard, because other programs may have changed it.
    pub(super) fn refresh(&mut self, x11: &X11) -> Result<(), DisplayError> {
        let setup = x11rb::connection::Connection::setup(&x11.connection);
        let (first, last) = (setup.min_keycode, setup.max_keycode);
        let requested = x11.connection.get_keyboard_mapping(first, last - first + 1).map_err(DisplayError::x)?;
        let pointer = x11.connection.query_pointer(x11.root).map_err(DisplayError::x)?;
        let mapping = requested.reply().map_err(DisplayError::x)?;
        let state = pointer.reply().map_err(DisplayError::x)?.mask;
        let wide = usize::from(mapping.keysyms_per_keycode).max(1);
        let symbol = |key: &[KeySym], column: usize| key.get(column).copied().unwrap_or_default();
        self.first = first;
        self.keys = mapping.keysyms.chunks(wide).map(|key| std::array::from_fn(|column| symbol(key, column))).collect();
        self.group = usize::from(u16::from(state) >> 13 & 1);
        self.caps = state.contains(KeyButMask::LOCK);
        // A spare key that got a symbol has it in all columns.
        let ours = self.spare.clone();
        let free = |code: &u8| {
            self.symbols(*code)
                .is_some_and(|all| all.iter().all(|one| *one == 0) || (ours.contains(code) && all[0] == all[1]))
        };
        let untouched = (first..=last).filter(|code| !ours.contains(code) && free(code));
        self.spare = untouched.chain(ours.iter().copied().filter(|code| free(code))).collect();
        Ok(())
    }

    fn symbols(&self, code: u8) -> Option<&[KeySym; COLUMNS]> {
        self.keys.get(usize::from(code.checked_sub(self.first)?))
    }

    /// Returns the key that has the symbol.
    pub(super) fn find(&self, key: KeySym) -> Option<Keystroke> {
        let group = self.group * 2;
        let on = |column: usize| self.keys.iter().position(|symbols| symbols[column] == key);
        let keystroke =
            |at: usize, shift| Some(Keystroke { code: u8::try_from(at).ok()?.checked_add(self.first)?, shift });
        // With Num Lock, a key of the keypad writes its second symbol without Shift.
        if number_lock(key) == Some(true)
            && let Some(at) = on(1)
        {
            return keystroke(at, false);
        }
        let found =
            on(group).and_then(|at| keystroke(at, false)).or_else(|| on(group + 1).and_then(|at| keystroke(at, true)));
        // A key without symbols in the second group has those of the first.
        match found {
            None if group > 0 => {
                on(0).and_then(|at| keystroke(at, false)).or_else(|| on(1).and_then(|at| keystroke(at, true)))
            }
            found => found,
        }
    }

    /// Returns the key that has the symbol; otherwise assigns the symbol to a spare key that is not `used`, or returns
    /// `None` if there is none. The result includes true if the symbol was assigned.
    fn place(&mut self, x11: &X11, key: KeySym, used: &HashSet<u8>) -> Result<Option<(Keystroke, bool)>, DisplayError> {
        match self.find(key) {
            Some(keystroke) => Ok(Some((keystroke, false))),
            None => self.give(x11, key, used),
        }
    }

    /// Assigns the symbol to a spare key that is not `used`, and returns it with true; `None` if there is none.
    fn give(&mut self, x11: &X11, key: KeySym, used: &HashSet<u8>) -> Result<Option<(Keystroke, bool)>, DisplayError> {
        let free = |code: &u8| !used.contains(code) && !self.held.values().any(|held| held == code);
        let Some(at) = self.spare.iter().position(free) else { return Ok(None) };
        let code = self.spare.remove(at);
        self.spare.push(code);
        x11.connection
            .change_keyboard_mapping(1, code, 4, &[key; COLUMNS])
            .map_err(DisplayError::x)?
            .check()
            .map_err(DisplayError::x)?;
        if let Some(symbols) = self.keys.get_mut(usize::from(code - self.first)) {
            *symbols = [key; COLUMNS];
        }
        Ok(Some((Keystroke { code, shift: false }, true)))
    }

    /// Returns the key for one symbol, which keeps the symbol until other symbols need the key.
    pub(super) fn keystroke(&mut self, x11: &X11, key: KeySym) -> Result<Keystroke, DisplayError> {
        let none = || DisplayError::x("the keyboard has no key left");
        let (keystroke, new) = self.place(x11, key, &HashSet::new())?.ok_or_else(none)?;
        if new {
            learnt(x11)?;
        }
        Ok(keystroke)
    }

    /// Returns the key to press for a symbol, and true if it is pressed already. The key is reserved for the symbol
    /// until its release. While a command key is pressed, it is the key that has the symbol; otherwise it is one that
    /// writes the symbol regardless of Shift.
    pub(super) fn take_hold(&mut self, x11: &X11, key: KeySym) -> Result<(u8, bool), DisplayError> {
        if let Some(code) = self.held.get(&key) {
            return Ok((*code, true));
        }
        let shift = self.held.keys().any(|held| SHIFT_KEYS.contains(held));
        let command = self.held.keys().any(|held| is_command(*held));
        let exact = |keystroke: &Keystroke| command || !is_written(key) || keystroke.shift == shift;
        let code = match self.find(key).filter(exact) {
            Some(keystroke) => keystroke.code,
            None if is_written(key) => self.own(x11, key)?,
            None => self.keystroke(x11, key)?.code,
        };
        self.held.insert(key, code);
        Ok((code, false))
    }

    /// Returns the key to release for a symbol.
    pub(super) fn let_go(&mut self, x11: &X11, key: KeySym) -> Result<u8, DisplayError> {
        match self.held.remove(&key) {
            Some(code) => Ok(code),
            None => Ok(self.keystroke(x11, key)?.code),
        }
    }

    /// Returns a key that has only this symbol.
    fn own(&mut self, x11: &X11, key: KeySym) -> Result<u8, DisplayError> {
        let only = |code: &&u8| self.symbols(**code).is_some_and(|all| all.iter().all(|one| *one == key));
        if let Some(code) = self.spare.iter().find(only) {
            return Ok(*code);
        }
        let none = || DisplayError::x("the keyboard has no key left");
        let (keystroke, _) = self.give(x11, key, &HashSet::new())?.ok_or_else(none)?;
        learnt(x11)?;
        Ok(keystroke.code)
    }

    /// Types symbols one after the other.
    pub(super) fn write(&mut self, x11: &X11, keys: &[KeySym]) -> Result<(), DisplayError> {
        let caps = self.caps.then(|| self.find(CAPS_LOCK)).flatten();
        if let Some(caps) = caps {
            tap(x11, caps.code)?;
        }
        let mut rest = keys;
        while !rest.is_empty() {
            let (strokes, changed) = self.plan(x11, rest)?;
            if strokes.is_empty() {
                return Err(DisplayError::x("the keyboard has no key left"));
            }
            if changed {
                learnt(x11)?;
            }
            self.strike(x11, &strokes)?;
            rest = &rest[strokes.len()..];
            settle(x11)?;
        }
        if let Some(caps) = caps {
            tap(x11, caps.code)?;
        }
        Ok(())
    }

    /// Returns as many keystrokes as the spare keys allow at once, and true if a key got a new symbol.
    fn plan(&mut self, x11: &X11, keys: &[KeySym]) -> Result<(Vec<Keystroke>, bool), DisplayError> {
        let (mut strokes, mut used, mut changed) = (Vec::new(), HashSet::new(), false);
        for key in keys {
            let Some((keystroke, new)) = self.place(x11, *key, &used)? else { break };
            used.insert(keystroke.code);
            changed |= new;
            strokes.push(keystroke);
        }
        Ok((strokes, changed))
    }

    fn strike(&self, x11: &X11, strokes: &[Keystroke]) -> Result<(), DisplayError> {
        let shift = self.find(*SHIFT_KEYS.start()).map(|keystroke| keystroke.code);
        let mut shifted = false;
        for keystroke in strokes {
            if let Some(shift) = shift.filter(|_| keystroke.shift != shifted) {
                send(x11, shift, keystroke.shift)?;
                shifted = keystroke.shift;
            }
            tap(x11, keystroke.code)?;
        }
        match shift {
            Some(shift) if shifted => send(x11, shift, false),
            _ => Ok(()),
        }
    }
}

/// Returns once the browser knows the new symbols of the keys.
fn learnt(x11: &X11) -> Result<(), DisplayError> {
    announce(x11)?;
    settle(x11)
}

/// Returns true if a symbol is a character, false for a key with a function.
fn is_written(key: KeySym) -> bool {
    (0x20..0xfd00).contains(&key) || key >= 0x0100_0000
}

fn tap(x11: &X11, code: u8) -> Result<(), DisplayError> {
    send(x11, code, true)?;
    send(x11, code, false)
}

/// Presses or releases a key.
pub(super) fn send(x11: &X11, code: u8, down: bool) -> Result<(), DisplayError> {
    let kind = if down { KEY_PRESS } else { KEY_RELEASE };
    x11.connection.xtest_fake_input(kind, code, 0, x11.root, 0, 0, 0).map_err(DisplayError::x).map(drop)
}

/// Turns Num Lock on or off, as the symbol of a key of the keypad needs it. No page sees a key.
pub(super) fn lock_numbers(x11: &X11, key: KeySym) -> Result<(), DisplayError> {
    let Some(is_on) = number_lock(key) else { return Ok(()) };
    let connection = &x11.connection;
    connection.xkb_use_extension(1, 0).map_err(DisplayError::x)?.reply().map_err(DisplayError::x)?;
    let (keyboard, none) = (ID::USE_CORE_KBD.into(), ModMask::default());
    let locks = if is_on { ModMask::M2 } else { none };
    let sent = connection.xkb_latch_lock_state(keyboard, ModMask::M2, locks, false, Group::M1, none, false, 0);
    sent.map_err(DisplayError::x)?.check().map_err(DisplayError::x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_is_found_on_its_key_in_the_group_in_force() {
        let keys = vec![[0x61, 0x41, 0x0100_0430, 0x0100_0410], [0xff0d, 0, 0, 0]];
        let mut keyboard = Keyboard { first: 8, keys, ..Keyboard::default() };
        assert_eq!(keyboard.find(0x61), Some(Keystroke { code: 8, shift: false }));
        assert_eq!(keyboard.find(0x41), Some(Keystroke { code: 8, shift: true }));
        assert_eq!(keyboard.find(0x0100_0430), None);
        keyboard.keys.push([0xff9d, 0xffb5, 0, 0]);
        assert_eq!(keyboard.find(0xffb5), Some(Keystroke { code: 10, shift: false }), "a digit of the keypad");
        keyboard.group = 1;
        assert_eq!(keyboard.find(0x0100_0410), Some(Keystroke { code: 8, shift: true }));
        assert_eq!(keyboard.find(0xff0d), Some(Keystroke { code: 9, shift: false }));
    }
}
