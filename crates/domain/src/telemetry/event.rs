//! Telemetry events.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::Category;
use crate::ids::{ProfileId, ProfileVersionId};
use crate::network::DeniedRequest;
use crate::proxy::ProxyFailure;
use crate::storage::StorageLimit;

/// The maximum length of an event in bytes of JSON, which allows a screenshot in base64. Longer events count as lost.
pub const MAX_EVENT: usize = 3 << 20;

/// The category of an event: one that can be captured, or that of the capture itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventCategory {
    /// A category that callers select.
    Captured(Category),
    /// The state of the capture, which callers cannot select.
    Monitor,
}

impl EventCategory {
    /// All categories.
    pub const ALL: [Self; 10] = [
        Self::Captured(Category::Console),
        Self::Captured(Category::Page),
        Self::Captured(Category::Interaction),
        Self::Captured(Category::Network),
        Self::Captured(Category::Control),
        Self::Captured(Category::Connection),
        Self::Captured(Category::System),
        Self::Captured(Category::Screenshot),
        Self::Captured(Category::Captcha),
        Self::Monitor,
    ];

    /// Returns the text in the store and in the wire format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Captured(category) => category.as_str(),
            Self::Monitor => "monitor",
        }
    }

    /// Parses the text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == text)
    }
}

/// The source of an event that this service reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// This service. The text `kernel_api` is an older name of it, which clients expect.
    Service,
    /// A program in the sandbox.
    LocalProcess,
}

impl SourceKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "kernel_api",
            Self::LocalProcess => "local_process",
        }
    }
}

/// Something that happened in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The category.
    pub category: EventCategory,
    /// The time of the event according to its source.
    pub at: OffsetDateTime,
    /// The event as callers receive it: a JSON object on one line with `type`, `category`, `ts`, `source`, and
    /// optionally `data` and `truncated`.
    pub body: Arc<str>,
}

impl Event {
    /// Returns the type, such as `console_log`: the first member of an agent's event, and the last member of an event of
    /// this service; empty if the body has none.
    #[must_use]
    pub fn kind(&self) -> &str {
        let first = self.body.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split('"').next());
        let last = || self.body.strip_suffix(r#""}"#)?.rsplit_once(r#""type":""#).map(|(_, kind)| kind);
        first.or_else(last).unwrap_or_default()
    }

    /// Creates an event. `source` is its source, with the source's own name of the event if there is one.
    #[must_use]
    pub fn new(
        category: EventCategory,
        kind: &str,
        at: OffsetDateTime,
        source: (SourceKind, Option<&str>),
        data: Option<Map<String, Value>>,
    ) -> Self {
        let (source, source_event) = source;
        let mut source = json!({ "kind": source.as_str() });
        if let Some(source_event) = source_event {
            source["event"] = source_event.into();
        }
        let ts = i64::try_from(at.unix_timestamp_nanos() / 1000).unwrap_or(i64::MAX);
        let mut body = json!({ "type": kind, "category": category.as_str(), "ts": ts, "source": source });
        if let Some(data) = data {
            body["data"] = data.into();
        }
        Self { category, at, body: body.to_string().into() }
    }

    /// Creates the event of an API call on the session.
    #[must_use]
    pub fn api_call(at: OffsetDateTime, operation: &str, request: &str, status: u16, duration_ms: u64) -> Self {
        let data = [
            ("operation_id", operation.into()),
            ("request_id", request.into()),
            ("status", status.into()),
            ("duration_ms", duration_ms.into()),
        ];
        Self::ours(Category::Control, "api_call", at, None, Some(data.map(|(name, value)| (name.to_owned(), value))))
    }

    /// Creates the event of a program that the kernel killed because the memory was full: its process id on the host,
    /// its name and its resident memory in KiB.
    #[must_use]
    pub fn oom_kill(at: OffsetDateTime, pid: u32, process: &str, resident_kib: u64) -> Self {
        let data = json!({ "pid": pid, "process_name": process, "rss_kb": resident_kib, "constraint": "memcg" });
        let source = (SourceKind::LocalProcess, Some("oom-kill"));
        Self::new(EventCategory::Captured(Category::System), "system_oom_kill", at, source, members(data))
    }

    /// Creates the event of a proxy that could not be used.
    #[must_use]
    pub fn proxy_failed(at: OffsetDateTime, failure: ProxyFailure) -> Self {
        let data = [("error_code", "proxy_error"), ("proxy_failure", failure.as_str())];
        let data = data.map(|(name, value)| (name.to_owned(), value.into()));
        Self::ours(Category::Network, "network_proxy_failed", at, None, Some(data))
    }

    /// Creates the event of a request that the network configuration of its session refused; `request` identifies the
    /// event.
    #[must_use]
    pub fn network_denied(at: OffsetDateTime, denied: &DeniedRequest, request: &str) -> Self {
        let data = [
            ("code", "network_policy_denied".into()),
            ("request_id", request.into()),
            ("status", 403_u16.into()),
            ("method", denied.method.as_str().into()),
            ("url", denied.url().into()),
        ];
        let data = data.map(|(name, value): (&str, Value)| (name.to_owned(), value));
        Self::ours(Category::Network, "proxy_error", at, None, Some(data))
    }

    /// Creates the event of a profile version that replaced a version from which the session was not started. The
    /// replaced version stays stored.
    #[must_use]
    pub fn profile_replaced(
        at: OffsetDateTime,
        profile: ProfileId,
        version: ProfileVersionId,
        replaced: ProfileVersionId,
    ) -> Self {
        let ids = [
            ("profile_id", profile.to_string().into()),
            ("version_id", version.to_string().into()),
            ("replaced_version_id", replaced.to_string().into()),
        ];
        let data = Some(ids.map(|(name, id)| (name.to_owned(), id)));
        Self::ours(Category::System, "profile_version_replaced", at, None, data)
    }

    /// Creates an event of this service in a category that callers select.
    #[must_use]
    pub fn ours<const N: usize>(
        category: Category,
        kind: &str,
        at: OffsetDateTime,
        source_event: Option<&str>,
        data: Option<[(String, Value); N]>,
    ) -> Self {
        let data = data.map(|members| members.into_iter().collect());
        Self::new(EventCategory::Captured(category), kind, at, (SourceKind::Service, source_event), data)
    }

    /// Creates the event of the loss of the events `first` to `last`; `limit` is the storage limit that caused it.
    #[must_use]
    pub fn dropped(at: OffsetDateTime, first: u64, last: u64, limit: Option<StorageLimit>) -> Self {
        let mut data = json!({ "count": last - first + 1, "first_seq": first, "last_seq": last });
        if let Some(limit) = limit {
            data["limit"] = limit.as_str().into();
        }
        Self::new(EventCategory::Monitor, "telemetry_dropped", at, (SourceKind::Service, None), members(data))
    }
}

/// Returns the members of a JSON object.
fn members(object: Value) -> Option<Map<String, Value>> {
    match object {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::NOON;

    #[test]
    fn an_event_is_one_line_of_json_with_its_time_in_microseconds() {
        let event = Event::api_call(NOON, "capture_screenshot", "a\nb", 200, 12);
        assert!(!event.body.contains('\n'));
        let body: Value = serde_json::from_str(&event.body).expect("JSON");
        let data =
            json!({ "operation_id": "capture_screenshot", "request_id": "a\nb", "status": 200, "duration_ms": 12 });
        let expected = json!({
            "type": "api_call", "category": "control", "ts": 1_796_126_400_000_000_i64,
            "source": { "kind": "kernel_api" }, "data": data,
        });
        assert_eq!(body, expected);
        assert_eq!(event.kind(), "api_call");
    }

    #[test]
    fn every_category_is_read_as_it_is_written() {
        for category in EventCategory::ALL {
            assert_eq!(EventCategory::parse(category.as_str()), Some(category));
        }
        assert_eq!(EventCategory::parse("Console"), None);
    }
}
