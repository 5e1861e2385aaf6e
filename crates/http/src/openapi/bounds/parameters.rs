//! The bounds of query parameters.

use casement_domain::{audit, browser::StartUrl, node::NodeCondition, page::Page, pool, session, telemetry};
use serde_json::{Value, json};

use crate::connect::MAX_DURATION_MS;

use super::forms::{
    ANY_URL, DATE_TIME_OR_AGE, ID, NO_NUL, OCTAL_MODE, SIZE, STORE_URL, engine, formed, items_of, label, one_of, path,
    range,
};

/// The bound of a query parameter of a text without other bounds: PostgreSQL refuses NUL.
pub(in crate::openapi) fn any_text() -> Value {
    json!({"pattern": NO_NUL})
}

/// Returns the bounds of query parameters by name. A parameter of several operations with different bounds is in
/// [`operation_parameters`].
pub(in crate::openapi) fn parameters() -> Vec<(&'static str, Value)> {
    let moment = || json!({"pattern": DATE_TIME_OR_AGE});
    // Larger numbers than the format has are beyond the end of every list too.
    let number = json!({"minimum": 0, "format": null});
    vec![
        ("start_url", formed(ANY_URL, StartUrl::MAX_LENGTH)),
        ("viewport", json!({"pattern": SIZE})),
        ("acquire_timeout_seconds", range(0, pool::MAX_WAIT_SECONDS)),
        ("timeout_seconds", range(session::MIN_TIMEOUT_SECONDS.into(), session::MAX_TIMEOUT_SECONDS)),
        ("limit", range(1, Page::MAX_LIMIT)),
        ("offset", number),
        ("since", moment()),
        ("until", moment()),
        ("path", path()),
        ("mode", formed(OCTAL_MODE, 4)),
        ("order", one_of(&["", "asc", "desc"])),
        ("replay", one_of(&["", "all"])),
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
        ("list_invocations", "status", status(&["queued", "running", "succeeded", "failed"])),
        ("list_auth_connection_timeline", "type", one_of(&["login", "reauth", "health_check"])),
        ("list_audit_records", "limit", range(1, audit::Reading::List.max())),
        ("export_audit_chunk", "limit", range(1, audit::Reading::Export.max())),
        ("list_audit_records", "start", json!({"format": "date-time"})),
        ("list_audit_records", "end", json!({"format": "date-time"})),
        ("export_audit_chunk", "start", json!({"format": "date-time"})),
        ("export_audit_chunk", "end", json!({"format": "date-time"})),
        ("download_profile", "version", json!({"pattern": format!("^$|{ID}")})),
        ("download_profile", "format", one_of(&["tar.zst", "tar"])),
        ("get_connect_version", "name", label()),
        ("connect_browser", "name", label()),
        ("connect_webdriver", "name", label()),
        ("get_connect_version", "engine", engine()),
        ("connect_browser", "engine", engine()),
        ("connect_webdriver", "engine", engine()),
        ("get_connect_version", "timeout", range(1, MAX_DURATION_MS)),
        ("connect_browser", "timeout", range(1, MAX_DURATION_MS)),
        ("connect_webdriver", "timeout", range(1, MAX_DURATION_MS)),
        ("export_audit_chunk", "format", one_of(&["jsonl", "jsonl.gz"])),
        ("extension_from_web_store", "url", json!({"pattern": STORE_URL})),
        ("list_telemetry_events", "category", json!({"items": {"enum": categories}})),
    ]
}
