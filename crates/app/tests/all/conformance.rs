//! Tests every method of the unmodified public Python client that works inside a session.

use casement_test_support::program::{Clients, Shared};
use serde_json::json;

#[test]
fn every_method_of_the_python_client_that_works_inside_a_session_works() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    for clients in Clients::of_both_versions()? {
        let saw = clients.run(server, "crates/app/tests/scripts/conformance.py", &[&pages.url("/")])?.json()?;
        println!("{} of {} methods work", saw["work"], saw["methods"]);
        assert_eq!(saw["failed"], json!({}), "newest: {}: {saw}", clients.is_newest());
        assert!(saw["methods"].as_u64() > Some(40), "the client was looked at: {saw}");
    }
    Ok(())
}
