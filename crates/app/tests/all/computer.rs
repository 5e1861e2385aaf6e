//! Tests of computer control with the public client: the responses, and the events on the page.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::png_size;
use casement_test_support::program::{Cdp, Clients, Shared, until};
use serde_json::{Value, json};

const TEST_TIMEOUT: Duration = Duration::from_secs(120);

fn every_call_works(headless: bool) -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let body = json!({ "headless": headless, "start_url": pages.url("/form"), "timeout_seconds": 300 });
    let session = server.create(&body)?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    let there = until("the form", TEST_TIMEOUT, || {
        let title = cdp.evaluate(&page, "document.readyState + document.title").ok()?;
        (title == json!("completeA form")).then_some(())
    });
    there?;
    cdp.until_drawn(&page)?;
    let frame = match headless {
        true => 0,
        false => cdp.evaluate(&page, "outerHeight - innerHeight")?.as_u64().context("no frame")?,
    };
    let noting = "window.untrusted = 0; window.wheels = 0; window.tracked = new Set();
        for (const type of ['mousemove', 'mousedown', 'mouseup', 'keydown', 'keyup', 'wheel', 'contextmenu'])
            addEventListener(type, e => {
                tracked.add(type); untrusted += !e.isTrusted; wheels += e.deltaY || 0;
                if (type === 'contextmenu') e.preventDefault();
            }, true); 1";
    cdp.evaluate(&page, noting)?;
    let arguments = [session.id().to_owned(), frame.to_string()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/computer.py", &arguments)?;
    let bad = |fields: Value| json!(["BadRequestError", "invalid_input", fields]);
    let saw = json!({
        "copied": "first",
        "typed and copied": true,
        "position": [500, 400],
        "cursor": true,
        "picture": [true, 300, 200],
        "a megabyte": true,
        "nothing": "",
        "key": bad(json!(["keys[0]"])),
        "place": bad(json!(["x", "y"])),
        "batch": bad(json!(["actions[1].scroll"])),
        "clipboard": bad(json!(["text"])),
        "control": bad(json!(["text"])),
        "session": ["NotFoundError", "not_found", []],
    });
    assert_eq!(run.json()?, saw);
    // The last events may reach the page after the responses.
    let clicked = |cdp: &mut Cdp| Some(cdp.evaluate(&page, "seen.length && tracked.size >= 7").ok()? == json!(true));
    until("the page has been clicked", TEST_TIMEOUT, || clicked(&mut cdp)?.then_some(()))?;
    let seen =
        cdp.evaluate(&page, "[document.getElementById('name').value, said.textContent, seen.join(), untrusted]")?;
    assert_eq!(seen, json!(["Zoë", "Hello, Zoë", "click", 0]));
    let tracked = cdp.evaluate(&page, "[...tracked].sort().join()")?;
    assert_eq!(tracked, json!("contextmenu,keydown,keyup,mousedown,mousemove,mouseup,wheel"));
    // Without a display, a key that leads to a part of the window is refused by name.
    let pressed =
        server.post(&format!("/browsers/{}/computer/press_key", session.id()), &json!({ "keys": ["F12"] }))?;
    match headless {
        true => assert_eq!(pressed.expect(400)?.json()?["code"], "not_supported"),
        false => drop(pressed.expect(204)?),
    }
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    Ok(())
}

#[test]
fn every_call_of_the_python_client_for_computer_control_works_without_a_display() -> anyhow::Result<()> {
    every_call_works(true)
}

#[test]
fn every_call_of_the_python_client_for_computer_control_works_with_a_display() -> anyhow::Result<()> {
    every_call_works(false)
}

#[test]
fn the_example_prints_the_text_of_a_page() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let run = Clients::find()?.run(server, "docs/examples/computer.py", &[&pages.url("/")])?;
    ensure!(run.stdout.contains("It works") && run.stdout.contains("A form"), "{}", run.stdout);
    assert_eq!(png_size(&run.file("screen.png")?), Some((1920, 1080)));
    Ok(())
}

#[test]
fn keys_and_buttons_held_by_a_disconnected_caller_are_released() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = server.create(&json!({ "headless": true, "start_url": pages.url("/green") }))?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    let held = "window.held = []; for (const type of ['mousedown', 'mouseup', 'keydown', 'keyup'])
        addEventListener(type, e => held.push(type), true); 1";
    until("the page", TEST_TIMEOUT, || (cdp.evaluate(&page, "document.title").ok()? == json!("Green")).then_some(()))?;
    cdp.until_drawn(&page)?;
    cdp.evaluate(&page, held)?;
    let drag = json!({ "path": [[10, 10], [200, 200]], "steps_per_segment": 1000, "step_delay_ms": 1000, "hold_keys": ["Shift"] });
    let path = format!("/browsers/{}/computer/drag_mouse", session.id());
    let call = casement_test_support::program::http::Request::new("POST", &path).bearer(server.key()).json(&drag);
    let connection = call.start(server.address())?;
    until("the press", TEST_TIMEOUT, || {
        (cdp.evaluate(&page, "held.join()").ok()? == json!("keydown,mousedown")).then_some(())
    })?;
    drop(connection);
    until("the release", TEST_TIMEOUT, || {
        (cdp.evaluate(&page, "held.join()").ok()? == json!("keydown,mousedown,mouseup,keyup")).then_some(())
    })?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    Ok(())
}
