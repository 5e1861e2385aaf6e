//! The REPL, with the real runner and a real browser.

use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::repl::{Channel, Content, EVALUATE, EvaluateCode, Evaluation, MAX_TEXT};
use casement_agent_protocol::{AgentConfig, ErrorCode};

use crate::sandbox::{Sandbox, config, gone};
use crate::script::{LONG, execute, started};

pub(crate) async fn request(
    client: &AgentClient,
    code: &str,
    reset: bool,
    timeout_ms: u64,
) -> Result<Evaluation, ClientError> {
    let requested = EvaluateCode { code: code.to_owned(), reset, timeout_ms, within_ms: None };
    let end = client.download(EVALUATE, &requested, LONG).await?.collect(usize::MAX).await?;
    Ok(serde_json::from_slice(&end).unwrap())
}

async fn evaluate(client: &AgentClient, code: &str) -> Evaluation {
    request(client, code, false, 100_000).await.unwrap()
}

/// Returns what code writes that succeeds.
pub(crate) async fn written(client: &AgentClient, code: &str) -> String {
    let evaluation = evaluate(client, code).await;
    assert!(evaluation.success, "{code}: {evaluation:?}");
    evaluation.content.iter().map(text).collect()
}

fn text(content: &Content) -> &str {
    match content {
        Content::Text { text, .. } => text,
        Content::Image { .. } => panic!("{content:?}"),
    }
}

#[tokio::test]
async fn variables_functions_and_imports_persist_between_calls() {
    let (_sandbox, client) = started("repl").await;
    let first = evaluate(
        &client,
        "const x: number = 1; let list = [await Promise.resolve(2)]; function f() { return x + list[0] }",
    )
    .await;
    assert!(first.success && first.content.is_empty() && !first.terminated, "{first:?}");
    assert_eq!(written(&client, "list.push(3); repl.write(f(), list)").await, "3 [ 2, 3 ]");
    assert_eq!(written(&client, "const x = 5; repl.write(x, f())").await, "5 7", "names may be declared again");
    let import = "const { basename } = await import('node:path'); enum E { A = 7 }; class C { y = 1 }";
    assert_eq!(written(&client, import).await, "");
    assert_eq!(
        written(&client, "repl.write(basename('/a/b'), E.A, new C().y, typeof require('fs').readFileSync)").await,
        "b 7 1 function"
    );
    assert_eq!(written(&client, "41 + 1; Promise.resolve(1)").await, "", "values of expressions are not shown");
    let pages = "await page.goto('data:text/html,<title>Hello</title>'); const other = await context.newPage(); repl.write(await page.title())";
    assert_eq!(written(&client, pages).await, "Hello");
    assert_eq!(written(&client, "await other.close(); repl.write(context.pages().length)").await, "1");
    let last = evaluate(&client, "").await;
    assert_eq!(last.repl_id, first.repl_id);
    assert_eq!(last.repl_id.len(), 24);
}

#[tokio::test]
async fn output_comes_in_order_with_its_channel_and_pictures() {
    let (_sandbox, client) = started("repl output").await;
    let code = "console.log('a', { b: 1 }); console.error('c'); repl.write('d'); process.stdout.write('e');
        await page.goto('data:text/html,<h1>x</h1>'); await repl.emitImage(page.screenshot()); repl.write('f')";
    let evaluation = evaluate(&client, code).await;
    let channels: Vec<_> = evaluation
        .content
        .iter()
        .map(|content| match content {
            Content::Text { channel, text } => (Some(*channel), text.as_str()),
            Content::Image { mime_type, data_b64 } => {
                assert!(data_b64.starts_with("iVBORw0KGgo"), "{}", &data_b64[..20]);
                (None, mime_type.as_str())
            }
        })
        .collect();
    let expected = [
        (Some(Channel::Stdout), "a { b: 1 }\n"),
        (Some(Channel::Stderr), "c\n"),
        (Some(Channel::Write), "d"),
        (Some(Channel::Stdout), "e"),
        (None, "image/png"),
        (Some(Channel::Write), "f"),
    ];
    assert_eq!(channels, expected, "{evaluation:?}");
    assert!(!evaluation.content_truncated);
    let help = written(&client, "repl.help()").await;
    assert!(help.contains("repl.emitImage") && help.contains("newCDPSession"), "{help}");
    let long = evaluate(&client, "for (let n = 0; n < 1e5; n++) console.log('line ä', n); repl.write('end')").await;
    let bytes: usize = long.content.iter().map(|content| text(content).len()).sum();
    assert!(long.success && long.content_truncated && bytes <= MAX_TEXT, "{bytes}");
    let picture = evaluate(&client, "repl.emitImage(Buffer.alloc(7 << 20), 'image/png')").await;
    assert!(picture.success && picture.content_truncated && picture.content.is_empty());
    let wrong = evaluate(&client, "repl.emitImage('no picture')").await;
    assert!(wrong.error.unwrap().contains("media type"));
}

#[tokio::test]
async fn errors_have_the_lines_of_the_call_that_they_come_from_and_keep_the_variables() {
    let (_sandbox, client) = started("repl errors").await;
    written(&client, "interface A { a: number }\nconst one = 1;\nfunction fails() {\n  throw new RangeError('no')\n}")
        .await;
    let failed = evaluate(&client, "\n  fails()").await;
    assert!(!failed.success && !failed.terminated);
    assert_eq!(failed.error.as_deref(), Some("RangeError: no"));
    let stack = failed.stack.unwrap();
    assert!(stack.contains("at fails repl-1.ts:4:9") && stack.contains("repl-2.ts:2:3"), "{stack}");
    let thrown = evaluate(&client, "throw { a: 5 }").await;
    assert_eq!((thrown.error.as_deref(), thrown.stack), (Some("thrown: { a: 5 }"), None));
    let syntax = evaluate(&client, "let a = 1;\nlet b: = 2;").await;
    assert!(syntax.error.unwrap().starts_with("SyntaxError: ") && syntax.stack.unwrap().ends_with("repl-4.ts:2:8"));
    let import = evaluate(&client, "import fs from 'fs'").await;
    assert!(import.error.unwrap().contains("use await import"));
    let rejected = "Promise.reject(new Error('nobody')); await page.waitForTimeout(100)";
    let rejected = evaluate(&client, rejected).await;
    assert!(
        rejected.success && text(&rejected.content[0]).starts_with("Unhandled rejection: Error: nobody"),
        "{rejected:?}"
    );
    assert_eq!(written(&client, "repl.write(one)").await, "1");
}

#[tokio::test]
async fn a_timeout_a_crash_and_a_reset_begin_a_fresh_repl() {
    let (sandbox, client) = started("repl ends").await;
    let mut id = evaluate(&client, "let left = 1").await.repl_id;
    let looping = "console.log('so far'); await page.waitForTimeout(200); while (true) {}";
    for (code, timeout_ms, error) in [
        (looping, 3000, "timed out after 3 s"),
        ("process.exit(3)", 100_000, "the script ended its process with exit code 3"),
        (
            "require('fs').writeSync(0, Buffer.alloc(64, 255)); await page.waitForTimeout(5000)",
            100_000,
            "ended unexpectedly",
        ),
        ("const all = []; for (;;) all.push(new Array(1e6).fill(1))", 100_000, "more memory than it may have"),
    ] {
        let ended = request(&client, code, false, timeout_ms).await.unwrap();
        assert!(ended.terminated && !ended.success && ended.repl_id == id, "{ended:?}");
        assert!(ended.error.unwrap().contains(error));
        if code == looping {
            assert_eq!(ended.content.iter().map(text).collect::<String>(), "so far\n");
        }
        let fresh = evaluate(&client, "repl.write(typeof left); var left = 1").await;
        assert_eq!(text(&fresh.content[0]), "undefined", "after {code}");
        assert_ne!(fresh.repl_id, id);
        id = fresh.repl_id;
    }
    let reset = request(&client, "repl.write(typeof left)", true, 100_000).await.unwrap();
    assert_eq!((text(&reset.content[0]), reset.terminated), ("undefined", false));
    assert_ne!(reset.repl_id, id);
    let empty = request(&client, "", true, 100_000).await.unwrap();
    assert!(empty.success && empty.repl_id != reset.repl_id);

    let running = evaluate(&client, "require('child_process').spawn('sleep', ['77']); await new Promise(() => {})");
    tokio::select! {
        end = running => panic!("{end:?}"),
        () = async {
            while sandbox.processes("sleep 77").is_empty() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        } => {}
    }
    gone(&sandbox, "sleep 77").await;
    assert_ne!(evaluate(&client, "1").await.repl_id, empty.repl_id, "a caller that goes away ends it");
}

#[tokio::test]
async fn scripts_run_beside_a_repl_that_is_connected() {
    let (_sandbox, client) = started("repl and scripts").await;
    written(&client, "await page.goto('data:text/html,<title>of the repl</title>')").await;
    for _ in 0..3 {
        let end = execute(&client, "return page.title()").await;
        assert_eq!(end.result.unwrap().get(), "\"of the repl\"");
        assert_eq!(written(&client, "repl.write(await page.title())").await, "of the repl");
    }
}

#[tokio::test]
async fn without_a_runner_the_repl_is_not_supported() {
    let sandbox = Sandbox::start(&AgentConfig { script_runner: None, ..config(true) });
    sandbox.ready("no runner").await;
    let refused = request(&sandbox.client().await, "1", false, 1000).await;
    assert!(matches!(&refused, Err(ClientError::Refused(body)) if body.code == ErrorCode::NotSupported), "{refused:?}");
}
