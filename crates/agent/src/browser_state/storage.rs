//! The local storage of an origin, read and replaced in an empty document of it.

use serde_json::{Value, json};

use super::pages::Document;
use crate::cdp::{CdpError, text};
use casement_agent_protocol::browser_state::{MAX_STATE_BYTES, StorageText};

/// The script of the document's world.
const SCRIPT: &str = include_str!("storage.js");
/// The longest part of a storage in one message, in bytes. Servers between the agent and a browser limit messages.
const PART_BYTES: usize = 512 << 10;

/// The keys and values of an origin.
pub(super) type Items = Vec<(StorageText, StorageText)>;

/// Returns the storage of the document's origin; `None` if it is larger than a state or belongs to another origin.
pub(super) async fn read(document: &Document<'_>, origin: &str) -> Result<Option<Items>, CdpError> {
    let begin = format!("{SCRIPT}\ncasementStorage.read({}, {PART_BYTES})", json!(origin));
    let begun = document.run(&begin).await?;
    let (Some(bytes), Some(length)) = (number(&begun["bytes"]), number(&begun["length"])) else { return Ok(None) };
    // Each byte is at most six characters.
    if bytes > MAX_STATE_BYTES || length > MAX_STATE_BYTES.saturating_mul(6) {
        return Ok(None);
    }
    let mut json = text(&begun["text"]).to_owned();
    while json.len() < length {
        let part = document.run(&format!("casementStorage.part({}, {})", json.len(), json.len() + PART_BYTES)).await?;
        match text(&part) {
            "" => return Ok(None),
            part => json.push_str(part),
        }
    }
    Ok(serde_json::from_str(&json).ok())
}

/// Replaces the storage of the document's origin. Returns false if the browser does not allow it.
pub(super) async fn replace(document: &Document<'_>, origin: &str, items: &Items) -> Result<bool, CdpError> {
    // All types of the protocol serialize.
    let items = serde_json::to_string(items).unwrap_or_default();
    let mut script = SCRIPT.to_owned();
    for part in parts(&items) {
        script.push_str(&format!("\ncasementStorage.add({});", json!(part)));
        if script.len() > PART_BYTES {
            document.run(&script).await?;
            script.clear();
        }
    }
    script.push_str(&format!("\ncasementStorage.write({})", json!(origin)));
    Ok(document.run(&script).await? == true)
}

/// Returns a fingerprint of the storage of the document's origin.
pub(super) async fn fingerprint(document: &Document<'_>, origin: &str) -> Result<Value, CdpError> {
    document.run(&format!("{SCRIPT}\ncasementStorage.fingerprint({})", json!(origin))).await
}

fn number(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

/// Splits a text into parts of at most [`PART_BYTES`].
fn parts(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let mut end = text.len().min(PART_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let (part, rest) = text.split_at(end);
        text = rest;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_between_characters() {
        let text = "aü€😀".repeat(PART_BYTES / 4);
        let all: Vec<&str> = parts(&text).collect();
        assert!(all.len() > 2 && all.iter().all(|part| part.len() <= PART_BYTES));
        assert_eq!(all.concat(), text);
        assert_eq!(parts("").count(), 0);
    }
}
