//! Tests that pages find in sessions of every kind what they find in the browsers that Playwright and Puppeteer start by
//! their own defaults, except for what a table of the documentation says.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context as _;
use casement_test_support::program::{Clients, Server, Session, Shared};
use serde_json::{Value, json};

const SCRIPT: &str = "crates/app/tests/scripts/capabilities.mjs";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/chromium-switches.md");
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/clients.md");
const MARKS: [&str; 2] = ["\n<!-- differences: begin -->\n", "\n<!-- differences: end -->\n"];

/// The clients, and the kinds of sessions in which each asks.
const CLIENTS: [(&str, &[&str]); 2] = [("playwright", &KINDS), ("puppeteer", &["headless", "display"])];
const KINDS: [&str; 7] =
    ["headless", "headless, stealth", "display", "display, stealth", "pool", "`/connect`", "`/wd/hub`"];

/// What pages find in a session instead of what they find in a client's own browser, and why.
const REASONS: [(&str, &str); 8] = [
    ("navigator.webdriver", "as in the browser of a person"),
    ("scrollbars", "as in the browser of a person, who may look at the live view"),
    ("WebRTC between pages", "isolation: no datagram passes the egress proxy"),
    (
        "windows without a click",
        "as in the browser of a person: a page that opens windows without end takes the places of the session's pages",
    ),
    ("pointer", "a session has a mouse; Puppeteer's own headless browser has none"),
    ("300 entries of the history", "stealth: as in the browser of a person, which bounds the navigations of a page"),
    (
        "a server that is down",
        "the words of a browser behind a proxy ([decision 101](decisions/0101-plain-requests-to-dead-servers-are-cut.md)): of `fetch`, `goto`, and `goto` over `https:`",
    ),
    (
        "port of the server, for the client",
        "`serverAddr()` and `remoteAddress()` are those of the connection, which leads to the egress proxy inside the session",
    ),
];

/// The sessions: the address for CDP of each, and what deletes it.
struct Opened {
    addresses: Vec<String>,
    sessions: Vec<Session>,
    hub: String,
}

impl Opened {
    fn open(server: &Server) -> anyhow::Result<Self> {
        let (mut addresses, mut sessions) = (Vec::new(), Vec::new());
        for kind in &KINDS[..4] {
            let (headless, stealth) = (kind.starts_with("headless"), kind.ends_with("stealth"));
            let body = json!({ "headless": headless, "stealth": stealth, "timeout_seconds": 900 });
            sessions.push(server.create(&body)?);
        }
        server.post("/browser_pools", &json!({ "name": "capabilities", "size": 1, "headless": true }))?.expect(201)?;
        sessions.push(server.acquire("capabilities")?);
        for (kind, session) in KINDS.iter().zip(&sessions) {
            addresses.push(format!("{kind}={}", session.text("cdp_ws_url")));
        }
        let connect = format!("ws://{}/connect?token={}&headless=true", server.address(), server.key());
        addresses.push(format!("{}={connect}", KINDS[5]));
        let options = json!({ "headless": true, "timeout_seconds": 900 });
        let capabilities = json!({ "browserName": "chrome", "casement:options": options });
        let new = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let made = server.post("/wd/hub/session", &new)?.expect(200)?.json()?;
        let cdp = made["value"]["capabilities"]["se:cdp"].as_str().context("no address of CDP")?;
        addresses.push(format!("{}={cdp}", KINDS[6]));
        let hub = made["value"]["sessionId"].as_str().context("no WebDriver session")?.to_owned();
        Ok(Self { addresses, sessions, hub })
    }

    fn close(self, server: &Server) -> anyhow::Result<()> {
        for session in self.sessions {
            server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
        }
        server.delete(&format!("/wd/hub/session/{}", self.hub))?.expect(200)?;
        let force = json!({ "force": true });
        server.send("DELETE", "/browser_pools/capabilities", Some(&force))?.expect(204).map(drop)
    }
}

/// Returns the names of the switches and of the features on a command line.
fn names(switches: &[Value]) -> Vec<&str> {
    let words = switches.iter().filter_map(Value::as_str);
    let names = words.flat_map(|word| match word.split_once('=') {
        Some(("--disable-features" | "--enable-features", features)) => features.split(',').collect(),
        Some((name, _)) => vec![name],
        None => vec![word],
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// A capability with its value in the client's own browser and in sessions.
type Difference = (String, String, String);

/// Returns the differences of a client's sessions, each with the kinds that have it.
fn differences(of_client: &Value, kinds: &[&'static str]) -> BTreeMap<Difference, Vec<&'static str>> {
    let mut found: BTreeMap<Difference, Vec<&str>> = BTreeMap::new();
    for kind in kinds {
        for (capability, own) in of_client["own"].as_object().into_iter().flatten() {
            let value = &of_client[*kind][capability];
            // The script does not ask the clients' own browsers, because the machine of the test may have no network.
            if capability != "network" && value != own {
                let difference = (capability.clone(), own.to_string(), value.to_string());
                found.entry(difference).or_default().push(kind);
            }
        }
    }
    found
}

/// Prints the differences as a table.
fn table(seen: &Value) -> anyhow::Result<String> {
    let [playwright, puppeteer] = CLIENTS.map(|(client, kinds)| differences(&seen[client], kinds));
    let mut rows: BTreeMap<(&Difference, &str), Vec<&str>> = BTreeMap::new();
    for (difference, kinds) in &playwright {
        let common = kinds.iter().filter(|kind| CLIENTS[1].1.contains(kind));
        let is_of_both = puppeteer.get(difference).is_some_and(|kinds| common.eq(kinds));
        rows.insert((difference, if is_of_both { "both" } else { "Playwright" }), kinds.clone());
    }
    for (difference, kinds) in &puppeteer {
        if !rows.contains_key(&(difference, "both")) {
            rows.insert((difference, "Puppeteer"), kinds.clone());
        }
    }
    let mut table = format!(
        "| what pages and clients find | by | in the client's own browser | in a session | {} | reason |\n",
        KINDS.join(" | ")
    );
    let _ = writeln!(table, "| --- | --- | --- | --- |{} --- |", " :-: |".repeat(KINDS.len()));
    for (((capability, own, value), by), kinds) in rows {
        let reason = REASONS.iter().find(|(name, _)| name == capability).map(|(_, reason)| reason);
        let reason = reason.with_context(|| format!("no reason for {capability}: {own} and {value} in {kinds:?}"))?;
        let cells = KINDS.map(|kind| match kinds.contains(&kind) {
            true => "×",
            false if by == "Puppeteer" && !CLIENTS[1].1.contains(&kind) => "–",
            false => "",
        });
        let _ = writeln!(table, "| {capability} | {by} | `{own}` | `{value}` | {} | {reason} |", cells.join(" | "));
    }
    Ok(table)
}

/// Compares the table of the page with `table`, or writes it with `UPDATE_DOCS=1`.
fn check_table(table: &str) -> anyhow::Result<()> {
    let committed = std::fs::read_to_string(TABLE)?;
    let (head, rest) = committed.split_once(MARKS[0]).context("docs/clients.md has no mark before its table")?;
    let (_, tail) = rest.split_once(MARKS[1]).context("docs/clients.md has no mark after its table")?;
    let page = [head, MARKS[0], "\n", table, MARKS[1], tail].concat();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(TABLE, &page)?;
        return Ok(());
    }
    assert_eq!(committed, page, "docs/clients.md: run this test with UPDATE_DOCS=1 after a look at what changed");
    Ok(())
}

#[test]
fn pages_find_in_every_kind_of_session_what_the_clients_own_browsers_have() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::on_this_machine();
    let opened = Opened::open(server)?;
    let arguments: Vec<&str> = opened.addresses.iter().map(String::as_str).collect();
    let seen = Clients::find()?.run(server, SCRIPT, &arguments)?.json()?;

    check_table(&table(&seen)?)?;
    let network = json!({ "navigator.onLine": true, "connection.rtt": true, "background sync": "synced" });
    for (client, kinds) in CLIENTS {
        for kind in kinds {
            assert_eq!(seen[client][kind]["network"], network, "{client}, {kind}");
        }
    }
    let own = &seen["playwright"]["own"];
    for kind in ["webgl", "webgl2"] {
        assert_eq!(own[kind][1], "255,0,0,255", "{kind} draws");
    }
    assert_eq!(own["timers behind"], true);
    assert_eq!(own["letters drawn as boxes"], json!([]), "`casement doctor` names the packages");
    assert_eq!(own["headers that only the client sees"], json!([]));

    let page = std::fs::read_to_string(PAGE)?;
    for capability in own.as_object().into_iter().flatten().map(|(name, _)| name) {
        assert!(page.contains(&format!("| {capability} |")), "docs/chromium-switches.md says nothing of {capability}");
    }
    for (client, _) in CLIENTS {
        let switches = seen["switches"][client].as_array().cloned().unwrap_or_default();
        assert!(!switches.is_empty(), "{client} gives no switches");
        for name in names(&switches) {
            let is_named = ["`", "="].iter().any(|end| page.contains(&format!("`{name}{end}")));
            assert!(is_named, "docs/chromium-switches.md says nothing of {name}, which {client} gives");
        }
    }
    opened.close(server)
}
