//! Tests with the public JavaScript client, which is unmodified except for its base URL.

use casement_test_support::program::{Clients, Shared};
use serde_json::json;

#[test]
fn calls_streams_files_pagers_and_cancelling_of_the_javascript_client_work() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let run = Clients::find()?.run(server, "crates/app/tests/scripts/kernel_node.mjs", &[&pages.url("")])?;

    let saw = json!({
        "refusals": { "unknown": [404, "not_found"], "gpu": [400, "not_supported"] },
        "pagers": ["1", "2", "3"],
        "files": { "same": true, "listed": ["one", "three", "two"], "forbidden": [400, "path_forbidden"] },
        "streams": { "said": "said\n", "seen": "console_log" },
        "cancelled": [true, true],
        "exported": [true, true],
        "gone": [404, "not_found"],
    });
    assert_eq!(run.json()?, saw);
    Ok(())
}
