//! Rules for every route: methods, paths, headers.

use std::time::Duration;

use casement_domain::{
    page::Listed,
    testing::{session, session_id},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{Key, Ports, Reply, TestApi, request};

fn listing() -> Ports {
    let mut ports = Ports::default();
    ports.sessions.expect_list().returning(|_, _, _| Ok(Listed { items: vec![session(1)], next_offset: None }));
    ports
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_a_request_id_and_is_not_cacheable() {
    let api = TestApi::start(listing());
    for path in ["/healthz", "/browsers", "/nowhere"] {
        let reply = api.get(path).await;
        assert_eq!(reply.header("x-request-id").map(str::len), Some(26), "{path}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{path}");
    }
    for (sent, is_accepted) in
        [("abc-1._Z", true), ("a b", false), ("ä", false), (&*"x".repeat(129), false), ("", false)]
    {
        let reply = api.request("GET", "/healthz", &[&format!("X-Request-Id: {sent}")], "").await;
        assert_eq!(reply.header("x-request-id") == Some(sent), is_accepted, "{sent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_routes_and_methods_are_reported_without_a_key() {
    let api = TestApi::start(Ports::default());
    for path in ["/nowhere", "/browsers/x/y", "/vm/x/telemetry/events", "/browsers//"] {
        let reply = api.request("GET", path, &[], "").await;
        assert_eq!((reply.status, &*reply.code()), (404, "route_not_found"), "{path}");
    }
    for (method, path, allow) in [
        ("DELETE", "/browsers", "GET, HEAD, OPTIONS, POST"),
        ("PUT", "/browsers/x", "DELETE, GET, HEAD, OPTIONS, PATCH"),
        ("GET", "/browser_pools/x/acquire", "OPTIONS, POST"),
        ("HEAD", "/vm/x/cdp", "GET, OPTIONS"),
        ("BREW", "/healthz", "GET, HEAD, OPTIONS"),
    ] {
        let reply = api.request(method, path, &[], "").await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some(allow)), "{method} {path}");
        let options = api.request("OPTIONS", path, &[], "").await;
        assert_eq!(options.to_string(), format!("204\nallow: {allow}\n"));
        if method != "HEAD" {
            assert_eq!(reply.code(), "method_not_allowed");
        }
    }
}

/// Returns every path that is documented to stream events, and the undocumented ones.
fn streams() -> Vec<String> {
    let document: Value = serde_json::from_str(casement_http::openapi()).unwrap();
    let streams = |item: &Value| item["get"]["responses"]["200"]["content"].get("text/event-stream").is_some();
    let paths = document["paths"].as_object().unwrap().iter().filter(|(_, item)| streams(item));
    let described: Vec<String> = paths.map(|(path, _)| path.clone()).collect();
    assert!(described.len() >= 7, "{described:?}");
    let direct = described.iter().filter_map(|path| path.strip_prefix("/browsers/{id_or_name}/"));
    let direct: Vec<String> = direct.map(|tail| format!("/vm/x/{tail}")).collect();
    let pages = ["/ui/api/browsers/x/telemetry/stream", "/ui/api/deployments/x/events", "/ui/api/invocations/x/events"];
    let others = pages.into_iter().chain(["/login/x/events"]).map(str::to_owned);
    described.into_iter().chain(direct).chain(others).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_rejects_head_requests() {
    let api = TestApi::start(Ports::default());
    for path in streams() {
        let path = path.replace(['{', '}'], "");
        let reply = api.request("HEAD", &path, &[], "").await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, OPTIONS")), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_get_without_a_body() {
    let api = TestApi::start(listing());
    let (head, get) = (api.call("HEAD", "/browsers", "").await, api.get("/browsers").await);
    assert_eq!(head.body, b"");
    let telling = |reply: Reply| {
        let own = |name: &str| matches!(name, "date" | "x-request-id");
        reply.headers.into_iter().filter(|(name, _)| !own(name)).collect::<Vec<_>>()
    };
    assert_eq!((head.status, telling(head.clone())), (get.status, telling(get)));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_slash_at_the_end_is_ignored() {
    let api = TestApi::start(listing());
    assert_eq!(api.get("/browsers/?limit=5").await.status, 200);
    assert_eq!(api.get("/browsers//?limit=5").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_content_type_of_an_absent_body_is_ignored() {
    let mut ports = Ports::default();
    ports.proxies.expect_find().returning(|_, _| Ok(None));
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let path = "/proxies/01J00000000000000000000001/check";
    let reply = api.request("POST", path, &[&key, "Content-Type: application/x-www-form-urlencoded"], "").await;
    assert_eq!((reply.status, &*reply.code()), (404, "not_found"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_are_ignored_and_named_in_the_response() {
    let api = TestApi::start(Ports::default());
    let named = |reply: &Reply| reply.header("x-casement-ignored-fields").map(str::to_owned);
    let body = json!({ "headles": true, "timeout_seconds": 1, "viewport": { "widht": 3, "width": 0, "height": 0 }, "a\r\nb, c": 1 });
    let reply = api.post("/browsers", body).await;
    assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "{reply}");
    assert_eq!(named(&reply).as_deref(), Some("a??b??c, headles, viewport.widht"));
    let reply = api.post("/browsers", json!({ "timeout_seconds": 1 })).await;
    assert_eq!((reply.status, named(&reply)), (400, None), "{reply}");
    let many: serde_json::Map<_, _> = (0..30).map(|n| (format!("{n:0100}"), json!(n))).collect();
    let names = named(&api.post("/browsers", json!({ "timeout_seconds": 1, "more": many })).await);
    assert_eq!(names.as_deref(), Some("more"), "what lies in an ignored field is not looked at");
    let names = named(&api.post("/browsers", json!(many)).await).unwrap_or_default();
    assert!(names.len() < 20 * 66 + 5 && names.ends_with(", ..."), "{names}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_utf_8_json_is_accepted() {
    let api = TestApi::start(Ports::default());
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    for kind in ["text/plain", "multipart/form-data; boundary=x", "application/json; charset=latin1"] {
        let kind = format!("Content-Type: {kind}");
        let reply = api.request("POST", "/browsers", &[&key, &kind], "{}").await;
        assert_eq!((reply.status, &*reply.code()), (415, "unsupported_media_type"), "{kind}");
    }
    let form = "Content-Type: application/x-www-form-urlencoded";
    let reply = api.request("POST", "/browsers", &[&key, form], r#"{"headless": true}"#).await;
    assert!(reply.text().contains("'Content-Type: application/json'"), "it says what to do: {reply}");
    let reply = api.request("POST", "/browsers", &[&key, "Content-Encoding: gzip"], "{}").await;
    assert_eq!(reply.status, 415);
    // A body without a content type counts as JSON, so this one is parsed.
    let raw = format!(
        "POST /browsers HTTP/1.1\r\nHost: casement.test\r\n{key}\r\nContent-Length: 1\r\nConnection: close\r\n\r\n["
    );
    assert_eq!(api.raw(raw).await.code(), "bad_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_a_500_and_the_next_request_is_served() {
    // The repository of sessions has no expectations, so the mock panics: once in the handler, once in a spawned task.
    let api = TestApi::start(Ports::default());
    let reply = api.get("/browsers").await;
    assert_eq!((reply.status, &*reply.code()), (500, "internal"));
    assert_eq!(reply.header("x-request-id").map(str::len), Some(26));
    let reply = api.call("DELETE", &format!("/browsers/{}", session_id(1)), "").await;
    assert_eq!((reply.status, &*reply.code()), (500, "internal"));
    assert_eq!(api.get("/healthz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_reused_for_the_next_request() {
    let api = TestApi::start(listing());
    let mut stream = api.connect().await;
    for _ in 0..3 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: casement.test\r\n\r\n").await.unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(b"{\"status\":\"ok\"}") {
            assert_ne!(stream.read_buf(&mut reply).await.unwrap(), 0);
        }
    }
}

/// Reads from a kept-alive connection until `found` holds or the connection closes.
async fn read_until(stream: &mut tokio::net::TcpStream, found: impl Fn(&str) -> bool) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if found(&text) || stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return text;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_request_completes_while_the_server_drains_and_later_ones_are_refused() {
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let (answer, may_answer) = std::sync::mpsc::channel();
    let mut ports = listing();
    // The running request blocks the worker, so that later requests are handled only after its end.
    let may_answer = parking_lot::Mutex::new(may_answer);
    ports.sessions.expect_find_in_project().returning(move |_, _, _| {
        sender.send(()).unwrap();
        may_answer.lock().recv().unwrap();
        Ok(Some(session(1)))
    });
    let api = TestApi::start(ports);
    let path = format!("/browsers/{}", session_id(1));
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let keep_alive = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: casement.test\r\n{key}\r\n\r\n").into_bytes();
    let (mut first, mut idle) = (api.connect().await, api.connect().await);
    idle.write_all(&keep_alive("/healthz")).await.unwrap();
    read_until(&mut idle, |text| text.ends_with("{\"status\":\"ok\"}")).await;
    first.write_all(&keep_alive(&path)).await.unwrap();
    received.recv().await.unwrap();
    idle.write_all(&keep_alive("/browsers")).await.unwrap();
    let mut draining = Box::pin(api.server.drain());
    assert!(futures_util::poll!(&mut draining).is_pending());
    answer.send(()).unwrap();
    let answered = read_until(&mut first, |_| false);
    let refused = read_until(&mut idle, |_| false);
    let (done, answered, refused) = tokio::join!(draining, answered, refused);
    done.unwrap();
    assert!(answered.starts_with("HTTP/1.1 200 "), "{answered}");
    // There may be no response, because an idle connection may be closed before its next request is read.
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 503 "), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_refuses_new_requests_and_stops() {
    let api = TestApi::start(listing());
    let mut stream = api.connect().await;
    stream.write_all(&request("GET", "/healthz", &[], "")).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    assert_eq!(Reply::parse(&reply).status, 200);
    let address = api.server.local_addr();
    api.server.drain().await.unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_may_probe_by_address_without_a_name_and_with_http_1_0() {
    let api = TestApi::start(Ports::default());
    for head in [
        "GET /readyz HTTP/1.0\r\n\r\n",
        "GET /healthz HTTP/1.0\r\n\r\n",
        "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: 10.2.3.4:80\r\nConnection: close\r\n\r\n",
        "OPTIONS /readyz HTTP/1.0\r\n\r\n",
    ] {
        let answer = whole_answer(&api, head).await;
        let status = if head.starts_with("OPTIONS") { " 204 " } else { " 200 " };
        assert!(answer.lines().next().is_some_and(|line| line.contains(status)), "{head}: {answer}");
    }
    let other = whole_answer(&api, "GET /browsers HTTP/1.0\r\n\r\n").await;
    assert!(other.contains(" 400 "), "{other}");
}

/// Sends `bytes` and returns everything that comes until the server closes the connection.
async fn whole_answer(api: &TestApi, bytes: &str) -> String {
    let mut connection = api.connect().await;
    connection.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(60), connection.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_their_turn_also_those_with_bodies() {
    let api = TestApi::start(Ports::default());
    let get = "GET /healthz HTTP/1.1\r\nHost: casement.test\r\n\r\n";
    let posts = [
        "POST /browsers HTTP/1.1\r\nHost: casement.test\r\nContent-Length: 5\r\n\r\nGET /",
        "POST /browsers HTTP/1.1\r\nHost: casement.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ];
    let last = "GET /openapi.json HTTP/1.1\r\nHost: casement.test\r\nConnection: close\r\n\r\n";
    let answer = whole_answer(&api, &[&get.repeat(500), last].concat()).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 501);
    assert!(answer.trim_end().ends_with('}'), "the last one is whole");
    let answer = whole_answer(&api, &[get, posts[1], last].concat()).await;
    assert_eq!(answer.matches("HTTP/1.1 401").count(), 1, "{answer:.2000}");
    let answer = whole_answer(&api, &[get, posts[0], last].concat()).await;
    assert_eq!(answer.matches("HTTP/1.1 401").count(), 1, "{answer:.2000}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_connections_with_half_a_head_the_oldest_are_closed_and_others_are_served() {
    /// The maximum number of incomplete heads from one address.
    const BOUND: usize = 1000;
    const TIMEOUT: Duration = Duration::from_secs(60);
    let api = TestApi::start(Ports::default());
    let mut half_sent = Vec::new();
    for _ in 0..BOUND + 20 {
        let mut connection = api.connect().await;
        connection.write_all(b"GET /healthz HTTP/1.1\r\nHost: casement.test\r\nX-Long: ").await.unwrap();
        half_sent.push(connection);
        // The connections are registered in order, so that the oldest ones are known.
        if half_sent.len() % 50 == 0 {
            assert_eq!(api.get("/healthz").await.status, 200);
        }
    }
    let mut buffer = [0; 64];
    for connection in &mut half_sent[..10] {
        let closed = tokio::time::timeout(TIMEOUT, connection.read(&mut buffer)).await.expect("it is closed");
        assert!(closed.is_err() || closed.is_ok_and(|read| read == 0));
    }
    assert_eq!(api.get("/healthz").await.status, 200);
    let newest = half_sent.last_mut().unwrap();
    newest.write_all(b"\r\nConnection: close\r\n\r\n").await.unwrap();
    let read = tokio::time::timeout(TIMEOUT, newest.read(&mut buffer)).await.expect("an answer").unwrap();
    assert!(buffer[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&buffer[..read]));
}
