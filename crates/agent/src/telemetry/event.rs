//! An event before it gets its number.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use super::addresses;
use crate::clock::now_us;
use casement_agent_protocol::telemetry::{Addresses, Category, MAX_EVENT_BYTES, Source, SourceKind};

/// The longest URL in an event, in bytes.
const MAX_URL: usize = 8 << 10;
/// The longest `data:` URL in an event, in bytes.
const MAX_DATA_URL: usize = 1 << 10;
/// The length of the beginning of a URL that is searched for a user and a password, in bytes.
const MAX_USER: usize = 128 << 10;
/// Strings up to this length are not truncated, in bytes.
const MIN_STRING: usize = 64;

/// An event.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Event {
    #[serde(rename = "type")]
    kind: &'static str,
    category: Category,
    ts: u64,
    source: Source,
    #[serde(skip_serializing_if = "Map::is_empty")]
    data: Map<String, Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

impl Event {
    /// Creates an event with the current time.
    pub(super) fn new(kind: &'static str, category: Category, source: SourceKind) -> Self {
        let source = Source { kind: source, event: None };
        Self { kind, category, ts: now_us(), source, data: Map::new(), truncated: false }
    }

    /// Creates an event from the browser's notice of this name.
    pub(super) fn from_browser(kind: &'static str, category: Category, notice: &str) -> Self {
        Self::new(kind, category, SourceKind::Cdp).with_source_event(notice)
    }

    /// Sets the browser's notice as the source.
    pub(super) fn with_source_event(mut self, notice: &str) -> Self {
        self.source = Source { kind: SourceKind::Cdp, event: Some(notice.to_owned()) };
        self
    }

    /// Sets the time of the event, in milliseconds since 1970.
    pub(super) fn at_ms(mut self, ms: f64) -> Self {
        if ms.is_finite() && ms > 0.0 {
            self.ts = (ms * 1000.0) as u64;
        }
        self
    }

    /// Marks the event as truncated, if it is.
    pub(super) fn truncated(mut self, is_truncated: bool) -> Self {
        self.truncated |= is_truncated;
        self
    }

    /// Sets a field, unless the value is null.
    pub(super) fn put(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.data.insert(name.to_owned(), value);
        }
    }

    /// Sets a text field, unless the text is empty.
    pub(super) fn put_text(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.put(name, text);
        }
    }

    /// Sets a URL field.
    pub(super) fn put_url(&mut self, name: &str, url: &str) {
        self.truncated |= url.len() > max_url_bytes(url);
        self.put_text(name, &short_url(url));
    }

    /// Sets a field like [`put`](Self::put), and returns the event.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.put(name, value);
        self
    }

    /// Serializes the event with the configured part of its URLs, truncated to the maximum length of an event.
    /// Screenshots are not truncated.
    pub(super) fn into_json(mut self, addresses: Addresses) -> Vec<u8> {
        addresses::clean(&mut self.data, addresses);
        // All types of the protocol serialize.
        let json = serde_json::to_vec(&self).unwrap_or_default();
        if json.len() <= MAX_EVENT_BYTES || self.category == Category::Screenshot {
            return json;
        }
        self.into_truncated_json()
    }

    fn into_truncated_json(self) -> Vec<u8> {
        let mut data = Value::Object(self.data);
        let as_json = |data: Value| {
            let Value::Object(data) = data else { return Vec::new() };
            let (kind, category, ts, source) = (self.kind, self.category, self.ts, self.source.clone());
            serde_json::to_vec(&Self { kind, category, ts, source, data, truncated: true }).unwrap_or_default()
        };
        let mut max_bytes = MAX_EVENT_BYTES / 2;
        while max_bytes >= MIN_STRING {
            truncate_strings(&mut data, max_bytes);
            let json = as_json(data.clone());
            if json.len() <= MAX_EVENT_BYTES {
                return json;
            }
            max_bytes /= 2;
        }
        // Too many elements, such as a hundred thousand arguments: only the plain fields remain.
        if let Value::Object(data) = &mut data {
            data.retain(|_, value| !value.is_array() && !value.is_object());
        }
        as_json(data)
    }
}

fn truncate_strings(value: &mut Value, max_bytes: usize) {
    match value {
        Value::String(text) if text.len() > max_bytes => text.truncate(beginning(text, max_bytes).len()),
        Value::Array(values) => values.iter_mut().for_each(|value| truncate_strings(value, max_bytes)),
        Value::Object(fields) => fields.values_mut().for_each(|value| truncate_strings(value, max_bytes)),
        _ => {}
    }
}

/// Returns the URL without its user, truncated.
pub(super) fn short_url(url: &str) -> Cow<'_, str> {
    // The user is removed before the truncation, because a truncated user looks like a host.
    match addresses::address(beginning(url, MAX_USER), Addresses::Full) {
        Cow::Borrowed(_) => Cow::Borrowed(beginning(url, max_url_bytes(url))),
        Cow::Owned(clean) => Cow::Owned(beginning(&clean, max_url_bytes(url)).to_owned()),
    }
}

fn max_url_bytes(url: &str) -> usize {
    if url.starts_with("data:") { MAX_DATA_URL } else { MAX_URL }
}

/// Returns the beginning of a text, at most `max` bytes.
pub(super) fn beginning(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Creates an event of the capture itself.
pub(super) fn monitor(kind: &'static str) -> Event {
    Event::new(kind, Category::Monitor, SourceKind::Cdp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(event: Event) -> casement_agent_protocol::telemetry::EventLine {
        let mut line = br#"{"seq":1,"#.to_vec();
        line.extend_from_slice(&event.into_json(Addresses::Full)[1..]);
        serde_json::from_slice(&line).expect("readable")
    }

    #[test]
    fn the_largest_strings_of_a_too_long_event_are_truncated() {
        let mut event = Event::from_browser("console_log", Category::Console, "Runtime.consoleAPICalled");
        event.put("text", "\n".repeat(1 << 20));
        event.put("args", vec!["ä".repeat(200_000), "short".to_owned()]);
        assert!(event.clone().into_json(Addresses::Full).len() <= MAX_EVENT_BYTES);
        let parsed = parsed(event);
        assert!(parsed.truncated);
        let data = parsed.data.expect("data");
        assert_eq!(data["args"][1], "short");
        assert!(data["text"].as_str().is_some_and(|text| text.len() > 10_000));
    }

    #[test]
    fn an_event_of_too_many_parts_keeps_its_plain_fields() {
        let mut event = Event::from_browser("console_log", Category::Console, "Runtime.consoleAPICalled");
        event.put("text", "kept");
        event.put("args", vec!["x"; 300_000]);
        let data = parsed(event).data.expect("data");
        assert_eq!((data.len(), &data["text"]), (1, &Value::from("kept")));
    }

    #[test]
    fn addresses_are_bounded() {
        let mut event = Event::from_browser("network_request", Category::Network, "Network.requestWillBeSent");
        event.put_url("url", &format!("https://x.test/{}", "ü".repeat(1 << 20)));
        assert!(event.truncated && event.into_json(Addresses::Full).len() < MAX_URL + 500);
        assert_eq!(short_url(&format!("data:,{}", "x".repeat(5000))).len(), MAX_DATA_URL);
        assert_eq!(short_url("https://x.test/"), "https://x.test/");
    }
}
