//! The live view of a session's display: its frames. What viewers do goes the ways of computer control.

mod ports;

pub use ports::LiveDisplay;
#[cfg(feature = "mocks")]
pub use ports::MockLiveDisplay;

use bytes::Bytes;

/// A part of a display, as it was at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Names what a viewer has seen with this frame: the next one is asked for with it.
    pub state: u64,
    /// Width of the whole display, in pixels.
    pub width: u16,
    /// Height of the whole display, in pixels.
    pub height: u16,
    /// Left edge of the part.
    pub x: u16,
    /// Upper edge of the part.
    pub y: u16,
    /// The part, as a JPEG.
    pub jpeg: Bytes,
}
