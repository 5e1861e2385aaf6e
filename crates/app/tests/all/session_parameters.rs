//! Tests of the location, the memory, the start URL and the profile of sessions, from outside.

use std::time::Duration;

use anyhow::ensure;
use casement_test_support::program::http::Request;
use casement_test_support::program::{Cdp, Server, Session, Shared, until};
use serde_json::{Value, json};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// What a page sees of its location.
const SEEN: &str = "[Intl.DateTimeFormat().resolvedOptions().locale, Intl.DateTimeFormat().resolvedOptions().timeZone,
    navigator.languages.join(), location.pathname]";

fn seen(session: &Session) -> anyhow::Result<Value> {
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.evaluate(&page, SEEN)
}

/// Waits until the page of the session sees this.
fn until_seen(session: &Session, expected: &Value) -> anyhow::Result<()> {
    until("the page is open", TEST_TIMEOUT, || seen(session).ok().filter(|seen| seen == expected)).map(drop)
}

fn update(server: &Server, session: &Session, body: &Value) -> anyhow::Result<Value> {
    let request = Request::new("PATCH", &format!("/browsers/{}", session.id())).bearer(server.key()).json(body);
    request.send(server.address())?.expect(200)?.json()
}

#[test]
fn a_session_is_created_in_a_location_and_moves_to_another() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    pages.put("/parameters/first", "<title>first</title>");
    pages.put("/parameters/second", "<title>second</title>");
    let location = json!({ "timezone": "Asia/Tokyo", "locale": "de-CH" });
    let session = server.create(&json!({
        "headless": true, "location": location, "memory": "1GiB", "start_url": pages.url("/parameters/first"),
    }))?;
    ensure!(session.text("memory") == "1GiB");
    until_seen(&session, &json!(["de-CH", "Asia/Tokyo", "de-CH,de", "/parameters/first"]))?;
    let body = json!({ "location": { "locale": null }, "start_url": pages.url("/parameters/second") });
    let record = update(server, &session, &body)?;
    ensure!(
        record["location"]["locale_source"] == "default" && record["location"]["timezone"] == "Asia/Tokyo",
        "{record}"
    );
    until_seen(&session, &json!(["en-US", "Asia/Tokyo", "en-US,en", "/parameters/second"]))?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

#[test]
fn a_lease_loads_a_profile_and_saves_it_for_the_next_one() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    pages.put("/parameters/stored", "<title>stored</title>");
    server.post("/profiles", &json!({ "name": "of-leases" }))?.expect(201)?;
    let config = json!({ "name": "for-profiles", "size": 2, "headless": true, "fill_rate_per_minute": 100 });
    server.post("/browser_pools", &config)?.expect(201)?;
    let acquire = |save_changes: bool| {
        let profile = json!({ "name": "of-leases", "save_changes": save_changes });
        let answer = server.post("/browser_pools/for-profiles/acquire", &json!({ "profile": profile }))?;
        let record = answer.expect(200)?.json()?;
        ensure!(record["profile_save_changes"] == save_changes && record["profile"]["name"] == "of-leases", "{record}");
        anyhow::Ok(Session(record))
    };
    let stored = |session: &Session, script: &str| {
        let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = cdp.page()?;
        cdp.open(&page, &pages.url("/parameters/stored"))?;
        cdp.evaluate(&page, script)
    };
    let first = acquire(true)?;
    stored(&first, "document.cookie = 'kept=yes; max-age=9999'")?;
    server.release("for-profiles", &first)?;
    let second = acquire(false)?;
    ensure!(stored(&second, "document.cookie")? == "kept=yes");
    server.release("for-profiles", &second)?;
    server.delete("/browser_pools/for-profiles")?.expect(204).map(drop)
}
