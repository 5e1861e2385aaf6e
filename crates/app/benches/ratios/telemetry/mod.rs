//! What telemetry costs, and what it carries.

mod load;
mod pages;
mod readers;
mod storing;

use casement_test_support::program::{Pages, Server, Session};
use serde_json::{Value, json};

use crate::table::Table;

/// All that can be captured.
const CATEGORIES: [&str; 9] =
    ["console", "page", "interaction", "network", "control", "connection", "system", "screenshot", "captcha"];

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    load::measure(table)?;
    storing::measure(table)?;
    pages::measure(table)?;
    readers::measure(table)
}

/// A headless session that captures these categories and no others.
fn capturing(server: &Server, categories: &[&str]) -> anyhow::Result<Session> {
    let switch = |name: &&str| ((*name).to_owned(), json!({ "enabled": categories.contains(name) }));
    let browser: serde_json::Map<String, Value> = CATEGORIES.iter().map(switch).collect();
    server.create(&json!({ "headless": true, "timeout_seconds": 3600, "telemetry": { "browser": browser } }))
}

/// The page of a test that needs no more than one.
fn a_page() -> anyhow::Result<Pages> {
    let pages = Pages::start()?;
    pages.put("/plain", "<!doctype html><title>plain</title>");
    Ok(pages)
}
