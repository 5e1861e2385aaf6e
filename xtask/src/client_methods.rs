//! `cargo xtask clients`: the page of what each method of the public API clients does here, made from what the
//! end-to-end tests saw.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{test, workspace};

const PAGE: &str = "docs/clients-methods.md";
/// The variable with the folder in which the tests put their records.
pub(crate) const FOLDER: &str = "CASEMENT_TEST_METHODS";
/// Parts of the names of the tests whose scripts use these clients.
const TESTS: [&str; 3] = ["python_client", "javascript_client", "a_store_extension"];
const HEAD: &str = "# Methods of the clients

What became of each public method of the API clients in the end-to-end tests, with the unmodified client. `cargo xtask clients` runs these
tests and writes this page; `cargo xtask test` fails if the page is not what it saw. The methods are those that the installed client has;
a method that no test calls fails the run. Names are those of Python: the npm package writes `browserPools.acquire`.

*works*: a call was answered, and its answer was the expected one. A code in `code font`: every call was refused with it. –: this client does not have
the method. [Clients](clients.md) says more about the versions and areas.

";

/// The codes of the outcomes (`ok` or that of a refusal) by method, by client.
type Records = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only compare; fail if the committed page differs
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = new_folder()?;
    let tests = test::Options::of("casement", &TESTS);
    test::run_recording(&tests, Some(&folder))?;
    if options.check {
        return check(&folder);
    }
    let path = workspace::root().join(PAGE);
    fs::write(&path, page(&read(&folder)?)?).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("==> wrote {}", path.display());
    Ok(())
}

/// Returns an empty folder for the records of a run.
pub(crate) fn new_folder() -> Result<PathBuf> {
    let folder = workspace::target()?.join("client-methods");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Compares the committed page with the records of a run of all tests.
pub(crate) fn check(folder: &Path) -> Result<()> {
    let committed = fs::read_to_string(workspace::root().join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    if committed != page(&read(folder)?)? {
        bail!("{PAGE} is not what the tests saw: run `cargo xtask clients` and commit it");
    }
    Ok(())
}

fn read(folder: &Path) -> Result<Records> {
    let mut records = Records::new();
    let mut files = Vec::new();
    workspace::files(folder, "json", &mut files);
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let record: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))?;
        let client = record["client"].as_str().context("a record without a client")?;
        let methods = records.entry(client.to_owned()).or_default();
        for (method, codes) in record["methods"].as_object().into_iter().flatten() {
            let codes = codes.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
            methods.entry(method.clone()).or_default().extend(codes);
        }
    }
    Ok(records)
}

/// Returns the page.
///
/// # Errors
/// If a method of a client was not called.
fn page(records: &Records) -> Result<String> {
    ensure!(!records.is_empty(), "no test has recorded a call of a client");
    let never: Vec<String> = records
        .iter()
        .flat_map(|(client, methods)| methods.iter().map(move |(method, codes)| (client, method, codes)))
        .filter(|(_, _, codes)| codes.is_empty())
        .map(|(client, method, _)| format!("{client}: {method}"))
        .collect();
    ensure!(never.is_empty(), "no test calls these methods:\n{}", never.join("\n"));
    let clients: Vec<&String> = records.keys().collect();
    let mut page = HEAD.to_owned();
    page.push_str("| client | methods | work | refused |\n| --- | --- | --- | --- |\n");
    for (client, methods) in records {
        let work = methods.values().filter(|codes| codes.contains("ok")).count();
        page.push_str(&format!("| {client} | {} | {work} | {} |\n", methods.len(), methods.len() - work));
    }
    page.push_str("\n| method |");
    clients.iter().for_each(|client| page.push_str(&format!(" {client} |")));
    page.push_str(&format!("\n| --- |{}\n", " --- |".repeat(clients.len())));
    let methods: BTreeSet<&String> = records.values().flat_map(BTreeMap::keys).collect();
    for method in methods {
        page.push_str(&format!("| `{method}` |"));
        records.values().for_each(|of_client| page.push_str(&format!(" {} |", cell(of_client.get(method)))));
        page.push('\n');
    }
    Ok(page)
}

fn cell(codes: Option<&BTreeSet<String>>) -> String {
    match codes {
        None => "–".to_owned(),
        Some(codes) if codes.contains("ok") => "works".to_owned(),
        Some(codes) => codes.iter().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(outcomes: &[(&str, &str, &[&str])]) -> Records {
        let mut records = Records::new();
        for (client, method, codes) in outcomes {
            let codes = codes.iter().map(|code| (*code).to_owned()).collect();
            records.entry((*client).to_owned()).or_default().insert((*method).to_owned(), codes);
        }
        records
    }

    #[test]
    fn a_method_works_if_a_call_did_and_is_else_shown_with_its_refusals() {
        let records = records(&[
            ("npm 2", "search.create", &["not_supported"]),
            ("npm 2", "apps.list", &["ok"]),
            ("python 1", "apps.list", &["not_found", "ok"]),
        ]);
        let page = page(&records).expect("a page");
        let table = page.split("\n\n").last().expect("a table");
        assert_eq!(
            table,
            "| method | npm 2 | python 1 |\n| --- | --- | --- |\n| `apps.list` | works | works |\n\
             | `search.create` | `not_supported` | – |\n"
        );
        assert!(page.contains("| npm 2 | 2 | 1 | 1 |\n"), "{page}");
    }

    #[test]
    fn a_method_that_no_test_calls_fails_the_page() {
        let records = records(&[("npm 2", "apps.list", &["ok"]), ("npm 2", "search.create", &[])]);
        let error = page(&records).expect_err("it is not called").to_string();
        assert_eq!(error, "no test calls these methods:\nnpm 2: search.create");
    }
}
