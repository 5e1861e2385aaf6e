//! Console messages and uncaught errors.
//!
//! Values are captured as the browser previews them, so that no code of the page runs.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::capture::Capture;
use super::event::{Event, beginning};
use casement_agent_protocol::telemetry::Category;

/// The maximum number of console objects that the browser holds before they are released. Without a release, logged
/// objects are never freed.
const MAX_HELD_OBJECTS: u32 = 200;
/// The longest text of an object argument, in bytes.
const MAX_OBJECT_BYTES: usize = 8 << 10;
/// The maximum number of captured arguments of a message.
const MAX_ARGUMENTS: usize = 200;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConsoleCall {
    #[serde(rename = "type")]
    level: String,
    #[serde(default)]
    args: Vec<Remote>,
    #[serde(default)]
    execution_context_id: i64,
    #[serde(default)]
    timestamp: f64,
    stack_trace: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct ExceptionThrown {
    #[serde(default)]
    timestamp: f64,
    #[serde(rename = "exceptionDetails")]
    details: Details,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(default)]
    text: String,
    line_number: Option<i64>,
    column_number: Option<i64>,
    url: Option<String>,
    stack_trace: Option<Value>,
    exception: Option<Remote>,
    execution_context_id: Option<i64>,
}

/// A value of a page.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Remote {
    #[serde(rename = "type")]
    kind: String,
    subtype: Option<String>,
    value: Option<Value>,
    unserializable_value: Option<String>,
    description: Option<String>,
    preview: Option<Preview>,
    object_id: Option<String>,
}

/// The browser's preview of an object.
#[derive(Deserialize)]
struct Preview {
    subtype: Option<String>,
    description: Option<String>,
    #[serde(default)]
    overflow: bool,
    #[serde(default)]
    properties: Vec<Property>,
    #[serde(default)]
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Property {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    value: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    key: Option<Preview>,
    value: Option<Preview>,
}

impl Remote {
    fn text(&self) -> String {
        if let Some(text) = &self.unserializable_value {
            return text.clone();
        }
        match (&self.value, self.kind.as_str()) {
            (Some(Value::String(text)), _) => text.clone(),
            (Some(value), _) => value.to_string(),
            (None, "undefined") => "undefined".to_owned(),
            (None, _) => {
                let shown = match (&self.preview, self.subtype.as_deref()) {
                    // The description contains more than the previewed fields.
                    (_, Some("error" | "regexp" | "date" | "node")) | (None, _) => self.description.clone(),
                    (Some(preview), _) => Some(preview.text()),
                };
                let shown = shown.or_else(|| self.subtype.clone()).unwrap_or_else(|| self.kind.clone());
                beginning(&shown, MAX_OBJECT_BYTES).to_owned()
            }
        }
    }
}

impl Preview {
    fn text(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for entry in &self.entries {
            let value = entry.value.as_ref().map(Self::text).unwrap_or_default();
            parts.push(match &entry.key {
                Some(key) => format!("{} => {value}", key.text()),
                None => value,
            });
        }
        let list = matches!(self.subtype.as_deref(), Some("array" | "typedarray"));
        for property in &self.properties {
            let value = match (property.kind.as_str(), &property.value) {
                ("accessor", _) => "(...)".to_owned(),
                ("string", Some(value)) => format!("'{value}'"),
                (_, Some(value)) => value.clone(),
                (kind, None) => kind.to_owned(),
            };
            let is_index = list && property.name.bytes().all(|byte| byte.is_ascii_digit());
            parts.push(if is_index { value } else { format!("{}: {value}", property.name) });
        }
        let plain = self.properties.is_empty() && self.entries.is_empty() && !self.overflow;
        let name = self.description.as_deref().unwrap_or_default();
        if plain && !name.is_empty() && name != "Object" && !list {
            return name.to_owned();
        }
        if self.overflow {
            parts.push("…".to_owned());
        }
        let inside = parts.join(", ");
        if list {
            return format!("[{inside}]");
        }
        let name = if matches!(name, "" | "Object") { String::new() } else { format!("{name} ") };
        format!("{name}{{{inside}}}")
    }
}

impl Capture {
    /// Handles `Runtime.consoleAPICalled`.
    pub(super) fn console_called(&mut self, session: &str, params: &RawValue, is_truncated: bool) {
        let Some(called) = self.read::<ConsoleCall>(params) else { return };
        if called.timestamp < self.console_since {
            // The browser repeats messages from before the capture.
            return;
        }
        let objects = called.args.iter().filter(|arg| arg.object_id.is_some()).count();
        let kind = if called.level == "error" { "console_error" } else { "console_log" };
        let mut event = Event::from_browser(kind, Category::Console, "Runtime.consoleAPICalled")
            .at_ms(called.timestamp)
            .truncated(is_truncated);
        self.locate_context(&mut event, session, Some(called.execution_context_id));
        let args: Vec<String> = called.args.iter().take(MAX_ARGUMENTS).map(Remote::text).collect();
        event.put("level", called.level);
        event.put("text", args.first().cloned().unwrap_or_default());
        event.put("args", args);
        event.put("stack_trace", stack(called.stack_trace));
        let event = event.truncated(called.args.len() > MAX_ARGUMENTS);
        self.events.add(event);
        self.release_objects(session, u32::try_from(objects).unwrap_or(u32::MAX));
    }

    /// Handles `Runtime.exceptionThrown`.
    pub(super) fn exception_thrown(&mut self, session: &str, params: &RawValue, is_truncated: bool) {
        let Some(ExceptionThrown { timestamp, details }) = self.read::<ExceptionThrown>(params) else { return };
        if timestamp < self.console_since {
            return;
        }
        let mut event = Event::from_browser("console_error", Category::Console, "Runtime.exceptionThrown")
            .at_ms(timestamp)
            .truncated(is_truncated);
        self.locate_context(&mut event, session, details.execution_context_id);
        let description = details.exception.as_ref().map(Remote::text).unwrap_or_default();
        // The description of an error continues with its stack, which has a field of its own.
        let description = description.split("\n    at ").next().unwrap_or_default();
        let text = if description.is_empty() || details.text.contains(description) {
            details.text
        } else {
            format!("{} {description}", details.text)
        };
        event.put("text", text);
        event.put("line", details.line_number);
        event.put("column", details.column_number);
        event.put_url("source_url", &details.url.unwrap_or_default());
        event.put("stack_trace", stack(details.stack_trace));
        self.events.add(event);
        self.release_objects(session, 1);
    }

    fn locate_context(&self, event: &mut Event, id: &str, context: Option<i64>) {
        let frame = self.sessions.get(id).zip(context).and_then(|(session, context)| session.contexts.get(&context));
        self.sessions.locate(event, id, frame.map(String::as_str));
    }

    /// Counts held objects, and releases them above [`MAX_HELD_OBJECTS`].
    fn release_objects(&mut self, id: &str, more: u32) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.held_objects = session.held_objects.saturating_add(more);
        if session.held_objects > MAX_HELD_OBJECTS {
            session.held_objects = 0;
            self.send(Some(id), "Runtime.releaseObjectGroup", json!({ "objectGroup": "console" }));
        }
    }

    /// Releases all held objects, also those of messages that were not captured.
    pub(super) fn release_all_objects(&mut self) {
        if !self.categories.console {
            return;
        }
        let all: Vec<String> = self.sessions.0.keys().cloned().collect();
        for session in all {
            self.release_objects(&session, MAX_HELD_OBJECTS + 1);
        }
    }
}

/// Returns a stack without the fields that only a debugger needs.
fn stack(stack: Option<Value>) -> Value {
    let Some(mut stack) = stack else { return Value::Null };
    if let Some(fields) = stack.as_object_mut() {
        fields.retain(|name, _| matches!(name.as_str(), "callFrames" | "description" | "parent"));
        if let Some(parent) = fields.remove("parent") {
            let parent = self::stack(Some(parent));
            fields.insert("parent".to_owned(), parent);
        }
    }
    stack
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(remote: Value) -> String {
        serde_json::from_value::<Remote>(remote).expect("a value").text()
    }

    #[test]
    fn values_are_captured_as_a_console_shows_them() {
        assert_eq!(text(json!({ "type": "string", "value": "a\u{1b}[31m<b>" })), "a\u{1b}[31m<b>");
        assert_eq!(text(json!({ "type": "number", "value": 1.5, "description": "1.5" })), "1.5");
        assert_eq!(text(json!({ "type": "number", "unserializableValue": "-0", "description": "-0" })), "-0");
        assert_eq!(text(json!({ "type": "undefined" })), "undefined");
        assert_eq!(text(json!({ "type": "object", "subtype": "null", "value": null })), "null");
        assert_eq!(text(json!({ "type": "function", "description": "f() {}" })), "f() {}");
        let object = json!({ "type": "object", "description": "Object", "preview": {
            "type": "object", "description": "Object", "overflow": true, "properties": [
                { "name": "a", "type": "string", "value": "x" }, { "name": "g", "type": "accessor" },
                { "name": "n", "type": "number", "value": "1" }] } });
        assert_eq!(text(object), "{a: 'x', g: (...), n: 1, …}");
        let list = json!({ "type": "object", "subtype": "array", "description": "Array(2)", "preview": {
            "type": "object", "subtype": "array", "description": "Array(2)", "overflow": false, "properties": [
                { "name": "0", "type": "number", "value": "1" }, { "name": "1", "type": "object", "value": "Object" }] } });
        assert_eq!(text(list), "[1, Object]");
        let map = json!({ "type": "object", "subtype": "map", "description": "Map(1)", "preview": {
            "type": "object", "subtype": "map", "description": "Map(1)", "overflow": false, "properties": [],
            "entries": [{ "key": { "type": "string", "description": "k", "overflow": false, "properties": [] },
                          "value": { "type": "number", "description": "2", "overflow": false, "properties": [] } }] } });
        assert_eq!(text(map), "Map(1) {k => 2}");
    }
}
