//! Tests of the calls of an administrator of an organization, with the unmodified public Python client.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::Request;
use casement_test_support::program::{Clients, Options, Server, until};
use serde_json::{Value, json};

#[test]
fn every_call_of_the_python_client_for_an_organization_works() -> anyhow::Result<()> {
    for clients in Clients::of_both_versions()? {
        let server = Server::start(Options::default())?;
        let run = clients.run(&server, "crates/app/tests/scripts/kernel_organization.py", &[])?;
        assert_eq!(run.json()?, calls_of_an_administrator(clients.is_newest()));
    }
    Ok(())
}

/// Returns what the script sees with the oldest or the newest client.
fn calls_of_an_administrator(newest: bool) -> Value {
    let named = json!([["there"], ["NotFoundError", "not_found"], ["BadRequestError", "bad_request"]]);
    json!({
        "projects": {
            "taken": ["ConflictError", "name_conflict"],
            "listed": ["Alpha"],
            "archived": "archived",
            "write": ["PermissionDeniedError", "project_archived"],
            "limits": [1, null],
            "limit": ["RateLimitError", "limit_exceeded"],
            "busy": ["ConflictError", "resource_in_use"],
            "gone": ["NotFoundError", "not_found"],
        },
        "organization": [50, 40],
        "api_keys": {
            "reads": "keyed",
            "other": ["PermissionDeniedError", "forbidden"],
            "renamed": "Röbot",
            "listed": [["Röbot", "keyed"]],
            "old": ["AuthenticationError", "unauthorized"],
            "fresh": "keyed",
            "masked": true,
            "itself": ["ConflictError", "invalid_state"],
            "gone": ["NotFoundError", "not_found"],
            "kept": true,
            "maker": true,
            "with its project": ["AuthenticationError", "unauthorized"],
        },
        "policies": {
            "policy": true,
            "expires": true,
            "listed": [true],
            "driven": [200, 403],
            "elsewhere": ["PermissionDeniedError", "insufficient_scope"],
            "creates": ["PermissionDeniedError", "insufficient_scope"],
            "escalates": ["PermissionDeniedError", "insufficient_scope"],
        },
        "audit_logs": {
            "listed": [["DELETE", "/org/projects/{id_or_name}", 204, "api_key"]],
            "complete": true,
            "ordered": true,
            "methods": ["DELETE", "POST"],
            "secrets": false,
            "stale": ["BadRequestError", "invalid_cursor"],
        },
        "downloaded": if newest { json!([true, true, true]) } else { Value::Null },
        "named": if newest { named } else { Value::Null },
        "called": if newest { 18 } else { 17 },
    })
}

#[test]
fn the_audit_record_of_an_answered_call_survives_a_kill() -> anyhow::Result<()> {
    let mut server = Server::start(Options::default())?;
    let made = server.post("/org/projects", &json!({ "name": "kept" }))?;
    anyhow::ensure!(made.status == 201, "{made:?}");
    server.kill()?;
    server.restart()?;
    let file = server.get("/audit-logs/export/chunk?start=2000-01-01&end=9000-01-01&format=jsonl&method=POST")?;
    let records: Vec<Value> = file.text().lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let listed: Vec<_> = records.iter().map(|record| (record["path"].as_str(), record["status"].as_u64())).collect();
    assert_eq!(listed, [(Some("/org/projects"), Some(201))]);
    Ok(())
}

#[test]
fn a_key_that_one_server_revokes_is_refused_by_every_other_at_once() -> anyhow::Result<()> {
    let first = Server::start(Options::default())?;
    let second = first.another(Options::default())?;
    let made = first.post("/org/api_keys", &json!({ "name": "leaked" }))?.expect(201)?.json()?;
    let (id, key) = (made["id"].as_str().unwrap_or_default(), made["key"].as_str().unwrap_or_default());
    let call =
        |server: &Server| anyhow::Ok(Request::new("GET", "/browsers").bearer(key).send(server.address())?.status);
    assert_eq!((call(&first)?, call(&second)?), (200, 200), "both know it");

    first.delete(&format!("/org/api_keys/{id}"))?.expect(204)?;

    assert_eq!(call(&first)?, 401, "the first call after the answer");
    // The notification needs no more than a moment; the key would be cached for longer.
    until("the other server knows it", Duration::from_secs(60), || (call(&second).ok()? == 401).then_some(()))?;
    Ok(())
}

/// A program in a sandbox reaches Casement through the egress, whose connections have an address of this machine, like
/// those of a trusted proxy.
#[test]
fn a_caller_inside_a_sandbox_cannot_forge_its_address() -> anyhow::Result<()> {
    let server = Server::start(Options {
        egress_allow: vec!["127.0.0.1".into()],
        flags: vec!["--trusted-proxy".into(), "127.0.0.0/8".into()],
        ..Options::default()
    })?;
    let session = server.headless()?;
    let headers = json!({
        "authorization": format!("Bearer {}", server.key()), "x-forwarded-for": "203.0.113.9", "x-request-id": "from-inside",
    });
    let ask = json!({ "url": format!("http://{}/browsers", server.address()), "headers": headers });
    let answer = server.post(&format!("/browsers/{}/curl", session.id()), &ask)?.expect(200)?.json()?;
    ensure!(answer["status"] == 200, "{answer}");
    let records =
        server.get("/audit-logs/export/chunk?start=2000-01-01&end=9000-01-01&format=jsonl&method=GET")?.expect(200)?;
    let records = records.text();
    let inside = records.lines().find(|line| line.contains("from-inside")).context("a record of the call")?;
    ensure!(inside.contains("\"client_ip\":\"127.67.83.77\""), "{inside}");
    ensure!(!records.contains("203.0.113.9"), "{records}");
    Ok(())
}
