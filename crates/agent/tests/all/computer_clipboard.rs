//! The clipboard of the session.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::computer::*;
use crate::headless::webdriver;
use crate::sandbox::TEST_TIMEOUT;

#[tokio::test]
async fn the_clipboard_is_the_one_that_pages_see_and_holds_every_text() {
    everywhere(async |mut stage: Stage| {
        assert_eq!(stage.read_clipboard().await, "");
        for text in [ALL_KINDS, "", "\r\n\n\r\t end \0 after nothing", &"x".repeat(1 << 20), &"😀".repeat(1 << 18)] {
            stage.write_clipboard(text).await;
            assert!(stage.read_clipboard().await == text, "a text of {} bytes", text.len());
        }
        let mut times: Vec<_> = Vec::new();
        for _ in 0..20 {
            let began = Instant::now();
            stage.write_clipboard("short").await;
            assert_eq!(stage.read_clipboard().await, "short");
            times.push(began.elapsed());
        }
        times.sort_unstable();
        println!("clipboard there and back: {:?}", times[10]);

        // To a page with the paste key, and back with the copy key.
        stage.write_clipboard(ALL_KINDS).await;
        stage.click(100, 100).await;
        stage.cdp.until(&stage.page, "document.activeElement.id", &json!("area")).await;
        stage.press(&[CTRL, u32::from('v')]).await;
        stage.cdp.until(&stage.page, "area.value", &json!(ALL_KINDS)).await;
        stage.cdp.evaluate(&stage.page, "area.value = 'copied ✓'; area.select(); 1").await;
        stage.press(&[CTRL, u32::from('c')]).await;
        stage.noted("keyup,Control").await;
        let deadline = Instant::now() + TEST_TIMEOUT;
        while stage.read_clipboard().await != "copied ✓" {
            assert!(Instant::now() < deadline, "the copy does not come");
        }
        // And with the clipboard API of the page.
        let allow =
            json!({ "origin": "http://localhost", "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] });
        stage.cdp.call(None, "Browser.grantPermissions", allow).await;
        stage.write_clipboard("from outside: ä").await;
        assert_eq!(stage.cdp.evaluate(&stage.page, "navigator.clipboard.readText()").await, json!("from outside: ä"));
        stage.cdp.evaluate(&stage.page, "navigator.clipboard.writeText('from the page: 漢')").await;
        assert_eq!(stage.read_clipboard().await, "from the page: 漢");
        a_megabyte_goes_both_ways(&mut stage).await;
        stage.write_clipboard("from the page: 漢").await;
        // The page that serves the clipboard is hidden from clients, and sends no requests.
        assert_eq!(stage.cdp.pages().await.len(), 1);
        let requested = stage.sandbox.seen.lock().clone();
        assert!(!requested.iter().any(|address| address.contains("clipboard")), "{requested:?}");
        // A client that lists all targets may close the hidden page.
        let all = stage.cdp.call(None, "Target.getTargets", json!({})).await;
        let hidden =
            all["targetInfos"].as_array().unwrap().iter().find(|info| info["type"] == "other").unwrap().clone();
        stage.cdp.call(None, "Target.closeTarget", json!({ "targetId": hidden["targetId"] })).await;
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let all = stage.cdp.call(None, "Target.getTargets", json!({})).await;
            if !all["targetInfos"].as_array().unwrap().iter().any(|info| info["targetId"] == hidden["targetId"]) {
                break;
            }
            assert!(Instant::now() < deadline, "it is not closed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(stage.read_clipboard().await, "from the page: 漢");
    })
    .await;
}

/// Passes the longest text to a page and back: with the page's clipboard API, with the paste key and the copy key.
async fn a_megabyte_goes_both_ways(stage: &mut Stage) {
    let (line, times) = ("aä漢😀\n", 95_325);
    let text = |last: char| format!("{}{last}", line.repeat(times));
    assert_eq!(text('1').len(), 1 << 20);
    let in_page = |last: char| format!("({}.repeat({times}) + '{last}')", json!(line));
    let began = Instant::now();

    stage.write_clipboard(&text('1')).await;
    let read = format!("navigator.clipboard.readText().then(t => t === {})", in_page('1'));
    assert_eq!(stage.cdp.evaluate(&stage.page, &read).await, json!(true));
    stage.cdp.evaluate(&stage.page, &format!("navigator.clipboard.writeText({})", in_page('2'))).await;
    assert!(stage.read_clipboard().await == text('2'), "not what the page wrote");

    // The page handles both events itself, because the layout of so much text takes longer than all the rest.
    let hands = format!(
        "area.onpaste = e => {{ window.pasted = e.clipboardData.getData('text/plain'); e.preventDefault(); }};
         area.oncopy = e => {{ e.clipboardData.setData('text/plain', {}); e.preventDefault(); }};
         area.value = 'x'; area.focus(); area.select(); 1",
        in_page('4')
    );
    stage.cdp.evaluate(&stage.page, &hands).await;
    stage.write_clipboard(&text('3')).await;
    stage.press(&[CTRL, u32::from('v')]).await;
    let deadline = Instant::now() + LONG;
    while stage.cdp.evaluate(&stage.page, &format!("window.pasted === {}", in_page('3'))).await != json!(true) {
        assert!(Instant::now() < deadline, "the paste does not come");
    }
    stage.press(&[CTRL, u32::from('c')]).await;
    let deadline = Instant::now() + LONG;
    while stage.read_clipboard().await != text('4') {
        assert!(Instant::now() < deadline, "the copy does not come");
    }
    println!("a megabyte, four times: {:?}", began.elapsed());
    stage.cdp.evaluate(&stage.page, "area.onpaste = area.oncopy = null; area.value = ''; 1").await;
    stage.forget().await;
}

#[tokio::test]
async fn webdriver_clients_keep_their_windows_and_the_clipboard_works_beside_them() {
    everywhere(async |stage: Stage| {
        stage.write_clipboard("before").await;
        for socket in [false, true] {
            let options = json!({ "debuggerAddress": "127.0.0.1:9222" });
            let requested_state = json!({ "webSocketUrl": socket, "goog:chromeOptions": options });
            let requested_state = json!({ "capabilities": { "alwaysMatch": requested_state } });
            let session = webdriver(&stage.sandbox, "POST", "/session", &requested_state).await.unwrap();
            let id = session["value"]["sessionId"].as_str().unwrap().to_owned();
            stage.write_clipboard("beside: ä").await;
            assert_eq!(stage.read_clipboard().await, "beside: ä");
            let deadline = Instant::now() + Duration::from_secs(60);
            loop {
                let handles = webdriver(&stage.sandbox, "GET", &format!("/session/{id}/window/handles"), &json!({}))
                    .await
                    .unwrap();
                if handles["value"].as_array().unwrap().len() == 1 {
                    break;
                }
                assert!(Instant::now() < deadline, "{handles}");
            }
            webdriver(&stage.sandbox, "DELETE", &format!("/session/{id}"), &json!({})).await.unwrap();
        }
    })
    .await;
}
