//! The calls of a capture that wait for their replies.

use super::super::requests::Request;

/// The purpose of a call.
pub(in crate::telemetry) enum PendingQuery {
    /// Attaches to the open targets.
    AutoAttach,
    /// Its reply follows all earlier messages.
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
        /// True if the script stays for later documents.
        stays: bool,
    },
    CaptchaWorld {
        frame: String,
    },
    CaptchaToken {
        frame: String,
    },
}
