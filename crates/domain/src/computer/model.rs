//! What hands do, once it is known to be possible.

use std::time::Duration;

use super::keys::{Chord, KeySym};

/// A place on the display, in pixels from its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// From the left.
    pub x: u32,
    /// From above.
    pub y: u32,
}

/// A button of the mouse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Button {
    /// The first.
    #[default]
    Left,
    /// The wheel.
    Middle,
    /// The second.
    Right,
    /// At the side.
    Back,
    /// At the side.
    Forward,
}

/// What a click does with its button.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClickKind {
    /// Presses and lets go.
    #[default]
    Click,
    /// Presses. It stays pressed until an `Up`.
    Down,
    /// Lets go.
    Up,
}

/// A click.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Click {
    /// Where.
    pub at: Point,
    /// With which button.
    pub button: Button,
    /// What it does.
    pub kind: ClickKind,
    /// How often.
    pub times: u32,
    /// Held meanwhile.
    pub hold: Vec<KeySym>,
}

/// How a mouse gets from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MousePath {
    /// At once.
    Straight,
    /// Along a curve as a hand draws it, in the time given or in one that follows from the distance.
    Smooth(Option<Duration>),
}

/// A move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where to.
    pub to: Point,
    /// How.
    pub way: MousePath,
    /// Held meanwhile.
    pub hold: Vec<KeySym>,
}

/// A drag: press, move along a path, let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drag {
    /// At least two places.
    pub path: Vec<Point>,
    /// With which button.
    pub button: Button,
    /// Between the press and the first move.
    pub delay: Duration,
    /// How it moves.
    pub motion: DragMotion,
    /// Held meanwhile.
    pub hold: Vec<KeySym>,
}

/// How a drag moves along its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DragMotion {
    /// In steps.
    Steps {
        /// From each place to the next.
        per_segment: u32,
        /// After each.
        delay: Duration,
    },
    /// Along curves, in the time given or in one that follows from the distance.
    Smooth(Option<Duration>),
}

/// A turn of the wheel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scroll {
    /// Where.
    pub at: Point,
    /// Steps of the wheel to the right; negative: to the left.
    pub right: i32,
    /// Steps of the wheel down; negative: up.
    pub down: i32,
    /// Held meanwhile.
    pub hold: Vec<KeySym>,
}

/// Keys pressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Press {
    /// One after the other; or, with a duration, all at the same time.
    pub chords: Vec<Chord>,
    /// How long they are held; zero: tapped.
    pub duration: Duration,
    /// Held meanwhile.
    pub hold: Vec<KeySym>,
}

/// Text typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeText {
    /// Each character as its own key; a line end is the key Return, a tab the key Tab.
    pub text: String,
    /// After each.
    pub delay: Duration,
}

/// One thing that hands do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A click.
    Click(Click),
    /// A move.
    Move(Move),
    /// A drag.
    Drag(Drag),
    /// A turn of the wheel.
    Scroll(Scroll),
    /// Keys pressed.
    Press(Press),
    /// Text typed.
    Type(TypeText),
    /// A key goes down or up and stays there.
    Key {
        /// Which.
        key: KeySym,
        /// Down, or up.
        down: bool,
    },
    /// The mouse cursor is hidden, or shown.
    Cursor {
        /// Hidden.
        hidden: bool,
    },
    /// Nothing, for a while.
    Sleep(Duration),
}

/// The longest that a smooth way takes whose duration is not given.
pub const SMOOTH: Duration = Duration::from_millis(2000);

impl Action {
    /// The longest that it takes by itself: its pauses.
    #[must_use]
    pub fn pauses(&self) -> Duration {
        match self {
            Self::Move(Move { way: MousePath::Smooth(duration), .. }) => duration.unwrap_or(SMOOTH),
            Self::Drag(drag) => {
                let segments = u32::try_from(drag.path.len()).unwrap_or(u32::MAX).saturating_sub(1);
                drag.delay
                    + match drag.motion {
                        DragMotion::Steps { per_segment, delay } => delay.saturating_mul(segments * per_segment),
                        DragMotion::Smooth(duration) => duration.unwrap_or(SMOOTH * 5),
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
