//! `cargo xtask docs`: builds the pages as a site with mdBook.
//!
//! mdBook reads one folder, and the pages link to files outside of `docs`. So the pages, and the files that they link to,
//! are copied to a folder of their own first, with the paths that they have in the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{markdown, step, tools, workspace};

const MDBOOK: &str = "0.5.4";
/// Leaves out the web server of mdBook, with most of what it depends on.
const MDBOOK_FEATURES: [&str; 3] = ["--no-default-features", "--features", "search"];

/// The pages at the top of the repository that are part of the site.
pub(crate) const TOP_PAGES: [&str; 3] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"];

pub(crate) fn run() -> Result<()> {
    let source = workspace::target()?.join("site-source");
    let site = workspace::target()?.join("site");
    for folder in [&source, &site] {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
    }
    for file in site_files()? {
        let target = source.join(&file);
        copy(&workspace::root().join(&file), &target)?;
        if file.extension() == Some("md".as_ref()) {
            link_indexes(&target)?;
        }
    }
    copy(&workspace::root().join("docs/book.toml"), &source.join("book.toml"))?;
    fs::write(source.join("SUMMARY.md"), summary()?).context("cannot write the table of contents")?;
    let mut mdbook = tools::command("mdbook", MDBOOK, &MDBOOK_FEATURES)?;
    step::run("building the site", mdbook.arg("build").arg(&source).arg("--dest-dir").arg(&site))
}

/// Changes links to `README.md`: mdBook makes `index.html` of such a page, and leaves the links to it as they are.
fn link_indexes(page: &Path) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let text = text.replace("README.md)", "index.md)").replace("README.md#", "index.md#");
    fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

/// Returns the pages and the files that they link to, relative to the top folder.
fn site_files() -> Result<BTreeSet<PathBuf>> {
    let root = workspace::root();
    let mut pages = Vec::new();
    workspace::files(&root.join("docs"), "md", &mut pages);
    pages.retain(|page| !page.ends_with("SUMMARY.md"));
    pages.extend(TOP_PAGES.map(|name| root.join(name)));
    let mut files = BTreeSet::new();
    for page in pages {
        let text = fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
        let folder = page.parent().unwrap_or(root);
        for (line, target) in markdown::links(&text) {
            let file = target.split('#').next().unwrap_or_default();
            let linked = folder.join(file).canonicalize();
            let linked = linked.with_context(|| format!("{}:{line}: there is no {target}", page.display()))?;
            if linked.is_file() {
                files.insert(linked.strip_prefix(root).map(Path::to_owned).unwrap_or(linked));
            }
        }
        files.insert(page.strip_prefix(root).map(Path::to_owned).unwrap_or(page));
    }
    Ok(files)
}

/// Returns the table of contents with paths from the top folder, and with all decisions below their index.
fn summary() -> Result<String> {
    let docs = workspace::root().join("docs");
    let mut decisions = Vec::new();
    workspace::files(&docs.join("decisions"), "md", &mut decisions);
    decisions.retain(|page| !page.ends_with("README.md"));
    decisions.sort();
    let mut listed = String::new();
    for page in decisions {
        let text = fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
        let title = markdown::title(&text).with_context(|| format!("{} has no title", page.display()))?;
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        listed.push_str(&format!("  - [{title}](docs/decisions/{name})\n"));
    }
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).context("cannot read docs/SUMMARY.md")?;
    let mut contents = String::new();
    for line in summary.lines() {
        let line = line.replace("](", "](docs/").replace("](docs/../", "](");
        contents.push_str(&format!("{line}\n"));
        if line.contains("(docs/decisions/README.md)") {
            contents.push_str(&listed);
        }
    }
    Ok(contents)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::copy(from, to).map(drop).with_context(|| format!("cannot copy {}", from.display()))
}
