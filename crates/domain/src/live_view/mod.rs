//! The live view of a session's display: its frames. Input of viewers uses computer control.

mod places;
mod ports;

pub use places::{MAX_VIEWS, MAX_WATCHING_VIEWS, OpenViews, TooManyViews};
pub use ports::LiveDisplay;
#[cfg(feature = "mocks")]
pub use ports::MockLiveDisplay;

use bytes::Bytes;

/// A JavaScript dialog of a page without a display. Its text comes from the page and is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenDialog {
    /// The browser's identifier of the page.
    pub page: String,
    /// `alert`, `confirm`, `prompt` or `beforeunload`.
    pub kind: String,
    /// The message.
    pub message: String,
    /// The default answer of a `prompt`.
    pub default_text: String,
}

/// The open dialogs of a browser without a display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenDialogs {
    /// The version of this list, with which the next change is requested.
    pub state: u64,
    /// The dialogs, at most one per page.
    pub dialogs: Vec<OpenDialog>,
}

/// The answer of a person to a dialog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialogAnswer {
    /// [`OpenDialog::page`].
    pub page: String,
    /// Whether the dialog is accepted instead of dismissed.
    pub accept: bool,
    /// The text for a `prompt`.
    pub text: String,
}

/// An image of a part of a display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The version of the display, with which the next frame is requested.
    pub state: u64,
    /// The width of the whole display, in pixels.
    pub width: u16,
    /// The height of the whole display, in pixels.
    pub height: u16,
    /// The left edge of the part.
    pub x: u16,
    /// The upper edge of the part.
    pub y: u16,
    /// The part as a JPEG.
    pub jpeg: Bytes,
}
