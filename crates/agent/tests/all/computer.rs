//! Mouse, keyboard and clipboard as a page sees them, with and without a display.

use std::time::{Duration, Instant};

use bytes::Bytes;
use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::computer::{Action, Button, ClickKind, Perform, Point};
use casement_agent_protocol::{ErrorCode, State, Status};
use casement_test_support::program::flood;
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;

use crate::cdp::Cdp;
use crate::sandbox::{Sandbox, TEST_TIMEOUT, config};

pub(crate) const LONG: Duration = Duration::from_secs(180);

pub(crate) const CTRL: u32 = 0xffe3;

pub(crate) const SHIFT: u32 = 0xffe1;

pub(crate) const RETURN: u32 = 0xff0d;

pub(crate) const ESCAPE: u32 = 0xff1b;

/// All kinds of text: combining accents, right to left, characters beyond the first plane, joined emoji.
pub(crate) const ALL_KINDS: &str = "aZ~ äöüß€ 漢字 😀 e\u{301} \u{202e}x\u{202c} עברית नमस्ते 👩\u{200d}💻 \u{10ffff}";

/// A script of a page that records its input events.
const RECORDER: &str = r"
    document.body.style.margin = 0;
    document.body.innerHTML = '<textarea id=area style=\'position:absolute;left:10px;top:10px;width:300px;height:150px\'></textarea>'
        + '<input id=line style=\'position:absolute;left:400px;top:10px;width:200px\'>'
        + '<div id=rich contenteditable style=\'position:absolute;left:400px;top:60px;width:200px;height:100px;white-space:pre\'></div>'
        + '<div style=\'height:9000px\'></div>';
    window.log = [];
    const mouse = e => [e.type, e.clientX, e.clientY, e.button, e.buttons, e.detail, e.isTrusted,
        [e.ctrlKey, e.shiftKey, e.altKey, e.metaKey].map(Number).join('')].join();
    for (const type of ['mousemove', 'mousedown', 'mouseup', 'click', 'dblclick', 'contextmenu', 'auxclick'])
        addEventListener(type, e => { log.push(mouse(e)); if (e.type !== 'mousedown') e.preventDefault(); }, true);
    for (const type of ['keydown', 'keyup'])
        addEventListener(type, e => log.push([e.type, e.key, e.code, e.keyCode, e.location, e.isTrusted,
            [e.ctrlKey, e.shiftKey, e.altKey, e.metaKey].map(Number).join('')].join()), true);
    addEventListener('wheel', e => log.push([e.type, e.deltaX, e.deltaY, e.deltaMode, e.isTrusted].join()), true);
    true";

pub(crate) struct Stage {
    pub(crate) sandbox: Sandbox,
    pub(crate) client: AgentClient,
    pub(crate) cdp: Cdp,
    pub(crate) page: String,
    pub(crate) status: Status,
    /// The height of the window above its page, in pixels.
    pub(crate) frame: u32,
}

#[derive(Deserialize)]
pub(crate) struct Nothing {}

impl Stage {
    pub(crate) async fn set(headless: bool, stealth: bool) -> Self {
        let mut config = config(headless);
        config.stealth = stealth;
        config.start_url = Some("http://localhost/empty".to_owned());
        let sandbox = Sandbox::start(&config);
        let status = sandbox.ready("computer").await;
        assert_eq!(status.state, State::Ready, "{status:?}");
        let mut cdp = Cdp::dial(&sandbox, &status).await;
        let target = cdp.pages().await.remove(0);
        let page = cdp.attach(&target).await;
        cdp.until(&page, "location.pathname + document.readyState", &json!("/emptycomplete")).await;
        cdp.evaluate(&page, RECORDER).await;
        if !headless {
            // The positions on the display depend on these sizes.
            let sides = "[outerWidth, outerHeight, innerWidth, innerHeight].join()";
            cdp.until(&page, sides, &json!("900,700,900,613")).await;
        }
        cdp.drawn(&page).await;
        let frame = if headless { json!(0) } else { cdp.evaluate(&page, "outerHeight - innerHeight").await };
        let frame = u32::try_from(frame.as_u64().unwrap()).unwrap();
        let client = sandbox.client().await;
        Self { sandbox, client, cdp, page, status, frame }
    }

    pub(crate) fn at(&self, x: u32, y: u32) -> Point {
        Point { x, y: y + self.frame }
    }

    pub(crate) async fn act(&self, actions: Vec<Action>) {
        self.client.command("/v1/computer/perform", &Perform { actions }, LONG).await.unwrap();
    }

    pub(crate) async fn click(&self, x: u32, y: u32) {
        let at = self.at(x, y);
        self.act(vec![Action::Click { at, button: Button::Left, kind: ClickKind::Click, times: 1, hold: Vec::new() }])
            .await;
    }

    pub(crate) async fn press(&self, chord: &[u32]) {
        self.act(vec![Action::Press { chords: vec![chord.to_vec()], duration_ms: 0, hold: Vec::new() }]).await;
    }

    pub(crate) async fn forget(&mut self) {
        self.cdp.evaluate(&self.page, "log.length = 0").await;
    }

    /// Returns the recorded events, once the last of them begins with `last`.
    pub(crate) async fn noted(&mut self, last: &str) -> Vec<String> {
        let ended = format!("log.length > 0 && log.at(-1).startsWith({})", json!(last));
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let seen = self.cdp.evaluate(&self.page, "log.join('|')").await;
            if self.cdp.evaluate(&self.page, &ended).await == json!(true) {
                let all = self.cdp.evaluate(&self.page, "log.splice(0).join('|')").await;
                return all.as_str().unwrap().split('|').map(str::to_owned).collect();
            }
            assert!(Instant::now() < deadline, "no {last} in {seen}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn mouse(&self) -> Point {
        self.client.call("/v1/computer/mouse", &(), LONG).await.unwrap()
    }

    pub(crate) async fn write_clipboard(&self, text: &str) {
        let content = stream::iter([Ok(Bytes::from(text.to_owned()))]);
        let _: Nothing = self.client.upload("/v1/computer/clipboard/write", &(), content, LONG).await.unwrap();
    }

    pub(crate) async fn read_clipboard(&self) -> String {
        let text = self.client.download("/v1/computer/clipboard/read", &(), LONG).await.unwrap();
        String::from_utf8(text.collect(usize::MAX).await.unwrap().into()).unwrap()
    }
}

pub(crate) async fn everywhere<F: AsyncFn(Stage)>(scene: F) {
    for (headless, stealth) in [(true, false), (true, true), (false, false)] {
        println!("headless {headless}, stealth {stealth}");
        scene(Stage::set(headless, stealth).await).await;
    }
}

pub(crate) fn click(at: Point, button: Button, kind: ClickKind, times: u32, hold: &[u32]) -> Action {
    Action::Click { at, button, kind, times, hold: hold.to_vec() }
}

#[tokio::test]
async fn a_page_sees_a_trusted_mouse() {
    everywhere(async |mut stage: Stage| {
        let at = stage.at(350, 300);
        stage.act(vec![Action::Move { to: at, smooth: false, duration_ms: None, hold: Vec::new() }]).await;
        // A new window may report the place of the pointer first.
        let seen = stage.noted("mousemove,350,300").await;
        assert_eq!(seen.last().unwrap(), "mousemove,350,300,0,0,0,true,0000");
        assert_eq!(stage.mouse().await, at);
        for (button, number, bit, last) in [
            (Button::Left, 0, 1, "click"),
            (Button::Middle, 1, 4, "auxclick"),
            (Button::Right, 2, 2, "auxclick"),
            (Button::Back, 3, 8, "auxclick"),
            (Button::Forward, 4, 16, "auxclick"),
        ] {
            stage.act(vec![click(at, button, ClickKind::Click, 1, &[])]).await;
            let seen = stage.noted(last).await;
            let down = format!("mousedown,350,300,{number},{bit},1,true,0000");
            let up = format!("mouseup,350,300,{number},0,1,true,0000");
            assert!(seen.contains(&down) && seen.contains(&up), "{button:?}: {seen:?}");
            // The pause keeps the next press from being a second click.
            tokio::time::sleep(Duration::from_millis(600)).await;
            stage.forget().await;
        }
        stage.act(vec![click(at, Button::Left, ClickKind::Click, 2, &[SHIFT, CTRL])]).await;
        let seen = stage.noted("keyup,Shift").await;
        assert!(seen.contains(&"dblclick,350,300,0,0,2,true,1100".to_owned()), "{seen:?}");
        assert!(seen[0].starts_with("keydown,Shift,ShiftLeft,16,1,true"), "{seen:?}");

        // A pressed button stays pressed until it is released.
        stage.act(vec![click(at, Button::Left, ClickKind::Down, 1, &[])]).await;
        let to = stage.at(360, 310);
        stage.act(vec![Action::Move { to, smooth: false, duration_ms: None, hold: Vec::new() }]).await;
        let seen = stage.noted("mousemove,360,310").await;
        assert_eq!(seen.last().unwrap(), "mousemove,360,310,0,1,0,true,0000");
        stage.act(vec![click(to, Button::Left, ClickKind::Up, 1, &[])]).await;
        stage.noted("click,360,310,0,0").await;
    })
    .await;
}

#[tokio::test]
async fn ways_and_drags_pass_their_places_and_the_wheel_turns_the_right_way() {
    everywhere(async |mut stage: Stage| {
        let (from, to) = (stage.at(20, 250), stage.at(700, 500));
        stage.act(vec![Action::Move { to: from, smooth: false, duration_ms: None, hold: Vec::new() }]).await;
        stage.noted("mousemove,20,250").await;
        let began = Instant::now();
        // A busy page sees all moves within one of its frames as one move.
        stage.act(vec![Action::Move { to, smooth: true, duration_ms: Some(3000), hold: Vec::new() }]).await;
        assert!(began.elapsed() >= Duration::from_millis(3000));
        let seen = stage.noted("mousemove,700,500").await;
        assert!(seen.len() >= 5, "a way of {} places", seen.len());

        let path = vec![stage.at(100, 300), stage.at(200, 300), stage.at(200, 400)];
        let drag = |smooth, duration_ms| Action::Drag {
            path: path.clone(),
            button: Button::Left,
            delay_ms: 20,
            // Long enough that the page sees each place.
            step_delay_ms: 500,
            steps_per_segment: 4,
            smooth,
            duration_ms,
            hold: vec![SHIFT],
        };
        stage.act(vec![drag(false, None)]).await;
        let seen = stage.noted("keyup,Shift").await;
        for place in
            ["mousedown,100,300,0,1", "mousemove,125,300,0,1", "mousemove,200,300,0,1", "mousemove,200,400,0,1"]
        {
            assert!(seen.iter().any(|event| event.starts_with(place)), "{place}: {seen:?}");
        }
        assert!(seen.iter().any(|event| event.starts_with("mouseup,200,400,0,0,1,true,0100")), "{seen:?}");
        stage.act(vec![drag(true, Some(200))]).await;
        let seen = stage.noted("keyup,Shift").await;
        assert!(seen.iter().any(|event| event.starts_with("mouseup,200,400,0,0,")), "{seen:?}");

        let at = stage.at(350, 300);
        let scroll = |right, down| Action::Scroll { at, right, down, hold: Vec::new() };
        stage.act(vec![scroll(0, 3)]).await;
        // A busy page sees several steps as one.
        let turned = "log.filter(e => /^wheel,.*,0,true$/.test(e)).map(e => e.split(',').slice(1, 3).map(Number))\
            .reduce((a, b) => [a[0] + b[0], a[1] + b[1]], [0, 0]).join()";
        stage.cdp.until(&stage.page, turned, &json!("0,360")).await;
        stage.forget().await;
        stage.cdp.until(&stage.page, "scrollY > 200", &json!(true)).await;
        stage.act(vec![scroll(0, -3), scroll(-2, 0)]).await;
        stage.cdp.until(&stage.page, turned, &json!("-240,-360")).await;
        stage.cdp.until(&stage.page, "scrollY", &json!(0)).await;
    })
    .await;
}

#[tokio::test]
async fn a_page_sees_trusted_keys_with_their_modifiers() {
    everywhere(async |mut stage: Stage| {
        stage.click(100, 100).await;
        stage.noted("click").await;
        stage.press(&[u32::from('a')]).await;
        assert_eq!(stage.noted("keyup").await, ["keydown,a,KeyA,65,0,true,0000", "keyup,a,KeyA,65,0,true,0000"]);
        stage.press(&[u32::from('A')]).await;
        let seen = stage.noted("keyup,Shift").await;
        assert_eq!(seen[1], "keydown,A,KeyA,65,0,true,0100", "{seen:?}");
        stage.press(&[u32::from('?')]).await;
        let seen = stage.noted("keyup,Shift").await;
        assert_eq!(seen[1], "keydown,?,Slash,191,0,true,0100", "{seen:?}");
        for (key, shown) in [
            (0xff51, "ArrowLeft,ArrowLeft,37,0"),
            (0xff08, "Backspace,Backspace,8,0"),
            (0xffff, "Delete,Delete,46,0"),
            (0xff55, "PageUp,PageUp,33,0"),
            (0xffc9, "F12,F12,123,0"),
            (0xff8d, "Enter,NumpadEnter,13,3"),
        ] {
            // The function key would open the browser's developer tools.
            stage.cdp.evaluate(&stage.page, "onkeydown = e => { if (e.key.length > 1) e.preventDefault(); }; 1").await;
            stage.press(&[key]).await;
            assert_eq!(stage.noted("keyup").await[0], format!("keydown,{shown},true,0000"));
        }
        stage.cdp.evaluate(&stage.page, "onkeydown = null; area.value = 'one two'; area.focus(); 1").await;
        // With an upper-case letter, like in menus.
        stage.press(&[CTRL, u32::from('A')]).await;
        let seen = stage.noted("keyup,Control").await;
        assert_eq!(seen[..2], ["keydown,Control,ControlLeft,17,1,true,1000", "keydown,a,KeyA,65,0,true,1000"]);
        stage.cdp.until(&stage.page, "area.selectionEnd - area.selectionStart", &json!(7)).await;
        // One chord after another.
        let chords = vec![vec![CTRL, u32::from('x')], vec![RETURN], vec![CTRL, u32::from('v')]];
        stage.act(vec![Action::Press { chords, duration_ms: 0, hold: Vec::new() }]).await;
        stage.cdp.until(&stage.page, "area.value", &json!("\none two")).await;
        stage.forget().await;
        // All chords at once for a duration.
        let began = Instant::now();
        let chords = vec![vec![u32::from('q')], vec![u32::from('w')]];
        stage.act(vec![Action::Press { chords, duration_ms: 120, hold: vec![SHIFT] }]).await;
        assert!(began.elapsed() >= Duration::from_millis(120));
        let seen = stage.noted("keyup,Shift").await;
        let at = |text: &str| seen.iter().position(|event| event.starts_with(text)).unwrap();
        assert!(at("keydown,W") < at("keyup,Q"), "{seen:?}");
        // A pressed key stays pressed.
        stage.act(vec![Action::Key { key: SHIFT, down: true }]).await;
        stage.noted("keydown,Shift").await;
        stage.act(vec![Action::Key { key: SHIFT, down: false }]).await;
        stage.noted("keyup,Shift").await;
        // A pressed key repeats only when it is pressed again.
        let arrow = |down| Action::Key { key: 0xff53, down };
        stage.act(vec![arrow(true), Action::Sleep { duration_ms: 1000 }, arrow(true), arrow(false)]).await;
        let seen = stage.noted("keyup,ArrowRight").await;
        let downs = seen.iter().filter(|event| event.starts_with("keydown")).count();
        assert_eq!(downs, 2, "{seen:?}");
        keys_with_a_state_write_the_same_everywhere(&mut stage).await;
    })
    .await;
}

async fn keys_with_a_state_write_the_same_everywhere(stage: &mut Stage) {
    stage.cdp.evaluate(&stage.page, "area.value = ''; area.focus(); 1").await;
    let (keypad_5, keypad_home, caps_lock, dead_acute, compose) = (0xffb5, 0xff95, 0xffe5, 0xfe51, 0xff20);
    let letter = |letter: char| u32::from(letter);
    let keys = [keypad_5, caps_lock, letter('a'), letter('ä'), letter('A'), caps_lock];
    let composed = [dead_acute, letter('e'), dead_acute, letter('E'), compose, letter('o'), letter('e')];
    // The keypad's key Home goes to the beginning of the line also after one of its figures.
    for key in keys.into_iter().chain(composed).chain([keypad_home, letter('x')]) {
        stage.press(&[key]).await;
    }
    stage.cdp.until(&stage.page, "area.value", &json!("x5AÄaéÉœ")).await;
    let seen = stage.noted("keyup,x").await;
    for key in ["5,Numpad5,101,3", "CapsLock,CapsLock,20,0", "A,KeyA,65,0", "Home,Numpad7,36,3"] {
        assert!(seen.contains(&format!("keydown,{key},true,0000")), "{key}: {seen:?}");
    }
    let composing = seen.iter().filter(|event| event.starts_with("keydown,Process")).count();
    assert_eq!(composing, 7, "{seen:?}");
}

#[tokio::test]
async fn every_text_is_typed_exactly() {
    everywhere(async |mut stage: Stage| {
        for (field, value, x, y) in
            [("area", "area.value", 100, 100), ("line", "line.value", 450, 20), ("rich", "rich.innerText", 450, 100)]
        {
            stage.click(x, y).await;
            stage.cdp.until(&stage.page, "document.activeElement.id", &json!(field)).await;
            let text = ALL_KINDS.to_owned();
            stage.act(vec![Action::Type { text, delay_ms: 0 }]).await;
            stage.cdp.until(&stage.page, value, &json!(ALL_KINDS)).await;
        }
        stage.cdp.evaluate(&stage.page, "area.value = ''; line.value = ''; area.focus(); 1").await;
        // Line ends and tabs are keys: a tab moves to the next field.
        stage.act(vec![Action::Type { text: "one\ntwo\r\nthree\tfour".to_owned(), delay_ms: 0 }]).await;
        stage.cdp.until(&stage.page, "[area.value, line.value].join('|')", &json!("one\ntwo\nthree|four")).await;
        let began = Instant::now();
        stage.act(vec![Action::Type { text: "slow".to_owned(), delay_ms: 50 }]).await;
        assert!(began.elapsed() >= Duration::from_millis(200));
        stage.cdp.until(&stage.page, "line.value", &json!("fourslow")).await;

        stage.forget().await;
        stage.act(vec![Action::Type { text: "aZ".to_owned(), delay_ms: 0 }]).await;
        let both = "['keydown,a,KeyA,65,0,true,0000', 'keydown,Z,KeyZ,90,0,true,0100'].every(key => log.includes(key))";
        stage.cdp.until(&stage.page, both, &json!(true)).await;

        stage.cdp.evaluate(&stage.page, "area.value = ''; area.focus(); 1").await;
        let many: String = (0..flood(2_000)).map(|n| char::from_u32(0x4e00 + (n as u32 * 7) % 700).unwrap()).collect();
        let text = format!("{many}{}", "The quick brown fox. ".repeat(flood(300) as usize));
        let began = Instant::now();
        stage.act(vec![Action::Type { text: text.clone(), delay_ms: 0 }]).await;
        println!("{} characters typed in {:?}", text.chars().count(), began.elapsed());
        stage.cdp.until(&stage.page, "area.value", &json!(text)).await;
    })
    .await;
}

pub(crate) fn refused(result: Result<(), ClientError>) -> (ErrorCode, Option<String>) {
    match result {
        Err(ClientError::Refused(body)) => (body.code, body.field),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_page_that_takes_no_input_is_reported_and_the_agent_lives() {
    let mut stage = Stage::set(true, false).await;
    // The page takes no input from its request on.
    let hangs = "setTimeout(() => {
        const asked = new XMLHttpRequest(); asked.open('GET', '/hangs', false); asked.send(); for (;;); })";
    stage.cdp.call(Some(&stage.page), "Runtime.evaluate", json!({ "expression": hangs })).await;
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !stage.sandbox.seen.lock().iter().any(|address| address == "http://localhost/hangs") {
        assert!(Instant::now() < deadline, "the page does not hang");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let at = stage.at(5, 5);
    let actions = vec![Action::Sleep { duration_ms: 1 }, click(at, Button::Left, ClickKind::Click, 1, &[])];
    let done = stage.client.command("/v1/computer/perform", &Perform { actions }, LONG).await;
    assert_eq!(refused(done), (ErrorCode::BrowserHung, Some("actions[1]".to_owned())));
    // The clipboard uses another page.
    stage.write_clipboard("alive").await;
    assert_eq!(stage.read_clipboard().await, "alive");
    assert_eq!(stage.client.status().await.unwrap().state, State::Ready);
    assert_eq!(stage.status.state, State::Ready);
}

#[tokio::test]
async fn who_goes_in_the_middle_lets_go_and_calls_come_one_after_the_other() {
    everywhere(async |mut stage: Stage| {
        let path = vec![stage.at(100, 300), stage.at(700, 500)];
        let drag = Action::Drag {
            path,
            button: Button::Left,
            delay_ms: 0,
            // Long enough to be seen at the first place.
            step_delay_ms: 60_000,
            steps_per_segment: 30,
            smooth: false,
            duration_ms: None,
            hold: vec![SHIFT],
        };
        let perform = Perform { actions: vec![drag] };
        let going = stage.client.command("/v1/computer/perform", &perform, LONG);
        // The client drops the call, and thereby its connection.
        let on_its_way = "log.some(event => event.startsWith('mousemove,120,307'))";
        tokio::select! {
            done = going => panic!("the drag is over: {done:?}"),
            () = stage.cdp.until(&stage.page, on_its_way, &json!(true)) => {}
        }
        let seen = stage.noted("keyup,Shift").await;
        assert!(seen.iter().any(|event| event.starts_with("mousedown,100,300")), "{seen:?}");
        assert!(seen.iter().any(|event| event.starts_with("mouseup,120,307,0,0")), "{seen:?}");

        // The texts of two concurrent calls do not mix.
        stage.cdp.evaluate(&stage.page, "area.value = ''; area.focus(); 1").await;
        let typing = |text: &str| Perform { actions: vec![Action::Type { text: text.repeat(40), delay_ms: 2 }] };
        let other = stage.sandbox.client().await;
        let (first, second) = (typing("a"), typing("b"));
        let done = tokio::join!(
            stage.client.command("/v1/computer/perform", &first, LONG),
            other.command("/v1/computer/perform", &second, LONG),
        );
        done.0.unwrap();
        done.1.unwrap();
        let value = "[...area.value].filter((c, i, all) => i === 0 || all[i - 1] !== c).join('') + area.value.length";
        stage.cdp.until(&stage.page, &format!("/^(ab|ba)80$/.test({value})"), &json!(true)).await;

        // The number of waiting calls is bounded.
        let sleep = Perform { actions: vec![Action::Sleep { duration_ms: 60_000 }] };
        let calls = (0..20).map(|_| async {
            let client = stage.sandbox.client().await;
            refused(client.command("/v1/computer/perform", &sleep, LONG).await)
        });
        let mut calls: FuturesUnordered<_> = calls.collect();
        for _ in 0..3 {
            let limited = tokio::time::timeout(TEST_TIMEOUT, calls.next()).await.expect("one too many waits");
            assert_eq!(limited, Some((ErrorCode::LimitReached, None)));
        }
        assert!(tokio::time::timeout(Duration::from_secs(1), calls.next()).await.is_err(), "the others wait");
    })
    .await;
}
