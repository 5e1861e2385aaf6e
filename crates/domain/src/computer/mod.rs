//! Computer control: the mouse, the keyboard and the clipboard of a session, with or without a display.

mod input;
mod keys;
mod model;
mod ports;
mod service;

pub use input::{
    ActionRequest, BatchItem, ClickRequest, DragRequest, MAX_CLIPBOARD, MoveRequest, PressRequest, ScrollRequest,
    TypeRequest, parse_batch, parse_clipboard,
};
pub use input::{MAX_ACTIONS, MAX_CHORDS, MAX_HELD, MAX_PATH, MAX_PAUSE_MS, MAX_TYPED};
pub use keys::{Chord, KeySym};
pub use model::{
    Action, Button, Click, ClickKind, Drag, DragMotion, MAX_CURVE_DURATION, MousePath, Move, Point, Press, Scroll,
    TypeText,
};
#[cfg(feature = "mocks")]
pub use ports::MockComputer;
pub use ports::{ActionError, Computer};
pub use service::Computers;
