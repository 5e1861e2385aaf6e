//! Classic WebDriver for a browser on a WebDriver server.

use std::{sync::Arc, time::Duration};

use casement_domain::{
    session::{Session, SessionEvent},
    store_error::Replaced,
    testing::{NOON, session, session_id},
};
use casement_http::Permission;
use casement_test_support::websocket::read_head;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::support::{FakeGrid, GRID_HOST, GRID_SECRET, GRID_SESSION, Ports, Reply, TestApi};

/// A server whose session is on a Grid.
pub(super) struct Remote {
    pub(super) api: TestApi,
    pub(super) grid: FakeGrid,
    pub(super) token: String,
}

impl Remote {
    pub(super) fn start() -> Self {
        Self::of(session(1))
    }

    fn of(session: Session) -> Self {
        let grid = FakeGrid::default();
        let mut ports = Ports { session_connector: Some(Arc::new(grid.clone())), ..Ports::default() };
        let (found, in_project) = (session.clone(), session.clone());
        ports.sessions.expect_find().returning(move |_| Ok(Some(found.clone())));
        ports.sessions.expect_find_in_project().returning(move |_, _, _| Ok(Some(in_project.clone())));
        ports.sessions.expect_end().returning(|_, _| Ok(Replaced::Yes));
        ports.engine.expect_end().returning(|_| Ok(()));
        ports.browsers.expect_forget().returning(|_| Ok(()));
        let api = TestApi::start(ports);
        api.sessions.activity().watch(&session);
        let token = api.token(session_id(1), Permission::Drive);
        Self { api, grid, token }
    }

    /// Returns the path of an endpoint of the session.
    pub(super) fn path(&self, tail: &str) -> String {
        format!("/vm/{}/{tail}?jwt={}", session_id(1), self.token)
    }

    async fn command(&self, method: &str, tail: &str, body: &str) -> Reply {
        let headers =
            ["Content-Type: text/plain", "Cookie: of-the-client=1", "Origin: https://client.test", "TE: trailers"];
        let reply = self.api.request(method, &self.path(&format!("wd/{tail}")), &headers, body).await;
        let text = format!("{:?} {}", reply.headers, String::from_utf8_lossy(&reply.body));
        assert!(!text.contains(GRID_HOST) && !text.contains(GRID_SECRET), "{text}");
        reply
    }
}

fn error(reply: &Reply) -> String {
    reply.json()["value"]["error"].as_str().unwrap_or_else(|| panic!("no error: {reply}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_session_is_the_one_on_the_server_with_public_addresses() {
    let remote = Remote::start();
    let request = json!({ "capabilities": { "alwaysMatch": { "browserName": "chrome", "webSocketUrl": true } } });
    let made = remote.command("POST", "session", &request.to_string()).await;
    assert_eq!(made.status, 200, "{made}");
    let value = &made.json()["value"];
    assert_eq!(
        (&value["sessionId"], &value["capabilities"]["browserVersion"]),
        (&json!(GRID_SESSION), &json!("143.0.7499.40"))
    );
    let (id, token) = (session_id(1), &remote.token);
    let bidi = format!("wss://casement.test/vm/{id}/webdriver/session/{GRID_SESSION}?jwt={token}");
    assert_eq!(value["capabilities"]["webSocketUrl"], bidi);
    assert!(
        value["capabilities"]["se:cdp"].as_str().unwrap().starts_with(&format!("wss://casement.test/vm/{id}/cdp?jwt="))
    );
    for hidden in ["40001", "se:vnc", "mark-of-the-owner"] {
        assert!(!made.text().contains(hidden), "{hidden}: {made}");
    }
    assert!(remote.grid.seen().is_empty(), "no second browser is requested");
}

#[tokio::test(flavor = "multi_thread")]
async fn capabilities_that_the_running_browser_lacks_make_no_session() {
    let remote = Remote::start();
    let request = json!({ "capabilities": { "alwaysMatch": { "pageLoadStrategy": "none" } } });
    let refused = remote.command("POST", "session", &request.to_string()).await;
    assert_eq!((refused.status, error(&refused)), (400, "session not created".to_owned()), "{refused}");
    let message = refused.json()["value"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("engine local") && message.contains("pageLoadStrategy"), "{message}");
    let malformed = remote.command("POST", "session", "{").await;
    assert_eq!((malformed.status, error(&malformed)), (400, "invalid argument".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_of_a_new_session_are_set_on_the_server() {
    let remote = Remote::start();
    let request = json!({ "capabilities": { "alwaysMatch": { "timeouts": { "script": 5 } } } });
    let made = remote.command("POST", "session", &request.to_string()).await;
    assert_eq!(
        made.json()["value"]["capabilities"]["timeouts"],
        json!({ "implicit": 0, "pageLoad": 300_000, "script": 5 })
    );
    let seen = remote.grid.seen();
    assert_eq!(seen[0].line(), format!("POST /base/session/{GRID_SESSION}/timeouts HTTP/1.1"));
    assert_eq!(seen[0].body, r#"{"script":5}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_reach_the_server_with_its_credentials_and_no_header_of_the_client() {
    let remote = Remote::start();
    let body = r#"{"url":"https://a.test/"}"#;
    let reply = remote.command("POST", &format!("session/{GRID_SESSION}/url"), body).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json; charset=utf-8")));
    assert!(reply.text().contains("of the grid"), "{reply}");
    let seen = remote.grid.seen().remove(0);
    assert_eq!((seen.line(), seen.body.as_str()), (&*format!("POST /base/session/{GRID_SESSION}/url HTTP/1.1"), body));
    for (name, value) in [
        ("host", Some(GRID_HOST)),
        ("authorization", Some(GRID_SECRET)),
        ("x-of-the-operator", Some("yes")),
        ("content-type", Some("application/json; charset=utf-8")),
        ("connection", Some("close")),
        ("cookie", None),
        ("origin", None),
        ("te", None),
    ] {
        assert_eq!(seen.header(name), value, "{name}");
    }
    assert!(!seen.head.contains(&remote.token) && !seen.head.contains("other.test"), "{}", seen.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_classic_session_leaves_the_remote_browser_alone() {
    let remote = Remote::start();
    let ended = remote.command("DELETE", &format!("session/{GRID_SESSION}"), "").await;
    assert_eq!((ended.status, ended.json()), (200, json!({ "value": null })));
    assert_eq!(remote.command("GET", "status", "").await.json()["value"]["ready"], json!(true));
    assert!(remote.grid.seen().is_empty());
    let again = remote.command("POST", "session", r#"{"capabilities":{}}"#).await;
    assert_eq!(again.status, 200, "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_others_and_the_servers_own_commands_are_closed() {
    let remote = Remote::start();
    for (method, tail, status, code) in [
        ("GET", "session/other/url".to_owned(), 404, "invalid session id"),
        ("DELETE", "session/other".to_owned(), 404, "invalid session id"),
        ("GET", "sessions".to_owned(), 404, "unknown command"),
        ("POST", "graphql".to_owned(), 404, "unknown command"),
        ("GET", format!("session/{GRID_SESSION}/se/vnc"), 404, "unknown command"),
        ("GET", format!("session/{GRID_SESSION}/%2e%2e/other/url"), 404, "unknown command"),
    ] {
        let refused = remote.command(method, &tail, "").await;
        assert_eq!((refused.status, error(&refused)), (status, code.to_owned()), "{method} {tail}");
    }
    assert!(remote.grid.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_none_of_the_protocol_are_neither_followed_nor_passed() {
    let remote = Remote::start();
    let json = "content-type: application/json\r\n";
    for (status, lines) in [
        ("302 Found", format!("location: http://{GRID_HOST}/login\r\n{json}")),
        ("307 Temporary Redirect", format!("location: http://attacker.test/\r\n{json}")),
        ("401 Unauthorized", format!("www-authenticate: Basic realm=\"{GRID_HOST}\"\r\n{json}")),
        ("403 Forbidden", json.to_owned()),
        ("200 OK", "content-type: text/html\r\n".to_owned()),
        ("200 OK", String::new()),
    ] {
        remote.grid.answers(status, &lines, format!("<a href=\"http://{GRID_HOST}\">"));
        let refused = remote.command("GET", &format!("session/{GRID_SESSION}/url"), "").await;
        assert_eq!((refused.status, error(&refused)), (502, "unknown error".to_owned()), "{status}");
        assert_eq!((refused.header("location"), refused.header("www-authenticate")), (None, None));
    }
    assert_eq!(remote.grid.seen().len(), 6, "one request each");
    remote.grid.answers_raw("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
    assert_eq!(remote.command("GET", &format!("session/{GRID_SESSION}/url"), "").await.status, 502);
    remote.grid.answers_raw("nonsense\r\n\r\n");
    assert_eq!(remote.command("GET", &format!("session/{GRID_SESSION}/url"), "").await.status, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_server_pass_without_its_headers() {
    let remote = Remote::start();
    let body = r#"{"value":{"error":"no such element","message":"","stacktrace":""}}"#;
    let lines = "content-type: application/json\r\nset-cookie: a=b\r\nserver: grid\r\nkeep-alive: timeout=5\r\n";
    remote.grid.answers("404 Not Found", lines, body);
    let reply = remote.command("POST", &format!("session/{GRID_SESSION}/element"), "{}").await;
    assert_eq!(reply.status, 404);
    assert!(reply.text().contains("no such element"), "{reply}");
    for hidden in ["set-cookie", "server", "keep-alive"] {
        assert_eq!(reply.header(hidden), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oversized_answer_is_refused() {
    let remote = Remote::start();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n{";
    remote.grid.answers_raw(head);
    let refused = remote.command("GET", &format!("session/{GRID_SESSION}/source"), "").await;
    assert_eq!((refused.status, error(&refused)), (502, "unknown error".to_owned()));
    let long = format!(r#"{{"value":"{}"}}"#, "x".repeat(2 << 20));
    remote.grid.answers("200 OK", "content-type: application/json\r\n", long);
    let refused = remote.command("POST", &format!("session/{GRID_SESSION}/se/file"), r#"{"file":""}"#).await;
    assert_eq!(refused.status, 502, "the answer to an upload is a path");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_those_of_the_servers_machine() {
    let remote = Remote::start();
    for (method, tail) in
        [("POST", "file"), ("POST", "se/file"), ("GET", "se/files"), ("POST", "se/files"), ("DELETE", "se/files")]
    {
        let reply = remote.command(method, &format!("session/{GRID_SESSION}/{tail}"), "{}").await;
        assert_eq!(reply.status, 200, "{method} {tail}: {reply}");
        assert!(reply.text().contains("of the grid"), "{reply}");
    }
    let lines: Vec<String> = remote.grid.seen().iter().map(|seen| seen.line().to_owned()).collect();
    let expected =
        ["POST", "POST", "GET", "POST", "DELETE"].into_iter().zip(["file", "file", "files", "files", "files"]);
    let expected = expected.map(|(method, name)| format!("{method} /base/session/{GRID_SESSION}/se/{name} HTTP/1.1"));
    assert_eq!(lines, expected.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_clients_use_the_session_on_the_server() {
    let remote = Remote::start();
    let path = format!("/wd/hub/session/{}-{GRID_SESSION}/url", session_id(1));
    assert_eq!(remote.api.get(&path).await.status, 200);
    assert_eq!(remote.grid.seen()[0].line(), format!("GET /base/session/{GRID_SESSION}/url HTTP/1.1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn devtools_addresses_are_made_from_the_session_and_its_targets() {
    let remote = Remote::start();
    let version = remote.api.request("GET", &remote.path("json/version"), &[], "").await.json();
    assert_eq!(version["Browser"], "Chrome/143.0.7499.40");
    let socket = version["webSocketDebuggerUrl"].as_str().unwrap();
    assert!(socket.starts_with(&format!("wss://casement.test/vm/{}/cdp?jwt=", session_id(1))), "{socket}");
    let targets = remote.api.request("GET", &remote.path("json/list"), &[], "").await.json();
    let page = json!({ "description": "", "id": "T1", "title": "A", "type": "page", "url": "https://a.test/" });
    assert_eq!(targets, Value::from(vec![page]));
    let upgrade = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let refused = remote.api.request("GET", &remote.path("devtools/page/T1"), &upgrade, "").await;
    assert_eq!((refused.status, refused.code()), (400, "not_supported".to_owned()));
    assert!(refused.text().contains("engine local") && refused.text().contains("devtools/page"), "{refused}");
    for (method, path) in
        [("GET", "json/protocol"), ("PUT", "json/new"), ("GET", "json/activate/T1"), ("GET", "json/close/T1")]
    {
        let refused = remote.api.request(method, &remote.path(path), &[], "").await;
        assert_eq!((refused.status, refused.code()), (400, "not_supported".to_owned()), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_session_reaches_no_server() {
    let ended = session(1).on(SessionEvent::Delete, NOON).unwrap();
    let remote = Remote::of(ended);
    let refused = remote.command("GET", &format!("session/{GRID_SESSION}/url"), "").await;
    assert_eq!((refused.status, error(&refused)), (404, "invalid session id".to_owned()));
    assert!(remote.grid.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_the_server_without_a_body_leaves_nothing_before_the_next_response() {
    let remote = Remote::start();
    remote.grid.answers_raw("HTTP/1.1 204 No Content\r\ncontent-type: application/json\r\n\r\n");
    let mut client = remote.api.connect().await;
    let command = remote.path(&format!("wd/session/{GRID_SESSION}/url"));
    for (path, status) in [(command.as_str(), 204), ("/healthz", 200)] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: casement.test\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = tokio::time::timeout(Duration::from_secs(60), read_head(&mut client)).await.expect("a response");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
}
