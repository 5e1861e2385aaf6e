//! Performs input actions one after the other, and releases what they hold.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::input_devices::InputDevices;
use super::input_error::InputError;
use super::key_sym::{KeySym, SHIFT_KEYS, is_command, is_function};
use super::path;
use casement_agent_protocol::computer::{Action, Button, ClickKind, Point};

/// The maximum number of characters typed at once. A disconnect of the caller is noticed between two batches.
const TYPING_BATCH: usize = 128;

/// A pressed key or button that will be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pressed {
    Key(KeySym),
    Button(Button),
}

type Done = Result<(), InputError>;

/// Performs the actions of one call. Records what it presses, so that it can be released if the call fails.
pub(super) struct Performer<'d> {
    pub(super) devices: &'d mut InputDevices,
    pub(super) pressed: &'d mut Vec<Pressed>,
    /// Cancelled when the caller has disconnected. Checked in every pause, so that every event is sent completely.
    pub(super) cancelled: &'d CancellationToken,
}

/// Releases everything, in reverse order. Errors are ignored: the page or the display no longer exists.
pub(super) async fn release_all(devices: &mut InputDevices, pressed: &mut Vec<Pressed>) {
    while let Some(held) = pressed.pop() {
        let released = match held {
            Pressed::Key(key) => devices.key(key, false).await,
            Pressed::Button(button) => devices.button(button, false).await,
        };
        if let Err(error) = released {
            tracing::debug!(%error, "cannot release a key or button");
        }
    }
    if let Err(error) = devices.end().await {
        tracing::debug!(%error, "the release of keys and buttons was not accepted");
    }
}

impl Performer<'_> {
    pub(super) async fn perform(&mut self, action: &Action) -> Done {
        match action {
            Action::Sleep { duration_ms } => {
                return self.pause(Duration::from_millis(*duration_ms)).await;
            }
            Action::Cursor { hidden } => return self.devices.cursor(*hidden).await,
            _ => self.devices.begin().await?,
        }
        if let Action::Click { .. } | Action::Move { .. } | Action::Drag { .. } | Action::Scroll { .. } = action {
            self.devices.begin_mouse().await?;
        }
        match action {
            Action::Click { at, button, kind, times, hold } => {
                let held = self.hold(hold).await?;
                self.devices.move_to(*at).await?;
                self.click(*button, *kind, *times).await?;
                self.release(held).await?;
            }
            Action::Move { to, smooth, duration_ms, hold } => {
                let held = self.hold(hold).await?;
                match smooth {
                    true => self.glide(*to, duration_ms.map(Duration::from_millis)).await?,
                    false => self.devices.move_to(*to).await?,
                }
                self.release(held).await?;
            }
            Action::Drag { hold, .. } => {
                let held = self.hold(hold).await?;
                self.drag(action).await?;
                self.release(held).await?;
            }
            Action::Scroll { at, right, down, hold } => {
                let held = self.hold(hold).await?;
                self.devices.move_to(*at).await?;
                self.devices.wheel(*right, *down).await?;
                self.release(held).await?;
            }
            Action::Press { chords, duration_ms, hold } => {
                let held = self.hold(hold).await?;
                self.chords(chords, Duration::from_millis(*duration_ms)).await?;
                self.release(held).await?;
            }
            Action::Type { text, delay_ms } => self.type_text(text, Duration::from_millis(*delay_ms)).await?,
            Action::Key { key, down } => self.devices.hold(*key, *down).await?,
            Action::Cursor { .. } | Action::Sleep { .. } => {}
        }
        self.devices.end().await
    }

    async fn pause(&self, duration: Duration) -> Done {
        self.until(Instant::now() + duration).await
    }

    async fn until(&self, moment: Instant) -> Done {
        tokio::select! {
            biased;
            () = self.cancelled.cancelled() => Err(InputError::Cancelled),
            () = sleep_until(moment) => Ok(()),
        }
    }

    async fn press(&mut self, key: KeySym) -> Done {
        self.pressed.push(Pressed::Key(key));
        self.devices.key(key, true).await
    }

    /// Presses keys and returns the number of keys and buttons that were pressed before.
    async fn hold(&mut self, keys: &[KeySym]) -> Result<usize, InputError> {
        let before = self.pressed.len();
        for key in keys {
            self.press(*key).await?;
        }
        Ok(before)
    }

    /// Releases all keys and buttons except the first `before`.
    async fn release(&mut self, before: usize) -> Done {
        while self.pressed.len() > before {
            let Some(held) = self.pressed.last().copied() else { break };
            match held {
                Pressed::Key(key) => self.devices.key(key, false).await?,
                Pressed::Button(button) => self.devices.button(button, false).await?,
            }
            self.pressed.pop();
        }
        Ok(())
    }

    async fn click(&mut self, button: Button, kind: ClickKind, times: u32) -> Done {
        let before = self.pressed.len();
        self.pause(Duration::ZERO).await?;
        if kind != ClickKind::Up {
            self.pressed.push(Pressed::Button(button));
        }
        match kind {
            ClickKind::Click => self.devices.click(button, times).await?,
            ClickKind::Down | ClickKind::Up => {
                for _ in 0..times {
                    self.devices.button(button, kind == ClickKind::Down).await?;
                }
            }
        }
        // The button stays in the requested state.
        self.pressed.truncate(before);
        Ok(())
    }

    /// Moves the mouse along a curve.
    async fn glide(&mut self, to: Point, within: Option<Duration>) -> Done {
        let from = self.devices.mouse().await?;
        let display = self.devices.size().await?;
        let within = within.unwrap_or_else(|| path::duration(from, to));
        let (places, pause) = path::curve(from, to, within, side(from, to), display);
        let mut next = Instant::now();
        for place in places {
            self.devices.move_to(place).await?;
            next += pause;
            self.until(next).await?;
        }
        Ok(())
    }

    async fn drag(&mut self, drag: &Action) -> Done {
        let Action::Drag { path, button, delay_ms, step_delay_ms, steps_per_segment, smooth, duration_ms, .. } = drag
        else {
            return Ok(());
        };
        let Some((first, rest)) = path.split_first() else { return Ok(()) };
        let before = self.pressed.len();
        self.devices.move_to(*first).await?;
        self.pressed.push(Pressed::Button(*button));
        self.devices.button(*button, true).await?;
        self.pause(Duration::from_millis(*delay_ms)).await?;
        let mut from = *first;
        let whole: f64 = path.windows(2).map(|pair| path::distance(pair[0], pair[1])).sum();
        for to in rest {
            if *smooth {
                let part = if whole > 0.0 { path::distance(from, *to) / whole } else { 0.0 };
                self.glide(*to, duration_ms.map(|ms| Duration::from_millis(ms).mul_f64(part))).await?;
            } else {
                for place in path::line(from, *to, *steps_per_segment) {
                    self.devices.move_to(place).await?;
                    self.pause(Duration::from_millis(*step_delay_ms)).await?;
                }
            }
            from = *to;
        }
        self.release(before).await
    }

    /// Presses the chords one after the other, or all of them at once if there is a duration.
    async fn chords(&mut self, chords: &[Vec<KeySym>], duration: Duration) -> Done {
        let before = self.pressed.len();
        for (at, chord) in chords.iter().enumerate() {
            // The chord before may have opened, closed or changed the tab.
            if at > 0 && duration.is_zero() {
                self.devices.begin().await?;
            }
            for key in self.chord_keys(chord) {
                self.press(key).await?;
            }
            if duration.is_zero() {
                self.release(before).await?;
            }
        }
        self.pause(duration).await?;
        self.release(before).await?;
        let held = self.pressed.iter().filter_map(|held| if let Pressed::Key(key) = held { Some(key) } else { None });
        if chords.iter().flatten().chain(held).any(|key| is_command(*key) || is_function(*key)) {
            self.devices.end_shortcut().await?;
        }
        Ok(())
    }

    /// Returns the keys of a chord as they are pressed. With a command key a capital letter means the key of that
    /// letter, as in menus; without one, Shift is added if the symbol needs it.
    fn chord_keys(&self, chord: &[KeySym]) -> Vec<KeySym> {
        let held =
            || self.pressed.iter().filter_map(|held| if let Pressed::Key(key) = held { Some(key) } else { None });
        let with = |wanted: &dyn Fn(&KeySym) -> bool| chord.iter().chain(held()).any(wanted);
        let command = with(&|key| is_command(*key));
        let shift = with(&|key| SHIFT_KEYS.contains(key));
        let lower = |key: &KeySym| match u8::try_from(*key).map(char::from) {
            Ok(letter) if command && letter.is_ascii_uppercase() => KeySym::from(letter.to_ascii_lowercase()),
            _ => *key,
        };
        let mut keys: Vec<_> = chord.iter().map(lower).collect();
        if !shift && let Some(at) = keys.iter().position(|key| self.devices.is_shifted(*key)) {
            keys.insert(at, *SHIFT_KEYS.start());
        }
        keys
    }

    async fn type_text(&mut self, text: &str, delay: Duration) -> Done {
        let keys = symbols(text);
        let at_once = if delay.is_zero() { TYPING_BATCH } else { 1 };
        let mut next = Instant::now();
        for part in keys.chunks(at_once) {
            self.devices.write(part.to_vec()).await?;
            next += delay;
            self.until(next).await?;
        }
        Ok(())
    }
}

/// Returns the key of each character.
fn symbols(text: &str) -> Vec<KeySym> {
    let mut keys = Vec::with_capacity(text.len());
    let mut last = '\0';
    for c in text.chars() {
        match (last, c) {
            // A line break of two characters is one key.
            ('\r', '\n') => {}
            (_, '\n' | '\r') => keys.push(0xff0d),
            (_, '\t') => keys.push(0xff09),
            _ if u32::from(c) < 0x100 => keys.push(u32::from(c)),
            _ => keys.push(0x0100_0000 | u32::from(c)),
        }
        last = c;
    }
    keys
}

/// Returns the direction in which a curve bends, from -1 to 1. It depends on the two points only.
fn side(from: Point, to: Point) -> f64 {
    let mixed = [from.x, from.y, to.x, to.y]
        .into_iter()
        .fold(2_166_136_261_u32, |hash, side| (hash ^ side).wrapping_mul(16_777_619));
    f64::from(mixed >> 8 & 0xffff) / 32_767.5 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_character_is_a_key_and_each_end_of_a_line_one_too() {
        assert_eq!(symbols("aä€\t\r\nb\n\r"), [0x61, 0xe4, 0x0100_20ac, 0xff09, 0xff0d, 0x62, 0xff0d, 0xff0d]);
        assert_eq!(symbols("😀"), [0x0101_f600]);
    }

    #[test]
    fn ways_bend_to_both_sides() {
        let sides: Vec<_> = (0..64).map(|x| side(Point { x, y: 0 }, Point { x: 300, y: 200 + x })).collect();
        assert!(sides.iter().all(|side| (-1.0..=1.0).contains(side)));
        assert!(sides.iter().any(|side| *side < -0.2) && sides.iter().any(|side| *side > 0.2));
    }
}
