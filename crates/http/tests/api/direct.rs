//! The routes `/vm/{session_id}` and `/live/{session_id}`.

use casement_domain::{
    fs::Upload,
    session::{EndReason, IdOrName, Session, SessionState},
    testing::{NOON, session, session_id},
};
use casement_http::{Permission, SessionTokens};
use futures_util::{FutureExt as _, StreamExt as _};
use pretty_assertions::assert_eq;

use serde_json::Value;

use super::support::{Key, Ports, TestApi, other_project, owner};

const UPGRADE: [&str; 3] =
    ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="];

/// Starts a server in which the first session is active, the second has ended, and others do not exist.
fn api() -> TestApi {
    let mut ports = Ports::default();
    ports.sessions.expect_find().returning(|id| {
        Ok(match id {
            id if id == session_id(1) => Some(session(1)),
            id if id == session_id(2) => {
                Some(Session { state: SessionState::Ended(EndReason::Deleted), ended_at: Some(NOON), ..session(2) })
            }
            _ => None,
        })
    });
    ports
        .sessions
        .expect_find_in_project()
        .returning(|_, which, _| Ok((format!("{which:?}").contains(&session_id(1).to_string())).then(|| session(1))));
    ports.engine.expect_screenshot().returning(|_, _, _| Ok(b"png".to_vec()));
    TestApi::start(ports)
}

/// Returns the header lines of a WebSocket upgrade if the path serves WebSockets.
fn lines(path: &str) -> Vec<&'static str> {
    if path.contains("/wd/") { Vec::new() } else { [&UPGRADE[..], &["Connection: Upgrade"]].concat() }
}

fn paths(n: u32) -> [String; 5] {
    let id = session_id(n);
    [
        format!("/vm/{id}/cdp"),
        format!("/vm/{id}/webdriver"),
        format!("/vm/{id}/webdriver/session/abc"),
        format!("/vm/{id}/wd/status"),
        format!("/live/{id}/socket"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_opens_only_its_own_session_and_only_while_that_is_active() {
    let api = api();
    let token = |n| api.token(session_id(n), Permission::Drive);
    let forged = SessionTokens::new(&[1; 32]).mint(session_id(1), owner(), Permission::Drive, NOON);
    for (n, token, status, code) in [
        (1, token(2), 401, "unauthorized"),
        (1, forged, 401, "unauthorized"),
        (1, "x.y.z".to_owned(), 401, "unauthorized"),
        (1, String::new(), 401, "unauthorized"),
        (2, token(2), 404, "not_found"),
        (3, token(3), 404, "not_found"),
        // The browser is unavailable in these tests; a valid token gets this far.
        (1, token(1), 503, "browser_unavailable"),
    ] {
        for path in paths(n) {
            let reply = api.request("GET", &format!("{path}?jwt={token}"), &lines(&path), "").await;
            assert_eq!((reply.status, &*reply.code()), (status, code), "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_credential_nothing_is_revealed() {
    let api = api();
    for n in [1, 2, 3] {
        for path in paths(n) {
            let reply = api.request("GET", &path, &UPGRADE, "").await;
            assert_eq!((reply.status, &*reply.code()), (401, "unauthorized"), "{path}");
        }
    }
}

/// Returns the documented routes of a session, with their methods.
fn operations_inside() -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(casement_http::openapi()).unwrap();
    let mut inside = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let Some(tail) = path.strip_prefix("/browsers/{id_or_name}/") else { continue };
        for method in item.as_object().unwrap().keys() {
            inside.push((method.to_uppercase(), format!("/vm/{}/{}", session_id(1), tail.replace(['{', '}'], ""))));
        }
    }
    assert!(inside.len() > 40, "{inside:?}");
    inside
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_view_token_opens_only_the_live_view() {
    let api = api();
    for permission in [Permission::Interact, Permission::View] {
        let token = api.token(session_id(1), permission);
        for path in paths(1) {
            let reply = api.request("GET", &format!("{path}?jwt={token}"), &lines(&path), "").await;
            let expected = if path.starts_with("/live") { 503 } else { 403 };
            assert_eq!(reply.status, expected, "{path}");
        }
        for (method, path) in operations_inside() {
            let reply = api.request(&method, &format!("{path}?jwt={token}"), &[], "").await;
            // Some operations have no direct route.
            let refused = [(403, "forbidden".to_owned()), (404, "route_not_found".to_owned())];
            assert!(refused.contains(&(reply.status, reply.code())), "{method} {path} with {permission:?}: {reply}");
        }
        // The token is neither an API key nor a password of WebDriver.
        let bearer = format!("Authorization: Bearer {token}");
        assert_eq!(api.request("GET", "/browsers", &[&bearer], "").await.status, 401);
        let page = api.request("GET", &format!("/live/{}?jwt={token}", session_id(1)), &[], "").await;
        assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
        assert_eq!(page.header("cache-control"), Some("no-store"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_deployed_program_gets_a_token_with_full_access() {
    let api = api();
    let record = api.get(&format!("/browsers/{}", session_id(1))).await.json();
    let [drive, interact] =
        [Permission::Drive, Permission::Interact].map(|permission| api.token(session_id(1), permission));
    for (field, token) in [("cdp_ws_url", &drive), ("webdriver_ws_url", &drive), ("browser_live_view_url", &interact)] {
        let (_, given) = record[field].as_str().unwrap().split_once("jwt=").unwrap();
        assert_eq!(given, token, "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_view_uploads_files_into_one_directory_only() {
    let mut ports = Ports::default();
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    ports.files.expect_upload().times(2).returning(|_, mut files| {
        let first = files.next().now_or_never().flatten().expect("it begins with a path").expect("a path");
        assert!(
            matches!(&first, Upload::File(path) if path.as_str() == "/home/casement/Uploads/Notiz ü.txt"),
            "{first:?}"
        );
        Ok(())
    });
    let api = TestApi::start(ports);
    api.sessions.activity().watch(&session(1));
    let put = async |name: &str, permission| {
        let token = api.token(session_id(1), permission);
        let path = format!("/live/{}/uploads/{name}?jwt={token}", session_id(1));
        api.request("PUT", &path, &["Content-Type: text/plain"], "inside").await
    };
    let name = "Notiz%20%C3%BC.txt";
    for (permission, status) in [(Permission::Interact, 204), (Permission::Drive, 204), (Permission::View, 403)] {
        assert_eq!(put(name, permission).await.status, status, "{permission:?}");
    }
    for elsewhere in ["..", "..%2f.config%2fx", "%2fetc%2fpasswd", "a%2fb", "."] {
        let reply = put(elsewhere, Permission::Interact).await;
        assert!(matches!(reply.status, 400 | 404), "{elsewhere}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_names_a_live_session_by_its_name_in_every_path() {
    let mut ports = Ports::default();
    ports.sessions.expect_find_in_project().returning(|_, which, _| {
        let live = match which {
            IdOrName::Id(id) => *id == session_id(1),
            IdOrName::Name(name) => name == "my session",
        };
        Ok(live.then(|| session(1)))
    });
    ports.sessions.expect_find().returning(|id| Ok((id == session_id(1)).then(|| session(1))));
    ports.engine.expect_screenshot().returning(|_, _, _| Ok(b"png".to_vec()));
    ports.replays.expect_list().returning(|_| Ok(Vec::new()));
    ports.stored_replays.expect_of_session().returning(|_| Ok(Vec::new()));
    let api = TestApi::start(ports);
    for path in ["/browsers/my%20session", "/vm/my%20session"] {
        assert_eq!(api.post(&format!("{path}/computer/screenshot"), "").await.body, b"png", "{path}");
        assert_eq!(api.get(&format!("{path}/replays")).await.status, 200, "{path}");
    }
    assert_eq!(api.post("/browsers/other/computer/screenshot", "").await.code(), "not_found");
}

#[test]
fn every_path_below_a_session_takes_an_id_or_a_name() {
    let document: Value = serde_json::from_str(casement_http::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap().keys().filter(|path| path.starts_with("/browsers/"));
    let others: Vec<&String> = paths.filter(|path| !path.starts_with("/browsers/{id_or_name}")).collect();
    assert_eq!(others, Vec::<&String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_key_opens_direct_routes_but_no_page() {
    let api = api();
    let id = session_id(1);
    assert_eq!(api.post(&format!("/vm/{id}/computer/screenshot"), "").await.body, b"png");
    assert_eq!(api.get(&format!("/live/{id}")).await.status, 401);
    assert_eq!(api.get(&format!("/vm/{}/cdp", session_id(3))).await.code(), "not_found");
    let token = api.token(id, Permission::Drive);
    let direct = format!("/vm/{id}/computer/screenshot?jwt={token}");
    assert_eq!(api.request("POST", &direct, &[], "{}").await.body, b"png");
    let reply = api.request("POST", &direct, &[], r#"{"region": {"x": 5000, "y": 0, "width": 1, "height": 1}}"#).await;
    assert_eq!(reply.details(), ["out_of_range: region.x: must be from 0 to 1919"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_no_handshake_is_refused() {
    let api = api();
    let token = api.token(session_id(1), Permission::Drive);
    let reply = api.request("GET", &format!("/vm/{}/cdp?jwt={token}", session_id(1)), &[], "").await;
    assert_eq!((reply.status, &*reply.code(), reply.header("upgrade")), (400, "bad_request", Some("websocket")));
}

#[tokio::test(flavor = "multi_thread")]
async fn webdriver_accepts_the_token_as_a_password() {
    use base64::Engine as _;
    let api = api();
    let basic = |password: &str| {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("anybody:{password}"));
        format!("Authorization: Basic {pair}")
    };
    let path = format!("/vm/{}/wd/session/abc/url", session_id(1));
    let good = api.request("GET", &path, &[&basic(&api.token(session_id(1), Permission::Drive))], "").await;
    assert_eq!(good.code(), "browser_unavailable");
    let bad = api.request("GET", &path, &[&basic(&api.token(session_id(2), Permission::Drive))], "").await;
    assert_eq!(bad.status, 401);
    let key = api.request("GET", &path, &[&basic(&Key::Organization.text())], "").await;
    assert_eq!(key.status, 401);
    // Other routes accept no password.
    let cdp = format!("/vm/{}/cdp", session_id(1));
    assert_eq!(api.request("GET", &cdp, &[&basic(&api.token(session_id(1), Permission::Drive))], "").await.status, 401);
    // Commands that control chromedriver itself are refused with the errors of its protocol.
    let shutdown = api
        .request(
            "GET",
            &format!("/vm/{}/wd/shutdown", session_id(1)),
            &[&basic(&api.token(session_id(1), Permission::Drive))],
            "",
        )
        .await;
    assert_eq!((shutdown.status, &shutdown.json()["value"]["error"]), (404, &"unknown command".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_assets_of_the_page_need_no_credential() {
    let api = api();
    let script = api.request("GET", "/live/assets/live.js", &[], "").await;
    assert_eq!((script.status, script.header("content-type")), (200, Some("text/javascript; charset=utf-8")));
    assert_eq!(api.request("GET", "/live/assets/none.js", &[], "").await.code(), "route_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn webdriver_methods_are_reported_without_a_credential() {
    let api = api();
    let path = format!("/vm/{}/wd/session", session_id(1));
    let allow = "DELETE, GET, OPTIONS, POST";
    assert_eq!(api.request("OPTIONS", &path, &[], "").await.to_string(), format!("204\nallow: {allow}\n"));
    for method in ["PUT", "PATCH", "BREW"] {
        let refused = api.request(method, &path, &[], "").await;
        assert_eq!((refused.status, refused.header("allow")), (405, Some(allow)), "{method}");
        assert_eq!(refused.code(), "method_not_allowed");
        assert_eq!(refused.json()["value"]["error"], "unknown method");
    }
    assert_eq!(api.request("HEAD", &path, &[], "").await.status, 405);
    for nothing in ["wd", "wd/"] {
        let reply = api.request("GET", &format!("/vm/{}/{nothing}", session_id(1)), &[], "").await;
        assert_eq!((reply.status, &*reply.code()), (404, "route_not_found"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webdriver_errors_are_those_of_the_protocol_with_the_apis_as_their_data() {
    let api = api();
    let token = |n| api.token(session_id(n), Permission::Drive);
    for (n, token, tail, status, code, error) in [
        (1, String::new(), "status", 401, "unauthorized", "unknown error"),
        (2, token(2), "session/abc/url", 404, "not_found", "invalid session id"),
        (1, token(1), "shutdown", 404, "route_not_found", "unknown command"),
        (1, token(1), "status", 503, "browser_unavailable", "unknown error"),
    ] {
        let reply = api.request("GET", &format!("/vm/{}/wd/{tail}?jwt={token}", session_id(n)), &[], "").await;
        assert_eq!((reply.status, &*reply.code()), (status, code), "{tail}");
        let value = &reply.json()["value"];
        assert_eq!((&value["error"], &value["stacktrace"]), (&error.into(), &"".into()));
        assert_eq!(reply.header("retry-after"), (status == 503).then_some("1"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webdriver_command_without_a_credential_is_refused_with_an_explanation() {
    let api = api();
    let path = format!("/vm/{}/wd/session/abc/url", session_id(1));
    let reply = api.request("POST", &path, &[], "{}").await;
    assert_eq!((reply.status, &*reply.code()), (401, "unauthorized"), "{reply}");
    assert!(reply.text().contains("must come with every request, as the query parameter jwt"), "{reply}");
    let wrong = api.request("POST", &path, &["Authorization: Basic eDp5"], "{}").await;
    assert_eq!((wrong.status, wrong.text().contains("jwt")), (401, false), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_a_login_is_closed_to_project_keys_and_session_tokens() {
    let login = |project| Session { for_login: true, project, ..session(1) };
    let mut ports = Ports::default();
    ports.sessions.expect_find().returning(move |_| Ok(Some(login(other_project()))));
    ports.sessions.expect_find_in_project().returning(move |project, _, _| Ok(Some(login(project))));
    ports.engine.expect_screenshot().returning(|_, _, _| Ok(b"png".to_vec()));
    let api = TestApi::start(ports);
    let token = api.token(session_id(1), Permission::Drive);
    let key = |key: Key| format!("Authorization: Bearer {}", key.text());
    let (of_project, of_organization) = (key(Key::OtherProject), key(Key::Organization));

    let described: serde_json::Value = serde_json::from_str(casement_http::openapi()).unwrap();
    let mut seen = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        let Some(tail) = path.strip_prefix("/browsers/{id_or_name}/") else { continue };
        let tail = tail.replace("{watch_id}", "w").replace("{process_id}", "p").replace("{replay_id}", "r");
        for method in methods.as_object().unwrap().keys().filter(|name| *name != "parameters") {
            let method = method.to_uppercase();
            let id = session_id(1);
            let reply = api.request(&method, &format!("/browsers/{id}/{tail}"), &[&of_project], "{}").await;
            assert_eq!((reply.status, &*reply.code()), (409, "invalid_state"), "{method} {tail}: {reply}");
            let direct = format!("/vm/{id}/{tail}");
            if tail != "telemetry/events" {
                let reply = api.request(&method, &format!("{direct}?jwt={token}"), &[], "{}").await;
                assert_eq!(reply.status, 409, "{method} {tail} with the token: {reply}");
                let reply = api.request(&method, &direct, &[&of_project], "{}").await;
                assert_eq!(reply.status, 409, "{method} {tail} directly: {reply}");
            }
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} operations");
    for path in &paths(1)[..4] {
        let lines = lines(path);
        let reply = api.request("GET", &format!("{path}?jwt={token}"), &lines, "").await;
        assert_eq!(reply.status, 409, "{path}: {reply}");
    }
    let id = session_id(1);
    assert_eq!(
        api.request("GET", &format!("/vm/{id}/curl/raw?jwt={token}&url=http://a.example"), &[], "").await.status,
        409
    );
    let json = "Content-Type: application/json";
    let renamed = api.request("PATCH", &format!("/browsers/{id}"), &[&of_project, json], r#"{"name": "mine"}"#).await;
    assert_eq!(renamed.status, 409, "{renamed}");

    let watching = api.token(session_id(1), Permission::View);
    for page in ["", "/socket"] {
        let path = format!("/live/{id}{page}?jwt={watching}");
        assert_eq!(api.request("GET", &path, &lines("/live/socket"), "").await.status, 409, "{path}");
    }

    // Reading the record, the live view for those who may act, and the key of the whole organization stay permitted.
    assert_eq!(api.request("GET", &format!("/browsers/{id}"), &[&of_project], "").await.status, 200);
    assert_eq!(api.request("GET", &format!("/live/{id}?jwt={token}"), &[], "").await.status, 200);
    let screenshot = format!("/browsers/{id}/computer/screenshot");
    assert_eq!(api.request("POST", &screenshot, &[&of_organization, json], "{}").await.status, 200);
}
