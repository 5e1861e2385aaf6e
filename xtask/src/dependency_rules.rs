//! The dependency rules of the crates, which keep the domain embeddable and the adapters independent. They are checked
//! against cargo's resolved graph. A failure names the alternative.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

use crate::workspace;

/// The workspace crates that a crate may use, and the advice for a crate that needs more.
struct DependencyRule {
    from: &'static str,
    to: &'static [&'static str],
    advice: &'static str,
}

const DEPENDENCY_RULES: &[DependencyRule] = &[
    DependencyRule {
        from: "casement-domain",
        to: &[],
        advice: "say what the domain wants as a port trait; an adapter implements it",
    },
    DependencyRule {
        from: "casement-postgres",
        to: &["casement-dial", "casement-domain"],
        advice: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-telemetry",
        to: &["casement-dial", "casement-domain"],
        advice: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-http",
        to: &["casement-dial", "casement-domain", "casement-no-schema"],
        advice: "add a port in casement-domain instead",
    },
    DependencyRule { from: "casement-dial", to: &[], advice: "it opens connections, and knows nobody who needs one" },
    DependencyRule { from: "casement-no-schema", to: &[], advice: "it derives nothing, and needs nothing for that" },
    DependencyRule {
        from: "casement-memory",
        to: &["casement-domain"],
        advice: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-sealing",
        to: &["casement-domain"],
        advice: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-egress",
        to: &["casement-dial"],
        advice: "it carries traffic and knows nothing of sessions: let the program pass values",
    },
    DependencyRule {
        from: "casement-sandbox",
        to: &[],
        advice: "a sandbox holds processes and knows nothing of browsers: pass what it needs in its specification",
    },
    DependencyRule {
        from: "casement-archive",
        to: &[],
        advice: "an archive holds files and knows nothing of what they are for beside browser extensions: pass a limit",
    },
    DependencyRule {
        from: "casement-agent",
        to: &["casement-agent-protocol", "casement-archive", "casement-sandbox"],
        advice: "the agent runs inside a sandbox: let the server tell it over the protocol",
    },
    DependencyRule {
        from: "casement-blobs",
        to: &["casement-archive", "casement-dial", "casement-domain"],
        advice: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-vaults",
        to: &["casement-domain"],
        advice: "it asks the web through its own trait `Web`: let the program implement it over the adapter",
    },
    DependencyRule {
        from: "casement-agent-protocol",
        to: &[],
        advice: "the protocol is plain messages: map them to the domain where they are used",
    },
    DependencyRule {
        from: "casement-chromium",
        to: &["casement-domain", "casement-sandbox", "casement-agent", "casement-agent-protocol"],
        advice: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement-cli",
        to: &["casement-archive", "casement-sealing"],
        advice: "it knows a server by its API: let the program pass the OpenAPI document",
    },
    DependencyRule {
        from: "casement-webdriver",
        to: &["casement-dial", "casement-domain"],
        advice: "it drives any WebDriver server and knows no sandbox: let the program pass a connector or a listener",
    },
    DependencyRule {
        from: "casement-runner",
        to: &["casement-archive", "casement-domain", "casement-sandbox"],
        advice: "add a port in casement-domain instead",
    },
    DependencyRule {
        from: "casement",
        to: &[
            "casement-agent",
            "casement-agent-protocol",
            "casement-archive",
            "casement-blobs",
            "casement-chromium",
            "casement-cli",
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
        advice: "the program wires the adapters together",
    },
    DependencyRule {
        from: "casement-test-support",
        to: &[],
        advice: "helpers of tests know no crate: pass what they need",
    },
    DependencyRule {
        from: "xtask",
        to: &[],
        advice: "xtask must build in seconds: run the program instead of linking it",
    },
];

/// The crates that the tests of any crate except [`WITHOUT_TEST_HELPERS`] may also use: the domain's mocks, the
/// temporary database, the test helpers and the WebDriver client.
const TEST_HELPERS: &[&str] = &["casement-domain", "casement-postgres", "casement-test-support", "casement-webdriver"];
const WITHOUT_TEST_HELPERS: &[&str] = &["casement-domain", "xtask"];

/// A technology that belongs to certain crates: the name prefixes of its packages, and the crates that may use it
/// directly.
struct TechnologyRule {
    packages: &'static [&'static str],
    allowed_in: &'static [&'static str],
    in_tests: bool,
    advice: &'static str,
}

const TECHNOLOGY_RULES: &[TechnologyRule] = &[
    TechnologyRule {
        packages: &["diesel", "tokio-postgres"],
        allowed_in: &["casement-postgres"],
        in_tests: false,
        advice: "SQL lives in casement-postgres: add a port in casement-domain and a repository there",
    },
    TechnologyRule {
        packages: &["actix"],
        allowed_in: &["casement-http"],
        in_tests: false,
        advice: "routes live in casement-http; hand it what it needs through a port",
    },
    TechnologyRule {
        packages: &["fantoccini", "webdriver"],
        allowed_in: &["casement-webdriver"],
        in_tests: false,
        advice: "WebDriver lives in casement-webdriver: use the BrowserEngine port",
    },
    TechnologyRule {
        packages: &["object_store"],
        allowed_in: &["casement-blobs"],
        in_tests: false,
        advice: "stored bytes lie behind the BlobStore port",
    },
    TechnologyRule {
        packages: &["opentelemetry"],
        allowed_in: &["casement-telemetry"],
        in_tests: true,
        advice: "exported telemetry goes through the TelemetryExporter port",
    },
    TechnologyRule {
        packages: &["clap", "metrics-exporter-"],
        allowed_in: &["casement", "casement-cli", "xtask"],
        in_tests: true,
        advice: "a library reads no command line and chooses no output: let the program pass a value",
    },
    TechnologyRule {
        packages: &["tracing-subscriber"],
        // The layer of traces is an output like others, which the program sets up.
        allowed_in: &["casement", "casement-telemetry"],
        in_tests: true,
        advice: "a library chooses no output: let the program set it up",
    },
    TechnologyRule {
        packages: &["anyhow"],
        allowed_in: &["casement", "casement-cli", "casement-test-support", "xtask"],
        in_tests: true,
        advice: "a crate boundary has a typed error: write an enum with thiserror",
    },
    TechnologyRule {
        packages: &["cargo_metadata"],
        allowed_in: &["xtask"],
        in_tests: false,
        advice: "questions about the workspace are asked in xtask",
    },
    TechnologyRule {
        packages: &["keepass"],
        allowed_in: &["casement-vaults"],
        in_tests: false,
        advice: "stores of logins lie behind the CredentialStore port",
    },
    TechnologyRule {
        packages: &["toml"],
        allowed_in: &["casement", "casement-cli", "xtask"],
        in_tests: false,
        advice: "the configuration file is the program's: let it pass a value",
    },
];

/// The allowed dependencies of the domain. A new one needs a reason in the commit, because other teams embed this
/// crate.
const DOMAIN_MAY_USE: &[&str] = &[
    "async-trait",
    "base64",           // encodes API keys, one-time links and audit cursors
    "bytes",            // the chunks of streams into and out of a session
    "futures-core",     // the trait of these streams
    "hkdf",             // derives keys from a secret
    "ipnet",            // parses networks in lists of hosts; it has no sockets
    "mockall",          // behind the feature `mocks`
    "parking_lot",      // a mutex without poisoning; it needs no runtime
    "percent-encoding", // decodes credentials in URLs; `url` depends on it anyway
    "psl",              // the list of public suffixes, as data
    "rustls-pki-types", // reads certificates; it has no code of TLS
    "secrecy",          // secrets are neither printed nor left in memory
    "serde_json",       // `Value` only, for free-form objects of the API
    "sha2",             // hashes API keys
    "strsim",           // the distance of a misspelt name; it depends on nothing
    "subtle",           // compares the hashes in constant time
    "thiserror",
    "time",
    "totp-rs", // one-time codes of logins
    "ulid",
    "url", // parses URLs as browsers do
];

/// The packages for input, output or a runtime that must not be transitive dependencies either.
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

/// The top folders of the checkout. Examples are in `docs/examples`, end-to-end tests in the crate of the program.
const TOP_FOLDERS: &[&str] = &[".cargo", ".ci", ".github", "crates", "deploy", "docs", "migrations", "xtask"];

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

#[test]
fn every_allowed_crate_is_used() {
    let metadata = metadata();
    let members = members(&metadata);
    let mut violations = Vec::new();
    for rule in DEPENDENCY_RULES {
        let used: BTreeSet<&str> = direct(members[rule.from], BUILT_IN).collect();
        let unused = rule.to.iter().filter(|name| !used.contains(**name));
        violations.extend(unused.map(|name| format!("{} does not use {name}: remove it from its rule", rule.from)));
    }
    assert_none(&violations);
}

#[test]
fn every_dependency_of_the_workspace_is_used_by_a_crate() {
    let metadata = metadata();
    let used: BTreeSet<&str> = metadata
        .workspace_packages()
        .into_iter()
        .flat_map(|package| package.dependencies.iter().map(|dependency| dependency.name.as_str()))
        .collect();
    let manifest = std::fs::read_to_string(workspace::root().join("Cargo.toml")).expect("the manifest is readable");
    let declared = manifest.split("[workspace.dependencies]").nth(1).expect("the workspace declares dependencies");
    let names = declared.lines().take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
    let unused = names.map(|(name, _)| name).filter(|name| !used.contains(name));
    assert_none(&unused.map(|name| format!("no crate uses the workspace dependency {name}")).collect::<Vec<_>>());
}

fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn every_crate_has_a_dependency_rule() {
    let metadata = metadata();
    let rows: BTreeSet<String> = DEPENDENCY_RULES.iter().map(|rule| rule.from.to_owned()).collect();
    let members: BTreeSet<String> = members(&metadata).into_keys().collect();
    assert_eq!(members, rows, "a new crate needs a row in DEPENDENCY_RULES: which of our crates may it use?");
}

#[test]
fn crates_use_only_the_allowed_crates() {
    let metadata = metadata();
    let members = members(&metadata);
    let mut violations = Vec::new();
    for rule in DEPENDENCY_RULES {
        let package = members[rule.from];
        for to in direct(package, BUILT_IN).filter(|name| members.contains_key(*name) && !rule.to.contains(name)) {
            violations.push(format!("{} must not depend on {to}: {}", rule.from, rule.advice));
        }
        let helpers = if WITHOUT_TEST_HELPERS.contains(&rule.from) { &[] } else { TEST_HELPERS };
        let in_tests = |name: &str| rule.to.contains(&name) || helpers.contains(&name) || name == rule.from;
        for to in direct(package, IN_TESTS).filter(|name| members.contains_key(*name) && !in_tests(name)) {
            let advice = "tests may borrow the domain's mocks and the throwaway database only; put the test where both are known";
            violations.push(format!("the tests of {} must not depend on {to}: {advice}", rule.from));
        }
    }
    assert_none(&violations);
}

#[test]
fn a_technology_is_used_by_its_crates_only() {
    let metadata = metadata();
    let mut violations = Vec::new();
    for (name, package) in members(&metadata) {
        for rule in TECHNOLOGY_RULES.iter().filter(|rule| !rule.allowed_in.contains(&name.as_str())) {
            let kinds = if rule.in_tests { BUILT_IN.to_vec() } else { [BUILT_IN, IN_TESTS].concat() };
            let held = |found: &&str| rule.packages.iter().any(|prefix| found.starts_with(prefix));
            for found in direct(package, &kinds).filter(held) {
                violations.push(format!("{name} must not depend on {found}: {}", rule.advice));
            }
        }
    }
    assert_none(&violations);
}

#[test]
fn the_domain_reaches_no_input_or_output() {
    let metadata = metadata();
    let domain = members(&metadata)["casement-domain"];
    let mut violations = Vec::new();
    for found in direct(domain, BUILT_IN).filter(|name| !DOMAIN_MAY_USE.contains(name)) {
        violations.push(format!(
            "casement-domain must not depend on {found}: if it does input, output, time or chance, make it a port; \
             if it is pure and worth it, add it to DOMAIN_MAY_USE and say why"
        ));
    }
    let transitive_names = transitive_names(&metadata, &domain.id);
    for found in DOMAIN_NEVER_REACHES.iter().filter(|name| transitive_names.contains(**name)) {
        violations.push(format!(
            "casement-domain reaches {found} through a dependency: `cargo tree -p casement-domain -i {found}`"
        ));
    }
    assert_none(&violations);
}

/// Returns the names of the transitive dependencies of the package, without build and development dependencies.
fn transitive_names(metadata: &Metadata, from: &PackageId) -> BTreeSet<String> {
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
fn the_top_folders_are_the_listed_ones() {
    let output = std::process::Command::new("git").args(["ls-files", "-z"]).current_dir(workspace::root()).output();
    let output = output.expect("git answers");
    assert!(
        output.status.success(),
        "this test asks git which files are ours: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let files = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let folders: BTreeSet<&str> = files.split('\0').filter_map(|path| Some(path.split_once('/')?.0)).collect();
    let violations: Vec<String> = folders
        .into_iter()
        .filter(|folder| !TOP_FOLDERS.contains(folder))
        .map(|folder| {
            format!("no folder {folder}/ at the top: examples go to docs/examples, tests to the crate they drive")
        })
        .collect();
    assert_none(&violations);
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
