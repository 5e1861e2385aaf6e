//! The script that captures interactions in pages.

use std::sync::LazyLock;

use serde_json::json;

use super::secrets::{NAMES, PARTS, WORDS};

/// The isolated world of the script, and the function that it calls.
pub(super) const WORLD: &str = "casement";
pub(super) const BINDING: &str = "__binding__";
pub(super) static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    let secrets = json!({ "words": WORDS, "parts": PARTS, "names": NAMES });
    include_str!("interaction.js").replace("'__secrets__'", &secrets.to_string())
});
/// Ends the script in a document.
pub(super) const STOP: &str = "globalThis[Symbol.for('casement.stop')]?.()";
