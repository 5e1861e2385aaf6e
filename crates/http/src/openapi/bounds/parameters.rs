//! The bounds of query parameters.

use casement_domain::{
    audit,
    browser::BrowserRegion,
    extension::StoreItem,
    fs::{AbsolutePath, FileMode},
    ids,
    node::NodeCondition,
    page::Page,
    pool, session,
    session_log::FollowLog,
    telemetry,
};
use serde_json::{Value, json};

use crate::{
    connect::{MAX_DURATION_MS, size_pattern},
    date_time,
};

use super::forms::{NO_NUL, engine, formed, items_of, label_in_path, one_of, path, range, start_url};

/// The bound of a query parameter of a text without other bounds: PostgreSQL refuses NUL.
pub(in crate::openapi) fn any_text() -> Value {
    json!({"pattern": NO_NUL})
}

/// Returns the words and an empty text, which means the same as none.
fn with_empty<'a>(words: &[&'a str]) -> Vec<&'a str> {
    std::iter::once("").chain(words.iter().copied()).collect()
}

/// Returns the bounds of query parameters by name. A parameter of several operations with different bounds is in
/// [`operation_parameters`].
pub(in crate::openapi) fn parameters() -> Vec<(&'static str, Value)> {
    let moment = || json!({"pattern": date_time::PATTERN_OR_AGE});
    // Larger numbers than the format has are beyond the end of every list too.
    let number = json!({"minimum": 0, "format": null});
    vec![
        ("start_url", start_url(false)),
        ("viewport", json!({"pattern": size_pattern()})),
        ("acquire_timeout_seconds", range(0, pool::MAX_WAIT_SECONDS)),
        ("timeout_seconds", range(session::MIN_TIMEOUT_SECONDS.into(), session::MAX_TIMEOUT_SECONDS)),
        ("limit", range(1, Page::MAX_LIMIT)),
        ("offset", number),
        ("since", moment()),
        ("until", moment()),
        ("path", path()),
        ("mode", json!({"pattern": FileMode::PATTERN})),
        ("order", one_of(&["", "asc", "desc"])),
        // Another text than `all` means the same as none.
        ("replay", json!({})),
        ("page_token", json!({})),
        ("cursor", json!({})),
        ("region", one_of(&with_empty(&BrowserRegion::ALL.map(BrowserRegion::as_str)))),
        ("headless", one_of(&["", "true", "1", "new", "shell", "chrome", "false", "0"])),
        ("sort_by", one_of(&["created_at", "name", "expires_at"])),
        ("sort_direction", one_of(&["asc", "desc"])),
        ("source", one_of(&["path", "supervisor"])),
        ("supervisor_process", one_of(&["chromium", "display", "agent"])),
        ("os", one_of(&["linux", "win", "mac"])),
        ("search", json!({"maxLength": audit::MAX_SEARCH})),
        ("auth_strategy", json!({"maxLength": audit::MAX_VALUE})),
        ("service", json!({"maxLength": audit::MAX_VALUE})),
        ("method", json!({"maxLength": audit::MAX_VALUE})),
        ("exclude_method", items_of(0, audit::MAX_EXCLUDED, json!({"maxLength": audit::MAX_VALUE}))),
        ("search_user_id", items_of(0, audit::MAX_USERS, json!({"maxLength": audit::MAX_VALUE}))),
    ]
}

/// Returns the bounds of query parameters of single operations, by the id of the operation and the name.
pub(in crate::openapi) fn operation_parameters() -> Vec<(&'static str, &'static str, Value)> {
    let status = |words: &[&str]| one_of(words);
    let categories: Vec<_> = telemetry::EventCategory::ALL.iter().map(|category| category.as_str()).collect();
    vec![
        ("list_browsers", "status", status(&["active", "deleted", "all"])),
        ("list_api_keys", "status", status(&["active", "deleted", "all"])),
        ("list_nodes", "state", one_of(&NodeCondition::ALL.map(NodeCondition::as_str))),
        ("list_invocations", "status", status(&["", "queued", "running", "succeeded", "failed"])),
        ("list_auth_connection_timeline", "type", one_of(&["", "login", "reauth", "health_check"])),
        ("list_audit_records", "limit", range(1, audit::Reading::List.max())),
        ("export_audit_chunk", "limit", range(1, audit::Reading::Export.max())),
        ("list_audit_records", "start", json!({"format": "date-time"})),
        ("list_audit_records", "end", json!({"format": "date-time"})),
        ("export_audit_chunk", "start", json!({"format": "date-time"})),
        ("export_audit_chunk", "end", json!({"format": "date-time"})),
        ("download_profile", "version", json!({"pattern": format!("^$|{}", ids::PATTERN)})),
        ("download_profile", "format", one_of(&["", "tar.zst", "tar"])),
        ("stream_logs", "path", formed(AbsolutePath::PATTERN, FollowLog::MAX_PATH - 1)),
        ("get_connect_version", "name", label_in_path()),
        ("connect_browser", "name", label_in_path()),
        ("connect_webdriver", "name", label_in_path()),
        ("get_connect_version", "engine", engine()),
        ("connect_browser", "engine", engine()),
        ("connect_webdriver", "engine", engine()),
        ("get_connect_version", "timeout", range(1, MAX_DURATION_MS)),
        ("connect_browser", "timeout", range(1, MAX_DURATION_MS)),
        ("connect_webdriver", "timeout", range(1, MAX_DURATION_MS)),
        ("export_audit_chunk", "format", one_of(&["jsonl", "jsonl.gz"])),
        ("extension_from_web_store", "url", formed(StoreItem::PATTERN, StoreItem::MAX_URL)),
        ("list_telemetry_events", "category", json!({"items": {"enum": with_empty(&categories)}})),
    ]
}
