//! The live view of a session's display: its frames. Input of viewers uses computer control.

mod ports;

pub use ports::LiveDisplay;
#[cfg(feature = "mocks")]
pub use ports::MockLiveDisplay;

use bytes::Bytes;

/// A JavaScript dialog of a page without a display; its words are the page's own and must stay inert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenDialog {
    /// The browser's name of the page.
    pub page: String,
    /// `alert`, `confirm`, `prompt` or `beforeunload`.
    pub kind: String,
    /// What it says.
    pub message: String,
    /// What a `prompt` offers as the answer.
    pub default_text: String,
}

/// The dialogs that the pages of a browser without a display have open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenDialogs {
    /// Names what is told here: the next change is asked for with it.
    pub state: u64,
    /// One of a page at most.
    pub dialogs: Vec<OpenDialog>,
}

/// What a person answers to a dialog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialogAnswer {
    /// [`OpenDialog::page`].
    pub page: String,
    /// Agrees to it, or dismisses it.
    pub accept: bool,
    /// What is typed into a `prompt`.
    pub text: String,
}

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
