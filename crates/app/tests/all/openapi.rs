//! The OpenAPI document against the running server, with a fuzzer that knows only the document.

use casement_test_support::program::{Clients, Options, Server, repository};

/// The fuzzer sends valid and invalid requests, at the bounds of each field.
#[test]
fn the_server_accepts_answers_and_refuses_what_its_document_says() -> anyhow::Result<()> {
    // The fuzzer creates hundreds of sessions and pools, and reads nothing from their browsers.
    let flags = ["--max-sessions", "4"].map(str::to_owned).to_vec();
    let server = Server::start(Options { flags, ..Options::default() })?;
    let hooks = repository().join("crates/app/tests/fuzzer").canonicalize()?;

    Clients::fuzzer()?.run(&server, "crates/app/tests/fuzzer/run.py", &[&hooks.to_string_lossy()])?;

    Ok(())
}
