//! Tools that callers add, with the real runner and a real browser.

use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::extension::RestartRequest;
use casement_agent_protocol::webmcp::{
    ADD_CUSTOM, AddTools, CustomToolKind, CustomTools, INVOKE, InvokeTool, LIST, LIST_CUSTOM, ListTools, REMOVE_CUSTOM,
    RemoveTool, ToolList, ToolStatus,
};
use serde_json::json;

use crate::script::{LONG, started};
use crate::webmcp::{invoke, list, named, opened, tools};

/// A page's tool, which uses a variable of the page, and one that runs beside the browser.
const SHOP: &str = "[{ kind: 'page', match: { url_patterns: ['*://localhost/tools*'] },
    tool: { name: 'count', title: 'Count', description: 'counts', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true },
            outputSchema: { type: 'object' } },
    async execute({ n }) { return { forms: document.forms.length, shared: globalThis.shared ?? null, n }; } },
  { kind: 'cdp', match: { url_patterns: ['http://localhost/*'] },
    tool: { name: 'visit', description: 'visits', inputSchema: { type: 'object' } },
    execute: async ({ n }, { matches, signal }) =>
        ({ url: page.url(), n, here: matches.map((match) => match.url), aborted: signal.aborted, node: typeof process }) }]";

async fn add(client: &AgentClient, namespace: &str, source: &str, overwrite: bool) -> Result<CustomTools, ClientError> {
    let request = AddTools { namespace: namespace.to_owned(), source: source.to_owned(), overwrite };
    let added = client.download(ADD_CUSTOM, &request, LONG).await?.collect(usize::MAX).await?;
    Ok(serde_json::from_slice(&added).unwrap())
}

async fn all(client: &AgentClient) -> Vec<String> {
    let listed: CustomTools = client.call(LIST_CUSTOM, &(), LONG).await.unwrap();
    listed.tools.into_iter().map(|tool| format!("{}/{}", tool.namespace, tool.name)).collect()
}

/// Returns a source that defines a tool of pages with this name and function.
fn source(name: &str, execute: &str) -> String {
    format!(
        "[{{ kind: 'page', match: {{ url_patterns: ['*://*/*'] }}, execute: {execute},
            tool: {{ name: '{name}', description: 'd', inputSchema: {{ type: 'object' }} }} }}]"
    )
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> (ErrorCode, String) {
    let Err(ClientError::Refused(body)) = result else { panic!("{result:?}") };
    (body.code, body.message)
}

#[tokio::test]
async fn custom_tools_are_listed_for_matching_pages_and_run_there() {
    let (sandbox, client) = started("custom tools").await;
    let added = add(&client, "shop", SHOP, false).await.unwrap().tools;
    assert_eq!(added.iter().map(|tool| tool.kind).collect::<Vec<_>>(), [CustomToolKind::Page, CustomToolKind::Cdp]);
    assert!(list(&client).await.is_empty(), "no page matches");
    let (mut cdp, page) = opened(&sandbox, &client, "http://localhost/empty").await;
    assert_eq!(tools(&client, 1).await[0].name, "visit");
    cdp.evaluate(&page, "location.href = 'http://localhost/tools/frames#part'").await;
    let found = tools(&client, 7).await;
    let count = named(&found, "count");
    assert_eq!((count.title.as_deref(), count.description.as_str()), (Some("Count"), "counts"));
    assert_eq!((&count.frame, count.page_url.as_str()), (&None, "http://localhost/tools/frames"), "once for the page");
    assert_eq!((count.annotations.read_only, &count.output_schema), (Some(true), &Some(json!({ "type": "object" }))));
    let custom = count.custom.as_ref().unwrap();
    assert_eq!((custom.id.as_str(), custom.namespace.as_str()), (added[0].id.as_str(), "shop"));
    let without: ToolList = client.call(LIST, &ListTools { exclude_custom: true }, LONG).await.unwrap();
    assert_eq!(without.tools.len(), 5);

    cdp.evaluate(&page, "globalThis.shared = 'of the page'").await;
    let counted = invoke(&client, &count.tool_ref, json!({ "n": 3 }), 60_000).await.unwrap();
    assert_eq!(counted.output, Some(json!({ "forms": 0, "shared": "of the page", "n": 3 })), "{counted:?}");
    let visited = invoke(&client, &named(&found, "visit").tool_ref, json!({ "n": "x" }), 60_000).await.unwrap();
    let here = ["http://localhost/tools/frames", "http://localhost/tools"];
    let url = "http://localhost/tools/frames#part";
    let wanted = json!({ "url": url, "n": "x", "here": here, "aborted": false, "node": "object" });
    assert_eq!((visited.status, visited.output), (ToolStatus::Completed, Some(wanted)), "{:?}", visited.error_text);

    cdp.evaluate(&page, "location.href = 'http://localhost/tools'").await;
    cdp.until(&page, "document.title", &json!("Tools")).await;
    let stale = invoke(&client, &count.tool_ref, json!({}), 60_000).await;
    assert_eq!(refusal(stale).0, ErrorCode::Missing, "a reference names a document");
    client.restart(&RestartRequest::default()).await.unwrap();
    assert_eq!(all(&client).await, ["shop/count", "shop/visit"], "they outlive the browser");
}

#[tokio::test]
async fn a_custom_tool_that_fails_hangs_or_answers_too_much_says_so() {
    let (sandbox, client) = started("failing custom tools").await;
    let (mut cdp, page) = opened(&sandbox, &client, "http://localhost/empty").await;
    for (name, execute) in [
        ("fails", "() => { throw new TypeError('no') }"),
        (
            "waits",
            "(input, { signal }) => new Promise(() => { signal.onabort = () => { document.title = 'aborted' } })",
        ),
        ("loops", "() => { while (true) {} }"),
        ("long", "() => 'x'.repeat(5 << 20)"),
        ("odd", "() => 1n"),
        ("nothing", "() => {}"),
        ("leaves", "() => { location.href = 'http://localhost/empty?left'; return new Promise(() => {}) }"),
    ] {
        add(&client, "failing", &source(name, execute), false).await.unwrap();
    }
    let beside = source("exits", "() => process.exit(3)").replace("'page'", "'cdp'");
    add(&client, "failing", &beside, false).await.unwrap();
    let found = tools(&client, 8).await;
    let late = "outcome_unknown: it had not ended within 1 s and was canceled";
    for (name, timeout_ms, status, text) in [
        ("fails", 60_000, ToolStatus::Error, "TypeError: no"),
        ("waits", 1000, ToolStatus::Error, late),
        ("long", 60_000, ToolStatus::Error, "the tool has completed, but its output has more than"),
        ("odd", 60_000, ToolStatus::Error, "TypeError"),
        ("nothing", 60_000, ToolStatus::Completed, ""),
        ("exits", 60_000, ToolStatus::Error, "outcome_unknown: the script ended its process with exit code 3"),
        ("loops", 1000, ToolStatus::Error, late),
    ] {
        let ended = invoke(&client, &named(&found, name).tool_ref, json!({}), timeout_ms).await.unwrap();
        let error = ended.error_text.unwrap_or_default();
        assert_eq!((ended.status, ended.output), (status, None), "{name}: {error}");
        assert!(error.starts_with(text), "{name}: {error}");
        if name == "waits" {
            cdp.until(&page, "document.title", &json!("aborted")).await;
        }
    }
    cdp.until(&page, "1 + 1", &json!(2)).await;
    let left = invoke(&client, &named(&found, "leaves").tool_ref, json!({}), 60_000).await.unwrap();
    assert_eq!(left.error_text.as_deref(), Some("outcome_unknown: its page was left"));
}

#[tokio::test]
async fn custom_tools_are_added_together_replaced_and_removed() {
    let (_sandbox, client) = started("changed custom tools").await;
    let first = add(&client, "a", SHOP, false).await.unwrap().tools;
    add(&client, "b", SHOP, false).await.unwrap();
    let again = refusal(add(&client, "a", &source("count", "() => 1"), false).await);
    assert_eq!(again, (ErrorCode::Exists, "the tool a/count exists already".to_owned()));
    add(&client, "a", &source("more", "function () { return 1 }"), false).await.unwrap();
    assert_eq!(all(&client).await, ["a/count", "a/visit", "b/count", "b/visit", "a/more"]);
    for source in [
        "",
        "1",
        "[]",
        "[",
        "[{}]",
        "undefinedName",
        "(() => { throw new Error('no') })()",
        &source("spaced name", "() => 1"),
        &source("native", "Math.max"),
        &source("text", "'() => 1'"),
    ] {
        assert_eq!(refusal(add(&client, "a", source, true).await).0, ErrorCode::NotAllowed, "{source}");
    }
    assert_eq!(all(&client).await.len(), 5, "a refused source changes nothing");
    add(&client, "a", &source("only", "() => 1"), true).await.unwrap();
    assert_eq!(all(&client).await, ["b/count", "b/visit", "a/only"]);
    let remove = |id: &str| RemoveTool { id: id.to_owned() };
    let replaced = client.command(REMOVE_CUSTOM, &remove(&first[0].id), LONG).await;
    assert_eq!(refusal(replaced).0, ErrorCode::Missing);
    let listed: CustomTools = client.call(LIST_CUSTOM, &(), LONG).await.unwrap();
    client.command(REMOVE_CUSTOM, &remove(&listed.tools[0].id), LONG).await.unwrap();
    assert_eq!(all(&client).await, ["b/visit", "a/only"]);
}

#[tokio::test]
async fn a_page_neither_sees_nor_changes_nor_imitates_custom_tools() {
    let (sandbox, client) = started("hostile page").await;
    add(&client, "mine", &source("sum", "() => document.title"), false).await.unwrap();
    let (mut cdp, page) = opened(&sandbox, &client, "http://localhost/tools").await;
    let found = tools(&client, 6).await;
    let (custom, own): (Vec<_>, Vec<_>) = found.iter().partition(|tool| tool.custom.is_some());
    let hostile = "document.modelContext.getTools = async () => []; AbortController.prototype.abort = null; \
                   (async () => (await ModelContext.prototype.getTools.call(document.modelContext)).length)()";
    cdp.evaluate(&page, hostile).await;
    cdp.evaluate(
        &page,
        "Object.getOwnPropertyNames(window).forEach((name) => { if (/casement/i.test(name)) document.title = name })",
    )
    .await;
    assert_eq!((tools(&client, 6).await.len(), custom.len()), (6, 1));
    assert!(own.iter().any(|tool| tool.name == "sum"), "the page's tool of the same name remains its own");
    let called = invoke(&client, &custom[0].tool_ref, json!({}), 60_000).await.unwrap();
    assert_eq!(called.output, Some(json!("Tools")));
    cdp.evaluate(&page, "JSON.stringify = () => ({ forged: true })").await;
    let forged = invoke(&client, &custom[0].tool_ref, json!({}), 60_000).await.unwrap();
    assert_eq!((forged.status, forged.output), (ToolStatus::Error, None), "what is no text is no output");
    let request = InvokeTool { tool_ref: custom[0].tool_ref.to_uppercase(), input: json!({}), timeout_ms: 1000 };
    let unknown = client.download(INVOKE, &request, LONG).await;
    assert_eq!(refusal(unknown.map(drop)).0, ErrorCode::Missing);
}
