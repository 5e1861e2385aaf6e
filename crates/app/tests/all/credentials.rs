//! Tests of credentials with the public Python client. Sealed values are stored nowhere in clear text.

use casement_test_support::program::{Clients, Options, Server};
use serde_json::json;

use super::host::sql;

#[test]
fn every_call_of_the_python_client_for_credentials_works_and_no_value_is_exposed() -> anyhow::Result<()> {
    Clients::of_both_versions()?.iter().try_for_each(every_call_works_and_no_value_is_exposed)
}

fn every_call_works_and_no_value_is_exposed(clients: &Clients) -> anyhow::Result<()> {
    let variables = vec![("CASEMENT_LOG".to_owned(), "trace,tokio_postgres=info".to_owned())];
    let server = Server::start(Options { variables, ..Options::default() })?;

    let run = clients.run(&server, "crates/app/tests/scripts/kernel_credentials.py", &[])?;

    let saw = json!({
        "made": [["password", "username"], true, true, "google", 6],
        "code": [6, true],
        "changed": [["password", "pin"], false, null, null],
        "read": "Shop",
        "listed": [["Shop", true, false]],
        "taken": ["ConflictError", "name_conflict"],
        "no secret": ["NotFoundError", "not_found"],
        "gone": ["NotFoundError", "not_found"],
        "called": "6 of 6",
    });
    assert_eq!(run.json()?, saw);

    let dump = sql(
        &server,
        "select string_agg(t, ' ') from (select credentials::text as t from credentials
         union all select encode(sealed, 'escape') from credential_values
         union all select encode(sealed_totp, 'escape') from credentials where sealed_totp is not null
         union all select audit_records::text from audit_records) all_rows",
    )?;
    assert!(dump.contains("kept.example"), "{dump}");
    for secret in ["hunter2", "GEZDGNBV"] {
        assert!(!dump.contains(secret) && !server.log().contains(secret), "{secret} stands in clear");
    }

    let rotated = server.command(&["secrets", "rotate"]).output()?;
    assert!(rotated.status.success(), "{}", String::from_utf8_lossy(&rotated.stderr));
    assert!(String::from_utf8_lossy(&rotated.stdout).contains("resealed: 3"), "{rotated:?}");
    let code = server.get("/credentials/kept/totp-code")?.expect(200)?.json()?;
    assert_eq!(
        code["code"].as_str().map(str::len),
        Some(6),
        "the running server opens what is sealed under the new key"
    );
    Ok(())
}
