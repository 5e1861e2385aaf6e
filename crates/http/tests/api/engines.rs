//! Engines: the route `/engines`, the field `engine`, and refusals of what an engine cannot do.

use casement_domain::{
    browser::{Shape, Started},
    engine::{ConfiguredEngines, EngineDescription, EngineName},
    pool::PoolCounts,
    session::{Created, Session},
    store_error::Replaced,
    testing::{pool, session, session_id},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::support::{Key, Ports, TestApi};

fn grid() -> EngineName {
    EngineName::parse("grid").expect("a name")
}

fn with_grid() -> Ports {
    let engines = vec![EngineDescription::local(), EngineDescription::webdriver(grid(), Some(4))];
    Ports { engines: Some(ConfiguredEngines::new(engines).expect("a set")), ..Ports::default() }
}

fn grid_session() -> Session {
    Session { shape: Shape { engine: grid(), headless: true, ..Shape::default() }, ..session(1) }
}

/// The sessions of a project in which the first one is on the grid.
fn knows_grid_session() -> Ports {
    let mut ports = with_grid();
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(grid_session())));
    ports.sessions.expect_find().returning(|_| Ok(Some(grid_session())));
    ports
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_are_listed_with_what_they_can_do_for_keys_of_the_organization() {
    let api = TestApi::start(with_grid());
    let reply = api.get("/engines").await;
    assert_eq!(reply.status, 200, "{reply}");
    let listed = reply.json();
    let named: Vec<&Value> = listed.as_array().expect("a list").iter().map(|engine| &engine["name"]).collect();
    assert_eq!(named, ["local", "grid"]);
    let (local, remote) = (&listed[0], &listed[1]);
    assert_eq!((&local["kind"], &local["default"], local.get("max_sessions")), (&json!("local"), &json!(true), None));
    let expected = (&json!("webdriver"), &json!(false), &json!(4));
    assert_eq!((&remote["kind"], &remote["default"], &remote["max_sessions"]), expected);
    assert_eq!(local["capabilities"][1], json!({ "name": "cdp", "support": "full" }));
    let find = |name: &str| {
        let all = remote["capabilities"].as_array().expect("a list");
        all.iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
    };
    let viewport = "the size of the page; there is no refresh rate";
    assert_eq!(find("viewport"), json!({ "name": "viewport", "support": "partial", "note": viewport }));
    let processes = json!({ "name": "processes", "support": "none", "note": "nothing runs beside the browser" });
    assert_eq!(find("processes"), processes);
    let page = api.get("/engines?limit=1&offset=1").await;
    assert_eq!((page.json()[0]["name"].clone(), page.header("x-has-more")), (json!("grid"), Some("false")), "{page}");
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    let refused = api.request("GET", "/engines", &[&key], "").await;
    assert_eq!((refused.status, &*refused.code()), (403, "forbidden"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_made_by_the_engine_that_it_names_and_shows_it() {
    let mut ports = with_grid();
    ports.spares.expect_take().returning(|_| None);
    ports.sessions.expect_create().returning(|_, _, _| Ok(Created::Yes));
    ports.sessions.expect_activate().returning(|_, _, _| Ok(Replaced::Yes));
    ports.engine.expect_start().withf(|launch| launch.shape.engine == grid()).returning(|_| Ok(Started::default()));
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    let reply = TestApi::start(ports).post("/browsers", json!({ "engine": "grid" })).await;
    assert_eq!(reply.status, 201, "{reply}");
    let made = reply.json();
    assert_eq!((&made["engine"], &made["headless"]), (&json!("grid"), &json!(true)));
    assert_eq!((made.get("memory"), made.get("location")), (None, None), "the engine sets neither");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_engine_lacks_is_refused_with_its_name_and_the_field() {
    let api = TestApi::start(with_grid());
    for (path, body, field) in [
        ("/browsers", json!({ "engine": "grid", "stealth": true }), "stealth"),
        ("/browsers", json!({ "engine": "grid", "headless": false }), "headless"),
        ("/browsers", json!({ "engine": "grid", "memory": "2GiB" }), "memory"),
        ("/browser_pools", json!({ "engine": "grid", "size": 1, "kiosk_mode": true }), "kiosk_mode"),
    ] {
        let refused = api.post(path, body).await;
        assert_eq!((refused.status, &*refused.code()), (400, "not_supported"), "{refused}");
        let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.starts_with(&format!("{field}: the engine grid does not support ")), "{message}");
    }
    let unknown = api.post("/browsers", json!({ "engine": "moon" })).await;
    assert_eq!(unknown.details(), ["not_allowed: engine: must be one of local, grid"], "{unknown}");
    let connect = api.get("/json/version?engine=grid&stealth=true").await;
    assert_eq!((connect.status, &*connect.code()), (400, "not_supported"), "{connect}");
    let with_pool = api.get("/json/version?engine=grid&pool=warm").await;
    assert_eq!((with_pool.status, &*with_pool.code()), (400, "invalid_input"), "{with_pool}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_the_engine_lacks_is_refused_and_reaches_no_browser() {
    let api = TestApi::start(knows_grid_session());
    let base = format!("/browsers/{}", session_id(1));
    for (path, body) in [
        ("process/exec", json!({ "command": "true" })),
        ("computer/clipboard/read", json!({})),
        ("computer/clipboard/write", json!({ "text": "x" })),
    ] {
        let refused = api.post(&format!("{base}/{path}"), body).await;
        assert_eq!((refused.status, &*refused.code()), (400, "not_supported"), "{path}: {refused}");
        let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains("the engine grid does not support "), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_shows_its_engine_and_why_it_cannot_be_filled() {
    let mut ports = with_grid();
    ports.pools.expect_find().returning(|_, _| {
        let mut found = pool(2).build();
        found.config.shape.engine = grid();
        found.blocked_reason = Some("no node of the grid is free".to_owned());
        Ok(Some(found))
    });
    ports.pools.expect_counts().returning(|_| Ok(PoolCounts::default()));
    let shown = TestApi::start(ports).get("/browser_pools/warm").await.json();
    assert_eq!(shown["blocked_reason"], "no node of the grid is free");
    assert_eq!(shown["browser_pool_config"]["engine"], "grid");
}
