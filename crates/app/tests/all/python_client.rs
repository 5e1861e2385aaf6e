//! Tests with the public Python client, which is unmodified except for its base URL.

use casement_test_support::program::{Clients, Shared};
use serde_json::json;

#[test]
fn every_call_of_the_python_client_for_sessions_and_pools_works() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();

    let saw = json!({
        "pools": {
            "screenshot": [800, 600],
            "region": [300, 200],
            "in use": ["ConflictError", "resource_in_use"],
            "released": ["NotFoundError", "not_found"],
            "async": 300,
            "deleted": ["NotFoundError", "not_found"],
        },
        "browsers": {
            "viewport": [640, 480],
            "screenshot": [640, 480],
            "direct": [640, 480],
            "deleted": ["NotFoundError", "not_found"],
        },
        "refusals": {
            "key": ["AuthenticationError", "unauthorized"],
            "unknown": ["NotFoundError", "not_found"],
            "gpu": ["BadRequestError", "not_supported"],
            "profile": ["BadRequestError", "invalid_input", "reference_not_found"],
            "viewport": ["BadRequestError", "invalid_input", "out_of_range"],
            "policy": ["BadRequestError", "invalid_input", "blocked"],
            "route": ["NotFoundError", "route_not_found"],
        },
    });
    for clients in Clients::of_both_versions()? {
        let run = clients.run(server, "crates/app/tests/scripts/kernel_calls.py", &[&pages.url("")])?;
        assert_eq!(run.json()?, saw, "newest: {}", clients.is_newest());
    }
    Ok(())
}

#[test]
fn every_call_of_the_python_client_for_profiles_works() -> anyhow::Result<()> {
    let saw = json!({
        "nameless": null,
        "loaded": "calls-of-python",
        "saved": [true, true],
        "download": "28b52ffd",
        "pool": [true, true, true],
        "in use": ["ConflictError", "resource_in_use"],
        "renamed": "calls-of-python-b",
        "listed": ["calls-of-python-b"],
        "exact": ["calls-of-python-b"],
        "taken": ["ConflictError", "name_conflict"],
        "gone": ["NotFoundError", "not_found"],
        "called": "6 of 6",
    });
    for clients in Clients::of_both_versions()? {
        let run = clients.run(&Shared::get().server, "crates/app/tests/scripts/kernel_profiles.py", &[])?;
        assert_eq!(run.json()?, saw, "newest: {}", clients.is_newest());
    }
    Ok(())
}

#[test]
fn methods_of_the_newest_python_client_work_or_are_refused_by_name() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let [_, newest] = Clients::of_both_versions()?;
    let run = newest.run(server, "crates/app/tests/scripts/kernel_newest.py", &[&pages.url("")])?;
    let refused = json!(["not_supported"]);
    let saw = json!({
        "scripts": ["A form", ["default", "tools"], "double", 42, "42"],
        "custom_tools": ["page", "already_exists", [true], [], { "word": "tea", "title": "A form" }, []],
        "events": ["console_log", true],
        "proxies": [[true], "elsewhere", true, "unavailable"],
        "destinations": [[true], "other", pages.url(""), "not_found"],
        "entitlements": true,
        "context": true,
        "refusals": {
            "config_registry": refused,
            "search": refused,
            "vault_provider_configs": refused,
            "vaults": refused,
        },
    });
    assert_eq!(run.json()?, saw);
    Ok(())
}
