//! Tests of invalid requests, whose errors name the field.

use std::collections::BTreeMap;

use anyhow::ensure;
use casement_test_support::program::http::Request;
use casement_test_support::program::{Options, Server};
use serde_json::{Value, json};

use super::host::sql;

/// Returns invalid bodies for sessions and pools, with the field and the code of the error.
fn nonsense_of_both() -> Vec<(Value, &'static str, &'static str)> {
    vec![
        (json!({ "viewport": { "width": 0, "height": 1 } }), "viewport.width: ", "out_of_range"),
        (json!({ "viewport": { "width": 1, "height": -1 } }), "viewport.height: ", "out_of_range"),
        (json!({ "viewport": { "width": 1_000_000_000, "height": 1 } }), "viewport.width: ", "out_of_range"),
        (json!({ "viewport": { "width": 1.5, "height": 1 } }), "viewport.width: ", "invalid_type"),
        (json!({ "viewport": "big" }), "viewport: ", "invalid_type"),
        (json!({ "name": "a\nb" }), "name: ", "invalid_format"),
        (json!({ "name": "a".repeat(10_240) }), "name: ", "too_long"),
        (json!({ "name": "01k9zk0000000000000000000a" }), "name: ", "invalid_format"),
        (json!({ "timeout_seconds": 9 }), "timeout_seconds: ", "out_of_range"),
        (json!({ "timeout_seconds": "60" }), "timeout_seconds: ", "invalid_type"),
        (json!({ "headless": "yes" }), "headless: ", "invalid_type"),
        (json!({ "headless": "--no-sandbox" }), "headless: ", "invalid_type"),
        (json!({ "start_url": "--no-sandbox" }), "start_url: ", "invalid_format"),
        (json!({ "start_url": "--load-extension=/tmp" }), "start_url: ", "invalid_format"),
        (json!({ "proxy_id": "--proxy-server=evil.test" }), "proxy_id: ", "reference_not_found"),
        (json!({ "profile": { "name": "--user-data-dir" } }), "profile: ", "reference_not_found"),
        (json!({ "extensions": [{ "name": "--load-extension" }] }), "extensions[0]: ", "reference_not_found"),
        (json!({ "browser_policy": { "ProxySettings": {} } }), "browser_policy.ProxySettings: ", "blocked"),
    ]
}

/// Returns invalid bodies for sessions only.
fn nonsense_of_sessions() -> Vec<(Value, &'static str, &'static str)> {
    let many = |count: usize| (0..count).map(|n| (n.to_string(), "x".to_owned())).collect::<BTreeMap<_, _>>();
    vec![
        (json!({ "name": "a\u{0}b" }), "name: ", "invalid_format"),
        (json!({ "name": "a/b" }), "name: ", "invalid_format"),
        (json!({ "tags": many(51) }), "tags: ", "too_many"),
    ]
}

fn refused_by_field(server: &Server, method: &str, path: &str, body: &Value, why: (&str, &str)) -> anyhow::Result<()> {
    let refused = server.send(method, path, Some(body))?.expect(400)?.json()?;
    let detail = &refused["details"][0];
    let message = detail["message"].as_str().unwrap_or_default();
    let (field, code) = why;
    ensure!(message.starts_with(field) && detail["code"] == code, "{method} {path} {code} at {field}: {refused}");
    Ok(())
}

fn unreadable_is_refused(server: &Server, method: &str, path: &str) -> anyhow::Result<()> {
    let nested = format!("{{\"tags\": {}", "[".repeat(200_000));
    let bodies: [(&str, &[u8], u16); 8] = [
        ("application/json", b"{\"headless\": tr", 400),
        ("application/json", b"{\"headless\": true, \"headless\": false}", 400),
        ("application/json", b"[]", 400),
        ("application/json", b"{} {}", 400),
        ("application/json", b"{\"name\": \"\xff\"}", 400),
        ("application/json", nested.as_bytes(), 400),
        ("text/plain", b"{}", 415),
        ("application/json; charset=utf-16", b"{}", 415),
    ];
    for (kind, body, status) in bodies {
        let mut request = Request::new(method, path).bearer(server.key()).header("Content-Type", kind);
        request.body = Some(body.to_vec());
        let answer = request.send(server.address())?;
        ensure!(answer.status == status, "{method} {path} {kind} {:?}: {}", body.get(..40), answer.text());
        ensure!(answer.json()?["code"].is_string(), "{}", answer.text());
    }
    Ok(())
}

/// Uses a server of its own, because it compares all rows.
#[test]
fn invalid_requests_are_refused_by_field_and_change_nothing() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    server.post("/browser_pools", &json!({ "size": 1, "name": "kept", "headless": true }))?.expect(201)?;
    server.until_available("kept", 1)?;
    let rows = || {
        let pools = "select id, name, size, updated_at from browser_pools order by id";
        let counts = ["sessions", "browsers", "pool_waiters"].map(|table| format!("select count(*) from {table}"));
        let all = counts.iter().map(String::as_str).chain([pools]).map(|statement| sql(&server, statement));
        all.collect::<anyhow::Result<Vec<_>>>()
    };
    let before = rows()?;
    for (body, field, code) in nonsense_of_both() {
        let mut sized = body.clone();
        sized["size"] = json!(1);
        refused_by_field(&server, "POST", "/browsers", &body, (field, code))?;
        refused_by_field(&server, "POST", "/browser_pools", &sized, (field, code))?;
        refused_by_field(&server, "PATCH", "/browser_pools/kept", &body, (field, code))?;
    }
    for (body, field, code) in nonsense_of_sessions() {
        refused_by_field(&server, "POST", "/browsers", &body, (field, code))?;
        refused_by_field(&server, "PATCH", "/browsers/none", &body, (field, code))?;
    }
    let pool = server.post("/browser_pools", &json!({ "size": 0, "name": "../x" }))?.expect(400)?.json()?;
    assert_eq!(pool["details"].as_array().map(Vec::len), Some(2), "{pool}");
    for (method, path) in [("POST", "/browsers"), ("POST", "/browser_pools"), ("PATCH", "/browser_pools/kept")] {
        unreadable_is_refused(&server, method, path)?;
    }
    assert_eq!(rows()?, before);
    Ok(())
}
