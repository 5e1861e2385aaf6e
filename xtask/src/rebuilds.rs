//! The table in `CONTRIBUTING.md` of what a change of each crate builds again, compared with cargo's graph.

use std::collections::BTreeSet;
use std::fs;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::workspace;

const HEAD: &str = "| a change in | builds again | and the test programs of |\n| --- | --- | --- |\n";

fn packages() -> Vec<Package> {
    let metadata = MetadataCommand::new().current_dir(workspace::root()).no_deps().exec().expect("cargo answers");
    let mut packages: Vec<Package> = metadata.workspace_packages().into_iter().cloned().collect();
    packages.sort_by(|one, other| folder(one).cmp(folder(other)));
    packages
}

fn folder(package: &Package) -> &str {
    package.manifest_path.parent().and_then(|folder| folder.file_name()).expect("a package is in a folder")
}

fn depends_on(package: &Package, kind: DependencyKind, changed: &BTreeSet<&str>) -> bool {
    package.dependencies.iter().any(|one| one.kind == kind && changed.contains(one.name.as_str()))
}

/// Returns the names of the packages that cargo builds again without their tests: the changed one and those above it.
fn built_again<'a>(changed: &'a Package, all: &'a [Package]) -> BTreeSet<&'a str> {
    let mut built = BTreeSet::from([changed.name.as_str()]);
    loop {
        let above = all.iter().filter(|package| depends_on(package, DependencyKind::Normal, &built));
        let with_these: BTreeSet<&str> =
            above.map(|package| package.name.as_str()).chain(built.iter().copied()).collect();
        if with_these.len() == built.len() {
            return built;
        }
        built = with_these;
    }
}

fn row(changed: &Package, all: &[Package]) -> String {
    let built = built_again(changed, all);
    let others = all.iter().filter(|package| package.name != changed.name);
    let list = |is_listed: &dyn Fn(&Package) -> bool| {
        let listed: Vec<String> = others
            .clone()
            .filter(|package| is_listed(package))
            .map(|package| format!("`{}`", folder(package)))
            .collect();
        if listed.is_empty() { "–".to_owned() } else { listed.join(", ") }
    };
    let is_built = |package: &Package| built.contains(package.name.as_str());
    let only_tests = |package: &Package| !is_built(package) && depends_on(package, DependencyKind::Development, &built);
    format!("| `{}` | {} | {} |\n", folder(changed), list(&is_built), list(&only_tests))
}

#[test]
fn the_table_of_what_a_change_builds_again_is_true() {
    let all = packages();
    let table: String = all.iter().map(|changed| row(changed, &all)).collect();
    let page = fs::read_to_string(workspace::root().join("CONTRIBUTING.md")).expect("the page");
    assert!(page.contains(&format!("{HEAD}{table}\n")), "CONTRIBUTING.md must have this table:\n\n{HEAD}{table}");
}
