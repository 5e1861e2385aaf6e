//! Tests of the continuous export of audit records to a bucket of an S3-compatible store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context as _;
use casement_test_support::program::http::Request;
use casement_test_support::program::{Clients, ObjectStore, Options, Server, until};
use serde_json::{Value, json};

use super::host::{id_of, sql};

const TEST_TIMEOUT: Duration = Duration::from_secs(120);
const PATH: &str = "/audit-logs/export/destinations";
const TRAIL: &str = "trail";
/// The number of kills of a server that exports.
const KILLS: u32 = 4;

/// The options of a server that offers the bucket of the store, with this secret.
fn offering(store: &ObjectStore, secret: &str) -> Options {
    let flags = ["--audit-export-bucket", ObjectStore::BUCKET, "--audit-export-endpoint", &store.url()];
    let flags = flags.into_iter().chain(["--audit-export-seconds", "1"]).map(str::to_owned).collect();
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let keys = [variable("AWS_ACCESS_KEY_ID", ObjectStore::KEY.0), variable("AWS_SECRET_ACCESS_KEY", secret)];
    Options { flags, variables: keys.to_vec(), ..Options::default() }
}

/// Creates a destination and activates it; returns its path.
fn activated(server: &Server, prefix: &str) -> anyhow::Result<String> {
    let new = json!({
        "type": "s3", "format": "jsonl.gz", "bucket": ObjectStore::BUCKET, "prefix": prefix, "region": "us-east-1",
    });
    let created = server.post(PATH, &new)?.expect(201)?.json()?;
    let path = format!("{PATH}/{}", created["id"].as_str().context("no id")?);
    server.send("PATCH", &path, Some(&json!({ "status": "active" })))?.expect(200)?;
    Ok(path)
}

/// Returns the exported records: how often each id occurs, and the ids of requests.
fn exported(store: &ObjectStore, prefix: &str) -> anyhow::Result<(BTreeMap<String, u32>, BTreeSet<String>)> {
    let (mut ids, mut requests) = (BTreeMap::new(), BTreeSet::new());
    for name in store.names(&format!("{prefix}/"))? {
        for line in store.lines(&name)? {
            let record: Value = serde_json::from_str(&line)?;
            *ids.entry(record["id"].as_str().context("no id")?.to_owned()).or_default() += 1;
            requests.extend(record["request_id"].as_str().map(str::to_owned));
        }
    }
    Ok((ids, requests))
}

/// Waits until the records of these calls are in the bucket.
fn until_exported(store: &ObjectStore, prefix: &str, calls: &BTreeSet<String>) -> anyhow::Result<()> {
    until("the records are in the bucket", TEST_TIMEOUT, || {
        exported(store, prefix).is_ok_and(|(_, requests)| calls.is_subset(&requests)).then_some(())
    })
}

/// Makes changing calls, whose records are stored before they are answered; returns the ids of their requests.
fn calls(server: &Server, name: &str, count: u32) -> anyhow::Result<BTreeSet<String>> {
    let call = |n: u32| {
        let id = format!("{name}-{n}");
        let request = Request::new("DELETE", "/profiles/none").bearer(server.key()).header("X-Request-Id", &id);
        request.send(server.address())?.expect(404)?;
        Ok(id)
    };
    (0..count).map(call).collect()
}

#[test]
fn each_record_is_in_the_bucket_once_across_kills_and_outages_of_the_store() -> anyhow::Result<()> {
    let mut store = ObjectStore::start()?;
    let mut server = Server::start(offering(&store, ObjectStore::KEY.1))?;
    let path = activated(&server, TRAIL)?;
    let mut made = calls(&server, "first", 30)?;
    until_exported(&store, TRAIL, &made)?;
    for round in 0..KILLS {
        // Each kill finds the export at another place.
        made.extend(calls(&server, &format!("kill-{round}"), 40 + 60 * round)?);
        server.kill()?;
        server.restart()?;
    }
    until_exported(&store, TRAIL, &made)?;

    store.stop();
    made.extend(calls(&server, "away", 30)?);
    let failed = until("the failure is shown", TEST_TIMEOUT, || {
        let record = server.get(&path).ok()?.json().ok()?;
        (record["consecutive_failures"].as_u64()? > 1).then_some(record)
    })?;
    assert_eq!(failed["last_error"], "the store cannot be reached", "{failed}");
    assert!(failed["next_attempt_at"].is_string(), "{failed}");
    store.restart()?;
    until_exported(&store, TRAIL, &made)?;

    // A pause delays what happens meanwhile.
    server.send("PATCH", &path, Some(&json!({ "status": "paused" })))?.expect(200)?;
    made.extend(calls(&server, "paused", 10)?);
    server.send("PATCH", &path, Some(&json!({ "status": "active" })))?.expect(200)?;
    until_exported(&store, TRAIL, &made)?;
    let stored = sql(
        &server,
        "select r.id from audit_records r, audit_destinations d where (r.at, r.id) <= \
        (d.exported_at, d.exported_id) and r.at >= (select min(at) from audit_records where request_id = 'first-0')",
    )?;
    let stored = stored.lines().map(id_of).collect::<anyhow::Result<BTreeSet<_>>>()?;
    server.delete(&path)?.expect(204)?;
    let (ids, _) = exported(&store, TRAIL)?;
    let missing: Vec<_> = stored.iter().filter(|id| !ids.contains_key(*id)).collect();
    let twice: Vec<_> = ids.iter().filter(|(_, times)| **times > 1).collect();
    eprintln!("{} records in {} objects", ids.len(), store.names("trail/")?.len());
    assert!(missing.is_empty() && twice.is_empty(), "missing {missing:?}, more than once {twice:?}");
    Ok(())
}

#[test]
fn wrong_keys_are_shown_without_the_keys_and_right_ones_export_what_waited() -> anyhow::Result<()> {
    let mut store = ObjectStore::start()?;
    let server = Server::start(offering(&store, "barracuda"))?;
    let path = activated(&server, TRAIL)?;
    let made = calls(&server, "call", 5)?;
    let failed = until("the failure is shown", TEST_TIMEOUT, || {
        let record = server.get(&path).ok()?.json().ok()?;
        record["last_error"].is_string().then_some(record)
    })?;
    assert_eq!(failed["last_error"], "the store answers 403 SignatureDoesNotMatch", "{failed}");
    let tested = server.post(&format!("{path}/test"), &json!({}))?.expect(200)?.json()?;
    let error = json!({ "code": "put_object_failed", "message": "the store answers 403 SignatureDoesNotMatch" });
    assert_eq!(tested, json!({ "success": false, "stage": "put_object", "error": error }));
    assert!(!server.log().contains("barracuda") && !failed.to_string().contains("barracuda"));

    store.restart_with("barracuda")?;
    until_exported(&store, TRAIL, &made)?;
    let repaired = server.get(&path)?.expect(200)?.json()?;
    assert_eq!(repaired["consecutive_failures"], 0, "{repaired}");
    assert!(repaired["last_success_at"].is_string() && repaired.get("next_attempt_at").is_none(), "{repaired}");

    // A deleted destination gets nothing of what another one gets.
    server.delete(&path)?.expect(204)?;
    activated(&server, "later")?;
    let later = calls(&server, "later", 5)?;
    until_exported(&store, "later", &later)?;
    let (_, deleted) = exported(&store, TRAIL)?;
    assert!(deleted.is_disjoint(&later), "{deleted:?}");
    Ok(())
}

#[test]
fn the_newest_python_client_manages_destinations_with_its_six_methods() -> anyhow::Result<()> {
    let store = ObjectStore::start()?;
    let server = Server::start(offering(&store, ObjectStore::KEY.1))?;
    let saw = Clients::newest()?.run(&server, "crates/app/tests/scripts/kernel_audit_export.py", &[])?.json()?;
    let expected = json!({
        "made": ["paused", "operator", true, null],
        "read": true,
        "tested": { "stage": "complete", "success": true },
        "active": ["active", true],
        "listed": true,
        "other role": ["BadRequestError", "not_supported"],
        "other bucket": ["BadRequestError", "invalid_input"],
        "gone": ["NotFoundError", "not_found"],
    });
    assert_eq!(saw, expected);
    let left = store.names("client/")?;
    assert!(left.iter().all(|name| !name.ends_with("_test")), "{left:?}");
    Ok(())
}
