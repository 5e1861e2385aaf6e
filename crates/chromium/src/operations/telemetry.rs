//! Telemetry events of a session, from its agent.

use std::time::Duration;

use async_trait::async_trait;
use casement_agent_protocol::telemetry::{
    CONFIGURE, CONFIRM, Category as AgentCategory, ConfigureRequest, ConfirmRequest, FINISH, FOLLOW, FinishResponse,
    FollowRequest, GAP,
};
use casement_domain::browser::EngineFault;
use casement_domain::ids::BrowserId;
use casement_domain::session_operation::OperationError;
use casement_domain::telemetry::{
    AgentEvents, Capture, Category, Event, EventCategory, Item, MAX_EVENT, TelemetryTap, What,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use crate::engine::Engine;
use crate::fault::failed;

/// The timeout of starting a stream.
const QUICK_TIMEOUT: Duration = Duration::from_secs(20);
/// The last timestamp with a year of four digits, in microseconds.
const MAX_TIMESTAMP: u64 = 253_402_300_799_000_000;
/// The longest name of an event, in bytes.
const MAX_NAME: usize = 64;

#[async_trait]
impl TelemetryTap for Engine {
    async fn configure(&self, browser: BrowserId, capture: Option<Capture>) -> Result<(), OperationError> {
        let categories = capture.iter().flat_map(Capture::categories).filter_map(agent_category).collect();
        let request = ConfigureRequest { categories, addresses: self.config().telemetry_addresses };
        self.agent_command(browser, CONFIGURE, &request, QUICK_TIMEOUT).await
    }

    async fn follow(&self, browser: BrowserId, after: u64) -> Result<AgentEvents, OperationError> {
        let lines = self.agent_lines(browser, FOLLOW, &FollowRequest { after }, QUICK_TIMEOUT, MAX_EVENT).await?;
        Ok(lines.each(received))
    }

    async fn confirm(&self, browser: BrowserId, through: u64) -> Result<(), OperationError> {
        self.agent_command(browser, CONFIRM, &ConfirmRequest { through }, QUICK_TIMEOUT).await
    }

    async fn finish(&self, browser: BrowserId) -> Result<u64, OperationError> {
        let FinishResponse { last } = self.agent_call(browser, FINISH, &(), QUICK_TIMEOUT).await?;
        Ok(last)
    }
}

/// Returns the agent's name of a category; `None` if the agent does not capture the category.
fn agent_category(category: Category) -> Option<AgentCategory> {
    match category {
        Category::Console => Some(AgentCategory::Console),
        Category::Network => Some(AgentCategory::Network),
        Category::Page => Some(AgentCategory::Page),
        Category::Interaction => Some(AgentCategory::Interaction),
        Category::System => Some(AgentCategory::System),
        Category::Screenshot => Some(AgentCategory::Screenshot),
        Category::Captcha => Some(AgentCategory::Captcha),
        Category::Control | Category::Connection => None,
    }
}

fn category(agent_category: AgentCategory) -> Option<EventCategory> {
    Some(EventCategory::Captured(match agent_category {
        AgentCategory::Console => Category::Console,
        AgentCategory::Network => Category::Network,
        AgentCategory::Page => Category::Page,
        AgentCategory::Interaction => Category::Interaction,
        AgentCategory::System => Category::System,
        AgentCategory::Screenshot => Category::Screenshot,
        AgentCategory::Captcha => Category::Captcha,
        AgentCategory::Monitor => return Some(EventCategory::Monitor),
        AgentCategory::Other => return None,
    }))
}

/// A line of the agent, whose content is passed on unchanged.
#[derive(Debug, Deserialize)]
struct Line {
    seq: u64,
    #[serde(rename = "type")]
    kind: String,
    category: AgentCategory,
    ts: u64,
    source: Box<RawValue>,
    #[serde(default)]
    data: Option<Box<RawValue>>,
    #[serde(default)]
    truncated: bool,
}

/// Parses a line. An unreadable or truncated line becomes a lost event; without a number it returns `None`, and its
/// event becomes the gap before the next event.
fn received(line: &[u8]) -> Option<Item> {
    let read = serde_json::from_slice::<Line>(line).ok().and_then(|line| item(line).ok());
    read.or_else(|| Some(Item { agent_seq: Some(leading_number(line)?), what: What::Lost(1) }))
}

/// Returns the number at the beginning of a line.
fn leading_number(line: &[u8]) -> Option<u64> {
    let rest = std::str::from_utf8(line.strip_prefix(br#"{"seq":"#)?).ok()?;
    rest.split_once(',').and_then(|(number, _)| number.trim().parse().ok())
}

/// Checks an event, because the agent is untrusted: it must be one line of the expected form.
fn item(line: Line) -> Result<Item, OperationError> {
    let agent_seq = Some(line.seq);
    let Some(category) = category(line.category) else {
        let what =
            if line.category == AgentCategory::Other && line.kind == GAP { What::Lost(1) } else { What::Nothing };
        return Ok(Item { agent_seq, what });
    };
    let invalid = |what: &str| failed(EngineFault::AgentError, format!("the agent sent an invalid {what}"));
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if line.kind.is_empty() || line.kind.len() > MAX_NAME || !line.kind.bytes().all(plain) {
        return Err(invalid("name").into());
    }
    let data = line.data.as_deref().map(RawValue::get);
    for object in [Some(line.source.get()), data].into_iter().flatten() {
        // A carriage return between two members would end a line of an event stream.
        if !object.starts_with('{') || object.contains('\r') {
            return Err(invalid("object").into());
        }
    }
    let ts = line.ts.min(MAX_TIMESTAMP);
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ts) * 1000).map_err(|_| invalid("time"))?;
    let mut body = format!(
        r#"{{"type":"{}","category":"{}","ts":{ts},"source":{}"#,
        line.kind,
        category.as_str(),
        line.source.get()
    );
    if let Some(data) = data {
        body.push_str(r#","data":"#);
        body.push_str(data);
    }
    body.push_str(if line.truncated { r#","truncated":true}"# } else { "}" });
    Ok(Item { agent_seq, what: What::Event(Event { category, at, body: body.into() }) })
}

#[cfg(test)]
mod tests {
    use casement_agent_protocol::telemetry::{EventLine, Source, SourceKind};
    use serde_json::{Value, json};

    use super::*;

    fn read(line: &str) -> Result<Item, String> {
        let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
        item(line).map_err(|error| error.to_string())
    }

    fn sample() -> EventLine {
        let data = json!({ "text": "a\nb\u{2028}\u{0}", "args": [1, { "b": null }] });
        let Value::Object(data) = data else { unreachable!("an object was written") };
        EventLine {
            seq: 7,
            kind: "console_log".to_owned(),
            category: AgentCategory::Console,
            ts: 1_796_126_400_000_001,
            source: Source { kind: SourceKind::Cdp, event: Some("Runtime.consoleAPICalled".to_owned()) },
            data: Some(data),
            truncated: true,
        }
    }

    #[test]
    fn an_event_is_passed_on_unchanged_without_its_number() {
        let line = serde_json::to_string(&sample()).expect("JSON");
        let Item { agent_seq: Some(7), what: What::Event(event) } = read(&line).expect("an event") else {
            panic!("no event of that number")
        };
        assert_eq!(event.category, EventCategory::Captured(Category::Console));
        assert_eq!(event.at.unix_timestamp_nanos(), 1_796_126_400_000_001_000);
        let mut expected: Value = serde_json::from_str(&line).expect("JSON");
        expected.as_object_mut().expect("an object").remove("seq");
        assert_eq!(serde_json::from_str::<Value>(&event.body).expect("JSON"), expected);
        assert!(!event.body.contains(['\n', '\r']));
    }

    #[test]
    fn foreign_categories_are_skipped_and_invalid_events_are_lost() {
        let with = |name: &str, value: Value| {
            let mut line = serde_json::to_value(sample()).expect("JSON");
            line[name] = value;
            line.to_string()
        };
        for category in ["control", "connection", "later"] {
            let item = read(&with("category", json!(category))).expect("counted");
            assert_eq!(item, Item { agent_seq: Some(7), what: What::Nothing });
        }
        let mut gap = serde_json::to_value(sample()).expect("JSON");
        (gap["type"], gap["category"]) = (json!(GAP), json!("other"));
        assert_eq!(read(&gap.to_string()).expect("counted"), Item { agent_seq: Some(7), what: What::Lost(1) });
        for (name, value) in [
            ("type", json!("a b")),
            ("type", json!("")),
            ("type", json!("x".repeat(65))),
            ("type", json!("x\",\"seq\":1")),
            ("source", json!("cdp")),
            ("data", json!([])),
            ("seq", json!(-1)),
        ] {
            assert!(read(&with(name, value.clone())).is_err(), "{name} {value}");
        }
        let broken = format!(r#"{{"seq":8,"type":"console_log","data":{{"text":"{}"#, "x".repeat(30));
        assert_eq!(received(broken.as_bytes()), Some(Item { agent_seq: Some(8), what: What::Lost(1) }));
        for unnumbered in ["", "{}", "nonsense", r#"{"seq":-1,"#, r#"{"seq":"1","#, r#"{"seq":9"#] {
            assert_eq!(received(unnumbered.as_bytes()), None, "{unnumbered}");
        }
        let with_return = with("source", json!({ "kind": "cdp" })).replace(r#""kind":"cdp""#, "\"kind\":\r\"cdp\"");
        assert!(read(&with_return).is_err());
        assert!(read(&with("ts", json!(u64::MAX))).is_ok());
    }
}
