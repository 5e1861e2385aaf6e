//! Tools of pages, with a real browser.

use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::webmcp::{INVOKE, InvokeTool, LIST, Tool, ToolList, ToolResult, ToolStatus};
use casement_agent_protocol::{AgentConfig, ErrorCode};
use serde_json::{Value, json};

use crate::cdp::Cdp;
use crate::sandbox::{Sandbox, config};
use crate::script::LONG;

pub(crate) async fn list(client: &AgentClient) -> Vec<Tool> {
    let list = client.download(LIST, &(), LONG).await.unwrap().collect(usize::MAX).await.unwrap();
    serde_json::from_slice::<ToolList>(&list).unwrap().tools
}

/// Returns the tools once there are as many.
pub(crate) async fn tools(client: &AgentClient, count: usize) -> Vec<Tool> {
    loop {
        let tools = list(client).await;
        if tools.len() == count {
            return tools;
        }
    }
}

pub(crate) async fn invoke(
    client: &AgentClient,
    tool_ref: &str,
    input: Value,
    timeout_ms: u64,
) -> Result<ToolResult, ClientError> {
    let request = InvokeTool { tool_ref: tool_ref.to_owned(), input, timeout_ms };
    let result = client.download(INVOKE, &request, LONG).await?.collect(usize::MAX).await?;
    Ok(serde_json::from_slice(&result).unwrap())
}

pub(crate) fn named<'a>(tools: &'a [Tool], name: &str) -> &'a Tool {
    tools.iter().find(|tool| tool.name == name).unwrap()
}

pub(crate) async fn opened(sandbox: &Sandbox, client: &AgentClient, url: &str) -> (Cdp, String) {
    let mut cdp = Cdp::dial(sandbox, &client.status().await.unwrap()).await;
    let target = cdp.pages().await.remove(0);
    let page = cdp.attach(&target).await;
    cdp.evaluate(&page, &format!("location.href = {url:?}")).await;
    (cdp, page)
}

#[tokio::test]
async fn the_tools_of_a_page_are_listed_and_invoked() {
    let sandbox = Sandbox::start(&config(true));
    sandbox.ready("tools").await;
    let client = sandbox.client().await;
    assert!(list(&client).await.is_empty());
    let (mut cdp, page) = opened(&sandbox, &client, "http://localhost/tools#part").await;
    let all = tools(&client, 5).await;
    let sum = named(&all, "sum");
    assert_eq!((sum.title.as_deref(), sum.description.as_str()), (Some("Sum"), "the tool sum"));
    assert_eq!(sum.input_schema.as_ref().unwrap()["properties"]["a"]["type"], "number");
    assert_eq!((sum.annotations.read_only, sum.annotations.autosubmit), (Some(true), None));
    assert_eq!((sum.page_title.as_str(), sum.page_url.as_str()), ("Tools", "http://localhost/tools"));
    assert!(sum.frame.is_none() && sum.window_id > 0 && sum.tab_id > 0);

    let result = invoke(&client, &sum.tool_ref, json!({ "a": 1, "b": 2 }), 60_000).await.unwrap();
    assert_eq!(
        (result.status, result.output, result.error_text),
        (ToolStatus::Completed, Some(json!({"sum": 3})), None)
    );
    let failed = invoke(&client, &named(&all, "fails").tool_ref, json!({}), 60_000).await.unwrap();
    assert_eq!(failed.status, ToolStatus::Error);
    assert!(failed.error_text.unwrap().starts_with("TypeError: no"));
    let late = invoke(&client, &named(&all, "hangs").tool_ref, json!({}), 1000).await.unwrap();
    let reason = "outcome_unknown: it had not ended within 1 s and was canceled";
    assert_eq!((late.status, late.error_text.as_deref()), (ToolStatus::Error, Some(reason)));
    let long = invoke(&client, &named(&all, "long").tool_ref, json!({}), 60_000).await.unwrap();
    assert!(long.output.is_none() && long.error_text.unwrap().contains("has more than"));

    let form = named(&all, "search");
    assert_eq!(form.annotations.autosubmit, Some(false));
    let filled = invoke(&client, &form.tool_ref, json!({ "q": "tea" }), 60_000).await.unwrap();
    assert_eq!((filled.status, &filled.output), (ToolStatus::AwaitingSubmission, &None), "{filled:?}");
    assert_eq!(cdp.evaluate(&page, "document.forms[0].q.value").await, json!("tea"), "it stays filled in");
}

#[tokio::test]
async fn a_reference_is_valid_for_its_document_only() {
    let sandbox = Sandbox::start(&config(true));
    sandbox.ready("stale tools").await;
    let client = sandbox.client().await;
    let (mut cdp, page) = opened(&sandbox, &client, "http://localhost/tools").await;
    let before = tools(&client, 5).await;
    cdp.evaluate(&page, "location.href = 'http://localhost/empty'").await;
    tools(&client, 0).await;
    cdp.evaluate(&page, "location.href = 'http://localhost/tools'").await;
    let after = tools(&client, 5).await;
    assert_eq!(named(&before, "sum").tab_id, named(&after, "sum").tab_id);
    for tool_ref in [&*named(&before, "sum").tool_ref, "bm90aGluZw", "§"] {
        let refused = invoke(&client, tool_ref, json!({}), 60_000).await;
        let Err(ClientError::Refused(body)) = refused else { panic!("{tool_ref}: {refused:?}") };
        assert_eq!(body.code, ErrorCode::Missing, "{tool_ref}");
    }
    let result = invoke(&client, &named(&after, "sum").tool_ref, json!({ "a": 1, "b": 1 }), 60_000).await.unwrap();
    assert_eq!(result.output, Some(json!({ "sum": 2 })));
}

#[tokio::test]
async fn tools_of_embedded_frames_name_their_frame() {
    let sandbox = Sandbox::start(&config(true));
    sandbox.ready("framed tools").await;
    let client = sandbox.client().await;
    let (_cdp, _page) = opened(&sandbox, &client, "http://localhost/tools/frames").await;
    let all = tools(&client, 5).await;
    let sum = named(&all, "sum");
    assert_eq!(sum.page_url, "http://localhost/tools/frames");
    assert_eq!(sum.frame.as_ref().unwrap().url, "http://localhost/tools");
    let result = invoke(&client, &sum.tool_ref, json!({ "a": 2, "b": 2 }), 60_000).await.unwrap();
    assert_eq!(result.output, Some(json!({ "sum": 4 })));
}

#[tokio::test]
async fn pages_of_a_stealth_session_offer_no_tools() {
    let sandbox = Sandbox::start(&AgentConfig { stealth: true, ..config(true) });
    sandbox.ready("stealth").await;
    let client = sandbox.client().await;
    let (mut cdp, page) = opened(&sandbox, &client, "http://localhost/tools").await;
    cdp.until(&page, "document.title", &json!("Tools")).await;
    assert_eq!(cdp.evaluate(&page, "'modelContext' in document").await, json!(false));
    assert!(list(&client).await.is_empty());
}
