//! Tests of the live view, which a separate browser opens like a person.

use casement_test_support::program::{Clients, Session, Shared};
use serde_json::{Value, json};

fn at_the_live_view(session: &Session) -> anyhow::Result<Value> {
    let Shared { server, pages } = Shared::get();
    let headless = session.0["headless"].to_string();
    let arguments = [session.text("browser_live_view_url"), session.text("cdp_ws_url"), &pages.url(""), &headless];
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/live_view.mjs", &arguments)?;
    // Copied to cargo's temporary folder for tests, so that people can look at it.
    let copy_path = format!("{}/live-{}.png", env!("CARGO_TARGET_TMPDIR"), session.0["headless"]);
    std::fs::write(copy_path, run.file("live.png")?)?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    run.json()
}

fn saw() -> Value {
    json!({
        "green": true,
        "said": "Hello, Grüße 4 – aus der Ablage",
        "seen": ["click"],
        "focus": "tabs",
        "address": Shared::get().pages.url("/form"),
        "dropped": "Notiz ü.txt: von außen",
        "notice": "Notiz ü.txt is in /home/casement/Uploads/",
        // The attempts of a viewer without the permission have no effect.
        "after": [["click"], "Grüße 4 – aus der Ablage"],
    })
}

#[test]
fn a_person_sees_clicks_types_and_pastes_into_a_headless_browser() -> anyhow::Result<()> {
    let session = Shared::get().server.headless()?;

    assert_eq!(at_the_live_view(&session)?, saw());
    Ok(())
}

#[test]
fn a_person_sees_the_whole_display_of_a_headful_browser_and_uses_its_window_too() -> anyhow::Result<()> {
    let session = Shared::get().server.create(&json!({ "timeout_seconds": 600 }))?;
    let mut wanted = saw();
    wanted["typed"] = json!(true);

    assert_eq!(at_the_live_view(&session)?, wanted);
    Ok(())
}
