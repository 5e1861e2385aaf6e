//! The OpenAPI document against the running server, with a fuzzer that knows only the document.

use casement_test_support::program::{Clients, Options, Server, repository};

/// A valid request is accepted and an invalid one is refused; every response has a documented status and form; no
/// response is an error of the server.
#[test]
fn the_server_does_what_the_openapi_document_says() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let hooks = repository().join("crates/app/tests/fuzzer").canonicalize()?;

    Clients::fuzzer()?.run(&server, "crates/app/tests/fuzzer/run.py", &[&hooks.to_string_lossy()])?;

    Ok(())
}
