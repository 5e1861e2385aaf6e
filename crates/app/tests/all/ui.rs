//! Tests of the web interface, which a separate browser opens like a person.

use casement_test_support::program::{Clients, Shared};
use serde_json::json;

/// The screenshots that are copied to cargo's temporary folder for tests, so that people can look at them.
const PICTURES: [&str; 9] = [
    "sign-in.png",
    "pools.png",
    "sessions.png",
    "session.png",
    "reference.png",
    "phone-sessions.png",
    "phone-session.png",
    "phone-pools.png",
    "phone-reference.png",
];

#[test]
fn a_person_watches_and_ends_sessions_with_a_keyboard_and_on_a_phone() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let hostile = "<img src=x onerror=window.owned=1> \u{202e}\"'`";
    let session = |name: &str| {
        let tags = json!({ "seen": "<b>here</b>" });
        let captured: serde_json::Map<_, _> = ["console", "network", "page", "interaction", "screenshot"]
            .map(|name| (name.to_owned(), json!({ "enabled": true })))
            .into_iter()
            .collect();
        let telemetry = json!({ "enabled": true, "browser": captured });
        let telemetry = (name == hostile).then_some(telemetry);
        server.create(&json!({
            "headles": false, "headless": true, "timeout_seconds": 600, "name": name, "tags": tags, "telemetry": telemetry,
        }))
    };
    let (first, second) = (session(hostile)?, session("plain one")?);

    let arguments = ["seen=<b>here</b>", first.text("cdp_ws_url"), &pages.url("")];
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/ui.mjs", &arguments)?;

    for name in PICTURES {
        std::fs::write(format!("{}/ui-{name}", env!("CARGO_TARGET_TMPDIR")), run.file(name)?)?;
    }
    assert_eq!(
        run.json()?,
        json!({
            "refused": "That key opens nothing. It may have been revoked, or not all of it was copied.",
            "pool": "default",
            // A script can read neither the key nor the cookie.
            "storage": "||",
            "names": [hostile.replace('\u{202e}', "\u{fffd}"), "plain one"],
            "green": true,
            "owned": [null, 0],
            "captured": true,
            "paused": 0,
            "earlier": [0, 1],
            "picture": true,
            "careful": "Cancel",
            "ended": "plain one",
            "title": format!("{} · Casement", hostile.replace('\u{202e}', "\u{fffd}")),
            "ignored": "headles",
            "console": "\u{241b}[31m<img src=x onerror=window.owned=1>\u{fffd}",
            "untouched": [null, 0],
            "operation": "/browser_pools/{id_or_name}/acquire",
            "wider": { "sessions": 0, "session": 0, "pools": 0, "reference": 0 },
            "signedOut": true,
            "faults": [],
        })
    );
    assert_eq!(server.get(&format!("/browsers/{}", second.id()))?.status, 404, "it was ended");
    server.delete(&format!("/browsers/{}", first.id()))?.expect(204)?;
    let log = server.log();
    assert!(!log.contains(server.key()), "the key is in no line");
    Ok(())
}
