//! References to tools: opaque to callers, and valid for one registration in one document.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::documents::{self, Document, PageTool};

/// The longest reference, in bytes.
const MAX_BYTES: usize = 4096;

/// What a reference names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToolReference {
    /// The target of the document: its page, or its frame if the frame has a target of its own.
    pub(super) target_id: String,
    pub(super) frame_id: String,
    /// The browser's id of the document.
    pub(super) loader_id: String,
    pub(super) name: String,
    /// The fingerprint of the definition; 0 for a custom tool, whose definition does not change.
    fingerprint: u64,
    /// The id of the custom tool, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) custom: Option<String>,
}

impl ToolReference {
    pub(super) fn new(document: &Document<'_>, tool: &PageTool) -> Self {
        Self {
            target_id: document.target_id.clone(),
            frame_id: document.frame_id.clone(),
            loader_id: document.loader_id.clone(),
            name: tool.name.clone(),
            fingerprint: fingerprint(tool),
            custom: None,
        }
    }

    /// Creates the reference of a custom tool for the document of a page.
    pub(super) fn custom(document: &Document<'_>, id: &str, name: &str) -> Self {
        Self {
            target_id: document.target_id.clone(),
            frame_id: document.frame_id.clone(),
            loader_id: document.loader_id.clone(),
            name: name.to_owned(),
            fingerprint: 0,
            custom: Some(id.to_owned()),
        }
    }

    /// Returns true if it names this document.
    pub(super) fn is_of(&self, document: &Document<'_>) -> bool {
        self.frame_id == document.frame_id && self.loader_id == document.loader_id
    }

    /// Returns true if a frame, as the browser reports it, contains its document.
    pub(super) fn is_frame(&self, frame: &Value) -> bool {
        documents::is_document(frame, &self.frame_id, &self.loader_id)
    }

    pub(super) fn encode(&self) -> String {
        // A reference serializes, because its fields are texts and a number.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Returns the reference of a text; `None` if it is none.
    pub(super) fn decode(text: &str) -> Option<Self> {
        let bytes = (text.len() <= MAX_BYTES).then(|| URL_SAFE_NO_PAD.decode(text).ok())??;
        serde_json::from_slice(&bytes).ok()
    }

    /// Returns true if it names this tool of its document.
    pub(super) fn names(&self, tool: &PageTool) -> bool {
        self.name == tool.name && self.fingerprint == fingerprint(tool)
    }
}

fn fingerprint(tool: &PageTool) -> u64 {
    let mut hasher = DefaultHasher::new();
    let schema = tool.input_schema.as_ref().map(ToString::to_string);
    let annotations = format!("{:?}", tool.annotations());
    (&tool.name, &tool.title, &tool.description, schema, annotations).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::documents::PageTarget;
    use super::*;

    fn tool(description: &str) -> PageTool {
        serde_json::from_value(json!({ "name": "add", "description": description })).expect("a tool")
    }

    #[test]
    fn a_reference_names_one_definition_and_survives_its_encoding() {
        let page = PageTarget::default();
        let document = Document::new(&page, "T1", &json!({ "id": "F1", "loaderId": "L1" }), true);
        let reference = ToolReference::new(&document, &tool("adds"));
        assert_eq!(ToolReference::decode(&reference.encode()), Some(reference.clone()));
        assert!(reference.names(&tool("adds")) && !reference.names(&tool("adds twice")));
        for (member, value) in [("title", json!("Sum")), ("annotations", json!({ "readOnlyHint": true }))] {
            let mut changed = json!({ "name": "add", "description": "adds" });
            changed[member] = value;
            assert!(!reference.names(&serde_json::from_value(changed).expect("a tool")), "another {member}");
        }
        assert_eq!(ToolReference::decode("nothing"), None);
        assert_eq!(ToolReference::decode(&"a".repeat(MAX_BYTES + 1)), None);
    }
}
