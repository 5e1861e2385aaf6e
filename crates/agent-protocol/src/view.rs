//! The live view of a display: the words of `/v1/view/…`.

use serde::{Deserialize, Serialize};

/// `POST`, [`NextFrame`] → a [`FrameHead`] and a JPEG, or nothing when the display did not change for [`WAIT_SECONDS`].
pub const FRAME: &str = "/v1/view/frame";

/// `POST`, [`NextDialogs`] → [`OpenDialogs`], when they are not those of [`NextDialogs::since`] any more or after [`WAIT_SECONDS`]: the
/// dialogs that pages without a display have open.
pub const DIALOGS: &str = "/v1/view/dialogs";
/// `POST`, [`DialogAnswer`] → nothing.
pub const ANSWER: &str = "/v1/view/answer";

/// How long a frame or a change of dialogs is waited for, in seconds.
pub const WAIT_SECONDS: u64 = 10;
/// Longest frame, in bytes.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// Asks for what changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextFrame {
    /// [`FrameHead::state`] of the frame before; all of the display when absent.
    #[serde(default)]
    pub since: Option<u64>,
}

/// Asks for the dialogs that are open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextDialogs {
    /// [`OpenDialogs::state`] of the answer before; answered at once when absent.
    #[serde(default)]
    pub since: Option<u64>,
}

/// The dialogs that are open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDialogs {
    /// Names what is told here.
    pub state: u64,
    /// One of a page at most.
    pub dialogs: Vec<OpenDialog>,
}

/// A JavaScript dialog; its words are the page's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDialog {
    /// The browser's name of the page.
    pub page: String,
    /// `alert`, `confirm`, `prompt` or `beforeunload`.
    pub kind: String,
    /// What it says.
    pub message: String,
    /// What a `prompt` offers as the answer.
    pub default_text: String,
    /// The address of the document that opened it.
    pub url: String,
}

impl std::fmt::Display for OpenDialog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let said: String = self.message.chars().filter(|character| !character.is_control()).take(100).collect();
        write!(f, "the page waits for an answer to its dialog: {} {said:?}", self.kind)
    }
}

/// Answers the dialog of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DialogAnswer {
    /// [`OpenDialog::page`].
    pub page: String,
    /// Agrees to it, or dismisses it.
    pub accept: bool,
    /// What is typed into a `prompt`.
    #[serde(default)]
    pub text: String,
}

/// What stands before a frame's JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// Names what has been shown with this frame.
    pub state: u64,
    /// Width of the display, in pixels.
    pub width: u16,
    /// Height of the display, in pixels.
    pub height: u16,
    /// Left edge of the part that the JPEG shows.
    pub x: u16,
    /// Upper edge of that part.
    pub y: u16,
}

impl FrameHead {
    /// Its bytes on the wire.
    pub const BYTES: usize = 16;

    /// As it stands on the wire: all numbers with their most significant byte first.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.state.to_be_bytes());
        for (at, side) in [self.width, self.height, self.x, self.y].into_iter().enumerate() {
            bytes[8 + 2 * at..10 + 2 * at].copy_from_slice(&side.to_be_bytes());
        }
        bytes
    }

    /// The head that `bytes` begin with.
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
    fn a_head_is_read_as_it_was_written() {
        let head = FrameHead { state: 1 << 40, width: 1920, height: 1080, x: 300, y: 7 };
        assert_eq!(FrameHead::from_bytes(&head.to_bytes()), Some(head));
        assert_eq!(FrameHead::from_bytes(&head.to_bytes()[..15]), None);
    }
}
