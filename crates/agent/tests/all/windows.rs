//! The windows of a display: their states and places, dialogs for files, and which of them has the keyboard.

use std::time::Duration;

use casement_agent_protocol::client::AgentClient;
use casement_agent_protocol::computer::{Action, Button, ClickKind, Perform, Point};
use casement_agent_protocol::extension::RestartRequest;
use casement_agent_protocol::{AgentConfig, State, Viewport};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cdp::{Cdp, EMPTY};
use crate::computer::{CTRL, LONG, RETURN};
use crate::sandbox::{Sandbox, config};

/// The size of the page in a window that fills the display.
const PAGE: &str = "1024,768,1024,681";

struct Desk {
    sandbox: Sandbox,
    client: AgentClient,
    cdp: Cdp,
    page: String,
}

impl Desk {
    async fn set() -> Self {
        let viewport = Viewport { width: 1024, height: 768, refresh_rate: 60 };
        let config = AgentConfig { start_url: Some(EMPTY.to_owned()), viewport, ..config(false) };
        let sandbox = Sandbox::start(&config);
        let status = sandbox.ready("windows").await;
        assert_eq!(status.state, State::Ready, "{status:?}");
        let client = sandbox.client().await;
        let (cdp, page) = Cdp::at_first_page(&sandbox, &status).await;
        Self { sandbox, client, cdp, page }
    }

    async fn act(&self, action: Action) {
        self.client.command("/v1/computer/perform", &Perform { actions: vec![action] }, LONG).await.unwrap();
    }

    async fn write(&self, text: &str) {
        self.act(Action::Type { text: text.to_owned(), delay_ms: 0 }).await;
    }

    async fn press(&self, chord: &[u32]) {
        self.act(Action::Press { chords: vec![chord.to_vec()], duration_ms: 0, hold: Vec::new() }).await;
    }

    async fn click(&self, x: u32, y: u32) {
        let (at, button, kind) = (Point { x, y }, Button::Left, ClickKind::Click);
        self.act(Action::Click { at, button, kind, times: 1, hold: Vec::new() }).await;
    }

    async fn until(&mut self, expression: &str, expected: Value) {
        self.cdp.until(&self.page, expression, &expected).await;
    }

    async fn evaluate(&mut self, expression: &str) -> Value {
        self.cdp.evaluate(&self.page, expression).await
    }

    /// Calls as in a click, without which a page opens no window.
    async fn open(&mut self, expression: &str) {
        let params = json!({ "expression": expression, "userGesture": true });
        self.cdp.call(Some(&self.page), "Runtime.evaluate", params).await;
    }

    /// Replaces the page's body by a field that receives what is typed.
    async fn field(&mut self) {
        self.evaluate("document.body.innerHTML = '<input id=field>'; field.focus(); 1").await;
    }

    /// Replaces the page's body by an input for files, and chooses a file in its dialog.
    async fn choose(&mut self, path: &str) {
        self.control("<input type=file id=one").await;
        self.click(40, 87 + 20).await;
        self.until("document.hasFocus()", json!(false)).await;
        // A dialog that has the keyboard takes no text before it is drawn, which a busy machine delays.
        for _ in 0..3 {
            self.press(&[CTRL, u32::from('a')]).await;
            self.write(&format!("{path}\n")).await;
            for _ in 0..20 {
                if self.evaluate("document.hasFocus()").await == true {
                    return;
                }
                sleep(Duration::from_millis(500)).await;
            }
        }
    }

    /// Replaces the page's body by a control in its upper left corner.
    async fn control(&mut self, tag: &str) {
        let placed = format!("{tag} style=position:fixed;left:0;top:0;width:300px;height:60px>");
        self.evaluate(&format!("document.body.innerHTML = '{placed}'; 1")).await;
    }

    /// Types into the field whose window or page has the keyboard.
    async fn typed(&mut self, text: &str, field: &str) {
        self.write(text).await;
        self.until(&format!("{field}.value"), json!(text)).await;
    }
}

const SIDES: &str = "[outerWidth, outerHeight, innerWidth, innerHeight].join()";

#[tokio::test]
async fn states_of_windows_pop_ups_dialogs_and_the_keyboard_are_those_of_a_desktop() {
    let mut desk = Desk::set().await;
    desk.until(SIDES, json!(PAGE)).await;
    // Nobody has clicked anywhere.
    desk.field().await;
    desk.typed("first", "field").await;
    every_state_of_a_window_takes_effect(&mut desk).await;
    a_pop_up_has_its_size_and_the_keyboard_until_it_closes(&mut desk).await;
    new_tabs_and_windows_have_the_keyboard_in_their_pages(&mut desk).await;
    a_click_brings_the_window_below_to_the_front(&mut desk).await;
    dialogs_for_files_fit_and_enter_accepts(&mut desk).await;
    a_colour_is_picked_from_what_is_drawn(&mut desk).await;
    enter_prints_a_page_into_a_file(&mut desk).await;
    after_a_restart_the_keyboard_is_in_the_page(desk).await;
}

async fn every_state_of_a_window_takes_effect(desk: &mut Desk) {
    let target = desk.cdp.pages().await.remove(0);
    let window = desk.cdp.call(None, "Browser.getWindowForTarget", json!({ "targetId": target })).await;
    assert_eq!(window["bounds"], json!({ "left": 0, "top": 0, "width": 1024, "height": 768, "windowState": "normal" }));
    let id = &window["windowId"];
    let small = json!({ "left": 100, "top": 50, "width": 700, "height": 500 });
    let whole = json!({ "left": 0, "top": 0, "width": 1024, "height": 768 });
    let named = |state: &str| json!({ "windowState": state });
    let placed = "[screenX, screenY, outerWidth, outerHeight, document.visibilityState].join()";
    for (requested, state, bounds, seen) in [
        (small.clone(), "normal", &small, "100,50,700,500,visible"),
        (named("maximized"), "maximized", &whole, "0,0,1024,768,visible"),
        (named("normal"), "normal", &small, "100,50,700,500,visible"),
        (named("minimized"), "minimized", &small, "100,50,700,500,hidden"),
        (named("normal"), "normal", &small, "100,50,700,500,visible"),
        (named("fullscreen"), "fullscreen", &whole, "0,0,1024,768,visible"),
        (named("normal"), "normal", &small, "100,50,700,500,visible"),
        // What exceeds the display stays within it.
        (json!({ "left": 900, "top": 700, "width": 800, "height": 5000 }), "normal", &whole, "224,0,800,768,visible"),
        (whole.clone(), "normal", &whole, "0,0,1024,768,visible"),
    ] {
        desk.cdp.call(None, "Browser.setWindowBounds", json!({ "windowId": id, "bounds": requested })).await;
        desk.until(placed, json!(seen)).await;
        let now = desk.cdp.call(None, "Browser.getWindowBounds", json!({ "windowId": id })).await;
        assert_eq!(now["bounds"]["windowState"], state, "{requested}");
        if seen.starts_with(&format!("{},{},", bounds["left"], bounds["top"])) {
            assert_eq!(now["bounds"]["width"], bounds["width"], "{requested}");
        }
    }
    // The page is all of a window in full screen.
    desk.cdp.call(None, "Browser.setWindowBounds", json!({ "windowId": id, "bounds": named("fullscreen") })).await;
    desk.until("[innerWidth, innerHeight].join()", json!("1024,768")).await;
    desk.cdp.call(None, "Browser.setWindowBounds", json!({ "windowId": id, "bounds": named("normal") })).await;
    desk.until(SIDES, json!(PAGE)).await;
    desk.field().await;
    desk.typed("again", "field").await;
}

async fn a_pop_up_has_its_size_and_the_keyboard_until_it_closes(desk: &mut Desk) {
    desk.field().await;
    desk.open("window.pop = open('/empty', '', 'width=400,height=300,left=200,top=150')").await;
    desk.until("pop.document.readyState + pop.location.pathname", json!("complete/empty")).await;
    // Chromium itself makes a window without a frame one pixel too low.
    desk.until("[pop.screenX, pop.screenY, pop.innerWidth, pop.innerHeight].join()", json!("200,150,400,299")).await;
    desk.evaluate("pop.document.body.innerHTML = '<input id=field>'; pop.field.focus(); 1").await;
    desk.until("pop.document.hasFocus()", json!(true)).await;
    desk.typed("pop", "pop.field").await;
    desk.evaluate("pop.close(); 1").await;
    desk.until("document.hasFocus()", json!(true)).await;
    desk.typed("opener", "field").await;

    desk.open("window.pop = open('/empty', '', 'width=4000,height=3000,left=900,top=600')").await;
    desk.until("[pop.screenX, pop.screenY, pop.outerWidth, pop.outerHeight].join()", json!("0,0,1024,768")).await;
    desk.evaluate("pop.close(); 1").await;
    desk.until("document.hasFocus()", json!(true)).await;
}

async fn new_tabs_and_windows_have_the_keyboard_in_their_pages(desk: &mut Desk) {
    let first = desk.page.clone();
    for new_window in [false, true] {
        desk.page = desk.cdp.page("http://localhost/empty?new", new_window).await;
        desk.until("document.readyState + document.hasFocus()", json!("completetrue")).await;
        desk.until(SIDES, json!(PAGE)).await;
        // Chromium drops keys before that.
        desk.cdp.drawn(&desk.page).await;
        desk.field().await;
        desk.typed("new", "field").await;
        desk.open("window.close()").await;
        desk.page.clone_from(&first);
        desk.until("document.hasFocus()", json!(true)).await;
    }
}

async fn a_click_brings_the_window_below_to_the_front(desk: &mut Desk) {
    desk.evaluate("document.body.innerHTML = '<textarea id=field style=\"width:900px;height:600px\">'; 1").await;
    desk.open("window.pop = open('/empty', '', 'width=300,height=200,left=600,top=400')").await;
    desk.until("pop.document.hasFocus()", json!(true)).await;
    // The click itself reaches the page, and what is typed right after it as well.
    desk.click(100, 300).await;
    desk.typed("below", "field").await;
    desk.until("pop.document.hasFocus()", json!(false)).await;
    // The pop-up stays above its opener, and takes the next click.
    desk.evaluate("pop.document.body.innerHTML = '<input id=field style=\"width:280px;height:150px\">'; 1").await;
    desk.click(700, 500).await;
    desk.typed("above", "pop.field").await;
    desk.evaluate("pop.close(); 1").await;
}

async fn dialogs_for_files_fit_and_enter_accepts(desk: &mut Desk) {
    desk.choose("/etc/hostname").await;
    desk.until("one.files.length && one.files[0].name", json!("hostname")).await;
    desk.until("document.hasFocus()", json!(true)).await;

    // The name of an existing file makes the dialog suggest it in a list.
    for content in ["one", "two"] {
        let save = format!(
            "window.saved = 0; showSaveFilePicker({{ suggestedName: 'other.txt' }}).then(async file => {{
                const stream = await file.createWritable(); await stream.write('{content}'); await stream.close();
                saved = await (await file.getFile()).text() + file.name; }}); 1"
        );
        desk.open(&save).await;
        desk.until("document.hasFocus()", json!(false)).await;
        desk.press(&[CTRL, u32::from('a')]).await;
        desk.write("/home/casement/saved.txt").await;
        desk.write("\n").await;
        desk.until("saved", json!(format!("{content}saved.txt"))).await;
        desk.until("document.hasFocus()", json!(true)).await;
    }
}

async fn a_colour_is_picked_from_what_is_drawn(desk: &mut Desk) {
    desk.control("<input type=color id=paint").await;
    for _ in 0..50 {
        if desk.evaluate("paint.matches(':open')").await == false {
            desk.click(40, 87 + 20).await;
        }
        sleep(Duration::from_millis(300)).await;
        // The pure colour is in this corner of the list.
        desk.click(232, 150).await;
        if desk.evaluate("paint.value").await != "#000000" {
            break;
        }
    }
    desk.until("paint.value", json!("#ff0000")).await;
    desk.press(&[RETURN]).await;
    desk.until("paint.matches(':open') || !document.hasFocus()", json!(false)).await;
}

async fn enter_prints_a_page_into_a_file(desk: &mut Desk) {
    desk.evaluate("document.title = 'printed'; document.body.innerHTML = '<p>text'; 1").await;
    let pages = desk.cdp.pages().await.len();
    desk.open("setTimeout(() => print(), 0); 1").await;
    let mut is_shown = false;
    for _ in 0..200 {
        let now = desk.cdp.pages().await.len();
        if is_shown && now == pages {
            break;
        }
        is_shown |= now > pages;
        // It is first pressed in the preview, when that is ready, and then in the dialog for the name.
        desk.press(&[RETURN]).await;
        sleep(Duration::from_millis(300)).await;
    }
    desk.until("document.hasFocus()", json!(true)).await;
    desk.choose("/home/casement/downloads/printed.pdf").await;
    desk.until("one.files.length && one.files[0].slice(0, 5).text()", json!("%PDF-")).await;
}

async fn after_a_restart_the_keyboard_is_in_the_page(mut desk: Desk) {
    let status = desk.client.restart(&RestartRequest::default()).await.unwrap();
    (desk.cdp, desk.page) = Cdp::at_first_page(&desk.sandbox, &status).await;
    desk.until(SIDES, json!(PAGE)).await;
    desk.field().await;
    desk.typed("restarted", "field").await;
}
