//! Checks of the pages of `docs` as one site: links, anchors and the table of contents.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::docs::TOP_PAGES;
use crate::{markdown, workspace};

/// Returns every page with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    workspace::files(&workspace::root().join("docs"), "md", &mut paths);
    paths.extend(TOP_PAGES.map(|name| workspace::root().join(name)));
    let read = |path: PathBuf| (path.clone(), fs::read_to_string(&path).expect("pages are UTF-8"));
    paths.into_iter().map(read).collect()
}

fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// Returns the path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[test]
fn every_link_between_pages_has_a_target_and_every_anchor_a_heading() {
    let pages = pages();
    let anchors: HashMap<PathBuf, BTreeSet<String>> =
        pages.iter().map(|(path, text)| (plain(path), markdown::anchors(text))).collect();
    let mut violations = Vec::new();
    for (page, text) in &pages {
        let folder = page.parent().expect("a page lies in a folder");
        for (line, target) in markdown::links(text) {
            let (file, anchor) = target.split_once('#').map_or((target.as_str(), None), |(file, at)| (file, Some(at)));
            let path = if file.is_empty() { plain(page) } else { plain(&folder.join(file)) };
            if path.is_dir() {
                violations.push(format!("{}:{line}: {file} is a folder, which a site does not show", page.display()));
            } else if !path.exists() {
                violations.push(format!("{}:{line}: there is no {file}", page.display()));
            } else if let Some(anchor) = anchor
                && !anchors.get(&path).is_some_and(|known| known.contains(anchor))
            {
                violations.push(format!("{}:{line}: no heading has the anchor {target}", page.display()));
            }
        }
    }
    assert_none(&violations);
}

#[test]
fn the_first_command_is_the_same_everywhere() {
    let command = "/browser_pools/default/acquire -H \"Authorization: Bearer $KEY\"";
    for page in ["README.md", "docs/install.md", "docs/containers.md", "docs/guides/first-session.md"] {
        let text = fs::read_to_string(workspace::root().join(page)).expect("there is such a page");
        let first = text.lines().find(|line| line.trim_start().starts_with("ID=$(curl") || line.starts_with("curl "));
        assert!(first.is_some_and(|line| line.contains(command)), "{page}: its first command is {first:?}");
    }
    // What the server prints at its start.
    let start = fs::read_to_string(workspace::root().join("crates/app/src/serve.rs")).expect("there is such a file");
    assert!(start.contains("browser_pools/{pool}/acquire"));
}

#[test]
fn pages_name_the_programs_that_their_commands_need() {
    let mut violations = Vec::new();
    // The introduction of the API reference names what its examples need.
    let reference = workspace::root().join("docs/api");
    for (page, text) in pages().into_iter().filter(|(path, _)| !path.starts_with(&reference)) {
        let mut in_block = false;
        let (commands, prose): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| {
            let is_fence = line.trim_start().starts_with("```");
            in_block ^= is_fence;
            in_block
        });
        let (commands, prose) = (commands.join("\n"), prose.join("\n"));
        let uses_jq = ["| jq ", "$(jq ", "\njq "].iter().any(|use_of| commands.contains(use_of));
        if uses_jq && !prose.contains("jq") {
            violations.push(format!("{}: its commands need jq: say so", page.display()));
        }
        let uses_json = commands.lines().any(|line| line.contains("curl ") && line.contains(" --json "));
        if uses_json && !prose.contains("curl 7.8") {
            violations.push(format!("{}: its commands need curl 7.82 for --json: say so", page.display()));
        }
    }
    assert_none(&violations);
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let docs = workspace::root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("there is a table of contents");
    let mut listed: Vec<PathBuf> = markdown::links(&summary).map(|(_, target)| plain(&docs.join(target))).collect();
    listed.sort();
    // `cargo xtask docs` adds the decisions.
    let is_listed = |path: &PathBuf| {
        let is_decision = path.parent() == Some(&docs.join("decisions")) && !path.ends_with("README.md");
        !is_decision && !path.ends_with("docs/SUMMARY.md")
    };
    let mut wanted: Vec<PathBuf> = pages().into_iter().map(|(path, _)| plain(&path)).filter(is_listed).collect();
    wanted.sort();
    let missing = wanted.iter().filter(|path| !listed.contains(path));
    let mut violations: Vec<String> = missing.map(|path| format!("docs/SUMMARY.md: add {}", path.display())).collect();
    let twice = listed.windows(2).filter(|pair| pair[0] == pair[1]);
    violations.extend(twice.map(|pair| format!("docs/SUMMARY.md: {} is listed twice", pair[0].display())));
    assert_none(&violations);
}
