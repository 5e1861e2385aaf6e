//! Dialogs that no client answers, and a browser that a client closes.

use std::time::{Duration, Instant};

use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::view::{ANSWER, DIALOGS, DialogAnswer, NextDialogs, OpenDialogs};
use casement_agent_protocol::{ErrorCode, ExitReason, State};
use serde_json::json;

use crate::cdp::{Cdp, EMPTY};
use crate::sandbox::{Sandbox, TEST_TIMEOUT, config, end};

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
    assert_eq!(status.state, State::Ready);
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
        assert_eq!(status.state, State::Ready);
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
