//! The methods of Playwright in code of callers, compared with those of a client that connects by itself.

use std::collections::BTreeMap;
use std::time::Instant;

use casement_agent_protocol::client::AgentClient;
use casement_agent_protocol::process::Program;
use casement_agent_protocol::webmcp::{ADD_CUSTOM, AddTools, CustomTools};
use casement_agent_protocol::{AgentConfig, Status};
use serde_json::{Value, json};

use crate::cdp::Cdp;
use crate::executors::{execute_in, value};
use crate::process::{run, shell};
use crate::repl::written;
use crate::sandbox::{RUNNER, Sandbox, TEST_TIMEOUT};
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

/// A session whose methods are compared.
struct Compared {
    sandbox: Sandbox,
    client: AgentClient,
    status: Status,
    expected: Value,
    before: Value,
}

impl Compared {
    /// Starts a session and finds out what a client of its own gets.
    async fn start(headless: bool) -> Self {
        let config = AgentConfig { headless, ..scripted() };
        let sandbox = Sandbox::start(&config);
        let status = sandbox.ready("methods").await;
        let client = sandbox.client().await;
        let mut compared = Self { sandbox, client, status, expected: Value::Null, before: Value::Null };
        compared.before = compared.session().await;
        compared.expected = of_a_client(&compared.client, config.debugging_port).await;
        let failed = |value: &&Value| value.as_str().is_some_and(|text| text.starts_with("failed"));
        assert_eq!(compared.expected.as_object().unwrap().values().find(failed), None);
        compared
    }

    /// Returns what the session has set: as its first page sees it, and where a download of this page goes.
    async fn session(&self) -> Value {
        let mut cdp = Cdp::dial(&self.sandbox, &self.status).await;
        let target = cdp.pages().await.remove(0);
        // The last method brings its tab to the front.
        cdp.call(None, "Target.activateTarget", json!({ "targetId": target })).await;
        let page = cdp.attach(&target).await;
        cdp.evaluate(&page, "location.href = 'http://localhost/empty'").await;
        cdp.until(&page, "location.href + document.readyState", &json!("http://localhost/emptycomplete")).await;
        cdp.evaluate(&page, "localStorage.clear()").await;
        let seen = cdp.evaluate(&page, SESSION).await;
        self.shell("rm -f ~/downloads/*").await;
        cdp.evaluate(
            &page,
            "Object.assign(document.createElement('a'), { download: 'a.csv', href: 'data:text/csv,a' }).click()",
        )
        .await;
        let deadline = Instant::now() + TEST_TIMEOUT;
        while self.shell("ls ~/downloads").await != "a.csv\n" {
            assert!(Instant::now() < deadline, "the session has another download directory");
        }
        seen
    }

    async fn shell(&self, line: &str) -> String {
        String::from_utf8(run(&self.client, shell(line), 60_000).await.unwrap().stdout).unwrap()
    }

    /// Fails if results differ, if the download of a method is not in the session, or if the session has changed.
    async fn check(&self, place: &str, found: &Value) {
        let differences: BTreeMap<&String, (&Value, &Value)> = self
            .expected
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, expected)| (name, (expected, &found[name])))
            .filter(|(_, (expected, found))| expected != found)
            .collect();
        assert!(differences.is_empty(), "{place}, expected and found: {differences:#?}");
        assert_eq!(self.shell("cat ~/downloads/may.csv").await, "a,b", "the download of {place}");
        // The process of a script ends after its response, and what it has set with it.
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let after = self.session().await;
            if after == self.before {
                return;
            }
            assert!(Instant::now() < deadline, "after {place}: {after}, before: {}", self.before);
        }
    }
}

#[tokio::test]
async fn every_method_of_playwright_works_in_code_of_callers_without_a_trace() {
    let compared = Compared::start(true).await;
    let client = &compared.client;
    let code = format!("{METHODS}\nreturn outcomes({{ browser, context, page }})");
    compared.check("a script", &result(client, &code).await).await;
    compared.check("a custom tool", &of_a_tool(client).await).await;
    compared.check("an executor", &value(&execute_in(client, "behind", &code).await.unwrap())).await;
    let code = format!("{METHODS}\nrepl.write(JSON.stringify(await outcomes({{ browser, context, page }})))");
    let found = serde_json::from_str(&written(client, &code).await).unwrap();
    // Its connection stays open, and with it what its code has set.
    written(client, "await page.close()").await;
    compared.check("the REPL", &found).await;
}

#[tokio::test]
async fn every_method_of_playwright_works_with_a_display_in_front_and_behind() {
    let compared = Compared::start(false).await;
    let code = format!("{METHODS}\nreturn outcomes({{ browser, context, page }})");
    compared.check("a script", &result(&compared.client, &code).await).await;
    compared.check("an executor", &value(&execute_in(&compared.client, "behind", &code).await.unwrap())).await;
}
