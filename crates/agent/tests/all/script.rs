//! Scripts, with the real runner and a real browser.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::script::{EXECUTE, ExecuteScript, MAX_OUTPUT, MAX_WAITING, ScriptEnd};
use casement_agent_protocol::{AgentConfig, ErrorCode};
use serde_json::{Value, json};

use crate::cdp::Cdp;
use crate::sandbox::{RUNNER, Sandbox, config, gone};

pub(crate) const LONG: Duration = Duration::from_secs(300);

pub(crate) fn scripted() -> AgentConfig {
    AgentConfig { script_runner: Some(Path::new(RUNNER).to_owned()), ..config(true) }
}

pub(crate) async fn execute_for(client: &AgentClient, code: &str, timeout_ms: u64) -> Result<ScriptEnd, ClientError> {
    let requested = ExecuteScript { code: code.to_owned(), timeout_ms, within_ms: None, executor: None };
    let end = client.download(EXECUTE, &requested, LONG).await?.collect(usize::MAX).await?;
    Ok(serde_json::from_slice(&end).unwrap())
}

pub(crate) async fn execute(client: &AgentClient, code: &str) -> ScriptEnd {
    execute_for(client, code, 100_000).await.unwrap()
}

/// Returns the result of a script that succeeds.
pub(crate) async fn result(client: &AgentClient, code: &str) -> Value {
    let end = execute(client, code).await;
    assert!(end.success, "{code}: {end:?}");
    end.result.map_or(Value::Null, |result| serde_json::from_str(result.get()).unwrap())
}

/// Returns the error of a script that fails.
pub(crate) async fn error(client: &AgentClient, code: &str) -> String {
    let end = execute(client, code).await;
    assert!(!end.success, "{code}: {end:?}");
    end.error.unwrap()
}

pub(crate) async fn started(label: &str) -> (Sandbox, AgentClient) {
    let sandbox = Sandbox::start(&scripted());
    sandbox.ready(label).await;
    let client = sandbox.client().await;
    (sandbox, client)
}

#[tokio::test]
async fn a_script_drives_the_browser_and_gives_back_what_it_returns() {
    let (_sandbox, client) = started("script").await;
    let began = Instant::now();
    assert_eq!(result(&client, "return 1 + 1").await, json!(2));
    println!("the first script: {:?}", began.elapsed());
    let page = "await page.goto('data:text/html,<title>Hello</title>'); return { title: await page.title(), n: context.pages().length }";
    assert_eq!(result(&client, page).await, json!({"title": "Hello", "n": 1}));
    assert_eq!(result(&client, "return page.title()").await, json!("Hello"), "pages outlive their script");
    let types = "enum Colour { Red, Green }\nnamespace N { export const two: number = 2 }\ninterface I { a: string }\n\
                 const f = <T,>(x: T): T => x;\nreturn [Colour.Green, N.two, f<string>('x'), (5 as any) satisfies number]";
    assert_eq!(result(&client, types).await, json!([1, 2, "x", 5]));
    let end = execute(&client, "console.log('out', { a: 1 }); console.error('err')").await;
    assert!(end.success && end.result.is_none(), "{end:?}");
    assert_eq!((end.stdout.as_str(), end.stderr.as_str()), ("out { a: 1 }\n", "err\n"));
    assert_eq!(result(&client, "return browser.close()").await, Value::Null);
    assert_eq!(result(&client, "return page.title()").await, json!("Hello"), "the browser outlives its closing");
    assert_eq!(result(&client, "await page.close(); return 1").await, json!(1));
    assert_eq!(
        result(&client, "return page.url()").await,
        json!("about:blank"),
        "a page is opened where there is none"
    );
}

#[tokio::test]
async fn programs_that_scripts_start_reach_sites_by_the_sessions_proxy() {
    let (_sandbox, client) = started("sites").await;
    let code = r"
        const run = require('util').promisify(require('child_process').execFile);
        const read = 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())';
        const url = 'http://page.test/';
        const seen = [];
        for (const [program, ...words] of [['curl', '-s', url], ['python3', '-c', read, url]])
            seen.push((await run(program, words)).stdout);
        return seen.map(text => text.includes('coloured'))";
    assert_eq!(result(&client, code).await, json!([true, true]));
}

#[tokio::test]
async fn null_is_a_value_and_undefined_is_none() {
    let (_sandbox, client) = started("null").await;
    for (code, wanted) in [("return null", Some("null")), ("return undefined", None), ("1 + 1", None)] {
        let end = execute(&client, code).await;
        assert_eq!(end.result.as_ref().map(|result| result.get()), wanted, "{code}: {end:?}");
        assert!(end.success, "{code}: {end:?}");
    }
}

#[tokio::test]
async fn the_page_is_the_one_that_was_focused_last() {
    let (_sandbox, client) = started("focus").await;
    let open = "for (const n of [1, 2, 3]) await (await context.newPage()).goto(`data:text/html,<title>${n}</title>`); return 0";
    result(&client, open).await;
    let focus = "const pages = context.pages(); for (const p of pages) if (await p.title() === '2') await p.bringToFront(); return 0";
    result(&client, focus).await;
    assert_eq!(result(&client, "return page.title()").await, json!("2"));
}

#[tokio::test]
async fn errors_have_the_line_and_column_of_the_callers_code() {
    let (_sandbox, client) = started("errors").await;
    let thrown =
        error(&client, "interface A { a: number }\n\nconst a: A = { a: 1 };\n  throw new Error('mine ' + a.a)").await;
    assert_eq!(thrown, "Error: mine 1\n    at script.ts:4:9");
    let deep =
        error(&client, "enum E { X }\nfunction f(x: unknown) {\n  return (x as any).y.z;\n}\nreturn f({})").await;
    assert!(
        deep.starts_with("TypeError: ") && deep.contains("at f (script.ts:3:23)") && deep.ends_with("script.ts:5:8"),
        "{deep}"
    );
    for (code, place) in [("let a = 1;\nlet b: = 2;", "2:8"), ("foo(", "1:5"), ("return 1 +* 2", "1:11"), ("}", "1:2")]
    {
        let syntax = error(&client, code).await;
        assert!(
            syntax.starts_with("SyntaxError: ") && syntax.ends_with(&format!("script.ts:{place}")),
            "{code}: {syntax}"
        );
    }
    let playwright = error(&client, "\nawait page.click('#nowhere', { timeout: 100 })").await;
    assert!(
        playwright.starts_with("TimeoutError: page.click") && playwright.ends_with("at script.ts:2:12"),
        "{playwright}"
    );
}

#[tokio::test]
async fn what_json_cannot_hold_is_a_clear_error() {
    let (_sandbox, client) = started("values").await;
    for (code, word) in [
        ("const o: any = {}; o.o = o; return o", "circular"),
        ("return { a: [10n] }", "bigint"),
        ("return () => 1", "function"),
        ("return { a: Symbol('x') }", "symbol"),
        ("return 'x'.repeat(100 << 20)", "at most 10485760"),
        ("return { page }", "\"page\" in the returned value is a Page"),
    ] {
        let error = error(&client, code).await;
        assert!(error.contains(word), "{code}: {error}");
    }
    assert_eq!(result(&client, "return undefined").await, Value::Null);
    assert_eq!(result(&client, "return Buffer.from('ab')").await, json!({"type": "Buffer", "data": [97, 98]}));
    let long = result(&client, "return 'x'.repeat((10 << 20) - 2)").await;
    assert_eq!(long.as_str().unwrap().len(), (10 << 20) - 2);
}

#[tokio::test]
async fn an_endless_script_is_ended_and_the_next_one_runs() {
    let (sandbox, client) = started("timeout").await;
    result(&client, "return 1").await;
    let end = execute_for(&client, "console.log('so far'); while (true) {}", 10_000).await.unwrap();
    assert_eq!(end.error.as_deref(), Some("timed out after 10 s"));
    assert_eq!(end.stdout, "so far\n", "what it printed is kept");
    assert_eq!(result(&client, "return 2").await, json!(2));
    let end = execute_for(&client, "await new Promise(() => {})", 1000).await.unwrap();
    assert_eq!(end.error.as_deref(), Some("timed out after 1 s"));
    assert!(sandbox.processes("--user-data-dir").len() > 1, "the browser lives");
}

#[tokio::test]
async fn a_page_that_a_script_left_in_a_loop_is_freed_from_it() {
    let (_sandbox, client) = started("page loop").await;
    result(&client, "return 1").await;
    let end = execute_for(&client, "return await page.evaluate(() => { while (true) {} })", 10_000).await.unwrap();
    assert_eq!(end.error.as_deref(), Some("timed out after 10 s"));
    assert_eq!(result(&client, "return await page.evaluate(() => 6 * 7)").await, json!(42));
}

#[tokio::test]
async fn a_crashed_script_is_reported() {
    let (sandbox, client) = started("hostile").await;
    for (code, wanted) in [
        ("process.exit(3)", "the script ended its process with exit code 3"),
        ("process.abort()", "the script's process ended by signal"),
        ("process.kill(process.pid, 'SIGKILL')", "the script's process ended by signal 9"),
        (
            "Promise.reject(new Error('nobody')); await page.waitForTimeout(5000)",
            "Unhandled rejection: Error: nobody\n    at script.ts:1:16",
        ),
        (
            "setTimeout(() => { throw new Error('late') }, 1); await page.waitForTimeout(5000)",
            "Uncaught exception: Error: late",
        ),
        ("const all = []; for (;;) all.push(new Array(1e6).fill(1))", "more memory than it may have"),
        ("return Buffer.alloc(4 * 2 ** 30).length", "lloca"),
        ("const all = []; for (let n = 0; n < 40; n++) all.push(Buffer.alloc(100 << 20, 1)); return 1", "lloca"),
        ("require('fs').writeSync(0, Buffer.alloc(64, 255)); await page.waitForTimeout(5000)", "ended unexpectedly"),
    ] {
        let error = error(&client, code).await;
        assert!(error.contains(wanted), "{code}: {error}");
        assert_eq!(result(&client, "return 7").await, json!(7), "after {code}");
    }
    // The bomb's shells must not outlive their script.
    let bomb = "const { spawn } = require('child_process');
        const child = spawn('sh', ['-c', 'b() { b | b & }; b'], { detached: true, stdio: 'ignore' });
        child.on('error', () => {}); await new Promise(done => setTimeout(done, 1500)); return 'boom'";
    let end = execute_for(&client, bomb, 3000).await.unwrap();
    println!("a fork bomb ends so: {end:?}");
    assert_eq!(result(&client, "return 8").await, json!(8));
    gone(&sandbox, "b() { b").await;
    assert!(sandbox.processes("--user-data-dir").len() > 1, "the browser lives");
}

#[tokio::test]
async fn scripts_run_in_order_and_too_many_are_refused() {
    let (sandbox, client) = started("queue").await;
    let client = Arc::new(client);
    let begin = |code: String| {
        let client = Arc::clone(&client);
        tokio::spawn(async move { execute(&client, &code).await })
    };
    result(&client, "return 1").await;
    // The script sets the title of its page when it has begun, and continues when the test changes the title.
    let first = "await page.goto('http://localhost/empty'); await page.evaluate(() => { document.title = 'begun' });
        await page.waitForFunction(() => document.title === 'go on', null, { timeout: 0, polling: 20 }); return Date.now()";
    let first = begin(first.to_owned());
    let mut cdp = Cdp::dial(&sandbox, &client.status().await.unwrap()).await;
    let target = cdp.pages().await.remove(0);
    let page = cdp.attach(&target).await;
    cdp.until(&page, "document.title", &json!("begun")).await;
    let mut waiting = Vec::new();
    for n in 0..MAX_WAITING {
        waiting.push(begin(format!("console.log({n}); return [{n}, Date.now()]")));
        // Requests on separate connections may be read in any order. The agent has read a request once it has answered
        // some later ones.
        for _ in 0..5 {
            client.status().await.unwrap();
        }
    }
    let refused = execute_for(&client, "return 1", 1000).await;
    assert!(matches!(&refused, Err(ClientError::Refused(body)) if body.code == ErrorCode::LimitReached), "{refused:?}");
    assert!(!first.is_finished() && waiting.iter().all(|one| !one.is_finished()));
    cdp.evaluate(&page, "document.title = 'go on'").await;
    let mut last: i64 = serde_json::from_str(first.await.unwrap().result.unwrap().get()).unwrap();
    for (n, end) in waiting.into_iter().enumerate() {
        let end = end.await.unwrap();
        let (number, at): (usize, i64) = serde_json::from_str(end.result.unwrap().get()).unwrap();
        assert_eq!((number, end.stdout), (n, format!("{n}\n")));
        assert!(at >= last, "out of order");
        last = at;
    }
}

#[tokio::test]
async fn a_page_in_a_loop_is_freed_too_when_the_caller_of_its_script_goes_away() {
    let (sandbox, client) = started("page loop, hang-up").await;
    result(&client, "return 1").await;
    let mut cdp = Cdp::dial(&sandbox, &client.status().await.unwrap()).await;
    let target = cdp.pages().await.remove(0);
    let page = cdp.attach(&target).await;
    let mut looping = Box::pin(execute(&client, "return await page.evaluate(() => { while (true) {} })"));
    let stuck = async {
        while tokio::time::timeout(Duration::from_secs(2), cdp.evaluate(&page, "1")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        end = &mut looping => panic!("it has ended: {end:?}"),
        () = stuck => {}
    }
    drop(looping);
    assert_eq!(result(&client, "return await page.evaluate(() => 6 * 7)").await, json!(42));
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_its_script() {
    let (sandbox, client) = started("hang-up").await;
    result(&client, "return 1").await;
    let running = execute(&client, "require('child_process').spawn('sleep', ['55']); await new Promise(() => {})");
    tokio::select! {
        end = running => panic!("{end:?}"),
        () = async {
            while sandbox.processes("sleep 55").is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        } => {}
    }
    let began = Instant::now();
    assert_eq!(result(&client, "return 2").await, json!(2));
    println!("the next one after {:?}", began.elapsed());
    gone(&sandbox, "sleep 55").await;
}

#[tokio::test]
async fn a_million_lines_are_cut_and_hold_nothing_up() {
    let (_sandbox, client) = started("output").await;
    let end = execute(&client, "for (let n = 0; n < 1e6; n++) console.log('line ä', n); return 1").await;
    assert!(end.success, "{:?}", end.error);
    assert!((MAX_OUTPUT - 4..=MAX_OUTPUT).contains(&end.stdout.len()), "{}", end.stdout.len());
    assert!(end.stdout.starts_with("line ä 0\n"));
    let end = execute(&client, "for (let n = 0; n < 1e5; n++) process.stdout.write(`line ${n}\n`); return 1").await;
    assert!(end.success, "{:?}", end.error);
    assert!(end.stdout.len() == MAX_OUTPUT, "{}", end.stdout.len());
    let end = execute(&client, "console.log('next')").await;
    assert_eq!((end.stdout.as_str(), end.stderr.as_str()), ("next\n", ""));
}

#[tokio::test]
async fn without_a_runner_scripts_are_not_supported() {
    let sandbox = Sandbox::start(&config(true));
    sandbox.ready("no runner").await;
    let refused = execute_for(&sandbox.client().await, "return 1", 1000).await;
    let Err(ClientError::Refused(body)) = refused else { panic!("{refused:?}") };
    assert_eq!(body.code, ErrorCode::NotSupported);
    assert!(body.message.contains("cargo xtask up"), "{}", body.message);
}

#[tokio::test]
async fn a_warm_runner_adds_a_few_milliseconds() {
    let (_sandbox, client) = started("speed").await;
    let code = "return await page.title()";
    result(&client, code).await;
    let mut times = Vec::new();
    for _ in 0..60 {
        let began = Instant::now();
        result(&client, code).await;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    println!("a script back to back: p50 {:?}, p95 {:?}", times[30], times[57]);
}
