//! Tests that pages find in sessions of every kind what they find in the browsers that Playwright and Puppeteer start by
//! their own defaults.

use std::collections::BTreeMap;

use casement_test_support::program::{Clients, Server, Session, Shared};
use serde_json::{Value, json};

const SCRIPT: &str = "crates/app/tests/scripts/capabilities.mjs";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/chromium-switches.md");

const CLIENTS: [&str; 2] = ["playwright", "puppeteer"];
/// The name, `headless` and `stealth` of each kind of session.
const KINDS: [(&str, bool, bool); 4] = [
    ("headless", true, false),
    ("headless, stealth", true, true),
    ("display", false, false),
    ("display, stealth", false, true),
];

/// What pages find in a session instead of what they find in a client's own browser. The page has the reasons.
fn differences(client: &str, kind: &str) -> Vec<(&'static str, Value)> {
    let network = json!({ "navigator.onLine": true, "connection.rtt": true, "background sync": "synced" });
    let mut differences = vec![
        ("navigator.webdriver", json!(false)),
        ("scrollbars", json!(true)),
        ("WebRTC between pages", json!(false)),
        ("windows without a click", json!(false)),
        // The script does not ask the clients' own browsers, because the machine of the test may have no network.
        ("network", network),
    ];
    if client == "puppeteer" {
        differences.push(("pointer", json!(["(hover: hover)", "(pointer: fine)"])));
    }
    if kind.ends_with("stealth") {
        differences.push(("300 entries of the history", json!(false)));
    }
    differences
}

fn sessions(server: &'static Server) -> anyhow::Result<Vec<(&'static str, Session)>> {
    let create = |(name, headless, stealth): (&'static str, bool, bool)| {
        let body = json!({ "headless": headless, "stealth": stealth, "timeout_seconds": 900 });
        Ok((name, server.create(&body)?))
    };
    KINDS.into_iter().map(create).collect()
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

#[test]
fn pages_find_in_every_kind_of_session_what_the_clients_own_browsers_have() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::on_this_machine();
    let sessions = sessions(server)?;
    let named: Vec<String> =
        sessions.iter().map(|(name, session)| format!("{name}={}", session.text("cdp_ws_url"))).collect();
    let arguments: Vec<&str> = named.iter().map(String::as_str).collect();
    let seen = Clients::find()?.run(server, SCRIPT, &arguments)?.json()?;

    let (mut found, mut expected) = (BTreeMap::new(), BTreeMap::new());
    for client in CLIENTS {
        for (kind, _, stealth) in KINDS {
            // The script asks with Playwright alone there.
            if stealth && client == "puppeteer" {
                continue;
            }
            let mut own = seen[client]["own"].clone();
            for (capability, value) in differences(client, kind) {
                own[capability] = value;
            }
            expected.insert((client, kind), own);
            found.insert((client, kind), seen[client][kind].clone());
        }
    }
    assert_eq!(found, expected);
    for kind in ["webgl", "webgl2"] {
        assert_eq!(seen["playwright"]["own"][kind][1], "255,0,0,255", "{kind} draws");
    }
    assert_eq!(seen["playwright"]["own"]["timers behind"], true);
    assert_eq!(seen["playwright"]["own"]["letters drawn as boxes"], json!([]), "`casement doctor` names the packages");
    assert_eq!(seen["playwright"]["own"]["a server that is down"], json!(["an error", "an error"]));

    let page = std::fs::read_to_string(PAGE)?;
    for capability in seen["playwright"]["own"].as_object().into_iter().flatten().map(|(name, _)| name) {
        assert!(page.contains(&format!("| {capability} |")), "docs/chromium-switches.md says nothing of {capability}");
    }
    for client in CLIENTS {
        let switches = seen["switches"][client].as_array().cloned().unwrap_or_default();
        assert!(!switches.is_empty(), "{client} gives no switches");
        for name in names(&switches) {
            let is_named = ["`", "="].iter().any(|end| page.contains(&format!("`{name}{end}")));
            assert!(is_named, "docs/chromium-switches.md says nothing of {name}, which {client} gives");
        }
    }
    for (_, session) in sessions {
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}
