//! Reads and checks the definitions of a source.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::pattern::UrlPattern;
use casement_agent_protocol::webmcp::{Annotations, CustomTool, CustomToolKind, MAX_CUSTOM_TOOL};

/// The longest name, in characters.
const MAX_NAME: usize = 128;
const MAX_PATTERNS: usize = 64;
/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 2048;
/// The maximum depth of a schema.
const MAX_DEPTH: usize = 64;

/// A checked definition.
#[derive(Debug)]
pub(super) struct Definition {
    /// The tool, without id and namespace.
    pub(super) tool: CustomTool,
    pub(super) patterns: Vec<UrlPattern>,
    /// The function as an expression; `None` for the kind `cdp`.
    pub(super) execute: Option<String>,
    /// The place of the definition in its source.
    pub(super) index: usize,
}

#[derive(Deserialize)]
struct Given {
    kind: CustomToolKind,
    url_patterns: Vec<String>,
    tool: GivenTool,
    #[serde(default)]
    execute: Option<String>,
}

/// The description of a tool, as in MCP.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GivenTool {
    name: String,
    #[serde(default)]
    title: Option<String>,
    description: String,
    input_schema: Map<String, Value>,
    #[serde(default)]
    output_schema: Option<Map<String, Value>>,
    #[serde(default)]
    annotations: GivenHints,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GivenHints {
    read_only_hint: Option<bool>,
    untrusted_content_hint: Option<bool>,
    consequential_hint: Option<bool>,
    autosubmit: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

/// Checks definitions.
///
/// # Errors
/// Returns what is wrong with the first invalid one.
pub(super) fn read(definitions: Vec<Value>) -> Result<Vec<Definition>, String> {
    let numbered = definitions.into_iter().enumerate();
    numbered.map(|(at, given)| check(at, given).map_err(|why| format!("definition {at}: {why}"))).collect()
}

fn check(index: usize, given: Value) -> Result<Definition, String> {
    if given["tool"].to_string().len() > MAX_CUSTOM_TOOL {
        return Err(format!("tool may have at most {MAX_CUSTOM_TOOL} bytes as JSON"));
    }
    let Given { kind, url_patterns, tool, execute } = serde_json::from_value(given).map_err(|why| why.to_string())?;
    let patterns = patterns(&url_patterns)?;
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if tool.name.is_empty() || tool.name.len() > MAX_NAME || !tool.name.chars().all(named) {
        return Err(format!("tool.name must have 1 to {MAX_NAME} ASCII letters, digits, '_', '-' or '.'"));
    }
    let input_schema = schema("tool.inputSchema", tool.input_schema)?;
    let output_schema = tool.output_schema.map(|given| schema("tool.outputSchema", given)).transpose()?;
    let hints = tool.annotations;
    let annotations = Annotations {
        read_only: hints.read_only_hint,
        untrusted_content: hints.untrusted_content_hint,
        consequential: hints.consequential_hint,
        autosubmit: hints.autosubmit,
        destructive: hints.destructive_hint,
        idempotent: hints.idempotent_hint,
        open_world: hints.open_world_hint,
    };
    let (id, namespace) = Default::default();
    let GivenTool { name, title, description, .. } = tool;
    let tool = CustomTool {
        id,
        namespace,
        kind,
        url_patterns,
        name,
        title,
        description,
        input_schema,
        output_schema,
        annotations,
    };
    Ok(Definition { tool, patterns, execute, index })
}

fn patterns(given: &[String]) -> Result<Vec<UrlPattern>, String> {
    if given.is_empty() || given.len() > MAX_PATTERNS {
        return Err(format!("match.url_patterns must have 1 to {MAX_PATTERNS} patterns"));
    }
    if given.iter().any(|pattern| pattern.len() > MAX_PATTERN) {
        return Err(format!("a pattern of match.url_patterns may have at most {MAX_PATTERN} bytes"));
    }
    let parse = |text: &String| UrlPattern::parse(text).map_err(|why| format!("match.url_patterns: {text:?} {why}"));
    given.iter().map(parse).collect()
}

/// Checks the schema of an object.
fn schema(name: &str, given: Map<String, Value>) -> Result<Value, String> {
    if given.get("type").is_none_or(|kind| kind != "object") {
        return Err(format!("{name} must have the type \"object\""));
    }
    let schema = Value::Object(given);
    if depth(&schema) > MAX_DEPTH {
        return Err(format!("{name} may be at most {MAX_DEPTH} levels deep"));
    }
    Ok(schema)
}

/// Returns the number of nested arrays and objects. The parser has bounded them.
pub(super) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given() -> Value {
        let tool = json!({ "name": "a.b-c_1", "description": "d", "inputSchema": { "type": "object" } });
        json!({ "kind": "page", "url_patterns": ["https://a.example/*"], "tool": tool, "execute": "(() => 1)" })
    }

    #[test]
    fn a_definition_has_a_kind_patterns_and_the_description_of_a_tool() {
        let mut given = given();
        given["tool"]["annotations"] = json!({ "readOnlyHint": true, "destructiveHint": false, "title": "other" });
        let read = read(vec![given]).expect("it is valid");
        let Definition { tool, execute, .. } = &read[0];
        assert_eq!(
            (tool.kind, tool.name.as_str(), execute.as_deref()),
            (CustomToolKind::Page, "a.b-c_1", Some("(() => 1)"))
        );
        assert_eq!((tool.annotations.read_only, tool.annotations.destructive), (Some(true), Some(false)));
    }

    #[test]
    fn an_invalid_definition_is_named_with_its_fault() {
        let deep = (0..MAX_DEPTH).fold(json!({}), |inner, _| json!({ "not": inner }));
        let mut deep_schema = json!({ "type": "object" });
        deep_schema["not"] = deep;
        for (path, value, fault) in [
            ("/kind", json!("frame"), "unknown variant `frame`"),
            ("/url_patterns", json!([]), "match.url_patterns must have"),
            ("/url_patterns", json!(["*"]), "\"*\" must have the form"),
            ("/url_patterns", json!(["https://a/".repeat(300)]), "a pattern of"),
            ("/tool/name", json!("a b"), "tool.name must have"),
            ("/tool/name", json!("a".repeat(129)), "tool.name must have"),
            ("/tool/description", json!(null), "invalid type: null"),
            ("/tool/description", json!("x".repeat(MAX_CUSTOM_TOOL)), "tool may have at most"),
            ("/tool/inputSchema", json!({}), "tool.inputSchema must have the type"),
            ("/tool/inputSchema", deep_schema, "may be at most 64 levels deep"),
        ] {
            let mut wrong = given();
            *wrong.pointer_mut(path).expect("a member") = value;
            let refused = read(vec![given(), wrong]).expect_err(path);
            assert!(refused.starts_with("definition 1: ") && refused.contains(fault), "{path}: {refused}");
        }
    }
}
