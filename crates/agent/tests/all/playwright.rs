//! The methods of Playwright in code of callers, compared with those of a client that connects by itself.

use std::collections::BTreeMap;

use casement_agent_protocol::client::AgentClient;
use casement_agent_protocol::process::Program;
use casement_agent_protocol::webmcp::{ADD_CUSTOM, AddTools, CustomTools};
use serde_json::{Value, json};

use crate::cdp::Cdp;
use crate::executors::{execute_in, value};
use crate::process::run;
use crate::repl::written;
use crate::sandbox::{RUNNER, Sandbox};
use crate::script::{LONG, result, scripted};
use crate::webmcp::{invoke, list};

/// Defines `outcomes`, which returns the results of all methods by name.
const METHODS: &str = include_str!("playwright_methods.js");
/// What the session has set, as a page sees it.
const SESSION: &str = "(async () => {
    const states = await Promise.all(['geolocation', 'clipboard-read', 'notifications'].map((name) => navigator.permissions.query({ name })));
    return JSON.stringify([innerWidth, innerHeight, devicePixelRatio, navigator.userAgent, navigator.languages, navigator.maxTouchPoints,
      Intl.DateTimeFormat().resolvedOptions().timeZone, document.visibilityState, states.map(({ state }) => state),
      ['(prefers-color-scheme: dark)', '(prefers-reduced-motion: reduce)', 'print', '(any-pointer: coarse)'].map((query) => matchMedia(query).matches),
      getComputedStyle(document.documentElement).fontFamily, localStorage.length]);
  })()";

/// Returns the results for a client that connects over the debugging protocol.
async fn of_a_client(client: &AgentClient, port: u16) -> Value {
    let code = format!(
        "{METHODS}
        const {{ chromium }} = require('{RUNNER}/node_modules/playwright-core');
        chromium.connectOverCDP('http://127.0.0.1:{port}', {{ isLocal: true }}).then(async (browser) => {{
          const [context] = browser.contexts();
          const found = await outcomes({{ browser, context, page: context.pages()[0] }});
          process.stdout.write(JSON.stringify(found), () => process.exit());
        }});"
    );
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let command = format!("{RUNNER}/node_modules/node-linux-{arch}/bin/node");
    let program = Program { command, args: Some(vec!["-e".to_owned(), code]), ..Program::default() };
    let ran = run(client, program, 200_000).await.unwrap();
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&ran.stderr)))
}

/// Returns the results for a custom tool.
async fn of_a_tool(client: &AgentClient) -> Value {
    let source = format!(
        "(() => {{ {METHODS}
          return [{{ kind: 'cdp', match: {{ url_patterns: ['http://localhost/*'] }}, execute: () => outcomes({{ browser, context, page }}),
            tool: {{ name: 'methods', description: 'd', inputSchema: {{ type: 'object' }} }} }}]; }})()"
    );
    let request = AddTools { namespace: "methods".to_owned(), source, overwrite: false };
    let added = client.download(ADD_CUSTOM, &request, LONG).await.unwrap().collect(usize::MAX).await.unwrap();
    assert_eq!(serde_json::from_slice::<CustomTools>(&added).unwrap().tools.len(), 1);
    let tool = list(client).await.remove(0);
    let done = invoke(client, &tool.tool_ref, json!({}), 200_000).await.unwrap();
    done.output.clone().unwrap_or_else(|| panic!("{done:?}"))
}

/// Fails with the results that differ.
fn compare(place: &str, expected: &Value, found: &Value) {
    let differences: BTreeMap<&String, (&Value, &Value)> = expected
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, expected)| (name, (expected, &found[name])))
        .filter(|(_, (expected, found))| expected != found)
        .collect();
    assert!(differences.is_empty(), "{place}, expected and found: {differences:#?}");
}

#[tokio::test]
async fn every_method_of_playwright_works_in_callers_code_and_leaves_the_session_as_it_was() {
    let config = scripted();
    let sandbox = Sandbox::start(&config);
    let status = sandbox.ready("methods").await;
    let client = sandbox.client().await;
    let session = async || {
        let mut cdp = Cdp::dial(&sandbox, &status).await;
        let target = cdp.pages().await.remove(0);
        // The last method brings its tab to the front.
        cdp.call(None, "Target.activateTarget", json!({ "targetId": target })).await;
        let page = cdp.attach(&target).await;
        cdp.evaluate(&page, "location.href = 'http://localhost/empty'").await;
        cdp.until(&page, "location.href + document.readyState", &json!("http://localhost/emptycomplete")).await;
        cdp.evaluate(&page, "localStorage.clear()").await;
        cdp.call(
            Some(&page),
            "Runtime.evaluate",
            json!({ "expression": SESSION, "awaitPromise": true, "returnByValue": true }),
        )
        .await["result"]["value"]
            .clone()
    };
    let before = session().await;
    let expected = of_a_client(&client, config.debugging_port).await;
    println!("{expected:#}");
    let failed = expected
        .as_object()
        .unwrap()
        .values()
        .filter(|value| value.as_str().is_some_and(|text| text.starts_with("failed")));
    assert_eq!(failed.count(), 0, "{expected:#}");

    let code = format!("{METHODS}\nreturn outcomes({{ browser, context, page }})");
    compare("a script", &expected, &result(&client, &code).await);
    assert_eq!(session().await, before, "after a script");
    compare("a custom tool", &expected, &of_a_tool(&client).await);
    assert_eq!(session().await, before, "after a custom tool");
    compare("an executor", &expected, &value(&execute_in(&client, "behind", &code).await.unwrap()));
    assert_eq!(session().await, before, "after an executor");
    let code = format!("{METHODS}\nrepl.write(JSON.stringify(await outcomes({{ browser, context, page }})))");
    compare("the REPL", &expected, &serde_json::from_str(&written(&client, &code).await).unwrap());
    written(&client, "await page.setViewportSize({ width: 900, height: 700 }); await page.close()").await;
    assert_eq!(session().await, before, "after the REPL");
}
