//! `cargo xtask openapi`: generates the committed OpenAPI document and table of operations from the declared
//! operations, the page of metrics from their table, the API reference from the document, and the table of what engines can
//! do in the page of the Selenium Grid.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{api_reference, workspace};

const GRID_PAGE: &str = "docs/selenium-grid.md";
const TABLE_BEGIN: &str = "<!-- engines -->";
const TABLE_END: &str = "<!-- /engines -->";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only compare; fail if a committed file differs from the generated one
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let document = printed(&["openapi"])?;
    let parsed: Value = serde_json::from_str(&document).context("`casement openapi` did not print JSON")?;
    if parsed.get("openapi").is_none() {
        bail!("`casement openapi` printed JSON, but not an OpenAPI document");
    }
    let operations = printed(&["openapi", "--operations"])?;
    let metrics = printed(&["openapi", "--metrics"])?;
    let mut files = reference_files(&parsed)?;
    let documents = [("docs/openapi.json", document), ("docs/operations.md", operations), ("docs/metrics.md", metrics)];
    files.extend(documents.map(|(file, generated)| (file.to_owned(), generated)));
    files.insert(GRID_PAGE.to_owned(), with_engines(&printed(&["openapi", "--engines"])?)?);
    remove_or_refuse_others(&files, options.check)?;
    for (file, generated) in files {
        let path = workspace::root().join(&file);
        if !options.check {
            fs::write(&path, generated).with_context(|| format!("cannot write {}", path.display()))?;
            eprintln!("==> wrote {}", path.display());
            continue;
        }
        let committed = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if committed != generated {
            bail!("{file} is not what the code declares: run `cargo xtask openapi` and commit it");
        }
    }
    Ok(())
}

/// Returns the page of the Selenium Grid with the table of what engines can do between its marks.
fn with_engines(table: &str) -> Result<String> {
    let path = workspace::root().join(GRID_PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (before, rest) = page.split_once(TABLE_BEGIN).with_context(|| format!("{GRID_PAGE} has no {TABLE_BEGIN}"))?;
    let (_, after) = rest.split_once(TABLE_END).with_context(|| format!("{GRID_PAGE} has no {TABLE_END}"))?;
    Ok(format!("{before}{TABLE_BEGIN}\n\n{}\n\n{TABLE_END}{after}", table.trim()))
}

/// Returns the pages of the API reference by their paths in the repository.
pub(crate) fn reference_files(document: &Value) -> Result<BTreeMap<String, String>> {
    let pages = api_reference::pages(document)?;
    Ok(pages.into_iter().map(|(name, page)| (format!("docs/api/{name}"), page)).collect())
}

/// Removes the pages of the API reference that are no longer generated, or fails if there are any.
fn remove_or_refuse_others(files: &BTreeMap<String, String>, check: bool) -> Result<()> {
    let folder = workspace::root().join("docs/api");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut pages = Vec::new();
    workspace::files(&folder, "md", &mut pages);
    for page in pages {
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        if files.contains_key(&format!("docs/api/{name}")) {
            continue;
        }
        if check {
            bail!("docs/api/{name} is not generated any more: run `cargo xtask openapi` and commit it");
        }
        fs::remove_file(&page).with_context(|| format!("cannot remove {}", page.display()))?;
    }
    Ok(())
}

/// Returns the output of the program that generates the documents, with one newline at its end.
fn printed(arguments: &[&str]) -> Result<String> {
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--locked", "--quiet", "--package", "casement", "--features", "openapi", "--"]).args(arguments);
    let output = cargo.stderr(std::process::Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`casement {}` ended with {}", arguments.join(" "), output.status);
    }
    let text = String::from_utf8(output.stdout).context("`casement openapi` did not print UTF-8")?;
    Ok(format!("{}\n", text.trim_end()))
}
