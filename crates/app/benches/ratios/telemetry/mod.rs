//! Measures the cost and the throughput of telemetry.

mod load;
mod pages;
mod readers;
mod storing;

use casement_test_support::program::{Pages, Server, Session};
use serde_json::{Value, json};

use crate::table::Table;

/// All categories.
const CATEGORIES: [&str; 9] =
    ["console", "page", "interaction", "network", "control", "connection", "system", "screenshot", "captcha"];

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    load::measure(table)?;
    storing::measure(table)?;
    pages::measure(table)?;
    readers::measure(table)
}

/// Creates a headless session that captures these categories only.
fn capturing(server: &Server, categories: &[&str]) -> anyhow::Result<Session> {
    let switch = |name: &&str| ((*name).to_owned(), json!({ "enabled": categories.contains(name) }));
    let browser: serde_json::Map<String, Value> = CATEGORIES.iter().map(switch).collect();
    server.create(&json!({ "headless": true, "timeout_seconds": 3600, "telemetry": { "browser": browser } }))
}

/// Returns pages with one plain page.
fn a_page() -> anyhow::Result<Pages> {
    let pages = Pages::start()?;
    pages.put("/plain", "<!doctype html><title>plain</title>");
    Ok(pages)
}
