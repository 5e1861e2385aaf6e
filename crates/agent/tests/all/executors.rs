//! Named executors, with the real runner and a real browser.

use std::sync::Arc;
use std::time::Duration;

use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::client::{AgentClient, ClientError};
use casement_agent_protocol::script::{
    DELETE_EXECUTOR, DeleteExecutor, EXECUTE_IN, ExecuteScript, Executor, ExecutorList, LIST_EXECUTORS, ScriptEnd,
};
use serde_json::{Value, json};

use crate::script::*;

pub(crate) async fn execute_in(client: &AgentClient, executor: &str, code: &str) -> Result<ScriptEnd, ClientError> {
    let (code, executor) = (code.to_owned(), Some(executor.to_owned()));
    let requested = ExecuteScript { code, timeout_ms: 100_000, within_ms: None, executor };
    let end = client.download(EXECUTE_IN, &requested, LONG).await?.collect(usize::MAX).await?;
    Ok(serde_json::from_slice(&end).unwrap())
}

pub(crate) fn value(end: &ScriptEnd) -> Value {
    assert!(end.success, "{end:?}");
    end.result.as_ref().map_or(Value::Null, |result| serde_json::from_str(result.get()).unwrap())
}

pub(crate) async fn executors(client: &AgentClient) -> Vec<Executor> {
    client.call::<ExecutorList>(LIST_EXECUTORS, &(), LONG).await.unwrap().executors
}

async fn delete(client: &AgentClient, name: Option<&str>, close_tab: bool) -> Result<(), ClientError> {
    let request = DeleteExecutor { name: name.map(str::to_owned), close_tab };
    client.command(DELETE_EXECUTOR, &request, LONG).await
}

#[tokio::test]
async fn each_named_executor_has_a_tab_of_its_own_that_outlives_its_scripts() {
    let (_sandbox, client) = started("executor tabs").await;
    let front = execute(&client, "await page.goto('data:text/html,<title>front</title>'); return 1").await;
    let front = front.tab.unwrap();
    assert!(!front.created);
    let open = |title: &str| format!("await page.goto('data:text/html,<title>{title}</title>'); return page.title()");
    let a = execute_in(&client, "a", &open("a")).await.unwrap();
    let b = execute_in(&client, "b", &open("b")).await.unwrap();
    assert_eq!((value(&a), value(&b)), (json!("a"), json!("b")));
    let (a, b) = (a.tab.unwrap(), b.tab.unwrap());
    assert!(a.created && b.created && a.target_id != b.target_id && a.target_id != front.target_id);

    let again = execute_in(&client, "a", "return page.title()").await.unwrap();
    assert_eq!((value(&again), again.tab.as_ref().unwrap().created), (json!("a"), false));
    assert_eq!(again.tab.unwrap().target_id, a.target_id);
    assert_eq!(result(&client, "return page.title()").await, json!("front"), "the tabs open behind the page in front");

    let closed = execute_in(&client, "a", "await page.close(); return 1").await.unwrap();
    assert_eq!(value(&closed), json!(1));
    let anew = execute_in(&client, "a", "return page.url()").await.unwrap();
    assert_eq!((value(&anew), anew.tab.as_ref().unwrap().created), (json!("about:blank"), true));
    let listed = executors(&client).await;
    let names: Vec<_> = listed.iter().map(|executor| executor.name.as_deref()).collect();
    assert_eq!(names, [None, Some("a"), Some("b")]);
    assert!(listed.iter().all(|executor| !executor.busy && executor.last_used_at_ms >= Some(executor.created_at_ms)));
    assert_eq!((&listed[0].target_id, &listed[0].url), (&None, &None), "the default executor owns no tab");
    assert_eq!(listed[1].target_id, Some(anew.tab.unwrap().target_id));
    assert_eq!(listed[2].url.as_deref(), Some("data:text/html,<title>b</title>"));
}

#[tokio::test]
async fn scripts_of_different_executors_run_at_the_same_time() {
    let (_sandbox, client) = started("parallel").await;
    let client = Arc::new(client);
    result(&client, "await page.goto('http://localhost/empty'); return 1").await;
    let names = ["a", "b", "c"];
    // Each script waits for the marks of all others, so that none ends unless all run.
    let code = |name: &str| {
        format!(
            "await page.goto('http://localhost/empty');
             await page.evaluate(name => localStorage.setItem(name, '1'), {name:?});
             await page.waitForFunction(() => ['a', 'b', 'c'].every(name => localStorage.getItem(name)), null, {{ polling: 50, timeout: 0 }});
             return {name:?}"
        )
    };
    let running: Vec<_> = names
        .map(|name| {
            let (client, code) = (Arc::clone(&client), code(name));
            tokio::spawn(async move { execute_in(&client, name, &code).await.unwrap() })
        })
        .into();
    for (name, end) in names.iter().zip(running) {
        assert_eq!(value(&end.await.unwrap()), json!(name));
    }
}

#[tokio::test]
async fn scripts_of_one_executor_run_one_after_the_other() {
    let (_sandbox, client) = started("serial").await;
    let client = Arc::new(client);
    let code = "const begun = Date.now(); await page.waitForTimeout(300); return [begun, Date.now()]";
    let running: Vec<_> = (0..3)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { execute_in(&client, "one", code).await.unwrap() })
        })
        .collect();
    let mut times: Vec<(u64, u64)> = Vec::new();
    for end in running {
        times.push(serde_json::from_value(value(&end.await.unwrap())).unwrap());
    }
    times.sort_unstable();
    assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{times:?}");
}

#[tokio::test]
async fn a_ninth_named_executor_is_refused_until_one_is_deleted() {
    let (_sandbox, client) = started("eight").await;
    for n in 0..8 {
        assert_eq!(value(&execute_in(&client, &format!("e{n}"), "return 1").await.unwrap()), json!(1));
    }
    let refused = execute_in(&client, "e8", "return 1").await;
    let Err(ClientError::Refused(body)) = refused else { panic!("{refused:?}") };
    assert_eq!(body.code, ErrorCode::InvalidState);
    assert!(body.message.ends_with("e0, e1, e2, e3, e4, e5, e6, e7"), "{}", body.message);
    assert_eq!(result(&client, "return context.pages().length").await, json!(9), "the refused one opened no tab");

    delete(&client, Some("e3"), true).await.unwrap();
    assert_eq!(value(&execute_in(&client, "e8", "return context.pages().length").await.unwrap()), json!(9));
    delete(&client, Some("e4"), false).await.unwrap();
    assert_eq!(result(&client, "return context.pages().length").await, json!(9), "its tab stays open");
    let refused = delete(&client, Some("e3"), true).await;
    assert!(matches!(&refused, Err(ClientError::Refused(body)) if body.code == ErrorCode::Missing), "{refused:?}");
}

#[tokio::test]
async fn deleting_an_executor_fails_its_running_and_waiting_scripts() {
    let (sandbox, client) = started("deleting").await;
    let client = Arc::new(client);
    let begin = |executor: Option<&'static str>, code: &'static str| {
        let client = Arc::clone(&client);
        tokio::spawn(async move {
            match executor {
                Some(name) => execute_in(&client, name, code).await.unwrap(),
                None => execute(&client, code).await,
            }
        })
    };
    let sleep = "console.log('begun'); require('child_process').spawn('sleep', ['66']); await new Promise(() => {})";
    let until_sleeping = async || {
        while sandbox.processes("sleep 66").is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let first = begin(Some("a"), sleep);
    until_sleeping().await;
    let waiting = begin(Some("a"), "return 2");
    for _ in 0..5 {
        client.status().await.unwrap();
    }
    delete(&client, Some("a"), true).await.unwrap();
    let first = first.await.unwrap();
    assert_eq!((first.error.as_deref(), first.stdout.as_str()), (Some("the executor was deleted"), "begun\n"));
    assert_eq!(waiting.await.unwrap().error.as_deref(), Some("the executor was deleted"));
    crate::sandbox::gone(&sandbox, "sleep 66").await;

    let first = begin(None, sleep);
    until_sleeping().await;
    let waiting = begin(None, "return 2");
    for _ in 0..5 {
        client.status().await.unwrap();
    }
    delete(&client, None, true).await.unwrap();
    assert_eq!(first.await.unwrap().error.as_deref(), Some("the executor was restarted"));
    assert_eq!(value(&waiting.await.unwrap()), json!(2), "waiting scripts of the default executor run");
}

#[tokio::test]
async fn a_page_in_a_loop_or_a_crash_in_one_executor_leaves_the_others_working() {
    let (_sandbox, client) = started("isolation").await;
    let looping = ExecuteScript {
        code: "return await page.evaluate(() => { while (true) {} })".to_owned(),
        timeout_ms: 2000,
        within_ms: None,
        executor: Some("a".to_owned()),
    };
    let end = client.download(EXECUTE_IN, &looping, LONG).await.unwrap().collect(usize::MAX).await.unwrap();
    let end: ScriptEnd = serde_json::from_slice(&end).unwrap();
    assert_eq!(end.error.as_deref(), Some("timed out after 2 s"));
    assert!(end.tab.unwrap().created, "the tab is reported although the script failed");
    assert_eq!(value(&execute_in(&client, "b", "return 1").await.unwrap()), json!(1));
    let crashed = execute_in(&client, "b", "process.exit(3)").await.unwrap();
    assert_eq!(crashed.error.as_deref(), Some("the script ended its process with exit code 3"));
    assert_eq!(value(&execute_in(&client, "a", "return await page.evaluate(() => 6 * 7)").await.unwrap()), json!(42));
}

#[tokio::test]
async fn executors_navigate_pages_of_one_site_while_others_connect() {
    let (_sandbox, client) = started("navigating").await;
    let client = Arc::new(client);
    let running: Vec<_> = ["a", "b", "c", "d"]
        .map(|name| {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                for _ in 0..4 {
                    let code = "await page.goto('http://localhost/tools/frames'); await page.reload(); return page.frames().length";
                    assert_eq!(value(&execute_in(&client, name, code).await.unwrap()), json!(2), "{name}");
                }
            })
        })
        .into();
    for end in running {
        end.await.unwrap();
    }
}
