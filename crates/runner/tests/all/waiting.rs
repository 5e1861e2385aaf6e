//! Processes that wait for a call: what becomes of those that will not, and of those that never come to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casement_domain::invocation::{RunFault, Runnable, Runner as _};
use serde_json::json;

use crate::calls::run;
use crate::support::{Heard, LOCAL_PYTHON, LONG, Place, call, for_node};

/// Where programs are when they are loaded for the first time.
const BUILDING: &str = "http://127.0.0.1:1";
const RUNNING: &str = "http://127.0.0.1:2";

/// Ends some time after it was loaded, unless it was called; never while it is built. A call that is given to it takes a moment
/// to begin, so that it does not leave at once.
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

/// Is loaded in no time while it is built, and never after that.
const HANGS: &str = r#"
import os, time
import kernel

app = kernel.App("hanger")
app.action("never")(lambda context: None)
if os.environ["KERNEL_BASE_URL"].endswith(":2"):
    print("hanging")
    time.sleep(600)
"#;

async fn built(place: &Place, files: &[(&str, &str)], entrypoint: &str) -> Runnable {
    let lines = Arc::new(Heard::default());
    let built = place.build(files, entrypoint, &lines).await;
    let built = built.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    Place::runnable(&built, entrypoint, BUILDING)
}

/// Waits until so many sandboxes of calls were there, each by its name.
async fn until_there_were(place: &Place, count: usize) -> BTreeSet<String> {
    let (mut seen, deadline) = (BTreeSet::new(), Instant::now() + LONG);
    while seen.len() < count {
        seen.extend(place.sandboxes());
        assert!(Instant::now() < deadline, "only {seen:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_while_it_waits_costs_no_call_and_is_replaced_ever_more_slowly() {
    for (files, entrypoint) in
        [(vec![LOCAL_PYTHON, ("main.py", LEAVES)], "main.py"), (for_node("main.mjs", REJECTS), "main.mjs")]
    {
        let place = Place::new();
        let mut runnable = built(&place, &files, entrypoint).await;
        runnable.environment.base_url = RUNNING.to_owned();
        let began = Instant::now();
        place.crew.keep(vec![runnable.clone()]);
        until_there_were(&place, 3).await;
        // Rests of two and four seconds lie in between.
        assert!(began.elapsed() >= Duration::from_secs(6), "{:?}", began.elapsed());
        for _ in 0..3 {
            let answer = run(&place, call(&runnable, "leaver", "stay", None), &Arc::default()).await;
            assert_eq!(answer.unwrap(), json!("stayed"), "{entrypoint}");
        }
        // What ended by itself leaves nothing.
        place.crew.keep(Vec::new());
        place.until_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_not_given_up_for_what_its_machine_does() {
    let place = Place::new();
    let mut runnable = built(&place, &[LOCAL_PYTHON, ("main.py", HANGS)], "main.py").await;
    runnable.environment.base_url = RUNNING.to_owned();
    place.crew.keep(vec![runnable]);
    let replaced = async {
        let mut seen = BTreeSet::new();
        while seen.len() < 4 {
            let new: Vec<String> = place.sandboxes().into_iter().filter(|name| !seen.contains(name)).collect();
            if !new.is_empty() {
                seen.extend(new);
                place.kill_all().await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        failed_deployment = place.crew.failed_deployment() => panic!("{failed_deployment:?}"),
        replaced = tokio::time::timeout(LONG, replaced) => replaced.expect("others are loaded"),
    }
    place.crew.keep(Vec::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_loaded_in_time_says_so_to_its_callers_and_is_not_given_up() {
    let mut place = Place::new();
    let mut runnable = built(&place, &[LOCAL_PYTHON, ("main.py", HANGS)], "main.py").await;
    runnable.environment.base_url = RUNNING.to_owned();
    place.config.load_seconds = 2;
    place.again();
    place.crew.keep(vec![runnable.clone()]);
    for _ in 0..4 {
        let lines = Arc::default();
        let calling = run(&place, call(&runnable, "hanger", "never", None), &lines);
        let failed = tokio::select! {
            failed_deployment = place.crew.failed_deployment() => panic!("{failed_deployment:?}"),
            ended = calling => ended.unwrap_err(),
        };
        assert_eq!((failed.fault, failed.reason.as_str()), (RunFault::Host, "its process was not done in time"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_never_loaded_in_time_is_given_up_in_the_end_with_the_reason() {
    let mut place = Place::new();
    let mut runnable = built(&place, &[LOCAL_PYTHON, ("main.py", HANGS)], "main.py").await;
    runnable.environment.base_url = RUNNING.to_owned();
    (place.config.load_seconds, place.config.give_up_seconds) = (1, 3);
    place.again();
    place.crew.keep(vec![runnable.clone()]);
    let failed_deployment = tokio::time::timeout(LONG, place.crew.failed_deployment()).await.expect("it is given up");
    assert_eq!(
        (failed_deployment.deployment, failed_deployment.reason.as_str()),
        (runnable.deployment, "its process was not done in time")
    );
    place.until_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_blanks_around_them_are_called_as_they_are_known() {
    let python =
        "import kernel\napp = kernel.App(' shop ')\n@app.action('\\tbuy it ')\ndef buy(context):\n    return 1\n";
    let node =
        "import Kernel from '@onkernel/sdk';\nnew Kernel().app(' shop ').action('\\tbuy it ', async (context) => 1);\n";
    let place = Place::new();
    for (files, entrypoint) in
        [(vec![LOCAL_PYTHON, ("main.py", python)], "main.py"), (for_node("main.mjs", node), "main.mjs")]
    {
        let runnable = built(&place, &files, entrypoint).await;
        let answer = run(&place, call(&runnable, "shop", "buy it", None), &Arc::default()).await;
        assert_eq!(answer.unwrap(), json!(1), "{entrypoint}");
        let failed = run(&place, call(&runnable, "shop", "buy", None), &Arc::default()).await.unwrap_err();
        assert!(failed.reason.contains("registers no action buy of an app"), "{failed}");
    }
}
