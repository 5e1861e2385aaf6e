//! The words of computer control: `POST /v1/computer/perform`, `mouse`, `clipboard/write` and `clipboard/read`.
//!
//! The clipboard's text is the body itself, there and back. A key is an X11 key symbol: characters up to U+00FF are their own code
//! point, others `0x01000000` and the code point.

use serde::{Deserialize, Serialize};

/// Longest text on the clipboard that is read, in bytes of UTF-8.
pub const MAX_CLIPBOARD_BYTES: usize = 8 << 20;

/// Body of `POST /v1/computer/perform`: what hands do, in order. What fails ends it, and so does a caller who goes: everything held
/// is let go then. The refusal's field is `actions[3]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Perform {
    /// In order.
    pub actions: Vec<Action>,
}

/// A place on the display, in pixels from its upper left corner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// From the left.
    pub x: u32,
    /// From above.
    pub y: u32,
}

/// A button of the mouse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Button {
    /// The first.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClickKind {
    /// Presses and lets go.
    Click,
    /// Presses.
    Down,
    /// Lets go.
    Up,
}

/// One thing that hands do. Times are milliseconds; `hold` are keys held meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// Moves there and clicks.
    Click {
        /// Where.
        at: Point,
        /// Which button.
        button: Button,
        /// What it does.
        kind: ClickKind,
        /// How often.
        times: u32,
        /// Keys.
        #[serde(default)]
        hold: Vec<u32>,
    },
    /// Moves there.
    Move {
        /// Where.
        to: Point,
        /// Along a curve; the time it takes follows from the distance where none is given.
        #[serde(default)]
        smooth: bool,
        /// On a curve only.
        #[serde(default)]
        duration_ms: Option<u64>,
        /// Keys.
        #[serde(default)]
        hold: Vec<u32>,
    },
    /// Presses at the first point, moves along all of them, lets go.
    Drag {
        /// At least two.
        path: Vec<Point>,
        /// Which button.
        button: Button,
        /// Before the first move.
        delay_ms: u64,
        /// After each step.
        step_delay_ms: u64,
        /// From point to point.
        steps_per_segment: u32,
        /// Along curves instead.
        #[serde(default)]
        smooth: bool,
        /// On curves only.
        #[serde(default)]
        duration_ms: Option<u64>,
        /// Keys.
        #[serde(default)]
        hold: Vec<u32>,
    },
    /// Moves there and turns the wheel.
    Scroll {
        /// Where.
        at: Point,
        /// Steps to the right.
        right: i32,
        /// Steps down.
        down: i32,
        /// Keys.
        #[serde(default)]
        hold: Vec<u32>,
    },
    /// Presses keys: chord after chord, or all at once for a time.
    Press {
        /// Each pressed together.
        chords: Vec<Vec<u32>>,
        /// Zero: tapped.
        #[serde(default)]
        duration_ms: u64,
        /// Keys.
        #[serde(default)]
        hold: Vec<u32>,
    },
    /// Types, each character as a key.
    Type {
        /// Line ends are the key Return, tabs the key Tab; no other control characters.
        text: String,
        /// After each.
        #[serde(default)]
        delay_ms: u64,
    },
    /// A key goes down or up and stays there after the call.
    Key {
        /// Which.
        key: u32,
        /// Down, or up.
        down: bool,
    },
    /// Hides or shows the mouse cursor.
    Cursor {
        /// Hidden.
        hidden: bool,
    },
    /// Waits.
    Sleep {
        /// How long.
        duration_ms: u64,
    },
}
