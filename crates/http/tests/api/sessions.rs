//! The routes `/browsers`.

use std::collections::BTreeMap;

use casement_domain::{
    StoreError,
    browser::{EngineError, EngineFault, Started},
    name::LabelName,
    organization::{Limit, LimitExceeded},
    page::Listed,
    session::{Created, EndReason, Session, SessionState, StatusFilter, Tags},
    store_error::Replaced,
    testing::{NOON, session, session_id},
};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::support::{Key, Ports, TestApi, other_project};

const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";

/// Returns ports with which a browser starts successfully.
fn startable() -> Ports {
    let mut ports = Ports::default();
    ports.spares.expect_take().returning(|_| None);
    ports.sessions.expect_create().returning(|_, _, _| Ok(Created::Yes));
    ports.sessions.expect_activate().returning(|_, _, _| Ok(Replaced::Yes));
    ports.engine.expect_start().returning(|_| Ok(Started::default()));
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    ports
}

/// Returns the JSON of a reply without its tokens.
fn without_tokens(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let parts: Vec<&str> = text.split("jwt=").map(|part| part.trim_start_matches(is_part)).collect();
    let start = text.find("jwt=").map_or(text, |at| &text[..at]);
    format!("{start}{}", parts[1..].iter().map(|part| format!("jwt=…{part}")).collect::<String>())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_created_with_its_whole_record() {
    let api = TestApi::start(startable());
    let reply =
        api.post("/browsers", json!({ "name": "first", "tags": { "a": "b" }, "start_url": "https://x.test/" })).await;
    assert_eq!(reply.header("location"), Some("/browsers/00000000000000000000000001"));
    assert!(reply.text().contains(TOKEN));
    assert_eq!(
        without_tokens(&reply.to_string()),
        "201\nlocation: /browsers/00000000000000000000000001\n\
         {\"session_id\":\"00000000000000000000000001\",\"created_at\":\"2026-12-01T12:00:00.000000Z\",\
         \"cdp_ws_url\":\"wss://casement.test/vm/00000000000000000000000001/cdp?jwt=…\",\
         \"webdriver_ws_url\":\"wss://casement.test/vm/00000000000000000000000001/webdriver?jwt=…\",\
         \"base_url\":\"https://casement.test/vm/00000000000000000000000001\",\
         \"browser_live_view_url\":\"https://casement.test/live/00000000000000000000000001?jwt=…\",\
         \"engine\":\"local\",\"headless\":false,\"stealth\":false,\"memory\":\"2GiB\",\"region\":\"us-east\",\
         \"location\":{\"locale\":\"en-US\",\"locale_source\":\"default\",\"timezone\":\"UTC\",\"timezone_source\":\"default\"},\"gpu\":false,\"kiosk_mode\":false,\"name\":\"first\",\"timeout_seconds\":60,\
         \"viewport\":{\"width\":1920,\"height\":1080,\"refresh_rate\":25},\"proxy\":{\"mode\":\"direct\"},\"start_url\":\"https://x.test/\",\
         \"tags\":{\"a\":\"b\"},\"usage\":{\"uptime_ms\":0},\"last_active_at\":\"2026-12-01T12:00:00.000000Z\"}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_body_creates_a_session_with_defaults() {
    let api = TestApi::start(startable());
    let reply = api.post("/browsers", "").await;
    assert_eq!(reply.status, 201);
    let record = reply.json();
    assert_eq!((&record["headless"], &record["timeout_seconds"]), (&json!(false), &json!(60)));
    for absent in [
        "name",
        "tags",
        "pool",
        "start_url",
        "browser_policy",
        "profile",
        "proxy_id",
        "network",
        "telemetry",
        "deleted_at",
        "end_reason",
        "end_message",
    ] {
        assert!(record.get(absent).is_none(), "{absent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ignored_fields_of_a_create_are_stored_with_the_session() {
    let mut ports = startable();
    ports.sessions.expect_note_ignored_fields().times(1).returning(|_, fields| {
        assert_eq!(fields, ["headles", "viewport.widht"]);
        Err(StoreError::unavailable("session.note_ignored_fields", "away"))
    });
    let body = json!({ "headles": true, "viewport": { "width": 800, "height": 600, "widht": 3 } });
    assert_eq!(TestApi::start(ports).post("/browsers", body).await.status, 201, "the session is made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_create_states_why() {
    let limit = LimitExceeded { limit: Limit::OrganizationSessions, value: 50, used: 50, requested: 1 };
    for (outcome, expected) in [
        (
            Created::LimitExceeded(limit),
            "429\nx-should-retry: false\n{\"code\":\"limit_exceeded\",\"message\":\"max_concurrent_sessions of the \
             organization is 50, 50 in use, 1 more requested\"}",
        ),
        (
            Created::NameTaken,
            "409\nx-should-retry: false\n{\"code\":\"name_conflict\",\"message\":\"a session named n exists already\"}",
        ),
        (Created::ProjectGone, "404\n{\"code\":\"not_found\",\"message\":\"the project was deleted\"}"),
    ] {
        let mut ports = Ports::default();
        ports.spares.expect_take().returning(|_| None);
        ports.sessions.expect_create().return_once(|_, _, _| Ok(outcome));
        let api = TestApi::start(ports);
        assert_eq!(api.post("/browsers", json!({ "name": "n" })).await.to_string(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_cannot_start_is_an_error_with_its_cause() {
    for (error, expected) in [
        (
            EngineError::Failed { fault: EngineFault::BrowserCrashed, message: "it ended with 11".into() },
            "503\nretry-after: 1\n{\"code\":\"unavailable\",\"message\":\"the browser did not start; nothing was done\",\
             \"inner_error\":{\"code\":\"browser_crashed\",\"message\":\"it ended with 11\"}}",
        ),
        (
            EngineError::NoRoom("secret detail".into()),
            "503\nretry-after: 1\n{\"code\":\"unavailable\",\"message\":\"there is no room for another browser now\"}",
        ),
        (
            EngineError::Full("engine eu: it has 3 sessions at most".into()),
            "503\nretry-after: 1\n{\"code\":\"unavailable\",\"message\":\"there is no room for another browser now\",\
             \"inner_error\":{\"code\":\"engine_error\",\"message\":\"engine eu: it has 3 sessions at most\"}}",
        ),
        (
            EngineError::Timeout { seconds: 20 },
            "503\nretry-after: 1\n{\"code\":\"unavailable\",\"message\":\"the browser did not start; nothing was done\",\
             \"inner_error\":{\"code\":\"browser_hung\",\"message\":\"the browser took longer than 20 s\"}}",
        ),
        (
            EngineError::Lost { fault: EngineFault::AgentError, message: "silent".into() },
            "500\nx-should-retry: false\n{\"code\":\"internal\",\"message\":\"the browser was lost during the operation; \
             it may have taken effect\",\"inner_error\":{\"code\":\"agent_error\",\"message\":\"silent\"}}",
        ),
    ] {
        let mut ports = Ports::default();
        ports.spares.expect_take().returning(|_| None);
        ports.sessions.expect_create().returning(|_, _, _| Ok(Created::Yes));
        ports.sessions.expect_find().returning(|_| Ok(None));
        ports.engine.expect_start().return_once(|_| Err(error));
        ports.engine.expect_end().returning(|_| Ok(()));
        let api = TestApi::start(ports);
        assert_eq!(api.post("/browsers", "{}").await.to_string(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_options_are_refused_and_never_ignored() {
    let reply = TestApi::start(Ports::default()).post("/browsers", &json!({ "gpu": true })).await;
    assert_eq!((reply.status, &*reply.code()), (400, "not_supported"));
    assert!(reply.json()["message"].as_str().unwrap().starts_with("gpu"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_region_of_the_installation_is_accepted() {
    let api = TestApi::start(startable());
    assert_eq!(api.post("/browsers", json!({ "region": "us-east" })).await.status, 201);
    let reply = api.post("/browsers", json!({ "region": "eu-west" })).await;
    assert_eq!(
        reply.to_string(),
        "400\n{\"code\":\"not_supported\",\"message\":\"region: this installation is in us-east\"}"
    );
    let reply = api.post("/browsers", json!({ "region": "local" })).await;
    assert_eq!(reply.details(), ["not_allowed: region: must be one of us-east, us-west, eu-west, ap-southeast"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_shows_memory_and_location_of_the_request() {
    let api = TestApi::start(startable());
    let body = json!({ "memory": "4GiB", "location": { "timezone": "asia/tokyo", "locale": "ja-JP" } });
    let record = api.post("/browsers", body).await.json();
    assert_eq!(record["memory"], "4GiB");
    assert_eq!(
        record["location"],
        json!({ "locale": "ja-JP", "locale_source": "override", "timezone": "Asia/Tokyo", "timezone_source": "override" })
    );
    let record = api.post("/browsers", json!({ "location": { "timezone": "UTC" }, "memory": null })).await.json();
    assert_eq!((&record["location"]["timezone_source"], &record["memory"]), (&json!("override"), &json!("2GiB")));
    assert_eq!(record["location"]["locale_source"], "default");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_location_is_refused_by_its_own_code_on_create_and_update() {
    let mut ports = startable();
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    let api = TestApi::start(ports);
    let location = json!({ "location": { "timezone": "Mars/Olympus", "locale": "" } });
    for reply in [api.post("/browsers", &location).await, api.patch("/browsers/x", &location).await] {
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_browser_location"), "{reply}");
        assert_eq!(
            reply.details(),
            [
                "not_allowed: location.timezone: must be an IANA time zone, as Europe/Berlin",
                "not_allowed: location.locale: must be a supported BCP 47 tag, as de-CH",
            ]
        );
    }
    let both = json!({ "location": { "locale": "x" }, "timeout_seconds": 1 });
    assert_eq!(api.post("/browsers", both).await.code(), "invalid_input");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_memory_than_a_node_gives_is_refused_with_the_limits_name() {
    let api = TestApi::start(startable());
    assert_eq!(api.post("/browsers", json!({ "memory": "16GiB" })).await.status, 201);
    let reply = api.post("/browsers", json!({ "memory": "3GiB" })).await;
    assert_eq!(reply.details(), ["not_allowed: memory: must be one of 1GiB, 2GiB, 4GiB, 8GiB, 16GiB"]);
    let mut ports = Ports { max_session_memory_mib: Some(4096), ..startable() };
    ports.spares.expect_take().returning(|_| None);
    let reply = TestApi::start(ports).post("/browsers", json!({ "memory": "8GiB" })).await;
    assert_eq!((reply.status, &*reply.code()), (400, "not_supported"), "{reply}");
    assert!(reply.text().contains("max_session_memory of this node is 4096 MiB"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_another_region_is_empty() {
    let mut ports = Ports::default();
    ports.sessions.expect_list().returning(|_, _, page| Ok(page.cut(vec![session(1)])));
    let api = TestApi::start(ports);
    for (query, expected) in [("?region=us-east", 1), ("?region=", 1), ("?region=us-west", 0)] {
        let listed = api.get(&format!("/browsers{query}")).await.json();
        assert_eq!(listed.as_array().map(Vec::len), Some(expected), "{query}");
    }
    assert_eq!(api.get("/browsers?region=x").await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_request_nothing_are_accepted() {
    let asks_nothing = json!({
        "gpu": false, "extensions": [], "telemetry": {}, "profile": null, "unknown": { "a": 1 },
        "telemetry": { "enabled": false },
    });
    let mut ports = startable();
    ports.sessions.expect_note_ignored_fields().returning(|_, _| Ok(()));
    let reply = TestApi::start(ports).post("/browsers", asks_nothing).await;
    assert_eq!(reply.status, 201, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_names_of_the_policy_are_accepted_and_one_is_returned() {
    let api = TestApi::start(startable());
    let policy = json!({ "BookmarkBarEnabled": true });
    let reply = api.post("/browsers", json!({ "chrome_policy": policy })).await;
    assert_eq!(reply.json()["browser_policy"], policy);
    assert!(reply.json().get("chrome_policy").is_none());
    let reply = api.post("/browsers", json!({ "chrome_policy": policy, "browser_policy": policy })).await;
    assert_eq!(reply.status, 201);
    let reply = api.post("/browsers", json!({ "chrome_policy": policy, "browser_policy": {} })).await;
    assert_eq!(
        reply.details(),
        ["mutually_exclusive: chrome_policy: is an alias of browser_policy, and the two values differ"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_carries_its_page_in_headers() {
    let mut ports = Ports::default();
    ports
        .sessions
        .expect_list()
        .withf(|_, filter, page| {
            filter.status == StatusFilter::All
                && filter.query.as_deref() == Some("a b")
                && filter.tags == BTreeMap::from([("k[]".into(), "v".into())])
                && (page.limit, page.offset) == (1, 40)
        })
        .return_once(|_, _, _| Ok(Listed { items: vec![session(1)], next_offset: Some(41) }));
    ports.sessions.expect_list().return_once(|_, _, _| Ok(Listed { items: Vec::new(), next_offset: None }));
    let api = TestApi::start(ports);
    let reply = api.get("/browsers?limit=1&offset=40&include_deleted=true&query=a+b&tags%5Bk[]%5D=v&unknown=1").await;
    assert_eq!((reply.header("x-has-more"), reply.header("x-next-offset")), (Some("true"), Some("41")));
    assert_eq!(reply.json()[0]["session_id"], session_id(1).to_string());
    let reply = api.get("/browsers").await;
    assert_eq!((reply.header("x-has-more"), reply.header("x-next-offset")), (Some("false"), Some("0")));
    assert_eq!(reply.text(), "[]");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_refuses_unknown_parameters() {
    let api = TestApi::start(Ports::default());
    for (query, detail) in [
        ("limit=0", "out_of_range: limit: must be from 1 to 100"),
        ("limit=101", "out_of_range: limit: must be from 1 to 100"),
        ("limit=x", "invalid_type: limit: must be an integer"),
        ("offset=-1", "out_of_range: offset: must be at least 0"),
        ("status=gone", "not_allowed: status: must be active, deleted or all"),
        ("include_deleted=yes", "invalid_type: include_deleted: must be true or false"),
    ] {
        assert_eq!(api.get(&format!("/browsers?{query}")).await.details(), [detail]);
    }
    assert_eq!(api.get("/browsers?query=%ff").await.code(), "bad_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_found_by_name_and_after_its_end_on_request() {
    let mut ports = Ports::default();
    ports
        .sessions
        .expect_find_in_project()
        .withf(|_, which, ended| format!("{which:?}") == "Name(\"ä b\")" && *ended)
        .return_once(|_, _, _| {
            Ok(Some(Session {
                state: SessionState::Ended(EndReason::Deleted),
                ended_at: Some(NOON + time::Duration::milliseconds(1500)),
                ..session(1)
            }))
        });
    let reply = TestApi::start(ports).get("/browsers/%C3%A4%20b?include_deleted=1").await;
    assert_eq!(reply.status, 200, "{reply}");
    assert_eq!(reply.json()["deleted_at"], "2026-12-01T12:00:01.500000Z");
    assert_eq!(reply.json()["usage"]["uptime_ms"], 1500);
    let reason = EndReason::Deleted;
    assert_eq!(
        (&reply.json()["end_reason"], &reply.json()["end_message"]),
        (&json!("deleted"), &json!(reason.explanation()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_id_and_another_projects_id_get_the_same_response() {
    let mut ports = Ports::default();
    // The repository has the session in one project only.
    ports
        .sessions
        .expect_find_in_project()
        .returning(|project, _, _| Ok((project != other_project()).then(|| session(1))));
    ports.sessions.expect_find().returning(|_| Ok(None));
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    let mut empty = Ports::default();
    empty.sessions.expect_find_in_project().returning(|_, _, _| Ok(None));
    let nothing = TestApi::start(empty);
    let id = session_id(1);
    for (method, path) in [
        ("GET", format!("/browsers/{id}")),
        ("PATCH", format!("/browsers/{id}")),
        ("DELETE", format!("/browsers/{id}")),
        ("POST", format!("/browsers/{id}/computer/screenshot")),
        ("POST", format!("/vm/{id}/computer/screenshot")),
    ] {
        let of_other = api.request(method, &path, &[&key], "").await;
        let unknown = nothing.call(method, &path, "").await;
        assert_eq!((of_other.status, &*of_other.code()), (404, "not_found"), "{method} {path}");
        assert_eq!(of_other.text(), unknown.text(), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_distinguishes_null_from_absent_and_clears_the_name() {
    for (body, name) in [
        (json!({ "name": null, "tags": null, "proxy_id": "" }), Some(None)),
        (json!({ "name": "" }), Some(None)),
        (json!({ "tags": { "a": "b" }, "disable_default_proxy": true }), None),
        (json!({ "name": " new " }), Some(Some(LabelName::parse("new").unwrap()))),
    ] {
        let mut ports = Ports::default();
        ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
        ports
            .sessions
            .expect_change()
            .withf(move |_, changes| changes.name == name)
            .return_once(|_, _| Ok(Some(Created::Yes)));
        ports.sessions.expect_set_proxy().withf(|_, proxy| proxy.is_none()).returning(|_, _| Ok(true));
        let reply = TestApi::start(ports).patch(&format!("/browsers/{}", session_id(1)), &body).await;
        assert_eq!(reply.status, 200, "{body}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_is_not_changed_under_a_viewer_unless_forced() {
    let mut ports = Ports::default();
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.sessions.expect_change().returning(|_, _| Ok(Some(Created::Yes)));
    ports.sessions.expect_set_viewport().times(1).returning(|_, _| Ok(()));
    ports.engine.expect_is_recording().returning(|_| Ok(false));
    ports.engine.expect_set_viewport().times(1).returning(|_, _| Ok(()));
    let api = TestApi::start(ports);
    api.sessions.activity().watch(&session(1));
    let _watching = api.sessions.activity().begin_view(session_id(1), true);
    let path = format!("/browsers/{}", session_id(1));
    let reply = api.patch(&path, json!({ "viewport": { "width": 800, "height": 600 } })).await;
    assert_eq!((reply.status, &*reply.code()), (409, "invalid_state"));
    let reply = api.patch(&path, json!({ "viewport": { "width": 800, "height": 600, "force": true } })).await;
    assert_eq!(reply.status, 200, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_session_returns_no_content() {
    let mut ports = Ports::default();
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    ports.sessions.expect_end().times(1).returning(|_, _| Ok(Replaced::Yes));
    ports.engine.expect_end().times(1).returning(|_| Ok(()));
    ports.browsers.expect_forget().returning(|_| Ok(()));
    let reply = TestApi::start(ports).call("DELETE", &format!("/browsers/{}", session_id(1)), "").await;
    assert_eq!(reply.to_string(), "204\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_screenshot_is_a_picture_of_the_region() {
    let mut ports = Ports::default();
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports
        .engine
        .expect_screenshot()
        .withf(|_, _, region| region.is_none_or(|part| (part.x, part.y, part.width, part.height) == (1, 2, 3, 4)))
        .times(3)
        .returning(|_, _, _| Ok(vec![0x89, b'P', b'N', b'G']));
    let api = TestApi::start(ports);
    let path = format!("/browsers/{}/computer/screenshot", session_id(1));
    for body in ["", "{}", r#"{"region": {"x": 1, "y": 2, "width": 3, "height": 4}}"#] {
        let reply = api.post(&path, body).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("image/png")), "{body}");
        assert_eq!(reply.body, [0x89, b'P', b'N', b'G']);
    }
    for (body, detail) in [
        (
            json!({ "region": { "x": 0, "y": 0, "width": 1921, "height": 1 } }),
            "out_of_range: region.width: must be from 1 to 1920",
        ),
        (json!({ "region": { "y": 0, "width": 1, "height": 1 } }), "required: region.x: is required"),
        (json!({ "region": 5 }), "invalid_type: region: must be an object"),
    ] {
        assert_eq!(api.post(&path, body).await.details(), [detail]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_store_is_a_retryable_503_without_details() {
    let mut ports = Ports::default();
    ports
        .sessions
        .expect_list()
        .return_once(|_, _, _| Err(StoreError::unavailable("session.list", "password=hunter2")));
    ports.sessions.expect_list().return_once(|_, _, _| {
        Err(StoreError::Broken { operation: "session.list", source: "password=hunter2".into() })
    });
    let api = TestApi::start(ports);
    assert_eq!(
        api.get("/browsers").await.to_string(),
        "503\nretry-after: 1\n{\"code\":\"unavailable\",\"message\":\"the database is not available; nothing was done\"}"
    );
    assert_eq!(
        api.get("/browsers").await.to_string(),
        "500\n{\"code\":\"internal\",\"message\":\"internal error; the log has more under this request id\"}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn long_json_is_compressed_for_clients_that_accept_gzip() {
    let mut ports = Ports::default();
    let tags = Tags::parse((0..50).map(|n| (format!("key{n}"), "v".repeat(100))).collect()).unwrap();
    ports
        .sessions
        .expect_find_in_project()
        .returning(move |_, _, _| Ok(Some(Session { tags: tags.clone(), ..session(1) })));
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let path = format!("/browsers/{}", session_id(1));
    let packed = api.request("GET", &path, &[&key, "Accept-Encoding: br, gzip;q=0.5"], "").await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(packed.body[..2], [0x1f, 0x8b]);
    let plain = api.request("GET", &path, &[&key, "Accept-Encoding: gzip;q=0"], "").await;
    assert_eq!(plain.header("content-encoding"), None);
    assert!(plain.body.len() > packed.body.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn urls_begin_with_the_host_of_the_request_where_the_operator_has_stated_none() {
    for follows_host in [true, false] {
        let ports =
            Ports { follows_host, public_url: Some("http://127.0.0.1:1".to_owned()), ..Ports::of_first_session() };
        let api = TestApi::start(ports);
        let host = format!("localhost:{}", api.server.local_addr().port());
        let key = format!("Authorization: Bearer {}", Key::Organization.text());
        let path = format!("/browsers/{}", session_id(1));
        let session = api.request("GET", &path, &[&key, &format!("Host: {host}")], "").await.json();
        let host = if follows_host { host.as_str() } else { "127.0.0.1:1" };
        for (field, scheme) in [("cdp_ws_url", "ws"), ("base_url", "http"), ("browser_live_view_url", "http")] {
            let url = session[field].as_str().unwrap_or_default();
            assert!(url.starts_with(&format!("{scheme}://{host}/")), "{field}: {url}");
        }
    }
}
