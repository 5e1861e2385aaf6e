//! Converts events to log records.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use casement_domain::untrusted_json;
use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry::{InstrumentationScope, Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord, SdkLogger, SdkLoggerProvider};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::queue::Outgoing;
use super::settings::Settings;

/// The events that have an OpenTelemetry event name; others carry their name only as an attribute.
const EVENT_NAMES: [&str; 36] = [
    "console_log",
    "console_error",
    "network_request",
    "network_response",
    "network_loading_failed",
    "network_idle",
    "network_proxy_failed",
    "page_navigation",
    "page_dom_content_loaded",
    "page_load",
    "page_tab_opened",
    "page_crashed",
    "page_layout_shift",
    "page_lcp",
    "page_layout_settled",
    "page_navigation_settled",
    "interaction_click",
    "interaction_key",
    "interaction_scroll_settled",
    "api_call",
    "cdp_connect",
    "cdp_disconnect",
    "live_view_connect",
    "live_view_disconnect",
    "webdriver_connect",
    "webdriver_disconnect",
    "system_oom_kill",
    "service_crashed",
    "profile_version_replaced",
    "monitor_screenshot",
    "captcha_solve_result",
    "monitor_disconnected",
    "monitor_reconnected",
    "monitor_reconnect_failed",
    "monitor_init_failed",
    "telemetry_dropped",
];

/// Builds records. The SDK passes them only to a processor.
pub(crate) struct Records {
    provider: SdkLoggerProvider,
    logger: SdkLogger,
    made: RecordSink,
}

/// Stores the records that were built last.
#[derive(Clone, Debug, Default)]
struct RecordSink(Arc<Mutex<Vec<(SdkLogRecord, InstrumentationScope)>>>);

impl LogProcessor for RecordSink {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        self.0.lock().push((record.clone(), scope.clone()));
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Returns the resource that the records belong to. `OTEL_RESOURCE_ATTRIBUTES` may add attributes, but not for
/// destinations of callers.
pub(crate) fn resource(settings: &Settings) -> Resource {
    let base = if settings.of_caller { Resource::builder_empty() } else { Resource::builder() };
    base.with_service_name("casement")
        .with_attribute(KeyValue::new("service.version", settings.version.clone()))
        .with_attribute(KeyValue::new("service.instance.id", settings.instance.clone()))
        .build()
}

impl Records {
    pub(crate) fn new() -> Self {
        let made = RecordSink::default();
        let provider = SdkLoggerProvider::builder().with_log_processor(made.clone()).build();
        let logger = provider.logger("casement.telemetry");
        Self { provider, logger, made }
    }

    /// Returns a record for each event, in order.
    pub(crate) fn of(&self, events: &[Outgoing]) -> Vec<(SdkLogRecord, InstrumentationScope)> {
        for event in events {
            self.logger.emit(self.record(event));
        }
        std::mem::take(&mut *self.made.0.lock())
    }

    fn record(&self, Outgoing { session, numbered }: &Outgoing) -> SdkLogRecord {
        let mut record = self.logger.create_log_record();
        let event = match untrusted_json::parse(numbered.event.body.as_bytes()) {
            Ok(Value::Object(event)) => event,
            _ => Map::new(),
        };
        let text = |name: &str| event.get(name).and_then(Value::as_str);
        let kind = text("type").unwrap_or_default();
        if let Some(name) = EVENT_NAMES.into_iter().find(|name| *name == kind) {
            record.set_event_name(name);
        }
        record.set_timestamp(moment(numbered.event.at));
        record.set_observed_timestamp(moment(numbered.at));
        let (number, word) = severity(kind, event.get("data"));
        record.set_severity_number(number);
        record.set_severity_text(word);
        record.add_attribute("session.id", session.to_string());
        record.add_attribute("casement.seq", i64::try_from(numbered.seq).unwrap_or(i64::MAX));
        record.add_attribute("casement.event", kind.to_owned());
        record.add_attribute("casement.category", numbered.event.category.as_str());
        if let Some(source) = event.get("source").and_then(|source| source.get("kind")).and_then(Value::as_str) {
            record.add_attribute("casement.source", source.to_owned());
        }
        if event.get("truncated") == Some(&Value::Bool(true)) {
            record.add_attribute("casement.truncated", true);
        }
        if let Some(data) = event.into_iter().find_map(|(name, data)| (name == "data").then_some(data))
            && let Some(body) = value(data)
        {
            record.set_body(body);
        }
        record
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // The result can be ignored, because the processor has no open resources.
        let _ = self.provider.shutdown();
    }
}

fn moment(at: time::OffsetDateTime) -> SystemTime {
    SystemTime::from(at)
}

/// Returns the severity of an event of this type.
fn severity(kind: &str, data: Option<&Value>) -> (Severity, &'static str) {
    let level = data.and_then(|data| data.get("level")).and_then(Value::as_str);
    match (kind, level) {
        ("console_error" | "page_crashed" | "service_crashed" | "system_oom_kill", _) => (Severity::Error, "ERROR"),
        (
            "telemetry_dropped"
            | "network_loading_failed"
            | "network_proxy_failed"
            | "proxy_error"
            | "monitor_reconnect_failed"
            | "monitor_init_failed"
            | "profile_version_replaced",
            _,
        )
        | ("console_log", Some("warning" | "warn")) => (Severity::Warn, "WARN"),
        ("console_log", Some("debug" | "verbose")) => (Severity::Debug, "DEBUG"),
        _ => (Severity::Info, "INFO"),
    }
}

/// Converts a JSON value; `None` for `null`.
fn value(value: Value) -> Option<AnyValue> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(on) => AnyValue::Boolean(on),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => AnyValue::Int(whole),
            None => AnyValue::Double(number.as_f64()?),
        },
        Value::String(text) => AnyValue::String(text.into()),
        // Positions in a list are significant, so empty values stay.
        Value::Array(list) => {
            let one = |item| self::value(item).unwrap_or_else(|| AnyValue::String("".into()));
            AnyValue::ListAny(Box::new(list.into_iter().map(one).collect()))
        }
        Value::Object(members) => {
            let members =
                members.into_iter().filter_map(|(name, member)| Some((Key::from(name), self::value(member)?)));
            AnyValue::Map(Box::new(members.collect::<HashMap<_, _>>()))
        }
    })
}

/// Replaces the screenshot of an event by its length in base64.
pub(crate) fn without_screenshot(body: &str) -> Arc<str> {
    let mut event = untrusted_json::parse(body.as_bytes()).unwrap_or_default();
    if let Some(data) = event.get_mut("data").and_then(Value::as_object_mut)
        && let Some(png) = data.remove("png")
    {
        data.insert("png_base64_length".to_owned(), json!(png.as_str().map_or(0, str::len)));
    }
    event.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screenshot_is_replaced_by_its_length() {
        let event = json!({ "type": "monitor_screenshot", "data": { "png": "A".repeat(1000) } });
        let without: Value = serde_json::from_str(&without_screenshot(&event.to_string())).expect("JSON");
        assert_eq!(without, json!({ "type": "monitor_screenshot", "data": { "png_base64_length": 1000 } }));
    }

    #[test]
    fn every_json_value_but_null_is_converted() {
        let converted = value(json!({ "a": [1, 2.5, null, true, "x", u64::MAX], "b": null })).expect("a value");
        let AnyValue::Map(members) = converted else { panic!("{converted:?}") };
        assert_eq!(members.len(), 1);
        let AnyValue::ListAny(list) = &members[&Key::from("a")] else { panic!("{members:?}") };
        let expected = [
            AnyValue::Int(1),
            AnyValue::Double(2.5),
            AnyValue::String("".into()),
            AnyValue::Boolean(true),
            AnyValue::String("x".into()),
            AnyValue::Double(u64::MAX as f64),
        ];
        assert_eq!(**list, expected);
    }
}
