//! Computer control of a display, and of pages and dialogs without one.

use std::time::{Duration, Instant};

use casement_agent_protocol::client::AgentClient;
use casement_agent_protocol::computer::{Action, Point};
use casement_agent_protocol::process::{EXEC, Exec, Program};
use futures_util::StreamExt;
use serde_json::json;

use crate::computer::*;
use crate::sandbox::TEST_TIMEOUT;

#[tokio::test]
async fn on_a_display_the_browsers_own_fields_take_text_and_the_cursor_hides() {
    let mut stage = Stage::set(false, false).await;
    stage.press(&[CTRL, u32::from('l')]).await;
    // Chromium asks the page first whether it handles the key; until the page has answered, the page has the keyboard.
    stage.cdp.until(&stage.page, "document.hasFocus()", &json!(false)).await;
    stage.act(vec![Action::Type { text: "http://page.test/\n".to_owned(), delay_ms: 0 }]).await;
    stage.cdp.until(&stage.page, "document.title", &json!("coloured")).await;
    let at = Point { x: 50, y: 650 };
    for hidden in [true, true, false, false, true] {
        let to = Action::Move { to: at, smooth: false, duration_ms: None, hold: Vec::new() };
        stage.act(vec![to, Action::Cursor { hidden }]).await;
        let deadline = Instant::now() + TEST_TIMEOUT;
        while shows_cursor(&stage.client, at).await == hidden {
            assert!(Instant::now() < deadline, "hidden: {hidden}, but the live view shows otherwise");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Screenshots never contain the cursor.
        let picture = crate::headless::decode(&stage.client.screenshot(None, crate::headless::LARGE).await.unwrap());
        assert!((40..70).all(|x| picture.at(x, 655) == [0, 0, 255]), "a cursor, or no page");
    }
}

/// Returns true if the live view of the display has a cursor at this place of a blue page.
async fn shows_cursor(client: &AgentClient, at: Point) -> bool {
    let (head, jpeg) = crate::view::next(client, None).await.expect("a first frame is there at once");
    assert_eq!((head.x, head.y), (0, 0), "all of the display");
    let (width, _, pixels) = crate::view::decode(&jpeg);
    let blue = |x: u32, y: u32| {
        let first = ((y * width + x) * 3) as usize;
        pixels[first] < 60 && pixels[first + 1] < 60 && pixels[first + 2] > 190
    };
    let place = |first: u32| first..first + 10;
    !place(at.y).all(|y| place(at.x).all(|x| blue(x, y)))
}

#[tokio::test]
async fn keys_go_to_the_page_in_front_whatever_the_others_believe() {
    everywhere(async |mut stage: Stage| {
        let other = stage.cdp.page("about:blank#new", false).await;
        stage.cdp.evaluate(&other, "onkeydown = e => document.title += e.key; 1").await;
        let pages = [stage.page.clone(), other.clone()];
        // Clients emulate the focus on all their pages. The window hands the focus on with a delay, which only a page
        // without the emulation can report.
        let bring = async |stage: &mut Stage, front: &str| {
            for page in &pages {
                stage.cdp.call(Some(page), "Emulation.setFocusEmulationEnabled", json!({ "enabled": false })).await;
            }
            stage.cdp.call(Some(front), "Page.bringToFront", json!({})).await;
            stage.cdp.until(front, "document.hasFocus()", &json!(true)).await;
            stage.cdp.drawn(front).await;
            for page in &pages {
                stage.cdp.call(Some(page), "Emulation.setFocusEmulationEnabled", json!({ "enabled": true })).await;
            }
        };
        bring(&mut stage, &other).await;
        stage.press(&[u32::from('b')]).await;
        // Distinguishes a page that did not listen from a key that went elsewhere.
        let received = "[document.title, typeof onkeydown, document.hasFocus()].join()";
        stage.cdp.until(&other, received, &json!("b,function,true")).await;
        let page = stage.page.clone();
        bring(&mut stage, &page).await;
        stage.press(&[u32::from('a')]).await;
        let once = ["keydown,a,KeyA,65,0,true,0000", "keyup,a,KeyA,65,0,true,0000"];
        // A page that comes to the front below the mouse receives mouse events too.
        let keys = async |stage: &mut Stage| {
            let mut seen = stage.noted("keyup,a").await;
            seen.retain(|event| event.starts_with("key"));
            seen
        };
        assert_eq!(keys(&mut stage).await, once);
        assert_eq!(stage.cdp.evaluate(&other, "document.title").await, json!("b"));
        // A page that hangs in the background does not affect the page in front.
        stage
            .cdp
            .call(Some(&other), "Runtime.evaluate", json!({ "expression": "setTimeout(() => { for (;;); })" }))
            .await;
        stage.press(&[u32::from('a')]).await;
        assert_eq!(keys(&mut stage).await, once);
    })
    .await;
}

#[tokio::test]
async fn on_a_display_text_is_exact_in_every_layout_of_its_keyboard() {
    let mut stage = Stage::set(false, false).await;
    stage.click(100, 100).await;
    for layout in ["de", "fr", "ru", "us,gr -option grp:toggle", "us"] {
        let program = Program { command: format!("setxkbmap -display :0 {layout}"), ..Program::default() };
        let exec = Exec { program, timeout_ms: 60_000 };
        let mut output = stage.client.download(EXEC, &exec, LONG).await.unwrap();
        let first = output.next().await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&first).contains("\"exit_code\":0"), "{first:?}");
        stage.cdp.evaluate(&stage.page, "area.value = ''; area.focus(); 1").await;
        let text = format!("{ALL_KINDS} zyZY#'{{}}[]@\\ привет ελ");
        stage.act(vec![Action::Type { text: text.clone(), delay_ms: 0 }]).await;
        stage.cdp.until(&stage.page, "area.value", &json!(text)).await;
        // Chords work also with letters that this layout may not have.
        stage.cdp.evaluate(&stage.page, "getSelection().collapseToEnd?.(); area.setSelectionRange(0, 0); 1").await;
        stage.press(&[CTRL, u32::from('a')]).await;
        stage
            .cdp
            .until(&stage.page, "area.selectionEnd - area.selectionStart === area.value.length", &json!(true))
            .await;
        stage.press(&[CTRL, u32::from('x')]).await;
        stage.cdp.until(&stage.page, "area.value", &json!("")).await;
        let hold = |key, down| Action::Key { key, down };
        let (ctrl, v) = (|down| hold(CTRL, down), |down| hold(u32::from('v'), down));
        stage.act(vec![ctrl(true), v(true), v(false), ctrl(false)]).await;
        stage.cdp.until(&stage.page, "area.value", &json!(text)).await;
    }
}

/// The client's keyboard decides the character of a key, which may need another state of Shift in this layout.
#[tokio::test]
async fn on_a_display_keys_that_are_held_write_what_they_mean_whatever_shift_does_here() {
    let mut stage = Stage::set(false, false).await;
    stage.click(100, 100).await;
    stage.cdp.evaluate(&stage.page, "area.value = ''; area.focus(); log.length = 0; 1").await;
    let symbol = |key: char| if key < '\u{100}' { u32::from(key) } else { 0x0100_0000 | u32::from(key) };
    let tap = |key: char| [true, false].map(|down| Action::Key { key: symbol(key), down });
    let mut keys = vec![Action::Key { key: SHIFT, down: true }];
    for key in ['/', 'A', 'a', '?', 'ü'] {
        keys.extend(tap(key));
    }
    keys.push(Action::Key { key: SHIFT, down: false });
    for key in ['@', 'B', 'b'] {
        keys.extend(tap(key));
    }
    stage.act(keys).await;
    stage.cdp.until(&stage.page, "area.value", &json!("/Aa?ü@Bb")).await;
    // Two keys at a time: each is released as the key that was pressed.
    stage.noted("keyup,b").await;
    let [w_down, w_up] = tap('w');
    let [d_down, d_up] = tap('Я');
    stage.act(vec![w_down, d_down, w_up, d_up]).await;
    let seen = stage.noted("keyup,Я").await;
    let order: Vec<_> = seen.iter().map(|event| event.split(',').take(2).collect::<Vec<_>>().join(",")).collect();
    assert_eq!(order, ["keydown,w", "keydown,Я", "keyup,w", "keyup,Я"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_display_a_click_opens_a_dialog_and_the_keyboard_answers_it() {
    for stealth in [false, true] {
        let mut stage = Stage::set(true, stealth).await;
        for (dialog, text, key, answer) in [
            ("prompt('Who?')", "Ada", RETURN, json!("Ada")),
            ("prompt('Who?')", "Ada", ESCAPE, json!(null)),
            ("confirm('Really?')", "", ESCAPE, json!(false)),
            ("confirm('Really?')", "", RETURN, json!(true)),
            ("alert('Done'), 'seen'", "", RETURN, json!("seen")),
        ] {
            let asking = format!("answer = 'none'; onclick = () => {{ answer = ({dialog}); }}; true");
            stage.cdp.evaluate(&stage.page, &asking).await;
            // The click waits for nobody's answer.
            stage.click(600, 300).await;
            stage.act(vec![Action::Type { text: text.to_owned(), delay_ms: 0 }]).await;
            stage.press(&[key]).await;
            stage.cdp.until(&stage.page, "answer", &answer).await;
        }
        stage.forget().await;
        stage.click(600, 300).await;
        stage.press(&[RETURN]).await;
    }
}
