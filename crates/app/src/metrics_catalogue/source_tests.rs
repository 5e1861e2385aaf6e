//! The table and the uses of metrics in the sources of all crates match.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Kind, all, find};

/// A use of a metric in the sources.
#[derive(Debug)]
struct MetricUse {
    place: String,
    name: String,
    /// `None` for the gauges of pools, which have their type from the table.
    kind: Option<Kind>,
    /// The names of the labels; `None` if they are not written in the call.
    labels: Option<BTreeSet<String>>,
}

/// The calls that name a metric as their first argument.
const CALLS: [(&str, Option<Kind>); 4] = [
    ("counter!(", Some(Kind::Counter)),
    ("gauge!(", Some(Kind::Gauge)),
    ("histogram!(", Some(Kind::Histogram)),
    ("family(", None),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn uses() -> Vec<MetricUse> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&crates).expect("the folder of crates") {
        sources(&entry.expect("a readable folder").path().join("src"), &mut paths);
    }
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("sources are UTF-8");
        uses_in(&path.display().to_string(), &text)
    };
    paths.into_iter().flat_map(read).collect()
}

fn uses_in(place: &str, text: &str) -> Vec<MetricUse> {
    let mut found = Vec::new();
    for (call, kind) in CALLS {
        for (start, _) in text.match_indices(call) {
            let arguments = arguments(&text[start + call.len()..]);
            let Some(literal) = arguments.trim_start().strip_prefix('"') else { continue };
            let Some((name, rest)) = literal.split_once('"').filter(|(name, _)| name.starts_with("casement_")) else {
                continue;
            };
            let labels = (kind.is_some() && !rest.contains('&')).then(|| label_names(rest));
            found.push(MetricUse { place: place.to_owned(), name: name.to_owned(), kind, labels });
        }
    }
    found
}

/// Returns the text up to the closing parenthesis of a call.
fn arguments(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|letter: char| {
        depth += match letter {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// Returns the names of `"name" => value` pairs.
fn label_names(arguments: &str) -> BTreeSet<String> {
    let (pairs, _) = arguments.rsplit_once("=>").unwrap_or_default();
    pairs.split("=>").filter_map(|pair| Some(pair.rsplit('"').nth(1)?.to_owned())).collect()
}

#[test]
fn every_metric_of_the_sources_is_in_the_table_with_its_type_and_labels() {
    let uses = uses();
    assert!(uses.len() > 40, "{} uses: are the sources read correctly?", uses.len());
    let mut violations = Vec::new();
    for MetricUse { place, name, kind, labels } in uses {
        let Some(metric) = find(&name) else {
            violations.push(format!("{place}: {name} is missing in crates/app/src/metrics_catalogue/table.rs"));
            continue;
        };
        if kind.is_some_and(|kind| kind != metric.kind) {
            violations.push(format!("{place}: {name} is a {} in the table", metric.kind.as_str()));
        }
        let declared: BTreeSet<String> = metric.labels.iter().map(|label| label.name.to_owned()).collect();
        if let Some(labels) = labels.filter(|labels| *labels != declared) {
            violations.push(format!("{place}: {name} has the labels {labels:?}, in the table {declared:?}"));
        }
    }
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn every_metric_of_the_table_is_used_in_the_sources() {
    let used: BTreeSet<String> = uses().into_iter().map(|one| one.name).collect();
    let unused: Vec<&str> = all().map(|metric| metric.name).filter(|name| !used.contains(*name)).collect();
    assert!(unused.is_empty(), "remove from crates/app/src/metrics_catalogue/table.rs: {unused:?}");
}

#[test]
fn calls_over_several_lines_are_read_with_their_labels() {
    let text = concat!(
        "counter",
        "!(\n    \"casement_a_total\",\n    \"one\" => limit.as_str(),\n    \"two\" => \"2\"\n).increment(1);\n",
        "gauge",
        "!(\"casement_b\").set(f(1)); describe_gauge",
        "!(name, text); histogram",
        "!(\"casement_c\", &labels[..2])"
    );
    let found = uses_in("a.rs", text);
    let labels = |index: usize| found[index].labels.clone().map(|labels| labels.into_iter().collect::<Vec<_>>());
    assert_eq!(
        found.iter().map(|one| &*one.name).collect::<Vec<_>>(),
        ["casement_a_total", "casement_b", "casement_c"]
    );
    assert_eq!(labels(0), Some(vec!["one".to_owned(), "two".to_owned()]));
    assert_eq!((labels(1), labels(2)), (Some(Vec::new()), None));
}
