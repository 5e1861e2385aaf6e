//! The answers of the way out, where it does not lead to what is asked for without encryption.

use crate::protocol::curl::Upstream;

/// To the byte, with what was wrong.
const ANSWERS: [(&str, Upstream); 4] = [
    ("This destination is not allowed.\n", Upstream::Connect),
    ("This destination could not be reached.\n", Upstream::Connect),
    ("The session's proxy could not be used.\n", Upstream::Proxy),
    ("This is not a request that a proxy can pass on.\n", Upstream::Connect),
];

/// What was wrong, if this is such an answer.
pub(crate) fn fault(body: &[u8]) -> Option<Upstream> {
    ANSWERS.iter().find(|(answer, _)| answer.as_bytes() == body).map(|(_, fault)| *fault)
}

/// Whether a text that a page shows is such an answer.
pub(crate) fn is_shown(text: &str) -> bool {
    ANSWERS.iter().any(|(answer, _)| answer.trim_end() == text.trim())
}
