//! The gauges of each pool for `/metrics`.
//!
//! They are not in the metrics recorder, because it never removes a series, but pools are deleted.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::Arc;

use casement_domain::PoolId;
use casement_http::{PoolStatus, PoolStatusSource};
use parking_lot::{Mutex, MutexGuard};

use crate::metrics_catalogue;

/// The gauges of the existing pools. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct PoolGauges(Arc<Mutex<BTreeMap<PoolId, Gauges>>>);

#[derive(Default)]
struct Gauges {
    counts: PoolCounts,
    failed_starts: u32,
    start_failures: u64,
    /// The reason why the last start failed, as a stable code; the log has the text of the error.
    blocked: Option<&'static str>,
}

/// The browsers and waiters of a pool.
#[derive(Clone, Copy, Default)]
pub(crate) struct PoolCounts {
    pub(crate) idle: u32,
    pub(crate) leased: u32,
    pub(crate) waiters: u32,
    /// The time that the first waiter has waited.
    pub(crate) longest_wait_seconds: f64,
}

impl PoolStatusSource for PoolGauges {
    fn status(&self, pool: PoolId) -> PoolStatus {
        let pools = self.pools();
        let Some(figures) = pools.get(&pool) else { return PoolStatus::default() };
        let seconds = figures.counts.longest_wait_seconds.clamp(0.0, u32::MAX.into());
        PoolStatus {
            waiting: figures.counts.waiters,
            longest_wait_seconds: seconds as u32,
            failed_starts: figures.failed_starts,
            blocked: figures.blocked,
        }
    }
}

/// The labels and values of one metric.
type Samples = Vec<(String, f64)>;

impl PoolGauges {
    fn pools(&self) -> MutexGuard<'_, BTreeMap<PoolId, Gauges>> {
        self.0.lock()
    }

    /// Stores the counts of all existing pools, and removes the gauges of deleted pools.
    pub(crate) fn store_counts(&self, counts: Vec<(PoolId, PoolCounts)>) {
        let mut pools = self.pools();
        let mut before = std::mem::take(&mut *pools);
        pools.extend(counts.into_iter().map(|(pool, counts)| {
            let figures = before.remove(&pool).unwrap_or_default();
            (pool, Gauges { counts, ..figures })
        }));
    }

    /// Records that a browser of the pool has started.
    pub(crate) fn started(&self, pool: PoolId) {
        let mut pools = self.pools();
        let figures = pools.entry(pool).or_default();
        (figures.failed_starts, figures.blocked) = (0, None);
    }

    /// Records that a browser of the pool did not start, with the number of failures in a row and the reason.
    pub(crate) fn failed(&self, pool: PoolId, in_a_row: u32, reason: &'static str) {
        let mut pools = self.pools();
        let figures = pools.entry(pool).or_default();
        (figures.failed_starts, figures.blocked) = (in_a_row, Some(reason));
        figures.start_failures += 1;
    }

    /// Renders the gauges in the text format of Prometheus.
    pub(crate) fn render(&self) -> String {
        let pools = self.pools();
        let mut text = String::new();
        let mut family = |name: &str, samples: &dyn Fn(&PoolId, &Gauges) -> Samples| {
            let mut all = pools.iter().flat_map(|(id, pool)| samples(id, pool)).peekable();
            if all.peek().is_none() {
                return;
            }
            if let Some(metric) = metrics_catalogue::find(name) {
                text.push_str(&metric.header());
            }
            for (labels, value) in all {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{name}{{{labels}}} {value}");
            }
            text.push('\n');
        };
        let one = |id: &PoolId, value: f64| vec![(label("pool", id), value)];
        let two = |id: &PoolId, name: &str, what: &str| format!("{},{}", label("pool", id), label(name, &what));
        family("casement_pool_browsers", &|id, pool| {
            let counts = pool.counts;
            [("idle", counts.idle), ("leased", counts.leased)]
                .map(|(state, n)| (two(id, "state", state), n.into()))
                .into()
        });
        family("casement_pool_waiters", &|id, pool| one(id, pool.counts.waiters.into()));
        family("casement_pool_longest_wait_seconds", &|id, pool| one(id, pool.counts.longest_wait_seconds));
        family("casement_pool_failed_starts", &|id, pool| one(id, pool.failed_starts.into()));
        family("casement_pool_start_failures_total", &|id, pool| one(id, pool.start_failures as f64));
        family("casement_pool_blocked", &|id, pool| {
            pool.blocked.map(|reason| (two(id, "reason", reason), 1.0)).into_iter().collect()
        });
        text
    }
}

/// Ids and stable codes need no escaping.
fn label(name: &str, value: &dyn Display) -> String {
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use casement_domain::PoolId;

    use super::*;

    fn pool(number: u128) -> PoolId {
        PoolId::from_ulid(ulid::Ulid::from_parts(1, number))
    }

    #[test]
    fn a_deleted_pool_leaves_no_series() {
        let figures = PoolGauges::default();
        let counts = PoolCounts { idle: 1, leased: 2, waiters: 3, longest_wait_seconds: 0.5 };
        figures.store_counts(vec![(pool(1), counts), (pool(2), PoolCounts::default())]);
        figures.failed(pool(1), 4, "no_room");
        let shown = figures.render();
        let id = pool(1);
        for sample in [
            format!("casement_pool_browsers{{pool=\"{id}\",state=\"idle\"}} 1\n"),
            format!("casement_pool_browsers{{pool=\"{id}\",state=\"leased\"}} 2\n"),
            format!("casement_pool_waiters{{pool=\"{id}\"}} 3\n"),
            format!("casement_pool_longest_wait_seconds{{pool=\"{id}\"}} 0.5\n"),
            format!("casement_pool_failed_starts{{pool=\"{id}\"}} 4\n"),
            format!("casement_pool_start_failures_total{{pool=\"{id}\"}} 1\n"),
            format!("casement_pool_blocked{{pool=\"{id}\",reason=\"no_room\"}} 1\n"),
        ] {
            assert!(shown.contains(&sample), "{sample}{shown}");
        }
        assert_eq!(shown.matches("# TYPE casement_pool_waiters gauge\n").count(), 1);

        figures.store_counts(vec![(pool(2), PoolCounts::default())]);
        assert!(!figures.render().contains(&id.to_string()));
        figures.store_counts(Vec::new());
        assert_eq!(figures.render(), "");
    }

    #[test]
    fn each_series_has_the_labels_of_the_catalogue() {
        let figures = PoolGauges::default();
        figures.failed(pool(1), 1, "timeout");
        let shown = figures.render();
        assert_eq!(shown.matches("# HELP ").count(), 6, "{shown}");
        for line in shown.lines().filter(|line| line.ends_with(|last: char| last.is_ascii_digit())) {
            let (name, rest) = line.split_once('{').expect("labels");
            let metric = metrics_catalogue::find(name).expect("in the catalogue");
            let labels: Vec<&str> = rest.split(',').filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
            assert_eq!(labels, metric.labels.iter().map(|label| label.name).collect::<Vec<_>>(), "{line}");
        }
    }

    #[test]
    fn new_counts_keep_the_failure_until_a_start_succeeds() {
        let figures = PoolGauges::default();
        figures.failed(pool(1), 1, "timeout");
        figures.failed(pool(1), 2, "no_room");
        figures.store_counts(vec![(pool(1), PoolCounts::default())]);
        let shown = figures.render();
        assert!(shown.contains("no_room") && !shown.contains("timeout"), "{shown}");
        figures.started(pool(1));
        let shown = figures.render();
        assert!(!shown.contains("casement_pool_blocked"), "{shown}");
        assert!(
            shown.contains("start_failures_total") && shown.contains("\"} 2\n"),
            "a counter does not go back: {shown}"
        );
    }
}
