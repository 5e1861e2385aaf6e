//! Tests that what a session promises holds in every context: those that clients make, popups and incognito windows.

use std::collections::BTreeMap;

use casement_test_support::archives::python;
use casement_test_support::program::{Clients, Pages, Server, Session, Shared};
use serde_json::{Value, json};

use super::extensions::{form, send};

const SCRIPT: &str = "crates/app/tests/scripts/contexts.mjs";
/// A name without TLS, at which Chromium holds downloads back by default. A proxy of the session leads to its pages.
const SITE: &str = "http://shop.test";
/// The name, the kind, and the size of the page.
const SESSIONS: [(&str, bool, bool, &str); 3] =
    [("headless", true, false, "1000x700"), ("display", false, false, "1000x613"), ("kiosk", false, true, "1000x700")];

fn put_site(pages: &Pages) {
    pages.put(
        &format!("{SITE}/contexts"),
        "<!doctype html><title>page</title><script>console.log('said', location.search)</script>",
    );
    let page = "<!doctype html><script>
        for (const ending of ['csv', 'exe']) {
          const link = document.createElement('a');
          link.href = `/contexts/file?${location.search.slice(1)}.${ending}`;
          link.download = `${location.search.slice(1)}.${ending}`;
          link.click();
        }
      </script>";
    pages.put(&format!("{SITE}/contexts/downloads"), page);
    pages.put_as(&format!("{SITE}/contexts/file"), "Content-Type: application/octet-stream", "a,b");
}

fn sessions(server: &Server, pages: &Pages) -> anyhow::Result<Vec<(&'static str, Session)>> {
    let config = json!({ "host": "127.0.0.1", "port": pages.address().port() });
    server.post("/proxies", &json!({ "type": "custom", "name": "contexts", "config": config }))?.expect(201)?;
    let zip = python(
        "with zipfile.ZipFile(out, 'w') as z:
  z.writestr('manifest.json', '{\"manifest_version\":3,\"name\":\"x\",\"version\":\"1\",\"content_scripts\":[{\"matches\":[\"http://*/*\"],\"js\":[\"mark.js\"],\"run_at\":\"document_start\"}]}')
  z.writestr('mark.js', 'document.documentElement.dataset.extension = \"here\"')",
    )?;
    send(server, form("/extensions", &[("name", "contexts")], &[("file", &zip)]))?.expect(201)?;
    let create = |(name, headless, kiosk, _): (&'static str, bool, bool, &str)| {
        let body = json!({
            "headless": headless,
            "kiosk_mode": kiosk,
            "timeout_seconds": 900,
            "viewport": { "width": 1000, "height": 700 },
            "location": { "timezone": "Asia/Tokyo", "locale": "de-CH" },
            "browser_policy": { "URLBlocklist": ["blocked.test"] },
            "extensions": [{ "name": "contexts" }],
            "network": { "proxy_routes": [{ "hosts": ["shop.test"], "proxy": { "name": "contexts" } }] },
            "telemetry": { "browser": { "console": { "enabled": true }, "network": { "enabled": true } } },
        });
        Ok((name, server.create(&body)?))
    };
    SESSIONS.into_iter().map(create).collect()
}

/// Returns all events of a session.
fn events(server: &Server, session: &Session) -> anyhow::Result<Vec<Value>> {
    let (mut all, mut offset) = (Vec::new(), String::new());
    loop {
        let path = format!("/browsers/{}/telemetry/events?limit=100{offset}", session.id());
        let page = server.get(&path)?.expect(200)?;
        all.extend(serde_json::from_value::<Vec<Value>>(page.json()?)?);
        match page.header("x-next-offset") {
            Some(next) if page.header("x-has-more") == Some("true") => offset = format!("&offset={next}"),
            _ => return Ok(all),
        }
    }
}

/// Returns which kinds of events name the page of a context.
fn reported(events: &[Value], context: &str) -> Vec<&'static str> {
    let page = format!("{SITE}/contexts?{context}");
    let is_reported = |kind: &&'static str| {
        events.iter().any(|event| event["event"]["type"] == *kind && event["event"]["data"]["url"] == page.as_str())
    };
    ["console_log", "network_request"].into_iter().filter(is_reported).collect()
}

#[test]
fn what_a_session_promises_holds_in_every_context() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::on_this_machine();
    put_site(pages);
    let sessions = sessions(server, pages)?;
    let mut described = serde_json::Map::new();
    for ((name, session), (_, _, _, window)) in sessions.iter().zip(SESSIONS) {
        let session = json!({
            "id": session.id(), "cdp": session.text("cdp_ws_url"), "bidi": session.text("webdriver_ws_url"),
            "window": window, "incognito": *name == "display",
        });
        described.insert((*name).to_owned(), session);
    }
    let argument = json!({ "site": SITE, "sessions": described }).to_string();
    let rows = Clients::find()?.run(server, SCRIPT, &[&argument])?.json()?;

    for ((name, session), (_, _, _, window)) in sessions.iter().zip(SESSIONS) {
        let found: BTreeMap<String, Value> = serde_json::from_value(rows[*name].clone())?;
        assert_eq!(found.len(), if *name == "display" { 10 } else { 9 }, "{name}: {found:?}");
        let expected = json!({
            "time zone": "Asia/Tokyo",
            "locale": ["de-CH", "de-CH"],
            "user agent": found["default"]["user agent"],
            "screen": "1000x700",
            "navigator.webdriver": false,
            "extension": "here",
            "network": true,
            "window": window,
            "blocked by policy": "ERR_BLOCKED_BY_ADMINISTRATOR",
            "outside of the wall": 403,
            "downloads": [".csv", ".exe"],
        });
        for (context, seen) in found {
            assert_eq!(seen, expected, "{name}, {context}");
        }
        let events = events(server, session)?;
        for context in ["default", "popup", "playwright", "popup-of-playwright", "puppeteer", "bidi"] {
            assert_eq!(reported(&events, context), ["console_log", "network_request"], "{name}, {context}");
        }
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}
