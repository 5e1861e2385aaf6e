//! Tests with the public JavaScript client, which is unmodified except for its base URL.

use casement_test_support::program::{Clients, Options, Pages, Server, Shared, repository, until};
use serde_json::json;

use super::connect_server::{ConnectServer, TOKEN};
use super::login_site::Site;
use super::programs::TEST_TIMEOUT;

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

#[test]
fn every_method_of_the_javascript_client_works() -> anyhow::Result<()> {
    let store = ConnectServer::start(&[("Shop", "https://shop.example/login", ["me", "s3cr3t-shop", ""])])?;
    let pages = Pages::start()?;
    let site = Site::new(&pages, "shop-node");
    let flags = vec![format!("--credential-provider-allow={}", store.address)];
    let server = Server::start(Options { flags, ..Options::reaching(&pages) })?;

    let framework = repository().join("crates/runner/tests/all/apps/kernel.py").display().to_string();
    let arguments = [&pages.url(""), &site.url("home"), &store.url(), TOKEN, &framework];
    let run = Clients::find()?.run(&server, "crates/app/tests/scripts/kernel_methods.mjs", &arguments)?;

    assert_eq!(run.json()?, json!({}), "the methods with another answer than expected");
    until("the processes of its app are gone", TEST_TIMEOUT, || {
        let left = server.processes().iter().filter(|one| one.argv.iter().any(|word| word == "inside")).count();
        (left == 0).then_some(())
    })
}
