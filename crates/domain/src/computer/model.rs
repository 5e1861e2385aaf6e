//! The checked actions of computer control.

use std::time::Duration;

use super::keys::{Chord, KeySym};

/// A position on the display, in pixels from its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The distance from the left.
    pub x: u32,
    /// The distance from the top.
    pub y: u32,
}

/// A button of the mouse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Button {
    /// The left button.
    #[default]
    Left,
    /// The wheel button.
    Middle,
    /// The right button.
    Right,
    /// The back button at the side.
    Back,
    /// The forward button at the side.
    Forward,
}

/// The kind of a click.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClickKind {
    /// Presses and releases the button.
    #[default]
    Click,
    /// Presses the button, which stays pressed until an `Up`.
    Down,
    /// Releases the button.
    Up,
}

/// A click.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Click {
    /// The position.
    pub at: Point,
    /// The button.
    pub button: Button,
    /// The kind.
    pub kind: ClickKind,
    /// The number of clicks.
    pub times: u32,
    /// The keys that are held meanwhile.
    pub hold: Vec<KeySym>,
}

/// The path of a mouse between two positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MousePath {
    /// A jump to the destination.
    Straight,
    /// A natural curve, with this duration or one that depends on the distance.
    Smooth(Option<Duration>),
}

/// A move of the mouse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The destination.
    pub to: Point,
    /// The path.
    pub way: MousePath,
    /// The keys that are held meanwhile.
    pub hold: Vec<KeySym>,
}

/// A drag: press, move along a path, release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drag {
    /// The positions, at least two.
    pub path: Vec<Point>,
    /// The button.
    pub button: Button,
    /// The pause between the press and the first move.
    pub delay: Duration,
    /// The kind of the moves.
    pub motion: DragMotion,
    /// The keys that are held meanwhile.
    pub hold: Vec<KeySym>,
}

/// The moves of a drag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DragMotion {
    /// Straight lines in steps.
    Steps {
        /// The number of steps between two positions.
        per_segment: u32,
        /// The pause after each step.
        delay: Duration,
    },
    /// Natural curves, with this duration or one that depends on the distance.
    Smooth(Option<Duration>),
}

/// A scroll with the wheel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scroll {
    /// The position.
    pub at: Point,
    /// The wheel steps to the right; negative: to the left.
    pub right: i32,
    /// The wheel steps down; negative: up.
    pub down: i32,
    /// The keys that are held meanwhile.
    pub hold: Vec<KeySym>,
}

/// A press of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Press {
    /// The chords, pressed one after the other; with a duration all at the same time.
    pub chords: Vec<Chord>,
    /// The duration for which the chords are held; zero: they are tapped.
    pub duration: Duration,
    /// The keys that are held meanwhile.
    pub hold: Vec<KeySym>,
}

/// Typed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeText {
    /// The characters, each typed as a key; a line break is the Return key, a tab the Tab key.
    pub text: String,
    /// The pause after each character.
    pub delay: Duration,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A click.
    Click(Click),
    /// A move of the mouse.
    Move(Move),
    /// A drag.
    Drag(Drag),
    /// A scroll with the wheel.
    Scroll(Scroll),
    /// A press of keys.
    Press(Press),
    /// Typed text.
    Type(TypeText),
    /// A key that is pressed or released.
    Key {
        /// The key.
        key: KeySym,
        /// True if the key is pressed, false if it is released.
        down: bool,
    },
    /// Hides or shows the mouse cursor.
    Cursor {
        /// True if the cursor is hidden.
        hidden: bool,
    },
    /// A pause.
    Sleep(Duration),
}

/// The maximum duration of a curve without a given duration.
pub const MAX_CURVE_DURATION: Duration = Duration::from_millis(2000);

impl Action {
    /// Returns the maximum duration of the pauses of the action.
    #[must_use]
    pub fn pauses(&self) -> Duration {
        match self {
            Self::Move(Move { way: MousePath::Smooth(duration), .. }) => duration.unwrap_or(MAX_CURVE_DURATION),
            Self::Drag(drag) => {
                let segments = u32::try_from(drag.path.len()).unwrap_or(u32::MAX).saturating_sub(1);
                drag.delay
                    + match drag.motion {
                        DragMotion::Steps { per_segment, delay } => delay.saturating_mul(segments * per_segment),
                        DragMotion::Smooth(duration) => duration.unwrap_or(MAX_CURVE_DURATION * 5),
                    }
            }
            Self::Press(press) => press.duration,
            Self::Type(typed) => {
                typed.delay.saturating_mul(u32::try_from(typed.text.chars().count()).unwrap_or(u32::MAX))
            }
            Self::Sleep(duration) => *duration,
            Self::Click(_) | Self::Move(_) | Self::Scroll(_) | Self::Key { .. } | Self::Cursor { .. } => Duration::ZERO,
        }
    }
}
