//! The page `docs/metrics.md`.

use std::fmt::Write as _;

use super::{Label, Metric, SECTIONS};

const INTRODUCTION: &str = r#"# Metrics

The metrics that a server exposes at `/metrics` in the text format of Prometheus, with a dashboard for Grafana and alert rules. This page
is generated from the table in the code; `cargo xtask openapi` writes it.

## Scrape the server

`/metrics` takes a key of the organization as a bearer token; a key of a project is refused. Create a key for Prometheus on the server's
machine, with the settings of the server:

```sh
casement keys create --name prometheus > /etc/prometheus/casement.key
curl -H "Authorization: Bearer $(cat /etc/prometheus/casement.key)" http://127.0.0.1:8080/metrics
```

```yaml
# prometheus.yml
rule_files:
  - casement-alerts.yaml
scrape_configs:
  - job_name: casement
    scrape_interval: 30s
    authorization:
      credentials_file: /etc/prometheus/casement.key
    static_configs:
      - targets: ["127.0.0.1:8080"]
```

- If Prometheus reaches the server by another host name than clients do, give the server this name with `--allowed-host`.
- Each scrape leaves one [audit record](organization.md#audit-records), as every call with a key does.
- Every node has its own metrics: scrape all nodes. The browsers and callers of a pool are those of the whole database, so that all nodes
  show the same; failed starts are those of the node.
- A counter begins at 0 with each start of the server. A counter with one label of fixed values has all its series from the start.
- The gauges are measured every few seconds, the stored bytes every 30 s.

## Load the alert rules

[alerts.yaml](../deploy/prometheus/alerts.yaml) contains the alert rules (in the package `/usr/share/casement/casement-alerts.yaml`). Copy it beside `prometheus.yml` as `casement-alerts.yaml`, and reload
Prometheus. The rules expect the job name `casement`. Each alert has a `severity` (`critical`: act now; `warning`: act in working
hours), a `summary`, a `description`, and a `runbook`: what to look at first.

The alert `CasementNotReady` needs a probe of `/readyz`, for example by the blackbox exporter of Prometheus; without the probe it never fires:

```yaml
  - job_name: casement-readyz
    metrics_path: /probe
    params:
      module: [http_2xx]
    static_configs:
      - targets: ["http://127.0.0.1:8080/readyz"]
    relabel_configs:
      - source_labels: [__address__]
        target_label: __param_target
      - source_labels: [__param_target]
        target_label: instance
      - target_label: __address__
        replacement: 127.0.0.1:9115 # the blackbox exporter
```

## Load the dashboard

In Grafana choose *Dashboards*, *New*, *Import*, and upload [casement.json](../deploy/grafana/casement.json) (in the package `/usr/share/casement/grafana-dashboard.json`). At its top select the data source and the
nodes. For provisioning, copy the file into the folder of a dashboard provider.
"#;

/// Returns the page: how to scrape and show the metrics, and a table for each part of the server.
pub(crate) fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for section in SECTIONS {
        // Writing to a string does not fail.
        let _ =
            writeln!(page, "\n## {}\n\n| metric | type | unit | meaning |\n| --- | --- | --- | --- |", section.title);
        for Metric { name, kind, unit, description, .. } in section.metrics {
            let _ = writeln!(page, "| `{name}` | {} | {unit} | {description} |", kind.as_str());
        }
        let mut labels =
            section.metrics.iter().flat_map(|metric| metric.labels.iter().map(move |label| (metric, label)));
        let Some(first) = labels.next() else { continue };
        let _ = writeln!(page, "\n| metric | label | meaning | values |\n| --- | --- | --- | --- |");
        for (metric, label) in std::iter::once(first).chain(labels) {
            let Label { name, meaning, .. } = label;
            let _ = writeln!(page, "| `{}` | `{name}` | {meaning} | {} |", metric.name, values(label));
        }
    }
    page
}

fn values(label: &Label) -> String {
    match label.values {
        [] => "any".to_owned(),
        values => values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_committed_page_of_metrics_is_what_the_table_declares() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let page = super::page();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == page, "docs/metrics.md: run `cargo xtask openapi`, or this test with UPDATE_DOCS=1");
    }
}
