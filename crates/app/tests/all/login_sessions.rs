//! Tests of the settings of a login's browser: the proxy and the recording.

use anyhow::Context as _;
use casement_test_support::program::{Pages, Server, Shared, until};
use serde_json::{Value, json};

use super::login_site::{Connection, PASSWORD, Site, TEST_TIMEOUT, ann};
use super::proxies::{closed_port, exit};

/// Returns the latest login in the timeline.
fn latest(connection: &Connection<'_>) -> anyhow::Result<Value> {
    let timeline = connection.server.get(&connection.path("/timeline?limit=1"))?.expect(200)?.json()?;
    Ok(timeline[0].clone())
}

fn proxy(server: &Server, name: &str, config: &Value) -> anyhow::Result<()> {
    let body = json!({ "type": "custom", "name": name, "config": config });
    server.post("/proxies", &body)?.expect(201).map(drop)
}

#[test]
fn a_login_uses_the_proxy_and_the_recording_of_its_connection() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let (exit, requests) = exit(&pages)?;
    let server = &Shared::on_this_machine().server;
    proxy(server, "login-exit", &json!({ "host": "127.0.0.1", "port": exit.port() }))?;
    let closed = closed_port()?;
    proxy(server, "login-down", &json!({ "host": "127.0.0.1", "port": closed.local_addr()?.port() }))?;

    let site = Site::new(&pages, "shop-exit");
    let url = |page: &str| format!("http://only-there.example{}", site.path(page));
    let more = json!({ "domain": "only-there.example", "proxy": { "name": "login-exit" }, "record_session": true });
    let connection = Connection::at(server, "shop-exit", &url("home"), &more)?;
    connection.login()?;
    connection.until_awaiting()?;
    let through = |page: &str| {
        let line = format!("GET {} HTTP/1.1", url(page));
        requests.lock().iter().filter(|requests| **requests == line).count()
    };
    assert!(through("login") > 0);
    connection.submit(&ann(PASSWORD))?;
    connection.until_over("SUCCESS")?;
    assert!(through("home") > 1);
    connection.until_closed()?;
    let facts = latest(&connection)?;
    let name = |key: &str| facts[key].as_str().with_context(|| format!("no {key}: {facts}"));
    let video = format!("/browsers/{}/replays/{}", name("browser_session_id")?, name("replay_id")?);
    let stored = until("the film of a login that is over", TEST_TIMEOUT, || {
        let answer = server.get(&video).ok()?;
        (answer.status == 200).then_some(answer)
    })?;
    assert_eq!(stored.body.get(4..8), Some(&b"ftyp"[..]), "it is a film");

    // A login may override the connection: this one has a proxy that does not answer, and no recording.
    for address in [url("login"), url("login").replace("http:", "https:")] {
        server.send("PATCH", &connection.path(""), Some(&json!({ "login_url": address })))?.expect(200)?;
        let other = json!({ "proxy": { "name": "login-down" }, "record_session": false });
        server.post(&connection.path("/login"), &other)?.expect(200)?;
        let over = connection.until_over("FAILED")?;
        assert_eq!(over["error_code"], "navigation_failed", "{address}: {over}");
        assert!(latest(&connection)?["replay_id"].is_null());
        connection.until_closed()?;
    }
    let session = server.create(&json!({ "headless": true, "proxy_id": "login-down" }))?;
    let requests = server.post(&format!("/browsers/{}/curl", session.id()), &json!({ "url": url("login") }))?;
    assert_eq!(requests.expect(502)?.json()?["code"], "upstream_error", "a request says the same");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;

    let used = server.get("/proxies?limit=100")?.expect(200)?.json()?;
    let exit = used.as_array().into_iter().flatten().find(|one| one["name"] == "login-exit").context("no proxy")?;
    let path = format!("/proxies/{}", exit["id"].as_str().context("no id")?);
    assert_eq!(server.delete(&path)?.expect(409)?.json()?["code"], "resource_in_use");
    server.delete(&connection.path(""))?.expect(204)?;
    until("the proxy is let go", TEST_TIMEOUT, || (server.delete(&path).ok()?.status == 204).then_some(()))
}
