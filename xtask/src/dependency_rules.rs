//! Which crate may know which: the rules that keep the domain embeddable and the adapters apart, held as data and
//! checked against what cargo resolved. A failure says what to do instead.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

use crate::workspace;

/// What one crate of ours may use of ours, and the way out for somebody who needs more.
struct DependencyRule {
    from: &'static str,
    to: &'static [&'static str],
    instead: &'static str,
}

const DEPENDENCY_RULES: &[DependencyRule] = &[
    DependencyRule {
        from: "casement-domain",
        to: &[],
        instead: "say what the domain wants as a port trait; an adapter implements it",
    },
    DependencyRule {
        from: "casement-postgres",
        to: &["casement-domain"],
        instead: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-telemetry",
        to: &["casement-domain"],
        instead: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-http",
        to: &["casement-domain"],
        instead: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-memory",
        to: &["casement-domain"],
        instead: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-sealing",
        to: &["casement-domain"],
        instead: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-egress",
        to: &["casement-domain"],
        instead: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-sandbox",
        to: &[],
        instead: "a sandbox holds processes and knows nothing of browsers: pass what it needs in its specification",
    },
    DependencyRule {
        from: "casement-archive",
        to: &[],
        instead: "an archive holds files and knows nothing of what they are for beside browser extensions: pass a limit",
    },
    DependencyRule {
        from: "casement-agent",
        to: &["casement-agent-protocol", "casement-archive", "casement-sandbox", "casement-domain"],
        instead: "the agent runs inside a sandbox: let the server tell it over the protocol",
    },
    DependencyRule {
        from: "casement-blobs",
        to: &["casement-archive", "casement-domain"],
        instead: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-vaults",
        to: &["casement-domain"],
        instead: "it asks the web through its own trait `Web`: let the program implement it over the adapter",
    },
    DependencyRule {
        from: "casement-agent-protocol",
        to: &[],
        instead: "the protocol is plain messages: map them to the domain where they are used",
    },
    DependencyRule {
        from: "casement-chromium",
        to: &["casement-domain", "casement-sandbox", "casement-agent", "casement-agent-protocol"],
        instead: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-webdriver",
        to: &["casement-domain"],
        instead: "it drives any WebDriver server: let the program pass a connector",
    },
    DependencyRule {
        from: "casement-runner",
        to: &["casement-archive", "casement-domain", "casement-sandbox"],
        instead: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement",
        to: &[
            "casement-agent",
            "casement-agent-protocol",
            "casement-archive",
            "casement-blobs",
            "casement-chromium",
            "casement-domain",
            "casement-egress",
            "casement-http",
            "casement-postgres",
            "casement-runner",
            "casement-sandbox",
            "casement-sealing",
            "casement-telemetry",
            "casement-vaults",
            "casement-webdriver",
        ],
        instead: "the program wires the adapters together",
    },
    DependencyRule {
        from: "xtask",
        to: &[],
        instead: "xtask must build in seconds: run the program instead of linking it",
    },
];

/// Tests of any crate but these two may also use the domain's mocks, the throwaway database and the WebDriver client.
const TEST_HELPERS: &[&str] = &["casement-domain", "casement-postgres", "casement-webdriver"];
const WITHOUT_TEST_HELPERS: &[&str] = &["casement-domain", "xtask"];

/// A technology belongs to one crate: packages by the beginning of their names, and who may use them directly.
struct ImportRule {
    packages: &'static [&'static str],
    held_by: &'static [&'static str],
    in_tests: bool,
    instead: &'static str,
}

const IMPORT_RULES: &[ImportRule] = &[
    ImportRule {
        packages: &["diesel", "tokio-postgres"],
        held_by: &["casement-postgres"],
        in_tests: false,
        instead: "SQL lives in casement-postgres: add a port in casement-domain and a repository there",
    },
    ImportRule {
        packages: &["actix"],
        held_by: &["casement-http"],
        in_tests: false,
        instead: "routes live in casement-http; hand it what it needs through a port",
    },
    ImportRule {
        packages: &["fantoccini", "webdriver"],
        held_by: &["casement-webdriver"],
        in_tests: false,
        instead: "WebDriver lives in casement-webdriver: use the BrowserEngine port",
    },
    ImportRule {
        packages: &["object_store"],
        held_by: &["casement-blobs"],
        in_tests: false,
        instead: "stored bytes lie behind the BlobStore port",
    },
    ImportRule {
        packages: &["opentelemetry"],
        held_by: &["casement-telemetry"],
        in_tests: true,
        instead: "what is exported goes through the Outlet port",
    },
    ImportRule {
        packages: &["clap", "metrics-exporter-", "tracing-subscriber"],
        held_by: &["casement", "xtask"],
        in_tests: true,
        instead: "a library reads no command line and chooses no output: let the program pass a value",
    },
    ImportRule {
        packages: &["anyhow"],
        held_by: &["casement", "xtask"],
        in_tests: true,
        instead: "a crate boundary has a typed error: write an enum with thiserror",
    },
    ImportRule {
        packages: &["cargo_metadata"],
        held_by: &["xtask"],
        in_tests: false,
        instead: "questions about the workspace are asked in xtask",
    },
    ImportRule {
        packages: &["keepass"],
        held_by: &["casement-vaults"],
        in_tests: false,
        instead: "stores of logins lie behind the CredentialStore port",
    },
    ImportRule {
        packages: &["toml"],
        held_by: &["casement", "xtask"],
        in_tests: false,
        instead: "the configuration file is the program's: let it pass a value",
    },
];

/// All that the domain itself may name. A new line here needs a reason in the commit: downstream teams embed this crate.
const DOMAIN_MAY_USE: &[&str] = &[
    "async-trait",
    "base64",           // the written form of an API key
    "bytes",            // what streams into a session and out of it is made of
    "futures-core",     // and the trait of such a stream
    "mockall",          // behind the feature `mocks`
    "percent-encoding", // what `url` leaves encoded in credentials; it brings the crate along anyway
    "psl",              // which names are one owner's: the list of public suffixes, as data
    "secrecy",          // what must be read again in clear is neither shown nor left in memory
    "serde_json",       // `Value` only, for objects that the API calls free-form
    "sha2",             // an API key is kept as its hash
    "subtle",           // and compared in constant time
    "thiserror",
    "time",
    "totp-rs", // one-time codes of logins
    "ulid",
    "url", // an address that a session asks of the web is taken apart as browsers do
];

/// What must not come in behind those either: input, output, a runtime.
const DOMAIN_NEVER_REACHES: &[&str] = &[
    "actix-web",
    "anyhow",
    "diesel",
    "fantoccini",
    "hyper",
    "mio",
    "postgres-protocol",
    "reqwest",
    "rustix",
    "socket2",
    "tokio",
];

/// The folders at the top of the checkout. Examples live in `docs/examples`, end-to-end tests with the program they drive.
const TOP_FOLDERS: &[&str] = &[".cargo", ".ci", ".github", "crates", "docs", "migrations", "xtask"];

fn metadata() -> Metadata {
    MetadataCommand::new().current_dir(workspace::root()).exec().expect("cargo metadata answers")
}

fn members(metadata: &Metadata) -> BTreeMap<String, &Package> {
    metadata.workspace_packages().into_iter().map(|package| (package.name.to_string(), package)).collect()
}

fn direct<'a>(package: &'a Package, kinds: &'a [DependencyKind]) -> impl Iterator<Item = &'a str> {
    package
        .dependencies
        .iter()
        .filter(|dependency| kinds.contains(&dependency.kind))
        .map(|dependency| dependency.name.as_str())
}

const BUILT_IN: &[DependencyKind] = &[DependencyKind::Normal, DependencyKind::Build];
const IN_TESTS: &[DependencyKind] = &[DependencyKind::Development];

fn assert_none(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn every_member_has_its_row_in_the_table() {
    let metadata = metadata();
    let rows: BTreeSet<String> = DEPENDENCY_RULES.iter().map(|arrow| arrow.from.to_owned()).collect();
    let members: BTreeSet<String> = members(&metadata).into_keys().collect();
    assert_eq!(members, rows, "a new crate needs a row in ARROWS: what may it use of ours?");
}

#[test]
fn crates_use_only_what_lies_below_them() {
    let metadata = metadata();
    let members = members(&metadata);
    let mut broken = Vec::new();
    for arrow in DEPENDENCY_RULES {
        let package = members[arrow.from];
        for to in direct(package, BUILT_IN).filter(|name| members.contains_key(*name) && !arrow.to.contains(name)) {
            broken.push(format!("{} must not depend on {to}: {}", arrow.from, arrow.instead));
        }
        let helpers = if WITHOUT_TEST_HELPERS.contains(&arrow.from) { &[] } else { TEST_HELPERS };
        let in_tests = |name: &str| arrow.to.contains(&name) || helpers.contains(&name) || name == arrow.from;
        for to in direct(package, IN_TESTS).filter(|name| members.contains_key(*name) && !in_tests(name)) {
            let instead = "tests may borrow the domain's mocks and the throwaway database only; put the test where both are known";
            broken.push(format!("the tests of {} must not depend on {to}: {instead}", arrow.from));
        }
    }
    assert_none(&broken);
}

#[test]
fn a_technology_is_known_to_one_crate_only() {
    let metadata = metadata();
    let mut broken = Vec::new();
    for (name, package) in members(&metadata) {
        for holder in IMPORT_RULES.iter().filter(|holder| !holder.held_by.contains(&name.as_str())) {
            let kinds = if holder.in_tests { BUILT_IN.to_vec() } else { [BUILT_IN, IN_TESTS].concat() };
            let held = |found: &&str| holder.packages.iter().any(|prefix| found.starts_with(prefix));
            for found in direct(package, &kinds).filter(held) {
                broken.push(format!("{name} must not depend on {found}: {}", holder.instead));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn the_domain_reaches_no_input_or_output() {
    let metadata = metadata();
    let domain = members(&metadata)["casement-domain"];
    let mut broken = Vec::new();
    for found in direct(domain, BUILT_IN).filter(|name| !DOMAIN_MAY_USE.contains(name)) {
        broken.push(format!(
            "casement-domain must not depend on {found}: if it does input, output, time or chance, make it a port; \
             if it is pure and worth it, add it to DOMAIN_MAY_USE and say why"
        ));
    }
    let reached = reached(&metadata, &domain.id);
    for found in DOMAIN_NEVER_REACHES.iter().filter(|name| reached.contains(**name)) {
        broken.push(format!(
            "casement-domain reaches {found} through a dependency: `cargo tree -p casement-domain -i {found}`"
        ));
    }
    assert_none(&broken);
}

/// The names of everything that is built into the package, however deep.
fn reached(metadata: &Metadata, from: &PackageId) -> BTreeSet<String> {
    let nodes: BTreeMap<_, _> =
        metadata.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| (&node.id, node)).collect();
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop().and_then(|id| nodes.get(id)) {
        for next in &node.deps {
            let built_in = next.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if built_in && seen.insert(&next.pkg) {
                open.push(&next.pkg);
            }
        }
    }
    seen.into_iter().map(|id| metadata[id].name.to_string()).collect()
}

#[test]
fn the_top_of_the_checkout_stays_a_short_list() {
    let output = std::process::Command::new("git").args(["ls-files", "-z"]).current_dir(workspace::root()).output();
    let output = output.expect("git answers");
    assert!(
        output.status.success(),
        "this test asks git which files are ours: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let files = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let folders: BTreeSet<&str> = files.split('\0').filter_map(|path| Some(path.split_once('/')?.0)).collect();
    let broken: Vec<String> = folders
        .into_iter()
        .filter(|folder| !TOP_FOLDERS.contains(folder))
        .map(|folder| {
            format!("no folder {folder}/ at the top: examples go to docs/examples, tests to the crate they drive")
        })
        .collect();
    assert_none(&broken);
}

#[test]
fn a_crate_lives_in_the_folder_of_its_name() {
    let metadata = metadata();
    let root = workspace::root();
    for (name, package) in members(&metadata) {
        let folder = match name.as_str() {
            "xtask" => root.join("xtask"),
            "casement" => root.join("crates/app"),
            other => root.join("crates").join(other.trim_start_matches("casement-")),
        };
        assert_eq!(package.manifest_path.as_std_path(), folder.join("Cargo.toml"));
    }
}
