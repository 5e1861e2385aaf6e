//! One event, before it has a number.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Map, Value};

use super::addresses;
use casement_agent_protocol::telemetry::{Addresses, Category, MAX_EVENT_BYTES, Source, SourceKind};

/// Longest address in an event, in bytes.
const MAX_URL: usize = 8 << 10;
/// Longest address that holds its own content.
const MAX_DATA_URL: usize = 1 << 10;
/// How far into an address a user and a password are looked for.
const MAX_USER: usize = 128 << 10;
/// Below this length no string is cut, in bytes.
const SHORT: usize = 64;

/// What happened.
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
    /// It happened now.
    pub(super) fn new(kind: &'static str, category: Category, teller: SourceKind) -> Self {
        let source = Source { kind: teller, event: None };
        Self { kind, category, ts: now(), source, data: Map::new(), truncated: false }
    }

    /// The browser told of it with this word.
    pub(super) fn reported(kind: &'static str, category: Category, word: &str) -> Self {
        Self::new(kind, category, SourceKind::Cdp).with_word(word)
    }

    /// The browser told of it with this word.
    pub(super) fn with_word(mut self, word: &str) -> Self {
        self.source = Source { kind: SourceKind::Cdp, event: Some(word.to_owned()) };
        self
    }

    /// When it happened, in milliseconds since 1970.
    pub(super) fn at_ms(mut self, ms: f64) -> Self {
        if ms.is_finite() && ms > 0.0 {
            self.ts = (ms * 1000.0) as u64;
        }
        self
    }

    /// Something of it was cut already.
    pub(super) fn cut(mut self, cut: bool) -> Self {
        self.truncated |= cut;
        self
    }

    /// A field, unless it is null.
    pub(super) fn put(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.data.insert(name.to_owned(), value);
        }
    }

    /// A field, unless it is empty.
    pub(super) fn put_text(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.put(name, text);
        }
    }

    /// An address.
    pub(super) fn put_url(&mut self, name: &str, url: &str) {
        self.truncated |= url.len() > longest_url(url);
        self.put_text(name, &short_url(url));
    }

    /// As [`put`](Self::put), to be chained.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.put(name, value);
        self
    }

    /// As JSON with as much of the addresses in it as is told, cut to the length that an event may have; a picture is not cut.
    pub(super) fn into_json(mut self, addresses: Addresses) -> Vec<u8> {
        addresses::clean(&mut self.data, addresses);
        // Our own types always have a JSON form.
        let json = serde_json::to_vec(&self).unwrap_or_default();
        if json.len() <= MAX_EVENT_BYTES || self.category == Category::Screenshot {
            return json;
        }
        self.shorter()
    }

    fn shorter(&self) -> Vec<u8> {
        let mut data = Value::Object(self.data.clone());
        let as_json = |data: Value| {
            let Value::Object(data) = data else { return Vec::new() };
            let (kind, category, ts, source) = (self.kind, self.category, self.ts, self.source.clone());
            serde_json::to_vec(&Self { kind, category, ts, source, data, truncated: true }).unwrap_or_default()
        };
        let mut longest = MAX_EVENT_BYTES / 2;
        while longest >= SHORT {
            cut_strings(&mut data, longest);
            let json = as_json(data.clone());
            if json.len() <= MAX_EVENT_BYTES {
                return json;
            }
            longest /= 2;
        }
        // Too much that is no string, such as a hundred thousand arguments: what remains are the plain fields.
        if let Value::Object(data) = &mut data {
            data.retain(|_, value| !value.is_array() && !value.is_object());
        }
        as_json(data)
    }
}

fn cut_strings(value: &mut Value, longest: usize) {
    match value {
        Value::String(text) if text.len() > longest => text.truncate(beginning(text, longest).len()),
        Value::Array(values) => values.iter_mut().for_each(|value| cut_strings(value, longest)),
        Value::Object(fields) => fields.values_mut().for_each(|value| cut_strings(value, longest)),
        _ => {}
    }
}

/// An address without its user, as much of it as is told.
pub(super) fn short_url(url: &str) -> Cow<'_, str> {
    // Before it is cut: half of a user looks like a host.
    match addresses::address(beginning(url, MAX_USER), Addresses::Full) {
        Cow::Borrowed(_) => Cow::Borrowed(beginning(url, longest_url(url))),
        Cow::Owned(clean) => Cow::Owned(beginning(&clean, longest_url(url)).to_owned()),
    }
}

fn longest_url(url: &str) -> usize {
    if url.starts_with("data:") { MAX_DATA_URL } else { MAX_URL }
}

/// The beginning of a text, of at most so many bytes.
pub(super) fn beginning(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Microseconds since 1970.
pub(super) fn now() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "events bear the time of the machine on which they happen")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(event: Event) -> casement_agent_protocol::telemetry::EventLine {
        let mut line = br#"{"seq":1,"#.to_vec();
        line.extend_from_slice(&event.into_json(Addresses::Full)[1..]);
        serde_json::from_slice(&line).expect("readable")
    }

    #[test]
    fn of_an_event_that_is_too_long_the_largest_strings_are_cut() {
        let mut event = Event::reported("console_log", Category::Console, "Runtime.consoleAPICalled");
        event.put("text", "\n".repeat(1 << 20));
        event.put("args", vec!["ä".repeat(200_000), "short".to_owned()]);
        assert!(event.clone().into_json(Addresses::Full).len() <= MAX_EVENT_BYTES);
        let reported = reported(event);
        assert!(reported.truncated);
        let data = reported.data.expect("data");
        assert_eq!(data["args"][1], "short");
        assert!(data["text"].as_str().is_some_and(|text| text.len() > 10_000));
    }

    #[test]
    fn an_event_of_too_many_parts_keeps_its_plain_fields() {
        let mut event = Event::reported("console_log", Category::Console, "Runtime.consoleAPICalled");
        event.put("text", "kept");
        event.put("args", vec!["x"; 300_000]);
        let data = reported(event).data.expect("data");
        assert_eq!((data.len(), &data["text"]), (1, &Value::from("kept")));
    }

    #[test]
    fn addresses_are_bounded() {
        let mut event = Event::reported("network_request", Category::Network, "Network.requestWillBeSent");
        event.put_url("url", &format!("https://x.test/{}", "ü".repeat(1 << 20)));
        assert!(event.truncated && event.into_json(Addresses::Full).len() < MAX_URL + 500);
        assert_eq!(short_url(&format!("data:,{}", "x".repeat(5000))).len(), MAX_DATA_URL);
        assert_eq!(short_url("https://x.test/"), "https://x.test/");
    }
}
