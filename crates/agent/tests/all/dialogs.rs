//! Dialogs that no client answers, and a browser that a client closes.

use std::time::{Duration, Instant};

use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::computer::{Action, Perform, Point};
use casement_agent_protocol::view::{ANSWER, DIALOGS, DialogAnswer, NextDialogs, OpenDialogs};
use casement_agent_protocol::{AgentConfig, ErrorCode, ExitReason, State};
use serde_json::json;

use crate::cdp::{Cdp, EMPTY};
use crate::executors::{execute_in, executors};
use crate::repl::{request, written};
use crate::sandbox::{Sandbox, TEST_TIMEOUT, config, end};
use crate::script::{execute, execute_for, result, scripted, started};
use crate::webmcp::opened;

const SIZE: (u32, u32) = (900, 700);

pub(crate) async fn until_open(client: &AgentClient, how_many: usize) -> OpenDialogs {
    let mut since = None;
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let reported: OpenDialogs = client.call(DIALOGS, &NextDialogs { since }, TEST_TIMEOUT).await.unwrap();
        if reported.dialogs.len() == how_many {
            return reported;
        }
        assert!(Instant::now() < deadline, "{reported:?}");
        since = Some(reported.state);
    }
}

#[tokio::test]
async fn an_unanswered_dialog_is_reported_blocks_no_client_and_can_be_answered() {
    let mut config = config(true);
    config.start_url = Some(EMPTY.to_owned());
    let sandbox = Sandbox::start(&config);
    let status = sandbox.ready("a dialog").await;
    assert_eq!(status.state, State::Ready, "{status:?}");
    let client = sandbox.client().await;
    let (mut cdp, page) = Cdp::at_first_page(&sandbox, &status).await;

    // The client has not enabled notices of dialogs.
    cdp.evaluate(&page, "void setTimeout(() => { window.said = prompt('Your name?', 'nobody') }, 0)").await;
    let reported = until_open(&client, 1).await;
    let open = &reported.dialogs[0];
    assert_eq!(
        (open.kind.as_str(), open.message.as_str(), open.default_text.as_str()),
        ("prompt", "Your name?", "nobody")
    );
    let refused = client.screenshot(None, SIZE).await.unwrap_err();
    assert!(
        matches!(&refused, ClientError::Refused(body)
            if body.code == ErrorCode::InvalidState && body.message.contains("Your name?")),
        "{refused:?}"
    );
    let answer = DialogAnswer { page: open.page.clone(), accept: true, text: "Zoë".to_owned() };
    client.command(ANSWER, &answer, TEST_TIMEOUT).await.unwrap();
    until_open(&client, 0).await;
    cdp.until(&page, "window.said", &json!("Zoë")).await;
    client.screenshot(None, SIZE).await.unwrap();

    // A later page, and a client that has enabled notices of dialogs: the agent does not answer in its place.
    let second = cdp.page("about:blank#second", true).await;
    cdp.call(Some(&second), "Page.enable", json!({})).await;
    cdp.until(&second, "document.readyState", &json!("complete")).await;
    cdp.evaluate(&second, "void setTimeout(() => { window.said = confirm('Sure?') }, 500)").await;
    until_open(&client, 1).await;
    cdp.call(Some(&second), "Page.handleJavaScriptDialog", json!({ "accept": true })).await;
    until_open(&client, 0).await;
    cdp.until(&second, "window.said", &json!(true)).await;
}

#[tokio::test]
async fn a_browser_that_a_client_closed_says_so_with_and_without_a_display() {
    for (headless, method) in [(true, "Browser.close"), (false, "Page.close")] {
        let sandbox = Sandbox::start(&config(headless));
        let mut events = sandbox.client().await.events().await.unwrap();
        let status = sandbox.ready("closed by a client").await;
        assert_eq!(status.state, State::Ready, "{status:?}");
        let mut cdp = Cdp::dial(&sandbox, &status).await;
        let target = cdp.pages().await.remove(0);
        let page = cdp.attach(&target).await;
        // A browser with a display also ends with its last window.
        let session = (method == "Page.close").then_some(page.as_str());
        cdp.call(session, method, json!({})).await;
        let ended = end(&mut events).await;
        assert_eq!(ended.0, ExitReason::Closed, "{method}: {}", ended.1);
    }
}

/// Returns the code, the message and the time of a refusal.
fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>, began: Instant) -> (ErrorCode, String) {
    let Err(ClientError::Refused(body)) = result else { panic!("{result:?}") };
    assert!(began.elapsed() < Duration::from_secs(8), "{body:?} after {:?}", began.elapsed());
    (body.code, body.message)
}

async fn perform(client: &AgentClient, action: Action) -> Result<(), ClientError> {
    client.command("/v1/computer/perform", &Perform { actions: vec![action] }, TEST_TIMEOUT).await
}

async fn answer(client: &AgentClient, open: &OpenDialogs, accept: bool) {
    let answer = DialogAnswer { page: open.dialogs[0].page.clone(), accept, text: String::new() };
    client.command(ANSWER, &answer, TEST_TIMEOUT).await.unwrap();
    until_open(client, 0).await;
}

#[tokio::test]
async fn what_blocks_a_page_is_reported_to_scripts_at_once_in_both_kinds_of_session() {
    for headless in [true, false] {
        let sandbox = Sandbox::start(&AgentConfig { headless, ..scripted() });
        let status = sandbox.ready("blocked").await;
        let client = sandbox.client().await;
        let mut cdp = Cdp::dial(&sandbox, &status).await;
        let target = cdp.pages().await.remove(0);
        let page = cdp.attach(&target).await;
        cdp.evaluate(&page, "location.href = 'http://localhost/empty'").await;
        cdp.until(&page, "location.href + document.readyState", &json!("http://localhost/emptycomplete")).await;
        let refused = async |open: &OpenDialogs, kind: &str, text: &str| {
            assert_eq!(open.dialogs[0].kind, kind);
            let began = Instant::now();
            let message = refusal(execute_for(&client, "return page.title()", 30_000).await, began);
            assert_eq!((message.0, message.1.contains(text)), (ErrorCode::InvalidState, true), "{message:?}");
            let began = Instant::now();
            let message = refusal(execute_in(&client, "behind", "return page.title()").await, began);
            assert_eq!((message.0, message.1.contains(text)), (ErrorCode::InvalidState, true), "{message:?}");
        };

        cdp.evaluate(&page, "void setTimeout(() => { window.said = confirm('Sure?') }, 0)").await;
        let open = until_open(&client, 1).await;
        refused(&open, "confirm", "confirm \"Sure?\"").await;
        answer(&client, &open, true).await;
        cdp.until(&page, "window.said", &json!(true)).await;

        // Right after a script, neither its process, with its listener, nor the one that connects for the next script answers.
        for accept in [true, false, true] {
            let listener = "page.on('dialog', (dialog) => dialog.dismiss().catch(() => {})); return 1";
            execute_for(&client, listener, 30_000).await.unwrap();
            cdp.evaluate(&page, "void setTimeout(() => { window.said = confirm('After it?') }, 0)").await;
            let open = until_open(&client, 1).await;
            refused(&open, "confirm", "confirm \"After it?\"").await;
            answer(&client, &open, accept).await;
            cdp.until(&page, "window.said", &json!(accept)).await;
        }

        cdp.evaluate(&page, "onbeforeunload = (event) => event.preventDefault()").await;
        for kind in ["mousePressed", "mouseReleased"] {
            let click = json!({ "type": kind, "x": 50, "y": 50, "button": "left", "clickCount": 1 });
            cdp.call(Some(&page), "Input.dispatchMouseEvent", click).await;
        }
        cdp.evaluate(&page, "void setTimeout(() => { location.href = 'http://localhost/cookies' }, 0)").await;
        let open = until_open(&client, 1).await;
        refused(&open, "beforeunload", "beforeunload").await;
        answer(&client, &open, false).await;
        cdp.evaluate(&page, "onbeforeunload = null").await;

        if !headless {
            cdp.evaluate(&page, "void setTimeout(print, 0)").await;
            let open = until_open(&client, 1).await;
            refused(&open, "print", "a print preview is open").await;
            let escape = Action::Press { chords: vec![vec![0xff1b]], duration_ms: 0, hold: Vec::new() };
            perform(&client, escape).await.unwrap();
            until_open(&client, 0).await;
        }
        assert_eq!(result(&client, "return page.url()").await, json!("http://localhost/empty"));
    }
}

#[tokio::test]
async fn code_of_callers_answers_no_dialog_that_opens_after_it_has_ended() {
    let (sandbox, client) = started("after a script").await;
    let (mut cdp, page) = opened(&sandbox, &client, "http://localhost/empty").await;
    for place in ["a script", "the REPL"] {
        if place == "a script" {
            result(&client, "return page.title()").await;
            // The process for the next script is loaded and connected while a script runs and after its end.
            tokio::time::sleep(Duration::from_secs(2)).await;
        } else {
            written(&client, "let kept = await page.title()").await;
        }
        cdp.evaluate(&page, "void setTimeout(() => { window.said = confirm('Sure?') }, 0)").await;
        let open = until_open(&client, 1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(until_open(&client, 1).await.dialogs, open.dialogs, "after {place}");
        if place == "the REPL" {
            let began = Instant::now();
            let (code, message) = refusal(request(&client, "repl.write(1)", false, 30_000).await, began);
            assert_eq!((code, message.contains("Sure?")), (ErrorCode::InvalidState, true), "{message}");
        }
        answer(&client, &open, true).await;
        cdp.until(&page, "window.said", &json!(true)).await;
    }
    assert_eq!(written(&client, "repl.write(kept === '', await page.evaluate(() => 7))").await, "true 7");

    // A dialog for which the code has a listener belongs to the code.
    written(&client, "let asked; page.on('dialog', (dialog) => { asked = dialog })").await;
    cdp.evaluate(&page, "void setTimeout(() => { window.said = prompt('Name?') }, 0)").await;
    until_open(&client, 1).await;
    let answering = "while (!asked) await new Promise((next) => setTimeout(next, 20));
        await asked.accept('Zoë'); repl.write(await page.evaluate(() => said))";
    assert_eq!(written(&client, answering).await, "Zoë", "its listener may hear of the dialog later than this test");
}

#[tokio::test]
async fn a_crashed_page_is_reported_at_once_by_every_operation_until_it_is_reloaded() {
    let (sandbox, client) = started("crash").await;
    let (mut cdp, first) = opened(&sandbox, &client, "http://localhost/empty").await;
    let target = cdp.pages().await.remove(0);
    assert!(execute_in(&client, "behind", "return 1").await.unwrap().success);
    let behind = executors(&client).await[1].target_id.clone().unwrap();
    let behind = cdp.attach(&behind).await;
    cdp.crash(&first).await;
    let crashed = |(code, message): (ErrorCode, String)| {
        assert_eq!((code, message.contains("the page has crashed")), (ErrorCode::InvalidState, true), "{message}");
    };
    let began = Instant::now();
    crashed(refusal(client.screenshot(None, SIZE).await, began));
    let began = Instant::now();
    let click = Action::Move { to: Point { x: 50, y: 50 }, smooth: false, duration_ms: None, hold: Vec::new() };
    crashed(refusal(
        client.command("/v1/computer/perform", &Perform { actions: vec![click] }, TEST_TIMEOUT).await,
        began,
    ));
    let began = Instant::now();
    let elsewhere = execute(&client, "return context.pages().length").await;
    assert!(elsewhere.success && began.elapsed() < Duration::from_secs(8), "{elsewhere:?} {:?}", began.elapsed());

    cdp.crash(&behind).await;
    let began = Instant::now();
    let (code, message) = refusal(execute_in(&client, "behind", "return 1").await, began);
    assert_eq!((code, message.contains("has crashed")), (ErrorCode::InvalidState, true), "{message}");
    let anew = execute_in(&client, "behind", "return page.url()").await.unwrap();
    assert!(anew.success && anew.tab.as_ref().unwrap().created, "{anew:?}");

    cdp.call(None, "Target.activateTarget", json!({ "targetId": target })).await;
    cdp.call(Some(&first), "Page.reload", json!({})).await;
    cdp.until(&first, "document.readyState", &json!("complete")).await;
    client.screenshot(None, SIZE).await.unwrap();
}
