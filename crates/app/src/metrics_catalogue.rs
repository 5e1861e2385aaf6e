//! The catalogue of the metrics at `/metrics`: their descriptions in the recorder, and the page `docs/metrics.md`.

#[cfg(test)]
mod deploy_tests;
mod page;
#[cfg(test)]
mod source_tests;
mod table;

pub(crate) use self::page::page;
use self::table::SECTIONS;

/// The metrics of one part of the server.
#[derive(Debug)]
struct Section {
    title: &'static str,
    metrics: &'static [Metric],
}

/// A metric of the server.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    kind: Kind,
    /// What a value counts, in the plural.
    unit: &'static str,
    pub(crate) labels: &'static [Label],
    /// One sentence, which is also the `HELP` line.
    description: &'static str,
}

/// The type of a metric in the format of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A label of a metric.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) name: &'static str,
    meaning: &'static str,
    /// All values; empty if they are not fixed.
    values: &'static [&'static str],
}

/// Returns all metrics, in the order of the page.
fn all() -> impl Iterator<Item = &'static Metric> {
    SECTIONS.iter().flat_map(|section| section.metrics)
}

/// Finds a metric by its name.
pub(crate) fn find(name: &str) -> Option<&'static Metric> {
    all().find(|metric| metric.name == name)
}

impl Metric {
    /// Renders the `HELP` and the `TYPE` line of a metric that is not in the recorder.
    pub(crate) fn header(&self) -> String {
        let Self { name, kind, description, .. } = self;
        format!("# HELP {name} {description}\n# TYPE {name} {}\n", kind.as_str())
    }
}

/// Describes every metric to the recorder of this thread or process. Sets counters to 0 if the values of their label are
/// fixed: Prometheus computes no increase for the first value of a series, so it would not see the first loss or failure.
pub(crate) fn describe_all() {
    for metric in all() {
        match metric.kind {
            Kind::Counter => {
                metrics::describe_counter!(metric.name, metric.description);
                set_to_zero(metric);
            }
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.description),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.description),
        }
    }
}

fn set_to_zero(counter: &'static Metric) {
    match counter.labels {
        [] => metrics::counter!(counter.name).increment(0),
        [label] => {
            for value in label.values {
                metrics::counter!(counter.name, label.name => *value).increment(0);
            }
        }
        // Not every combination of values occurs.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use casement_domain::storage::StorageLimit;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn described_metrics_have_help_and_counters_begin_at_zero() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            describe_all();
            metrics::gauge!("casement_disk_low").set(1.0);
        });
        let text = recorder.handle().render();
        for line in [
            "# HELP casement_audit_records_lost_total Counts ",
            "# TYPE casement_audit_records_lost_total counter\n",
            "casement_audit_records_lost_total 0\n",
            "casement_otlp_events_lost_total{reason=\"no_room\"} 0\n",
            "# HELP casement_disk_low Is 1 ",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        // Deleted pools must leave no series, so these are not in the recorder.
        assert!(!text.contains("casement_pool_"), "{text}");
    }

    #[test]
    fn names_are_unique_and_end_with_their_unit_and_kind() {
        let names: BTreeSet<&str> = all().map(|metric| metric.name).collect();
        assert_eq!(names.len(), all().count());
        for Metric { name, kind, unit, description, .. } in all() {
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert_eq!(name.contains("_bytes"), *unit == "bytes", "{name}");
            assert_eq!(name.ends_with("_seconds"), *unit == "seconds", "{name}");
            assert!(*kind != Kind::Histogram || *unit == "seconds", "{name}: the buckets are in seconds");
            assert!(description.ends_with('.') && !description.contains('|'), "{name}: {description}");
        }
    }

    #[test]
    fn the_values_of_limit_are_the_storage_limits() {
        let metric = find("casement_telemetry_limited_total").expect("in the table");
        assert_eq!(metric.labels[0].values, StorageLimit::ALL.map(StorageLimit::as_str));
    }
}
