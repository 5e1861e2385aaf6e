//! Tests of events of a session, through the API and the public client.

use casement_domain::storage::StorageLimit;
use casement_domain::telemetry::Event;
use casement_test_support::program::{Clients, Pages, Shared};
use serde_json::json;
use time::OffsetDateTime;

use super::host::{sql, uuid};
use casement_test_support::telemetry_site;

/// The pages of the telemetry site, which the tests of the agent use too.
const SITE: [&str; 7] = ["", "frame", "popup", "guarded", "data.json", "worker.js", "empty"];

/// The host of the captchas. A proxy of the session leads to its pages.
const CAPTCHAS: &str = "static.geetest.com";

fn put_site(pages: &Pages) {
    for name in SITE {
        let path = format!("/telemetry/{name}");
        let (_, kind, content) = telemetry_site::answer(&path).unwrap_or_else(|| panic!("no {path}"));
        pages.put_as(&path, &format!("Content-Type: {kind}"), &content);
    }
    let (_, kind, content) = telemetry_site::answer("/telemetry/captcha").expect("a page");
    pages.put_as(&format!("http://{CAPTCHAS}/telemetry/captcha"), &format!("Content-Type: {kind}"), &content);
}

#[test]
fn every_event_type_is_reported_and_read_by_the_python_client() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    put_site(pages);
    let config = json!({ "host": "127.0.0.1", "port": pages.address().port() });
    server.post("/proxies", &json!({ "type": "custom", "name": "captchas", "config": config }))?.expect(201)?;
    let network = json!({ "proxy_routes": [{ "hosts": [CAPTCHAS], "proxy": { "name": "captchas" } }] }).to_string();

    let run = Clients::find()?.run(server, "crates/app/tests/scripts/telemetry.py", &[&pages.url(""), &network])?;

    let saw = json!({
        "console_log": ["log", ["hello", "42", "{a: 'x', b: (...)}", "[1, 2]"], "page", true, true],
        "console_error": ["error", 2, "Runtime.exceptionThrown"],
        "network_request": ["asked=1", "script", "Fetch", false],
        "network_response": [200, "application/json", 8192],
        "network_loading_failed": "blocked: csp",
        "interaction_click": "#button",
        "interaction_key": ["a", "#plain", "INPUT"],
        "interaction_scroll_settled": ["html", true],
        "page_tab_opened": "page",
        "captcha_solve_result": ["geetest", "success", "/telemetry/guarded"],
        "api_call": [200, true, true],
        "live_view_disconnect": true,
        "service_crashed": ["chromium-renderer", "running"],
        "monitor_disconnected": "chrome_restarted",
        "monitor_reconnected": true,
        "cdp_disconnect": ["upstream_changed", true, true],
        "kinds": [
            "api_call", "captcha_solve_result", "cdp_connect", "cdp_disconnect", "console_error", "console_log",
            "interaction_click", "interaction_key", "interaction_scroll_settled", "live_view_connect",
            "live_view_disconnect", "monitor_disconnected", "monitor_reconnected", "monitor_screenshot",
            "network_idle", "network_loading_failed", "network_request", "network_response",
            "page_dom_content_loaded", "page_layout_settled", "page_layout_shift", "page_lcp", "page_load",
            "page_navigation", "page_navigation_settled", "page_tab_opened", "service_crashed",
        ],
        "of one category": ["captcha"],
        "console is off": true,
        "the stream ends with its session": true,
    });
    assert_eq!(run.json()?, saw);
    Ok(())
}

/// Inserts the events as the server stores them, because lack of memory and a hanging browser cannot be caused
/// reliably.
#[test]
fn rare_events_are_decoded_by_the_python_client_too() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let session = server.headless()?;
    let now = OffsetDateTime::UNIX_EPOCH;
    let monitor = |kind: &str, data: &serde_json::Value| {
        json!({ "type": kind, "category": "monitor", "ts": 1, "source": { "kind": "cdp" }, "data": data }).to_string()
    };
    let failed = json!({ "reason": "reconnect_exhausted" });
    let refused = json!({ "step": "Target.setAutoAttach" });
    for (seq, category, body) in [
        (1, "system", Event::oom_kill(now, 4, "chromium", 5).body.to_string()),
        (5, "monitor", Event::dropped(now, 2, 4, Some(StorageLimit::Session)).body.to_string()),
        (6, "monitor", monitor("monitor_reconnect_failed", &failed)),
        (7, "monitor", monitor("monitor_init_failed", &refused)),
    ] {
        let id = uuid(session.id())?;
        sql(server, &format!("insert into telemetry_events values ('{id}', {seq}, now(), '{category}', '{body}')"))?;
    }

    let run = Clients::find()?.run(server, "crates/app/tests/scripts/telemetry_rare.py", &[session.id()])?;

    let saw = json!({
        "kinds": ["BrowserMonitorInitFailedEvent", "BrowserMonitorReconnectFailedEvent", "BrowserSystemOomKillEvent"],
        "system_oom_kill": { "pid": 4, "process_name": "chromium", "rss_kb": 5, "constraint": "memcg" },
        "telemetry_dropped": { "count": 3, "first_seq": 2, "last_seq": 4, "limit": "session" },
        "monitor_reconnect_failed": failed,
        "monitor_init_failed": refused,
    });
    assert_eq!(run.json()?, saw);
    Ok(())
}
