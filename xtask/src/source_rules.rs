//! Checks of conventions that rustfmt and clippy do not know.

use std::fs;
use std::path::PathBuf;

use toml::{Table, Value};

use crate::workspace;

fn manifests() -> Vec<(PathBuf, Table)> {
    let read = |folder: PathBuf| {
        let path = folder.join("Cargo.toml");
        let text = fs::read_to_string(&path).expect("every folder of crates holds a crate");
        (path, text.parse().expect("cargo has read it too"))
    };
    workspace::member_folders().into_iter().map(read).collect()
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let read = |path: PathBuf| (path.clone(), fs::read_to_string(&path).expect("sources are UTF-8"));
    workspace::sources().into_iter().map(read).collect()
}

fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn every_crate_uses_the_workspace_lints() {
    for (path, manifest) in manifests() {
        let takes = manifest.get("lints").and_then(|lints| lints.get("workspace")) == Some(&Value::Boolean(true));
        assert!(takes, "{}: add `[lints]` with `workspace = true`", path.display());
    }
}

#[test]
fn versions_are_only_in_the_workspace_manifest() {
    let mut violations = Vec::new();
    for (path, manifest) in manifests() {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let dependencies = manifest.get(kind).and_then(Value::as_table);
            for (name, dependency) in dependencies.into_iter().flatten() {
                let inherited = dependency.get("workspace") == Some(&Value::Boolean(true));
                let own = dependency.get("path").and_then(Value::as_str) == Some(".");
                if !inherited && !own {
                    violations.push(format!(
                        "{}: {name}: write `{name}.workspace = true` and the version in the top Cargo.toml",
                        path.display()
                    ));
                }
            }
        }
    }
    assert_none(&violations);
}

#[test]
fn every_module_has_a_module_comment() {
    let says = |text: &str| {
        let mut head = text.lines().filter(|line| !line.trim().is_empty()).take_while(|line| line.starts_with("//"));
        head.any(|line| line.starts_with("//!"))
    };
    let silent = all_sources().into_iter().filter(|(_, text)| !says(text));
    assert_none(&silent.map(|(path, _)| format!("{}: begin with a `//!` line", path.display())).collect::<Vec<_>>());
}

/// The generated table of the database, which may be longer.
const LONG_FILE: &str = "crates/postgres/src/schema.rs";

#[test]
fn no_source_file_is_longer_than_500_lines() {
    let allowed = workspace::root().join(LONG_FILE);
    let lengths = all_sources().into_iter().map(|(path, text)| (path, text.lines().count()));
    let long = lengths.filter(|(path, lines)| *lines > 500 && *path != allowed);
    assert_none(&long.map(|(path, lines)| format!("{}: split its {lines} lines", path.display())).collect::<Vec<_>>());
}

#[test]
fn no_test_is_ignored_silently() {
    let ignored = concat!("#[", "ignore");
    let skipped = all_sources().into_iter().filter(|(_, text)| text.contains(ignored));
    let advice = "a test that cannot run fails and says what is missing";
    assert_none(&skipped.map(|(path, _)| format!("{}: {advice}", path.display())).collect::<Vec<_>>());
}

/// The macros of `tracing` whose values get into the log.
const LOG_MACROS: [&str; 10] = [
    "trace!(",
    "debug!(",
    "info!(",
    "warn!(",
    "error!(",
    "trace_span!(",
    "debug_span!(",
    "info_span!(",
    "warn_span!(",
    "error_span!(",
];

/// Returns the arguments of a macro whose opening parenthesis ends before `text`.
fn arguments(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|letter| {
        depth += match letter {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// Returns whether a value of a log macro is written in the debug form of Rust: `?value`, `name = ?value`, `{:?}`.
fn has_debug_form(arguments: &str) -> bool {
    let has_sigil = |part: &str| part.trim_start().starts_with('?');
    arguments.contains(":?}") || arguments.split([',', '=']).any(has_sigil)
}

#[test]
fn log_lines_have_no_debug_forms_of_rust() {
    assert!(has_debug_form("%id, took = ?took, \"it\"") && has_debug_form("?state, \"it\"") && !has_debug_form("%id"));
    let mut violations = Vec::new();
    let crates = workspace::root().join("crates");
    let is_of_program =
        |path: &PathBuf| path.starts_with(&crates) && path.components().any(|part| part.as_os_str() == "src");
    for (path, text) in all_sources().into_iter().filter(|(path, _)| is_of_program(path)) {
        for start in LOG_MACROS.iter().flat_map(|name| text.match_indices(name).map(|(at, name)| at + name.len())) {
            if has_debug_form(arguments(&text[start..])) {
                let line = text[..start].matches('\n').count() + 1;
                violations.push(format!(
                    "{}:{line}: log the value as people read it: a text, or a number with its unit",
                    path.display()
                ));
            }
        }
    }
    assert_none(&violations);
}

#[test]
fn every_test_program_is_one_of_libtest() {
    // `cargo xtask test` reads the events that libtest prints.
    let has_own_main = |target: &Value| target.get("harness") == Some(&Value::Boolean(false));
    for (path, manifest) in manifests() {
        let lists = ["test", "bin"].iter().filter_map(|kind| manifest.get(*kind)?.as_array()).flatten();
        let own = lists.chain(manifest.get("lib")).any(has_own_main);
        assert!(!own, "{}: remove `harness = false`", path.display());
    }
}

#[test]
fn a_library_without_a_test_program_has_no_unit_test() {
    let disabled = manifests()
        .into_iter()
        .filter(|(_, manifest)| manifest.get("lib").and_then(|lib| lib.get("test")) == Some(&Value::Boolean(false)));
    let folders: Vec<PathBuf> = disabled.map(|(path, _)| path.with_file_name("src")).collect();
    let in_one = |path: &PathBuf| folders.iter().any(|folder| path.starts_with(folder));
    let attributes = [concat!("#[", "test]"), concat!("#[tokio::", "test")];
    let with_tests = all_sources()
        .into_iter()
        .filter(|(path, text)| in_one(path) && attributes.iter().any(|attribute| text.contains(attribute)));
    let advice = "remove `test = false` from the manifest, so that its unit tests run";
    assert_none(&with_tests.map(|(path, _)| format!("{}: {advice}", path.display())).collect::<Vec<_>>());
}

#[test]
fn no_documentation_example_is_left_untested() {
    // Examples of documentation are not run (`doctest = false`): searching each crate for them took time and found none.
    let opens_example = |line: &str| {
        let comment = line.trim_start().strip_prefix("///").or_else(|| line.trim_start().strip_prefix("//!"));
        comment.is_some_and(|text| ["```rust", "```no_run", "```should_panic"].contains(&text.trim()))
    };
    let with_examples = all_sources().into_iter().filter(|(_, text)| text.lines().any(opens_example));
    let advice = "write a test in place of an example, or run examples again";
    assert_none(&with_examples.map(|(path, _)| format!("{}: {advice}", path.display())).collect::<Vec<_>>());
}

#[test]
fn the_domain_names_no_clock_file_socket_or_process() {
    let banned = [
        "std::fs",
        "std::net",
        "std::process",
        "std::thread::spawn",
        "SystemTime",
        "Instant::now",
        "now_utc",
        "now_local",
    ];
    let domain = workspace::root().join("crates/domain/src");
    let mut violations = Vec::new();
    for (path, text) in all_sources().into_iter().filter(|(path, _)| path.starts_with(&domain)) {
        let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (index, line) in code {
            for name in banned.iter().filter(|name| line.contains(**name)) {
                violations.push(format!("{}:{}: {name}: make it a port, as `Clock` is", path.display(), index + 1));
            }
        }
    }
    assert_none(&violations);
}

#[test]
fn every_test_named_in_hardening_exists() {
    let page = fs::read_to_string(workspace::root().join("docs/hardening.md")).expect("there is such a page");
    let named: Vec<_> = named_tests(&page).collect();
    assert!(named.len() > 50, "the page names {} tests: is it read rightly?", named.len());
    let sources = all_sources();
    let mut violations = Vec::new();
    for (member, file, test) in named {
        let folder = workspace::root().join("crates").join(member);
        let declares = |text: &str| text.contains(&format!("fn {test}("));
        let found = sources
            .iter()
            .any(|(path, text)| path.starts_with(&folder) && path.file_stem() == Some(file.as_ref()) && declares(text));
        if !found {
            violations.push(format!("docs/hardening.md: there is no test {member}/{file}::{test}"));
        }
    }
    assert_none(&violations);
}

/// Returns the tests that a page names as `crate/file::test`, in backticks.
fn named_tests(page: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    page.split('`').skip(1).step_by(2).filter_map(|quoted| {
        let (place, test) = quoted.split_once("::")?;
        let (member, file) = place.split_once('/')?;
        Some((member, file, test))
    })
}
