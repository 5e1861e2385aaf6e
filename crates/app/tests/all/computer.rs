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
        false => {
            pressed.expect(204)?;
            until("the developer tools are open", TEST_TIMEOUT, || {
                let targets = cdp.call("Target.getTargets", &json!({})).ok()?;
                targets.to_string().contains("devtools://devtools/").then_some(())
            })?;
        }
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

/// Notes every event of mouse and keyboard in `log`, with the milliseconds of its time.
const RECORD: &str = r#"
    document.body.innerHTML = `<textarea id=field style="position:fixed;left:0;top:0;width:200px;height:60px"></textarea>
        <div id=box style="position:fixed;left:600px;top:50px;width:400px;height:500px;overflow:scroll">
        <div style="width:5000px;height:5000px">`;
    window.log = [];
    for (const type of ['mousemove', 'mousedown', 'mouseup', 'click', 'dblclick', 'contextmenu', 'keydown', 'keyup', 'wheel'])
        addEventListener(type, e => {
            log.push(e);
            if (type === 'contextmenu' || e.button > 2) e.preventDefault();
        }, true);
    // A wheel right after a scroll by the page would move on from where the compositor last was.
    window.reset = async () => {
        box.scrollTo(500, 500);
        await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
        log.length = 0;
    };
    window.of = (...types) => log.filter(e => types.includes(e.type));
    window.took = (first, last) => of(last).at(-1)?.timeStamp - of(first)[0]?.timeStamp;
    1"#;

/// The operation, its body with places in the page, and what is true in the page afterwards. Durations are at least
/// four fifths of what was asked for: a page may learn late of the first of two events.
fn options_and_their_effects(headless: bool) -> Vec<(&'static str, Value, &'static str)> {
    let batch = |actions: Value| json!({ "actions": actions });
    let mut rows = vec![
        (
            "click_mouse",
            json!({ "x": 300, "y": 400, "num_clicks": 2 }),
            "of('click').length == 2 && of('dblclick').length == 1",
        ),
        (
            "click_mouse",
            json!({ "x": 300, "y": 400, "hold_keys": ["Shift", "Ctrl"] }),
            "of('mousedown')[0]?.shiftKey && of('mousedown')[0].ctrlKey && of('keyup').length == 2",
        ),
        ("click_mouse", json!({ "x": 300, "y": 400, "button": "middle" }), "of('mouseup')[0]?.button == 1"),
        ("click_mouse", json!({ "x": 300, "y": 400, "button": "back" }), "of('mouseup')[0]?.button == 3"),
        ("click_mouse", json!({ "x": 300, "y": 400, "button": "forward" }), "of('mouseup')[0]?.button == 4"),
        (
            "click_mouse",
            json!({ "x": 300, "y": 400, "click_type": "down" }),
            "of('mousedown').length == 1 && of('mouseup').length == 0",
        ),
        (
            "click_mouse",
            json!({ "x": 300, "y": 400, "click_type": "up" }),
            "of('mousedown').length == 0 && of('mouseup').length == 1",
        ),
        (
            "move_mouse",
            json!({ "x": 350, "y": 420, "hold_keys": ["Shift"] }),
            "of('mousemove').at(-1)?.shiftKey && of('mousemove').at(-1).clientX == 350 && of('keyup').length == 1",
        ),
        ("move_mouse", json!({ "x": 900, "y": 600, "smooth": true }), "of('mousemove').length >= 5"),
        (
            "move_mouse",
            json!({ "x": 300, "y": 400, "smooth": true, "duration_ms": 1000 }),
            "of('mousemove').length >= 5 && took('mousemove', 'mousemove') >= 800",
        ),
        (
            "drag_mouse",
            json!({ "path": [[300, 400], [400, 420]], "button": "right" }),
            "of('mousedown')[0]?.button == 2 && of('mouseup')[0]?.button == 2",
        ),
        (
            "drag_mouse",
            json!({ "path": [[300, 400], [400, 420]], "button": "middle", "hold_keys": ["Shift"] }),
            "of('mousedown')[0]?.button == 1 && of('mouseup')[0]?.button == 1 && of('mouseup')[0].shiftKey",
        ),
        (
            "drag_mouse",
            json!({ "path": [[300, 400], [310, 400]], "delay": 1000 }),
            "of('mousemove').find(e => e.buttons == 1)?.timeStamp - of('mousedown')[0]?.timeStamp >= 800",
        ),
        (
            "drag_mouse",
            json!({ "path": [[300, 400], [400, 600], [500, 400]], "steps_per_segment": 5, "step_delay_ms": 200 }),
            "took('mousedown', 'mouseup') >= 1600 && of('mousemove').some(e => e.clientX == 400 && e.clientY == 600)
                && of('mousemove').filter(e => e.buttons == 1).length <= 11",
        ),
        ("drag_mouse", json!({ "path": [[300, 400], [400, 400]] }), "took('mousedown', 'mouseup') >= 400"),
        (
            "drag_mouse",
            json!({ "path": [[300, 400], [500, 450]], "smooth": true, "duration_ms": 1000 }),
            "took('mousedown', 'mouseup') >= 800 && of('mousemove').filter(e => e.buttons == 1).length >= 5",
        ),
        // A step of the wheel is 120 pixels; Chromium scrolls at most the size of the box for one event, which may be several.
        (
            "scroll",
            json!({ "x": 700, "y": 200, "delta_y": 3, "delta_x": 2 }),
            "box.scrollTop == 860 && box.scrollLeft == 740 && of('wheel').every(e => e.clientX == 700 && e.clientY == 200)",
        ),
        (
            "scroll",
            json!({ "x": 700, "y": 200, "delta_y": -1, "delta_x": -2 }),
            "box.scrollTop == 380 && box.scrollLeft == 260",
        ),
        (
            "scroll",
            json!({ "x": 700, "y": 200, "delta_y": 1, "hold_keys": ["Alt"] }),
            "of('wheel').length && of('wheel').every(e => e.altKey)",
        ),
        ("click_mouse", json!({ "x": 100, "y": 30 }), "document.activeElement == field"),
        (
            "press_key",
            json!({ "keys": ["x"], "duration": 1000 }),
            "field.value.startsWith('x') && took('keydown', 'keyup') >= 800",
        ),
        (
            "type",
            json!({ "text": "abc", "delay": 500 }),
            "field.value.endsWith('abc') && took('keydown', 'keydown') >= 800",
        ),
        (
            "batch",
            batch(json!([
                { "type": "press_key", "press_key": { "keys": ["a"] } },
                { "type": "sleep", "sleep": { "duration_ms": 1000 } },
                { "type": "press_key", "press_key": { "keys": ["b"] } },
            ])),
            "of('keydown').map(e => e.key).join() == 'a,b' && took('keydown', 'keydown') >= 800",
        ),
        (
            "batch",
            batch(json!([
                { "type": "move_mouse", "move_mouse": { "x": 300, "y": 410 } },
                { "type": "sleep", "sleep": { "duration_ms": 500 } },
                { "type": "scroll", "scroll": { "x": 700, "y": 200, "delta_y": 1 } },
                { "type": "drag_mouse", "drag_mouse": { "path": [[300, 400], [330, 430]], "button": "right" } },
                { "type": "type_text", "type_text": { "text": "z" } },
            ])),
            "of('mousemove')[0]?.clientY == 410 && box.scrollTop == 620 && of('mouseup')[0]?.button == 2 && of('keydown')[0]?.key == 'z'",
        ),
    ];
    if headless {
        rows.push(("click_mouse", json!({ "x": 100, "y": 30 }), "document.activeElement == field"));
        // The second action is refused by the browser: the third does not happen.
        let keys = ["p", "F12", "q"].map(|key| json!({ "type": "press_key", "press_key": { "keys": [key] } }));
        rows.push((
            "batch",
            batch(json!(keys)),
            "of('keydown').map(e => e.key).join() == 'p,F12' && field.value.endsWith('p')",
        ));
    }
    rows
}

/// Moves the places of a body down by the height of what is above the page.
fn below(body: &mut Value, frame: u64) {
    match body {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_u64() {
                    Some(y) if name == "y" => *value = json!(y + frame),
                    _ => below(value, frame),
                }
            }
        }
        Value::Array(items) => match items.as_mut_slice() {
            [Value::Number(_), y @ Value::Number(_)] => *y = json!(y.as_u64().unwrap_or_default() + frame),
            items => items.iter_mut().for_each(|item| below(item, frame)),
        },
        _ => {}
    }
}

fn every_option_takes_effect(headless: bool) -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let viewport = json!({ "width": 1024, "height": 768 });
    let body =
        json!({ "headless": headless, "start_url": pages.url("/form"), "timeout_seconds": 600, "viewport": viewport });
    let session = server.create(&body)?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    until("the form", TEST_TIMEOUT, || (cdp.evaluate(&page, "document.title").ok()? == json!("A form")).then_some(()))?;
    cdp.until_drawn(&page)?;
    cdp.evaluate(&page, RECORD)?;
    let frame = cdp.evaluate(&page, "outerHeight - innerHeight")?.as_u64().context("no frame")?;
    for (operation, mut body, effect) in options_and_their_effects(headless) {
        let what = format!("{operation} {body}");
        below(&mut body, if headless { 0 } else { frame });
        cdp.evaluate(&page, "reset()")?;
        let done = server.post(&format!("/browsers/{}/computer/{operation}", session.id()), &body)?;
        let is_refused = done.status == 500 && done.text().contains("actions[1]: ");
        ensure!(done.status == 204 || (is_refused && what.contains("F12")), "{what}: {} {}", done.status, done.text());
        let seen = until(&what, Duration::from_secs(20), || {
            (cdp.evaluate(&page, &format!("!!({effect})")).ok()? == json!(true)).then_some(())
        });
        if seen.is_err() {
            let log = "log.map(e => [e.type, Math.round(e.timeStamp), e.clientX, e.clientY, e.button, e.buttons, e.key, e.deltaX, e.deltaY].join()).join(' ') + ' at ' + [box.scrollLeft, box.scrollTop]";
            anyhow::bail!("{what}, headless {headless}: {effect}: {}", cdp.evaluate(&page, log)?);
        }
    }
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

#[test]
fn every_option_of_computer_control_takes_effect_in_the_page_without_a_display() -> anyhow::Result<()> {
    every_option_takes_effect(true)
}

#[test]
fn every_option_of_computer_control_takes_effect_in_the_page_with_a_display() -> anyhow::Result<()> {
    every_option_takes_effect(false)
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
