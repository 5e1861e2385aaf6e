//! What the keyboard and the mouse reach in a session without a display, beside the page itself.

use std::time::Instant;

use casement_agent_protocol::client::ClientError;
use casement_agent_protocol::computer::{Action, Button, ClickKind, Perform};
use casement_agent_protocol::{ErrorCode, Region};
use serde_json::json;

use crate::computer::{CTRL, ESCAPE, LONG, RETURN, SHIFT, Stage, click};
use crate::sandbox::TEST_TIMEOUT;

const ALT: u32 = 0xffe9;
const F5: u32 = 0xffc2;
const LEFT: u32 = 0xff51;
const DOWN: u32 = 0xff54;

/// A page with lists, one of them in a frame, a picker, and something behind them.
const LISTS: &str = r#"
    document.body.innerHTML = `<div style="position:absolute;left:0;top:0;width:880px;height:600px" id=behind></div>
        <select id=list style="position:absolute;left:50px;top:50px;width:200px">
            <option>one<optgroup label=group><option>two<option disabled>three<option>four</optgroup><option>five</select>
        <input id=day type=date style="position:absolute;left:300px;top:50px;width:150px">
        <input id=field list=fruits style="position:absolute;left:300px;top:150px"><datalist id=fruits><option>apple</datalist>
        <iframe id=frame style="position:absolute;left:500px;top:50px;border:0"
            srcdoc="<body style='margin:0'><select id=inner style='width:100px'><option>a<option>b"></iframe>`;
    window.log = [];
    for (const type of ['mousedown', 'click', 'change'])
        addEventListener(type, event => log.push(type + ' ' + event.target.id), true);
    true"#;

/// Performs an action and returns the code and the text of its refusal.
async fn refusal(stage: &Stage, action: Action) -> (ErrorCode, String) {
    match stage.client.command("/v1/computer/perform", &Perform { actions: vec![action] }, LONG).await {
        Err(ClientError::Refused(body)) => (body.code, body.message),
        other => panic!("not refused: {other:?}"),
    }
}

fn chord(keys: &[u32]) -> Action {
    Action::Press { chords: vec![keys.to_vec()], duration_ms: 0, hold: Vec::new() }
}

#[tokio::test]
async fn keys_of_the_browser_act_without_a_display_unless_the_page_prevents_them() {
    for stealth in [false, true] {
        let mut stage = Stage::set(true, stealth).await;
        let page = stage.page.clone();
        let loaded = "document.readyState === 'complete' && typeof old";
        for keys in [&[F5] as &[u32], &[CTRL, u32::from('r')]] {
            stage.cdp.evaluate(&page, "window.old = 1").await;
            stage.press(keys).await;
            stage.cdp.until(&page, loaded, &json!("undefined")).await;
        }
        let prevents = "addEventListener('keydown', event => event.preventDefault()); window.old = 1";
        stage.cdp.evaluate(&page, prevents).await;
        stage.press(&[F5]).await;
        // A page that handles such a key itself gets it.
        stage.press(&[CTRL, u32::from('l')]).await;
        assert_eq!(stage.cdp.evaluate(&page, "typeof old").await, json!("number"));
        stage.cdp.evaluate(&page, "location.href = '/empty?2'").await;
        stage.cdp.until(&page, "location.search + document.readyState", &json!("?2complete")).await;
        for (keys, what) in [(&[CTRL, u32::from('l')] as &[u32], "the address bar"), (&[0xffc9], "the developer tools")]
        {
            let (code, message) = refusal(&stage, chord(keys)).await;
            assert!(code == ErrorCode::NotSupported && message.contains(what), "{message}");
        }
        let framed = "const frame = document.createElement('iframe'); document.body.append(frame); frame.focus();
            frame.contentWindow.onkeydown = event => event.preventDefault(); true";
        stage.cdp.evaluate(&page, &format!("{{ {framed} }}")).await;
        stage.press(&[CTRL, u32::from('l')]).await;
        stage.press(&[ALT, LEFT]).await;
        stage.cdp.until(&page, "location.search", &json!("?2")).await;
        stage.cdp.evaluate(&page, "document.querySelector('iframe').remove()").await;
        stage.press(&[ALT, LEFT]).await;
        stage.cdp.until(&page, "location.search + document.readyState", &json!("complete")).await;

        stage.press(&[CTRL, u32::from('+')]).await;
        stage.cdp.until(&page, "devicePixelRatio > 1.05", &json!(true)).await;
        stage.cdp.evaluate(&page, "onmousedown = event => { window.at = event.clientX }; 1").await;
        stage.click(330, 300).await;
        stage.cdp.until(&page, "at", &json!(300)).await;
        stage.press(&[CTRL, u32::from('0')]).await;
        stage.cdp.until(&page, "devicePixelRatio", &json!(1)).await;

        stage.cdp.evaluate(&page, "onclick = () => document.documentElement.requestFullscreen(); 1").await;
        stage.click(300, 300).await;
        stage.cdp.until(&page, "!!document.fullscreenElement", &json!(true)).await;
        stage.press(&[ESCAPE]).await;
        stage.cdp.until(&page, "!!document.fullscreenElement", &json!(false)).await;

        // The second chord goes to the tab that the first one has left in front.
        let chords = ["t", "w"].map(|key| vec![CTRL, u32::from(key.as_bytes()[0])]).to_vec();
        stage.act(vec![Action::Press { chords: chords[..1].to_vec(), duration_ms: 0, hold: Vec::new() }]).await;
        assert_eq!(stage.cdp.pages().await.len(), 2);
        stage.cdp.until(&page, "document.visibilityState", &json!("hidden")).await;
        stage.act(vec![Action::Press { chords: chords[1..].to_vec(), duration_ms: 0, hold: Vec::new() }]).await;
        stage.cdp.until(&page, "document.visibilityState", &json!("visible")).await;
        assert_eq!(stage.cdp.pages().await.len(), 1);
    }
}

#[tokio::test]
async fn a_click_in_an_open_list_chooses_there_and_a_picker_refuses_it_by_name() {
    for stealth in [false, true] {
        let mut stage = Stage::set(true, stealth).await;
        let page = stage.page.clone();
        // The recorder of the first page prevents that a picker opens.
        stage.cdp.evaluate(&page, "location.href = '/empty?lists'").await;
        stage.cdp.until(&page, "location.search + document.readyState", &json!("?listscomplete")).await;
        stage.cdp.evaluate(&page, LISTS).await;
        stage.cdp.until(&page, "frame.contentDocument?.readyState", &json!("complete")).await;
        stage.cdp.drawn(&page).await;
        let is_open = "list.matches(':open') || day.matches(':open')";
        // The height of a row of the list, below the element, with a border of one pixel.
        let rows = "const height = list.getBoundingClientRect().bottom; [height]";
        let bottom = stage.cdp.evaluate(&page, &format!("{{ {rows} }}")).await[0].as_f64().unwrap();
        let row = |at: f64| (bottom + 1.0 + 24.0 * at + 12.0) as u32;

        stage.click(100, 60).await;
        stage.cdp.until(&page, is_open, &json!(true)).await;
        // A picture of a part does not close the list.
        let region = Region { x: 40, y: 40, width: 300, height: 200 };
        stage.client.screenshot(Some(region), (900, 700)).await.unwrap();
        assert_eq!(stage.cdp.evaluate(&page, is_open).await, json!(true));
        stage.click(100, row(4.0)).await;
        stage.cdp.until(&page, "list.value + list.matches(':open')", &json!("fourfalse")).await;
        let seen = stage.cdp.evaluate(&page, "log.splice(0).join()").await;
        assert!(!seen.as_str().unwrap().contains("behind"), "{seen}");

        // A row that cannot be chosen changes nothing, and a click beside the list closes it and reaches the page.
        stage.click(100, 60).await;
        stage.click(100, row(3.0)).await;
        assert_eq!(stage.cdp.evaluate(&page, is_open).await, json!(true));
        stage.click(100, 500).await;
        stage.cdp.until(&page, "list.value + log.splice(0).at(-1)", &json!("fourclick behind")).await;

        // The element itself closes its list.
        stage.click(100, 60).await;
        stage.cdp.until(&page, is_open, &json!(true)).await;
        stage.click(100, 60).await;
        stage.cdp.until(&page, is_open, &json!(false)).await;

        stage.click(550, 60).await;
        stage.cdp.until(&page, "frame.contentDocument.querySelector(':open') !== null", &json!(true)).await;
        let inner = stage.cdp.evaluate(&page, "50 + frame.contentDocument.body.firstChild.offsetHeight").await;
        stage.click(550, inner.as_u64().unwrap() as u32 + 1 + 24 + 12).await;
        stage.cdp.until(&page, "frame.contentDocument.body.firstChild.value", &json!("b")).await;

        stage.click(440, 60).await;
        stage.cdp.until(&page, is_open, &json!(true)).await;
        let at = stage.at(350, 200);
        for action in [
            click(at, Button::Left, ClickKind::Click, 1, &[SHIFT]),
            Action::Scroll { at, right: 0, down: 1, hold: Vec::new() },
        ] {
            let (code, message) = refusal(&stage, action).await;
            assert!(code == ErrorCode::InvalidState && message.contains("<input type=date>"), "{message}");
        }
        // Keys reach the picker.
        stage.press(&[DOWN]).await;
        stage.press(&[RETURN]).await;
        stage.cdp.until(&page, "day.value !== '' && !day.matches(':open')", &json!(true)).await;
        // The suggestions of a field are not drawn, and take keys too.
        stage.click(350, 160).await;
        stage.press(&[u32::from('a')]).await;
        stage.cdp.until(&page, "field.value", &json!("a")).await;
        let deadline = Instant::now() + TEST_TIMEOUT;
        // Chromium ignores the key for some time after the suggestions have appeared.
        while stage.cdp.evaluate(&page, "field.value").await != json!("apple") {
            assert!(Instant::now() < deadline, "no suggestion is taken");
            stage.press(&[DOWN]).await;
            stage.press(&[RETURN]).await;
        }
    }
}
