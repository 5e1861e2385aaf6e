//! Computer control: `POST /v1/computer/perform`, `mouse`, `clipboard/write` and `clipboard/read`.
//!
//! The clipboard's text is the plain body of request and response. A key is an X11 key symbol: characters up to U+00FF
//! are their own code point, others `0x01000000` plus the code point.

use serde::{Deserialize, Serialize};

/// The longest clipboard text that is read, in bytes of UTF-8.
pub const MAX_CLIPBOARD_BYTES: usize = 8 << 20;

/// Body of `POST /v1/computer/perform`: input actions in order. The first failure, or a disconnect of the caller, ends
/// the request and releases everything held. The field of a refusal names the action, such as `actions[3]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Perform {
    /// The actions in order.
    pub actions: Vec<Action>,
}

/// A point on the display, in pixels from its upper left corner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Pixels from the left edge.
    pub x: u32,
    /// Pixels from the upper edge.
    pub y: u32,
}

/// A mouse button.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Button {
    /// The left button.
    Left,
    /// The wheel.
    Middle,
    /// The right button.
    Right,
    /// The back button.
    Back,
    /// The forward button.
    Forward,
}

/// The part of a click.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClickKind {
    /// Presses and releases.
    Click,
    /// Presses.
    Down,
    /// Releases.
    Up,
}

/// An input action. Times are milliseconds; `hold` lists keys held meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// Moves there and clicks.
    Click {
        /// The point.
        at: Point,
        /// The button.
        button: Button,
        /// The part of the click.
        kind: ClickKind,
        /// The number of clicks.
        times: u32,
        /// Keys held meanwhile.
        #[serde(default)]
        hold: Vec<u32>,
    },
    /// Moves there.
    Move {
        /// The target.
        to: Point,
        /// Along a curve. Without `duration_ms`, the duration follows from the distance.
        #[serde(default)]
        smooth: bool,
        /// The duration, on a curve only.
        #[serde(default)]
        duration_ms: Option<u64>,
        /// Keys held meanwhile.
        #[serde(default)]
        hold: Vec<u32>,
    },
    /// Presses at the first point, moves along all of them, releases.
    Drag {
        /// At least two points.
        path: Vec<Point>,
        /// The button.
        button: Button,
        /// The delay before the first move.
        delay_ms: u64,
        /// The delay after each step.
        step_delay_ms: u64,
        /// The steps between two points.
        steps_per_segment: u32,
        /// Along curves.
        #[serde(default)]
        smooth: bool,
        /// The duration, on curves only.
        #[serde(default)]
        duration_ms: Option<u64>,
        /// Keys held meanwhile.
        #[serde(default)]
        hold: Vec<u32>,
    },
    /// Moves there and turns the wheel.
    Scroll {
        /// The point.
        at: Point,
        /// Steps to the right.
        right: i32,
        /// Steps down.
        down: i32,
        /// Keys held meanwhile.
        #[serde(default)]
        hold: Vec<u32>,
    },
    /// Presses keys: one chord after the other, or all of them for a duration.
    Press {
        /// The keys of each chord.
        chords: Vec<Vec<u32>>,
        /// The duration for which the keys are held; zero taps them.
        #[serde(default)]
        duration_ms: u64,
        /// Keys held meanwhile.
        #[serde(default)]
        hold: Vec<u32>,
    },
    /// Types each character as a key.
    Type {
        /// Line ends are the Return key, tabs the Tab key; other control characters are not allowed.
        text: String,
        /// The delay after each character.
        #[serde(default)]
        delay_ms: u64,
    },
    /// Presses or releases a key, which stays in that state after the call.
    Key {
        /// The key.
        key: u32,
        /// Pressed, or released.
        down: bool,
    },
    /// Hides or shows the mouse cursor.
    Cursor {
        /// True to hide it.
        hidden: bool,
    },
    /// Waits.
    Sleep {
        /// The duration.
        duration_ms: u64,
    },
}
