//! The routes `/audit-logs`, and the audit record of every call.

use std::{
    io::Read as _,
    sync::{Arc, OnceLock},
};

use casement_domain::{
    AuditRecordId, ProjectId, UserId,
    audit::{AuditEntry, AuditRecord, AuditService, AuthStrategy, Position, RangeMeasurement},
    store_error::Replaced,
    testing::{FixedClock, NOON, organization_id, project_id, session, session_id},
};
use casement_http::Permission;
use flate2::read::GzDecoder;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use time::{Duration, macros::datetime};

use super::support::{Key, Ports, TestApi, Trail, other_project};

const RANGE: &str = "start=2026-12-01&end=2026-12-02T00:00:00Z";

fn record(n: u32) -> AuditRecord {
    let entry = AuditEntry {
        id: AuditRecordId::from_ulid(ulid::Ulid::from_parts(1, u128::from(n))),
        at: NOON + Duration::seconds(i64::from(n)),
        auth_strategy: AuthStrategy::ApiKey,
        service: AuditService::Api,
        api_key: None,
        project: Some(project_id()),
        client_ip: "192.0.2.1".to_owned(),
        domain: "casement.test".to_owned(),
        method: "GET".to_owned(),
        path: "/browsers/a%22%0Ab".to_owned(),
        route: "/browsers/{id_or_name}".to_owned(),
        status: 404,
        duration_ms: 2,
        user_agent: "evil\"\n\u{2028}{}".to_owned(),
        request_id: "request-7".to_owned(),
        count: 1,
    };
    let user = Some(UserId::from_ulid(ulid::Ulid::from_parts(8, 1)));
    AuditRecord { organization: organization_id(), user, email: "ada@casement.test".to_owned(), entry }
}

fn holding(count: u32) -> Ports {
    let mut ports = Ports::default();
    let older = move |after: Option<Position>| match after {
        None => count,
        Some(place) => {
            let here = (place.at - NOON).whole_seconds() as u32;
            // The position before a record has the same timestamp.
            if place.id > record(here).position().id { here } else { here - 1 }
        }
    };
    ports.audit.expect_page().returning(move |_, _, stretch, limit| {
        let oldest = stretch.through.map_or(1, |last| (last.at - NOON).whole_seconds() as u32);
        Ok((oldest..=older(stretch.after)).rev().take(limit as usize).map(record).collect())
    });
    ports.audit.expect_measure().returning(move |_, _, stretch, limit| {
        let left = older(stretch.after);
        let held = left.min(limit);
        let ends = (held > 0).then(|| (record(left).position(), record(left - held + 1).position()));
        Ok(RangeMeasurement { count: held, ends, more: left > limit })
    });
    ports
}

/// Returns the SHA-256 of a body as the header of an export names it.
fn sha256(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_records_are_listed_page_by_page() {
    let api = TestApi::start(holding(3));
    let first = api.get(&format!("/audit-logs?{RANGE}&limit=2")).await;
    assert_eq!((first.status, first.header("x-has-more")), (200, Some("true")));
    let records = first.json();
    assert_eq!(records.as_array().map(Vec::len), Some(2));
    let one = json!({
        "id": "0000000001000000000000000" .to_owned() + "3", "timestamp": "2026-12-01T12:00:03.000000Z",
        "auth_strategy": "api_key", "user_id": "00000000080000000000000001", "email": "ada@casement.test",
        "client_ip": "192.0.2.1", "domain": "casement.test", "method": "GET", "path": "/browsers/a%22%0Ab",
        "route": "/browsers/{id_or_name}", "status": 404, "duration_ms": 2, "user_agent": "evil\"\n\u{2028}{}", "request_id": "request-7", "count": 1,
        "service": "api", "project_id": project_id().to_string(),
    });
    assert_eq!(records[0], one);

    let token = first.header("x-next-page-token").expect("a token");
    let second = api.get(&format!("/audit-logs?{RANGE}&limit=2&page_token={token}")).await;
    assert_eq!((second.header("x-has-more"), second.header("x-next-page-token")), (Some("false"), None));
    assert_eq!(second.json().as_array().map(Vec::len), Some(1));
    let others = api.get(&format!("/audit-logs?{RANGE}&method=GET&page_token={token}")).await;
    assert_eq!((others.status, others.code()), (400, "invalid_cursor".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_chunk_is_a_complete_file_with_one_record_per_line() {
    let api = TestApi::start(holding(5));
    let reply = api.get(&format!("/audit-logs/export/chunk?{RANGE}&limit=3")).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/octet-stream")));
    assert_eq!((reply.header("content-encoding"), reply.header("x-record-count")), (None, Some("3")));
    assert_eq!((reply.header("x-row-count"), reply.header("x-has-more")), (Some("3"), Some("true")));
    assert_eq!(reply.header("x-content-sha256"), Some(&*sha256(&reply.body)));
    let name = reply.header("content-disposition").expect("a name");
    assert!(name.starts_with("attachment; filename=\"audit-logs_20261201T000000Z_20261202T000000Z_"), "{name}");
    assert!(name.ends_with(".jsonl.gz\""), "{name}");
    let mut text = String::new();
    GzDecoder::new(&reply.body[..]).read_to_string(&mut text).expect("one whole member");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    assert_eq!(
        lines.iter().map(|line| line["timestamp"].as_str().unwrap()).collect::<Vec<_>>(),
        ["2026-12-01T12:00:05.000000Z", "2026-12-01T12:00:04.000000Z", "2026-12-01T12:00:03.000000Z"]
    );

    let cursor = reply.header("x-next-cursor").expect("older records");
    let rest = api.get(&format!("/audit-logs/export/chunk?{RANGE}&format=jsonl&cursor={cursor}")).await;
    assert_eq!((rest.header("x-next-cursor"), rest.header("x-record-count")), (None, Some("2")));
    let text = String::from_utf8(rest.body.clone()).expect("text");
    assert_eq!((text.lines().count(), text.ends_with("}\n")), (2, true));
    assert_eq!((rest.header("x-row-count"), rest.header("x-has-more")), (Some("2"), Some("false")));
    assert_eq!(rest.header("x-content-sha256"), Some(&*sha256(text.as_bytes())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_without_records_is_an_empty_file() {
    let api = TestApi::start(holding(0));
    let lines = api.get(&format!("/audit-logs/export/chunk?{RANGE}&encoding=jsonl")).await;
    assert_eq!((lines.status, lines.body), (200, Vec::new()));
    let packed = api.get(&format!("/audit-logs/export/chunk?{RANGE}")).await;
    let mut text = String::new();
    GzDecoder::new(&packed.body[..]).read_to_string(&mut text).expect("an empty member");
    assert_eq!(text, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_query_is_refused_with_its_fields() {
    let api = TestApi::start(Ports::default());
    let details = async |query: &str| api.get(&format!("/audit-logs/export/chunk?{query}")).await.details();
    assert_eq!(details("").await, ["required: start: is required", "required: end: is required"]);
    assert_eq!(details("start=2026-12-02&end=2026-12-01").await, ["out_of_range: end: must be after start"]);
    assert_eq!(details(&format!("{RANGE}&limit=0")).await, ["out_of_range: limit: must be from 1 to 50000"]);
    assert_eq!(details(&format!("{RANGE}&limit=50001")).await, ["out_of_range: limit: must be from 1 to 50000"]);
    assert_eq!(details(&format!("{RANGE}&format=csv")).await, ["not_allowed: format: must be jsonl or jsonl.gz"]);
    assert_eq!(
        details(&format!("{RANGE}&format=jsonl&encoding=jsonl.gz")).await,
        ["mutually_exclusive: encoding: must be the same as format"]
    );
    let excluded = "A,".repeat(11);
    assert_eq!(
        details(&format!("{RANGE}&exclude_method={excluded}")).await,
        ["too_many: exclude_method: must have at most 10 items"]
    );
    let month = "start=2026-01-01&end=2026-02-01";
    assert_eq!(
        api.get(&format!("/audit-logs?{month}")).await.details(),
        ["out_of_range: end: must be at most 30 days after start"]
    );
    for cursor in ["x", "%00", "AAAA"] {
        let reply = api.get(&format!("/audit-logs/export/chunk?{RANGE}&cursor={cursor}")).await;
        assert_eq!((reply.status, reply.code()), (400, "invalid_cursor".to_owned()), "{cursor}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_key_reads_no_audit_records() {
    let api = TestApi::start(Ports::default());
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    for path in ["/audit-logs", "/audit-logs/export/chunk"] {
        let reply = api.request("GET", &format!("{path}?{RANGE}"), &[&key], "").await;
        assert_eq!((reply.status, reply.code()), (403, "forbidden".to_owned()));
    }
}

fn deletable() -> Ports {
    let mut ports = Ports::default();
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    ports.sessions.expect_end().returning(|_, _| Ok(Replaced::Yes));
    ports.engine.expect_end().returning(|_| Ok(()));
    ports.browsers.expect_forget().returning(|_| Ok(()));
    ports
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changing_call_is_answered_only_after_its_record_is_durable() {
    let trail = Trail::default();
    let api = TestApi::start(Ports { trail: trail.clone(), ..deletable() });
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let path = format!("/browsers/{}?x=secret", session_id(1));
    let reply = api.request("DELETE", &path, &[&key, "User-Agent: a\tb"], "").await;
    assert_eq!(reply.status, 204);
    let [(waited, entry)] = &trail.entries().await[..] else { panic!("one record") };
    assert!(*waited);
    let fields = (entry.auth_strategy, entry.service, entry.project, entry.status, entry.at);
    assert_eq!(fields, (AuthStrategy::ApiKey, AuditService::Api, Some(project_id()), 204, NOON));
    assert_eq!(
        (entry.method.as_str(), entry.path.as_str()),
        ("DELETE", format!("/browsers/{}", session_id(1)).as_str())
    );
    assert_eq!((entry.route.as_str(), entry.user_agent.as_str()), ("/browsers/{id_or_name}", "a\tb"));
    assert_eq!(Some(entry.request_id.as_str()), reply.header("x-request-id"));
    assert_eq!((entry.domain.as_str(), entry.client_ip.as_str()), ("casement.test", "127.0.0.1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_intent_is_stored_before_a_call_changes_anything() {
    let trail = Trail { fails_intents: true, ..Trail::default() };
    // Ports that change something have no expectations.
    let mut ports = Ports { trail: trail.clone(), ..Ports::default() };
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    // Ports that only read have expectations.
    ports.pools.expect_find().returning(|_, _| Ok(None));
    let api = TestApi::start(ports);
    let path = format!("/browsers/{}", session_id(1));
    let token = api.token(session_id(1), Permission::Drive);
    let changing = [
        ("DELETE", path.clone()),
        ("POST", format!("{path}/computer/click_mouse")),
        ("POST", format!("/vm/{}/computer/click_mouse?jwt={token}", session_id(1))),
        ("POST", "/browser_pools/warm/acquire".to_owned()),
        ("POST", "/org/projects".to_owned()),
    ];
    for (method, path) in &changing {
        let reply = api.call(method, path, "").await;
        assert_eq!((reply.status, reply.code()), (503, "unavailable".to_owned()), "{method} {path}");
    }
    let socket = ["Upgrade: websocket", "Connection: Upgrade"];
    let cdp = api.request("GET", &format!("/vm/{}/cdp?jwt={token}", session_id(1)), &socket, "").await;
    assert_eq!(cdp.status, 503);
    assert_eq!(api.get(&path).await.status, 200, "what only reads needs no such thing");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audit_intent_says_who_called_what_and_when() {
    let trail = Trail::default();
    let api = TestApi::start(Ports { trail: trail.clone(), ..deletable() });
    assert_eq!(api.call("DELETE", &format!("/browsers/{}", session_id(1)), "").await.status, 204);
    let [(_, entry)] = &trail.entries().await[..] else { panic!("one record") };
    let intents = trail.intents.lock().clone();
    assert_eq!(
        intents,
        [AuditEntry { status: AuditEntry::UNKNOWN, duration_ms: intents[0].duration_ms, ..entry.clone() }]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_call_is_recorded_with_the_time_of_its_response() {
    let (trail, clock) = (Trail::default(), Arc::new(OnceLock::<Arc<FixedClock>>::new()));
    let mut ports = Ports { trail: trail.clone(), ..Ports::default() };
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    ports.sessions.expect_end().returning(|_, _| Ok(Replaced::Yes));
    ports.browsers.expect_forget().returning(|_| Ok(()));
    let later = clock.clone();
    ports.engine.expect_end().returning(move |_| {
        later.get().expect("the server's clock").advance(Duration::minutes(10));
        Ok(())
    });
    let api = TestApi::start(ports);
    assert!(clock.set(api.clock.clone()).is_ok());
    // A client that has exported the records until five past noon meanwhile begins its next export there.
    api.call("DELETE", &format!("/browsers/{}", session_id(1)), "").await;
    let [(_, entry)] = &trail.entries().await[..] else { panic!("one record") };
    assert_eq!(entry.at, NOON + Duration::minutes(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_into_the_future_states_where_it_ends() {
    let whole_until = Some(datetime!(2026-12-01 11:59:59.25 UTC));
    let mut ports = Ports { trail: Trail { whole_until, ..Trail::default() }, ..Ports::default() };
    ports.audit.expect_measure().returning(|_, _, _, _| Ok(RangeMeasurement::default()));
    let api = TestApi::start(ports);
    for (end, range_end) in
        [("2026-12-02", "2026-12-01T11:59:59.25Z"), ("2026-12-01T11:00:00Z", "2026-12-01T11:00:00Z")]
    {
        let reply = api.get(&format!("/audit-logs/export/chunk?start=2026-12-01&end={end}")).await;
        assert_eq!((reply.status, reply.header("x-range-end")), (200, Some(range_end)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_of_a_range_with_unwritten_records_is_refused_for_now() {
    let unwritten_since = Some(datetime!(2026-12-01 11:00 UTC));
    let mut ports = Ports { trail: Trail { unwritten_since, ..Trail::default() }, ..Ports::default() };
    ports.audit.expect_measure().returning(|_, _, _, _| Ok(RangeMeasurement::default()));
    let api = TestApi::start(ports);
    let export = async |end: &str| api.get(&format!("/audit-logs/export/chunk?start=2026-11-01&end={end}")).await;
    for (end, status) in [("2026-12-01T11:00:00Z", 200), ("2026-12-01T11:00:01Z", 503), ("2026-12-02", 503)] {
        assert_eq!(export(end).await.status, status, "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recorded_host_is_the_one_that_was_checked() {
    let trail = Trail::default();
    let api = TestApi::start(Ports { trail: trail.clone(), ..deletable() });
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let forged = ["Forwarded: host=evil.test", "X-Forwarded-Host: evil.test"];
    let path = format!("/browsers/{}", session_id(1));
    api.request("DELETE", &path, &[&key, forged[0], forged[1]], "").await;
    let [(_, entry)] = &trail.entries().await[..] else { panic!("one record") };
    assert_eq!(entry.domain, "casement.test");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_cannot_be_recorded_does_not_report_success() {
    let api = TestApi::start(Ports { trail: Trail { fails_records: true, ..Trail::default() }, ..deletable() });
    let reply = api.call("DELETE", &format!("/browsers/{}", session_id(1)), "").await;
    assert_eq!((reply.status, reply.code()), (500, "internal".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_refused_and_disconnected_calls_are_recorded_too() {
    let trail = Trail::default();
    let mut ports = Ports { trail: trail.clone(), ..holding(1) };
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(None));
    let api = TestApi::start(ports);
    api.get(&format!("/audit-logs?{RANGE}")).await;
    let revoked = format!("Authorization: Bearer {}", Key::Revoked.text());
    api.request("GET", "/browsers", &[&revoked], "").await;
    let foreign = format!("Authorization: Bearer {}", Key::OtherProject.text());
    api.request("GET", &format!("/browsers/{}", session_id(1)), &[&foreign], "").await;
    let records: Vec<(bool, AuthStrategy, Option<ProjectId>, u16)> = trail
        .entries()
        .await
        .into_iter()
        .map(|(waited, entry)| (waited, entry.auth_strategy, entry.project, entry.status))
        .collect();
    assert_eq!(
        records,
        [
            (false, AuthStrategy::ApiKey, None, 200),
            (false, AuthStrategy::None, None, 401),
            (false, AuthStrategy::ApiKey, Some(other_project()), 404),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_long_path_only_the_beginning_is_stored() {
    let trail = Trail::default();
    let api = TestApi::start(Ports { trail: trail.clone(), ..Ports::default() });
    let revoked = format!("Authorization: Bearer {}", Key::Revoked.text());
    let agent = format!("User-Agent: {}", "u".repeat(8000));
    let path = format!("/browsers/{}", "%C3%A4".repeat(650));
    assert_eq!(api.request("DELETE", &path, &[&revoked, &agent], "").await.status, 401);
    let [(waited, entry)] = &trail.entries().await[..] else { panic!("one record") };
    assert!(!waited, "nobody waits for the record of what was refused");
    assert_eq!((entry.path.len(), entry.user_agent.len(), entry.status), (1024, 512, 401));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_count_against_their_address_and_valid_ones_are_served() {
    let api = TestApi::start(Ports { trusted_proxies: vec!["127.0.0.0/8"], refused_limit: Some(1), ..holding(1) });
    let (revoked, good) = (
        format!("Authorization: Bearer {}", Key::Revoked.text()),
        format!("Authorization: Bearer {}", Key::Organization.text()),
    );
    let from = |address: &str| format!("X-Forwarded-For: {address}");
    let (bad, other) = (from("203.0.113.9"), from("203.0.113.10"));
    let mut statuses = std::collections::BTreeMap::<u16, u32>::new();
    // The burst is twenty; after that, one per second is admitted.
    for n in 0..10_000 {
        let token = format!("/vm/{}/cdp?jwt=nonsense", session_id(1));
        let reply = match n % 2 {
            0 => api.request("GET", "/browsers", &[&revoked, &bad], "").await,
            _ => api.request("GET", &token, &[&bad], "").await,
        };
        *statuses.entry(reply.status).or_default() += 1;
        if reply.status == 429 {
            assert!(reply.header("retry-after").is_some());
            break;
        }
    }
    assert!(statuses.contains_key(&429) && statuses.keys().all(|status| matches!(status, 401 | 429)), "{statuses:?}");
    let range = format!("/audit-logs?{RANGE}");
    assert_eq!(api.request("GET", &range, &[&good, &bad], "").await.status, 200);
    assert_eq!(api.request("GET", "/browsers", &[&revoked, &other], "").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_credential_leaves_no_record() {
    let trail = Trail::default();
    let api = TestApi::start(Ports { trail: trail.clone(), ..holding(1) });
    for path in ["/healthz", "/openapi.json", "/nowhere"] {
        api.request("GET", path, &[], "").await;
    }
    api.request("OPTIONS", "/browsers", &[], "").await;
    api.request("GET", "/browsers", &["Authorization: Bearer nonsense"], "").await;
    api.get(&format!("/audit-logs?{RANGE}")).await;
    assert_eq!(trail.entries().await.len(), 1, "the last one alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_recorded_under_the_project_of_its_session() {
    let trail = Trail::default();
    let mut ports = Ports { trail: trail.clone(), trusted_proxies: vec!["127.0.0.0/8"], ..Ports::default() };
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    let api = TestApi::start(ports);
    let token = api.token(session_id(1), Permission::Drive);
    let path = format!("/vm/{}/cdp?jwt={token}", session_id(1));
    api.request("GET", &path, &["X-Forwarded-For: 203.0.113.9"], "").await;
    let [(_, entry)] = &trail.entries().await[..] else { panic!("one record") };
    assert_eq!((entry.auth_strategy, entry.service), (AuthStrategy::SessionToken, AuditService::Session));
    assert_eq!((entry.project, entry.client_ip.as_str()), (Some(project_id()), "203.0.113.9"));
    assert!(!entry.path.contains("jwt"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_the_wrong_place_is_neither_recorded_nor_repeated() {
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let secret = Key::Revoked.text();
    let token = TestApi::start(Ports::default()).token(session_id(1), Permission::Drive);
    let trail = Trail::default();
    let mut ports = Ports { trail: trail.clone(), ..Ports::default() };
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(None));
    ports.sessions.expect_find().returning(|_| Ok(None));
    let api = TestApi::start(ports);
    let end = |text: &str| text[text.len() - 20..].to_owned();
    for (path, misplaced) in [
        (format!("/browsers/{secret}"), &secret),
        (format!("/browsers/{token}"), &token),
        (format!("/browsers/{}", secret.replace('_', "%255F")), &secret),
        (format!("/connect/{secret}"), &secret),
        (format!("/wd/hub/session//{secret}/url"), &secret),
        (format!("/vm/{}/cdp%3Fjwt={token}", session_id(1)), &token),
        (format!("/login/{}/{}", session_id(1), secret.rsplit('_').next().unwrap_or_default()), &secret),
    ] {
        let headers = [key.clone(), format!("User-Agent: a/{misplaced}"), format!("X-Request-Id: {misplaced}")];

        let reply = api.request("DELETE", &path, &headers.each_ref().map(String::as_str), "").await;

        assert!(reply.status >= 400 && !reply.to_string().contains(&end(misplaced)), "{path}: {reply}");
        assert!(reply.header("x-request-id").is_some_and(|id| !id.contains(&end(misplaced))), "{path}");
    }
    let mut entries = trail.entries().await;
    while entries.len() < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        entries = trail.entries().await;
    }
    for (_, entry) in entries {
        let (shown, parts) = (format!("{entry:?}"), [end(&secret), end(&token)]);
        assert!(!parts.iter().any(|part| shown.contains(part)), "{shown}");
        assert!(entry.user_agent.contains('…') && entry.path.contains('…'), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_project_of_a_connecting_client_is_given_once() {
    let key = format!("X-Api-Key: {}", Key::Organization.text());
    let (one, other) = (project_id(), other_project());
    let path = format!("/json/version?project={one}&project={other}");
    let reply = TestApi::start(Ports::default()).request("GET", &path, &[&key], "").await;
    assert_eq!((reply.status, reply.code()), (400, "bad_request".to_owned()), "{reply}");
    let message = "the query parameter project names more than one project";
    assert!(reply.to_string().contains(message), "named as the caller wrote it: {reply}");
}
