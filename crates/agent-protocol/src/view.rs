//! The live view of a display: `/v1/view/…`.

use serde::{Deserialize, Serialize};

/// `POST`, [`NextFrame`] → a [`FrameHead`] and a JPEG, or nothing if the display did not change for [`WAIT_SECONDS`].
pub const FRAME: &str = "/v1/view/frame";

/// `POST`, [`NextDialogs`] → [`OpenDialogs`] of pages without a display, when they differ from [`NextDialogs::since`]
/// or after [`WAIT_SECONDS`].
pub const DIALOGS: &str = "/v1/view/dialogs";
/// `POST`, [`DialogAnswer`] → nothing.
pub const ANSWER: &str = "/v1/view/answer";

/// The longest wait of a request for a frame or a change of dialogs, in seconds.
pub const WAIT_SECONDS: u64 = 10;
/// The longest frame, in bytes.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// A request for the next frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextFrame {
    /// [`FrameHead::state`] of the previous frame; the whole display when absent.
    #[serde(default)]
    pub since: Option<u64>,
}

/// A request for the open dialogs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextDialogs {
    /// [`OpenDialogs::state`] of the previous response; answered at once when absent.
    #[serde(default)]
    pub since: Option<u64>,
}

/// The open dialogs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDialogs {
    /// The state number of this response.
    pub state: u64,
    /// At most one dialog of each page.
    pub dialogs: Vec<OpenDialog>,
}

/// A JavaScript dialog, whose texts are the page's own, or a print preview.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDialog {
    /// The browser's id of the page.
    pub page: String,
    /// `alert`, `confirm`, `prompt`, `beforeunload`, or [`PRINT`](Self::PRINT).
    pub kind: String,
    /// Its message.
    pub message: String,
    /// The default answer of a `prompt`.
    pub default_text: String,
    /// The URL of the document that opened it.
    pub url: String,
}

impl OpenDialog {
    /// The kind of a print preview. Its `page` is that of the preview, not the page that it prints.
    pub const PRINT: &str = "print";
}

impl std::fmt::Display for OpenDialog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.kind == Self::PRINT {
            return f.write_str("a print preview is open and blocks the page: close it, for example with Escape");
        }
        let given: String = self.message.chars().filter(|character| !character.is_control()).take(100).collect();
        write!(f, "the page waits for an answer to its dialog: {} {given:?}", self.kind)
    }
}

/// The answer to the dialog of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DialogAnswer {
    /// The [`OpenDialog::page`].
    pub page: String,
    /// True to accept it, false to dismiss it.
    pub accept: bool,
    /// The text for a `prompt`.
    #[serde(default)]
    pub text: String,
}

/// The head before a frame's JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// The state number after this frame.
    pub state: u64,
    /// The width of the display, in pixels.
    pub width: u16,
    /// The height of the display, in pixels.
    pub height: u16,
    /// The left edge of the part that the JPEG shows.
    pub x: u16,
    /// The upper edge of that part.
    pub y: u16,
}

impl FrameHead {
    /// Its length in bytes.
    pub const BYTES: usize = 16;

    /// Encodes the head, numbers in big endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.state.to_be_bytes());
        for (at, side) in [self.width, self.height, self.x, self.y].into_iter().enumerate() {
            bytes[8 + 2 * at..10 + 2 * at].copy_from_slice(&side.to_be_bytes());
        }
        bytes
    }

    /// Decodes the head at the beginning of `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let state = u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
        let side = |at: usize| Some(u16::from_be_bytes(bytes.get(8 + 2 * at..10 + 2 * at)?.try_into().ok()?));
        Some(Self { state, width: side(0)?, height: side(1)?, x: side(2)?, y: side(3)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_head_round_trips() {
        let head = FrameHead { state: 1 << 40, width: 1920, height: 1080, x: 300, y: 7 };
        assert_eq!(FrameHead::from_bytes(&head.to_bytes()), Some(head));
        assert_eq!(FrameHead::from_bytes(&head.to_bytes()[..15]), None);
    }
}
