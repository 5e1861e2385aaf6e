//! Tests of processes that end while they wait for a call, and of processes that never finish loading.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casement_domain::invocation::{RunFault, Runnable, Runner as _};
use serde_json::json;

use crate::calls::run;
use crate::support::{Fixture, LOCAL_PYTHON, RecordedLines, TEST_TIMEOUT, call, for_node};

/// The base URL while a program is built, and while it runs.
const BUILDING: &str = "http://127.0.0.1:1";
const RUNNING: &str = "http://127.0.0.1:2";

/// A program that ends some time after it was loaded, unless it was called, and never while it is built. It does not
/// end at once, because a call takes a moment to begin.
const LEAVES: &str = r#"
import os, threading, time
import kernel

app = kernel.App("leaver")
called = False


@app.action("stay")
def stay(context):
    global called
    called = True
    return "stayed"


def leave():
    time.sleep(5)
    if not called:
        os._exit(3)


if os.environ["KERNEL_BASE_URL"].endswith(":2"):
    threading.Thread(target=leave, daemon=True).start()
"#;

const REJECTS: &str = r#"
import Kernel from '@onkernel/sdk';

let called = false;
const app = new Kernel().app('leaver');
app.action('stay', async (context) => {
  called = true;
  return 'stayed';
});
if (process.env.KERNEL_BASE_URL.endsWith(':2'))
  setTimeout(() => called || Promise.reject(new Error('nobody waits for this')), 5000);
"#;

/// A program that loads at once while it is built, and never afterwards.
const HANGS: &str = r#"
import os, time
import kernel

app = kernel.App("hanger")
app.action("never")(lambda context: None)
if os.environ["KERNEL_BASE_URL"].endswith(":2"):
    print("hanging")
    time.sleep(600)
"#;

async fn built(fixture: &Fixture, files: &[(&str, &str)], entrypoint: &str) -> Runnable {
    let lines = Arc::new(RecordedLines::default());
    let built = fixture.build(files, entrypoint, &lines).await;
    let built = built.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    Fixture::runnable(&built, entrypoint, BUILDING)
}

/// Waits until `count` different sandboxes of calls have existed, and returns their names.
async fn until_there_were(fixture: &Fixture, count: usize) -> BTreeSet<String> {
    let (mut seen, deadline) = (BTreeSet::new(), Instant::now() + TEST_TIMEOUT);
    while seen.len() < count {
        seen.extend(fixture.sandboxes());
        assert!(Instant::now() < deadline, "only {seen:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ready_process_that_ends_is_replaced_with_growing_backoff() {
    for (files, entrypoint) in
        [(vec![LOCAL_PYTHON, ("main.py", LEAVES)], "main.py"), (for_node("main.mjs", REJECTS), "main.mjs")]
    {
        let fixture = Fixture::new();
        let mut runnable = built(&fixture, &files, entrypoint).await;
        runnable.environment.base_url = RUNNING.to_owned();
        let began = Instant::now();
        fixture.pool.keep(vec![runnable.clone()]);
        until_there_were(&fixture, 3).await;
        // The backoffs between them are two and four seconds.
        assert!(began.elapsed() >= Duration::from_secs(6), "{:?}", began.elapsed());
        for _ in 0..3 {
            let answer = run(&fixture, call(&runnable, "leaver", "stay", None), &Arc::default()).await;
            assert_eq!(answer.unwrap(), json!("stayed"), "{entrypoint}");
        }
        // A process that ended by itself leaves nothing.
        fixture.pool.keep(Vec::new());
        fixture.until_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_the_machine_do_not_fail_a_deployment() {
    let fixture = Fixture::new();
    let mut runnable = built(&fixture, &[LOCAL_PYTHON, ("main.py", HANGS)], "main.py").await;
    runnable.environment.base_url = RUNNING.to_owned();
    fixture.pool.keep(vec![runnable]);
    let replaced = async {
        let mut seen = BTreeSet::new();
        while seen.len() < 4 {
            let new: Vec<String> = fixture.sandboxes().into_iter().filter(|name| !seen.contains(name)).collect();
            if !new.is_empty() {
                seen.extend(new);
                fixture.kill_all().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        failed_deployment = fixture.pool.failed_deployment() => panic!("{failed_deployment:?}"),
        replaced = tokio::time::timeout(TEST_TIMEOUT, replaced) => replaced.expect("others are loaded"),
    }
    fixture.pool.keep(Vec::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_timeout_fails_the_call_but_not_the_deployment() {
    let mut fixture = Fixture::new();
    let mut runnable = built(&fixture, &[LOCAL_PYTHON, ("main.py", HANGS)], "main.py").await;
    runnable.environment.base_url = RUNNING.to_owned();
    fixture.config.load_seconds = 2;
    fixture.restart();
    fixture.pool.keep(vec![runnable.clone()]);
    for _ in 0..4 {
        let lines = Arc::default();
        let calling = run(&fixture, call(&runnable, "hanger", "never", None), &lines);
        let failed = tokio::select! {
            failed_deployment = fixture.pool.failed_deployment() => panic!("{failed_deployment:?}"),
            ended = calling => ended.unwrap_err(),
        };
        assert_eq!((failed.fault, failed.reason.as_str()), (RunFault::Host, "its process was not done in time"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_load_timeouts_fail_the_deployment() {
    let mut fixture = Fixture::new();
    let mut runnable = built(&fixture, &[LOCAL_PYTHON, ("main.py", HANGS)], "main.py").await;
    runnable.environment.base_url = RUNNING.to_owned();
    (fixture.config.load_seconds, fixture.config.give_up_seconds) = (1, 3);
    fixture.restart();
    fixture.pool.keep(vec![runnable.clone()]);
    let failed_deployment =
        tokio::time::timeout(TEST_TIMEOUT, fixture.pool.failed_deployment()).await.expect("it is given up");
    assert_eq!(
        (failed_deployment.deployment, failed_deployment.reason.as_str()),
        (runnable.deployment, "its process was not done in time")
    );
    fixture.until_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_surrounding_blanks_can_be_called() {
    let python =
        "import kernel\napp = kernel.App(' shop ')\n@app.action('\\tbuy it ')\ndef buy(context):\n    return 1\n";
    let node =
        "import Kernel from '@onkernel/sdk';\nnew Kernel().app(' shop ').action('\\tbuy it ', async (context) => 1);\n";
    let fixture = Fixture::new();
    for (files, entrypoint) in
        [(vec![LOCAL_PYTHON, ("main.py", python)], "main.py"), (for_node("main.mjs", node), "main.mjs")]
    {
        let runnable = built(&fixture, &files, entrypoint).await;
        let answer = run(&fixture, call(&runnable, "shop", "buy it", None), &Arc::default()).await;
        assert_eq!(answer.unwrap(), json!(1), "{entrypoint}");
        let failed = run(&fixture, call(&runnable, "shop", "buy", None), &Arc::default()).await.unwrap_err();
        assert!(failed.reason.contains("registers no action buy of an app"), "{failed}");
    }
}
