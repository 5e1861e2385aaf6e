//! The calls of a capture that wait for their replies.

use super::super::requests::Request;

/// The purpose of a call.
pub(in crate::telemetry) enum PendingQuery {
    /// Attaches to the open targets.
    AutoAttach,
    /// Marks a point: its reply follows all earlier messages of the browser.
    CatchUp,
    FrameTree {
        session: String,
    },
    ResponseBody {
        session: String,
        id: String,
        request: Box<Request>,
    },
    NewDocumentScript {
        session: String,
        /// True if the script also runs in later documents.
        stays: bool,
    },
    CaptchaWorld {
        frame: String,
    },
    CaptchaToken {
        frame: String,
    },
}
