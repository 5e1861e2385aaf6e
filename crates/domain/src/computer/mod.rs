//! Computer control: the mouse, the keyboard and the clipboard of a session, with a display and without one alike.

mod input;
mod keys;
mod model;
mod ports;
mod service;

pub use input::{
    BatchItem, ClickWish, CursorWish, DragWish, MAX_CLIPBOARD, MoveWish, PressWish, ScrollWish, SleepWish, TypeWish,
    Wish, parse_batch, parse_clipboard,
};
pub use keys::{Chord, KeySym};
pub use model::{
    Action, Button, Click, ClickKind, Drag, DragMotion, Move, Point, Press, SMOOTH, Scroll, TypeText, Way,
};
#[cfg(feature = "mocks")]
pub use ports::MockComputer;
pub use ports::{BrokeOff, Computer};
pub use service::Computers;
