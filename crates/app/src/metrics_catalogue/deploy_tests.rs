//! The alert rules and the dashboard in `deploy` use only metrics, labels and values of the table.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{Kind, Label, Metric, find};

/// The labels that Prometheus adds, and the one of a histogram's buckets.
const STANDARD_LABELS: [&str; 3] = ["job", "instance", "le"];

/// A query, and the text in which its labels are shown.
#[derive(Debug)]
struct Query {
    place: String,
    expression: String,
    shown: String,
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A metric in an expression, with its matchers: name of the label, operator and value.
type Selector<'a> = (&'a str, Vec<(&'a str, &'a str, &'a str)>);

fn selectors(expression: &str) -> Vec<Selector<'_>> {
    let selector = |(start, _): (usize, &str)| {
        let text = &expression[start..];
        let end = text.find(|letter: char| letter != '_' && !letter.is_ascii_lowercase()).unwrap_or(text.len());
        let braces = text[end..].strip_prefix('{').and_then(|rest| Some(rest.split_once('}')?.0));
        (&text[..end], braces.unwrap_or_default().split(',').filter_map(matcher).collect())
    };
    expression.match_indices("casement_").map(selector).collect()
}

fn matcher(text: &str) -> Option<(&str, &str, &str)> {
    let (condition, value) = text.trim().trim_end_matches('"').split_once('"')?;
    let operator = condition.find(['=', '!'])?;
    Some((condition[..operator].trim(), &condition[operator..], value))
}

/// Returns the metric of a series, such as `casement_http_request_seconds_bucket`.
fn metric_of(series: &str) -> Option<&'static Metric> {
    let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| series.strip_suffix(suffix));
    let is_histogram = |metric: &&Metric| metric.kind == Kind::Histogram;
    match of_histogram.and_then(find).filter(is_histogram) {
        Some(metric) => Some(metric),
        None => find(series).filter(|metric| !is_histogram(metric)),
    }
}

/// Returns the names in `by (a, b)` of an expression.
fn grouping(expression: &str) -> impl Iterator<Item = &str> {
    let lists = expression.split("by (").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    lists.flat_map(|list| list.split(',').map(str::trim))
}

/// Returns the labels of `{{label}}` in a legend, and of `{{ $labels.label }}` in an annotation.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let inner = text.split("{{").skip(1).filter_map(|rest| Some(rest.split_once("}}")?.0.trim()));
    inner.filter(|inner| !inner.starts_with("$value")).map(|inner| {
        let name = inner.strip_prefix("$labels.").unwrap_or(inner);
        name.split([' ', '|']).next().unwrap_or(name)
    })
}

fn violations(query: &Query) -> Vec<String> {
    let mut found = Vec::new();
    let mut labels: BTreeSet<&str> = STANDARD_LABELS.into();
    for (series, matchers) in selectors(&query.expression) {
        let Some(metric) = metric_of(series) else {
            found.push(format!("{series} is not a series of a metric of the table"));
            continue;
        };
        labels.extend(metric.labels.iter().map(|label| label.name));
        for (name, operator, value) in matchers.into_iter().filter(|(name, ..)| !STANDARD_LABELS.contains(name)) {
            let label = metric.labels.iter().find(|label| label.name == name);
            if !label.is_some_and(|label| accepts(label, operator, value)) {
                found.push(format!("{series} has no {name}{operator}{value:?}"));
            }
        }
    }
    let named = grouping(&query.expression).chain(placeholders(&query.shown));
    found.extend(named.filter(|name| !labels.contains(name)).map(|name| format!("no metric has the label {name}")));
    found.into_iter().map(|why| format!("{}: {why}: {}", query.place, query.expression)).collect()
}

/// Returns false if a fixed value is not one of the label's values. Regular expressions are not checked.
fn accepts(label: &Label, operator: &str, value: &str) -> bool {
    label.values.is_empty() || operator.contains('~') || label.values.contains(&value)
}

fn assert_known(queries: &[Query]) {
    let violations: Vec<String> = queries.iter().flat_map(violations).collect();
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// An alert rule: its lines as keys and values.
type Rule<'a> = Vec<(&'a str, &'a str)>;

/// Reads the rules of a file in which every value is on the line of its key.
fn rules(text: &str) -> Vec<Rule<'_>> {
    let mut rules: Vec<Rule> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let starts_rule = line.starts_with("- alert:");
        let Some((key, value)) = line.trim_start_matches("- ").split_once(':') else { continue };
        let pair = (key, value.trim().trim_matches('"'));
        match rules.last_mut() {
            _ if starts_rule => rules.push(vec![pair]),
            Some(rule) => rule.push(pair),
            None => {}
        }
    }
    rules
}

fn value<'a>(rule: &Rule<'a>, key: &str) -> &'a str {
    rule.iter().find(|(name, _)| *name == key).map_or("", |(_, value)| value)
}

#[test]
fn alert_rules_use_only_metrics_and_labels_of_the_table() {
    let text = read("prometheus/alerts.yaml");
    let rules = rules(&text);
    assert!(rules.len() >= 15, "{} rules: is the file read correctly?", rules.len());
    let query = |rule: &Rule| Query {
        place: value(rule, "alert").to_owned(),
        expression: value(rule, "expr").to_owned(),
        shown: ["summary", "description", "runbook"].map(|key| value(rule, key)).concat(),
    };
    assert_known(&rules.iter().map(query).collect::<Vec<_>>());
}

#[test]
fn every_alert_rule_is_complete_and_has_a_name_of_its_own() {
    let text = read("prometheus/alerts.yaml");
    let rules = rules(&text);
    for rule in &rules {
        for key in ["expr", "for", "severity", "summary", "description", "runbook"] {
            assert!(!value(rule, key).is_empty(), "{}: {key} is missing", value(rule, "alert"));
        }
        assert!(["critical", "warning"].contains(&value(rule, "severity")), "{rule:?}");
    }
    let names: BTreeSet<&str> = rules.iter().map(|rule| value(rule, "alert")).collect();
    assert_eq!(names.len(), rules.len());
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the queries of the panels of the dashboard.
fn queries_of_panels(dashboard: &Value) -> Vec<Query> {
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let (place, shown) = (text(&panel["title"]), text(&target["legendFormat"]));
            queries.push(Query { place, expression: text(&target["expr"]), shown });
        }
    }
    queries
}

#[test]
fn every_metric_is_on_the_dashboard_which_shows_0_where_nothing_was_counted() {
    let dashboard: Value = serde_json::from_str(&read("grafana/casement.json")).expect("JSON");
    let queries = queries_of_panels(&dashboard);
    let selectors = queries.iter().flat_map(|query| selectors(&query.expression));
    let shown: BTreeSet<&str> = selectors.filter_map(|(series, _)| Some(metric_of(series)?.name)).collect();
    let missing: Vec<&str> = super::all().map(|metric| metric.name).filter(|name| !shown.contains(name)).collect();
    assert!(missing.is_empty(), "deploy/grafana/casement.json shows none of {missing:?}");
    for Query { place, expression, .. } in &queries {
        // No free space is no state of a server without figures.
        let has_value = expression.ends_with(" or on() vector(0)") || expression.contains("casement_disk_free_bytes");
        assert!(has_value, "{place}: without a series, \"No data\" is shown: {expression}");
        let divides = expression.contains(" / ") || expression.contains("histogram_quantile");
        assert!(
            !divides || expression.contains(" >= 0)"),
            "{place}: without requests, the value is no number: {expression}"
        );
    }
}

#[test]
fn the_dashboard_uses_only_metrics_and_labels_of_the_table() {
    let dashboard: Value = serde_json::from_str(&read("grafana/casement.json")).expect("JSON");
    let mut queries = queries_of_panels(&dashboard);
    assert!(queries.len() >= 30, "{} queries: is the file read correctly?", queries.len());
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        queries.push(Query {
            place: text(&variable["name"]),
            expression: text(&variable["query"]),
            shown: String::new(),
        });
    }
    assert_known(&queries);
}

#[test]
fn the_panels_of_the_dashboard_have_ids_of_their_own_and_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(&read("grafana/casement.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().expect("an id")).collect();
    assert_eq!(ids.len(), panels.len());
    let mut cells = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a number"));
        assert!(x + w <= 24, "{panel}");
        let mut covered = (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y)));
        assert!(covered.all(|cell| cells.insert(cell)), "{} overlaps another panel", panel["title"]);
    }
}

#[test]
fn unknown_metrics_labels_and_values_are_found() {
    let found = |expression: &str, shown: &str| {
        violations(&Query { place: String::new(), expression: expression.to_owned(), shown: shown.to_owned() }).len()
    };
    assert_eq!(found("sum by (le, instance) (rate(casement_http_request_seconds_bucket[5m]))", "{{instance}}"), 0);
    assert_eq!(
        found("casement_pool_browsers{pool=~\"$pool\", state=\"idle\"} > 0", "{{ $labels.pool }}: {{ $value }}"),
        0
    );
    assert_eq!(found("casement_unknown", ""), 1);
    assert_eq!(found("casement_http_request_seconds", ""), 1, "a histogram has no series of its own name");
    assert_eq!(found("casement_sessions_count", ""), 1);
    assert_eq!(found("casement_pool_browsers{state=\"warming\"}", ""), 1);
    assert_eq!(found("casement_sessions{pool=\"a\"}", ""), 1);
    assert_eq!(found("sum by (pool) (casement_sessions)", "{{ $labels.route }}"), 2);
}
