//! Tests of scripts, with the public client and with malicious code.

use casement_test_support::program::{Clients, Options, Server, Shared};
use serde_json::{Value, json};

use super::host::{resident, server_process};

/// The additional memory that the server may use for scripts, in MiB; less than one of the refused results.
const MAX_MEMORY_MIB: u64 = 48;

#[test]
fn every_call_of_the_python_client_for_scripts_works() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/script.py", &[&pages.url("")])?;
    let saw = json!({
        "title": [true, "A form", "there\n", null],
        "types": {"x": 2},
        "error": [false, "Error: no\n    at script.ts:2:7", null],
        "syntax": "at script.ts:2:10",
        "late": [false, "timed out after 30 s", "so far\n"],
        "after": 2,
        "bounds": ["BadRequestError", "invalid_input"],
        "empty": ["BadRequestError", "invalid_input"],
        "fetch": 200,
        "together": [0, 1, 2, 3, 4, 5],
        "deleted": ["NotFoundError", "not_found"],
    });
    assert_eq!(run.json()?, saw);
    Ok(())
}

#[test]
fn the_script_example_prints_headings() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let run = Clients::find()?.run(server, "docs/examples/script.py", &[&pages.url("/form")])?;

    assert_eq!(run.stdout, "A form\n");
    Ok(())
}

#[test]
fn input_right_after_a_navigation_reaches_the_page() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let page = "<!doctype html><title>Input</title><body style='height: 100vh'><script>window.seen = [];\
        for (const kind of ['keydown', 'click']) addEventListener(kind, () => window.seen.push(kind));</script>";
    pages.put("/input-after-navigation", page);
    let code = format!(
        "const seen: number[] = [];
        for (let n = 0; n < 10; n++) {{
            await page.goto({url:?} + '?' + n);
            await page.keyboard.press('!');
            await page.mouse.click(50, 50);
            const all = page.waitForFunction(() => (window as any).seen.length >= 2, null, {{ timeout: 5000 }});
            seen.push(await all.then(() => 2, () => page.evaluate(() => (window as any).seen.length)));
        }}
        return seen",
        url = pages.url("/input-after-navigation")
    );
    for headless in [false, true] {
        let session = server.create(&json!({ "headless": headless }))?;
        let path = format!("/browsers/{}/playwright/execute", session.id());
        let answer = server.post(&path, &json!({ "code": code, "timeout_sec": 120 }))?.expect(200)?.json()?;
        assert_eq!(answer["result"], json!([2, 2, 2, 2, 2, 2, 2, 2, 2, 2]), "headless: {headless}: {answer}");
    }
    Ok(())
}

#[test]
fn a_script_reaches_neither_the_server_nor_its_host() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    let session = server.headless()?;
    let path = format!("/browsers/{}/playwright/execute", session.id());
    let (port, data) = (server.address().port(), server.data_dir());
    let code = format!(
        "const fs = require('fs');
        const reads = (path) => {{ try {{ return fs.readFileSync(path, 'utf8').length + fs.readdirSync(path).length }} catch (e: any) {{ return e.code }} }};
        const dials = await new Promise(done => require('net').connect({port}, '127.0.0.1').on('connect', () => done('open'))
            .on('error', (e: any) => done(e.code)));
        const fetched = await fetch('http://127.0.0.1:{port}/healthz').then(r => r.status, e => e.cause?.code ?? e.message);
        return [reads({data:?} + '/key'), reads('/proc/1/environ') === 'EACCES' || fs.readFileSync('/proc/1/environ', 'latin1'),
            dials, fetched, Object.values(process.env).some(value => value?.includes('csk_'))]"
    );
    let answer = server.post(&path, &json!({ "code": code }))?.expect(200)?.json()?;
    let Value::Array(seen) = &answer["result"] else { panic!("{answer}") };
    assert_eq!(seen[0], "ENOENT", "{answer}");
    assert!(!seen[1].to_string().contains("CASEMENT"), "{answer}");
    assert_eq!(seen[2], "ECONNREFUSED", "{answer}");
    assert_ne!(seen[3], 200, "{answer}");
    assert_eq!(seen[4], false, "{answer}");
    Ok(())
}

#[test]
fn executors_the_repl_and_tools_of_pages_share_the_sessions_browser() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = server.headless()?;
    let path = |operation: &str| format!("/browsers/{}/{operation}", session.id());
    let post = |operation: &str, body: Value| server.post(&path(operation), &body)?.expect(200)?.json();
    let register = "document.modelContext.registerTool({ name: 'double', description: 'doubles', \
                    inputSchema: { type: 'object' }, execute: async ({ n }) => n * 2 })";
    let open = format!(
        "await page.goto({:?}); await page.evaluate(() => {{ {register} }}); return page.title()",
        pages.url("/form")
    );
    let opened = post("playwright/execute", json!({ "code": open, "executor": "tools", "timeout_sec": 110 }))?;
    assert_eq!((&opened["result"], &opened["tab"]["created"]), (&json!("A form"), &json!(true)), "{opened}");

    let listed = server.get(&path("playwright/executors"))?.expect(200)?.json()?;
    assert_eq!(listed["executors"][0]["name"], "default", "{listed}");
    assert_eq!(listed["executors"][1]["target_id"], opened["tab"]["target_id"], "{listed}");
    let tools = server.get(&path("webmcp/tools"))?.expect(200)?.json()?;
    assert_eq!(tools["tools"][0]["tool"]["name"], "double", "{tools}");
    assert_eq!(tools["tools"][0]["source"]["page_title"], "A form", "{tools}");
    let call = json!({ "tool_ref": tools["tools"][0]["tool_ref"], "input": { "n": 21 } });
    assert_eq!(post("webmcp/invoke", call.clone())?["output"], 42);

    let first = post("repl", json!({ "code": "let tabs = context.pages().length", "timeout_sec": 110 }))?;
    let second = post("repl", json!({ "code": "repl.write(tabs)", "timeout_sec": 110 }))?;
    assert_eq!(second["content"], json!([{ "type": "text", "channel": "write", "text": "2" }]), "{second}");
    assert_eq!(second["repl_id"], first["repl_id"]);

    let names = || -> anyhow::Result<Vec<Value>> {
        let listed = server.get(&path("playwright/executors"))?.expect(200)?.json()?;
        Ok(listed["executors"].as_array().into_iter().flatten().map(|executor| executor["name"].clone()).collect())
    };
    let open = json!({ "code": "await page.setContent('<title>kept')", "executor": "kept", "timeout_sec": 110 });
    post("playwright/execute", open)?;
    assert_eq!(names()?, ["default", "tools", "kept"]);
    server.delete(&path("playwright/executors/kept?close_tab=false"))?.expect(204)?;
    server.delete(&path("playwright/executors/tools"))?.expect(204)?;
    assert_eq!(names()?, ["default"]);
    assert_eq!(server.post(&path("webmcp/invoke"), &call)?.expect(404)?.json()?["code"], "not_found");
    let titles = "return (await Promise.all(context.pages().map(page => page.title()))).includes('kept')";
    assert_eq!(post("playwright/execute", json!({ "code": titles, "timeout_sec": 110 }))?["result"], true);
    Ok(())
}

#[test]
fn a_script_that_breaks_its_process_affects_neither_session_nor_server() -> anyhow::Result<()> {
    // A server of its own, so that its memory shows only this test.
    let server = &Server::start(Options::default())?;
    let session = server.headless()?;
    let path = format!("/browsers/{}/playwright/execute", session.id());
    let within = |seconds: u64, code: &str| {
        server.post(&path, &json!({ "code": code, "timeout_sec": seconds }))?.expect(200)?.json()
    };
    // A working script may be slow.
    let execute = |code: &str| within(110, code);
    assert_eq!(execute("return 'x'.repeat(9 << 20)")?["success"], true, "as long as a result may be");
    let pid = server_process(server)?.pid;
    let before = resident(pid)?;
    for code in [
        "process.exit(0)",
        "return 'x'.repeat(100 << 20)",
        "const all = []; for (;;) all.push(new Array(1e6).fill(1))",
        "return Buffer.alloc(4 * 2 ** 30, 1)",
        "for (;;) require('child_process').spawn('sleep', ['60'], { detached: true }).on('error', () => {})",
        "const o: any = {}; return o.o = o",
        "return 1n",
    ] {
        let end = within(20, code)?;
        assert_eq!((&end["success"], end["error"].is_string()), (&json!(false), true), "{code}: {end}");
        assert_eq!(execute("return await page.title()")?["success"], true, "after {code}");
    }
    let flood = execute("for (let n = 0; n < 1e6; n++) console.log('line', n)")?;
    assert_eq!(flood["stdout"].as_str().map(str::len), Some(1 << 20));
    let after = resident(pid)?;
    assert!(after < before + MAX_MEMORY_MIB, "the server: {before} MiB before, {after} MiB after");
    Ok(())
}
