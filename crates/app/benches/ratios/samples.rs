//! The measurements of one operation.

use std::time::{Duration, Instant};

/// Durations, in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1000.0);
    }

    pub(crate) fn add_ms(&mut self, ms: f64) {
        self.0.push(ms);
    }

    /// Runs a function and records its duration.
    pub(crate) fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        self.add(began.elapsed());
        result
    }

    pub(crate) fn extend(&mut self, others: &Self) {
        self.0.extend_from_slice(&others.0);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the smallest sample that `percent` of all samples do not exceed; 0 without samples.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    pub(crate) fn p50(&self) -> f64 {
        self.percentile(50.0)
    }

    pub(crate) fn p99(&self) -> f64 {
        self.percentile(99.0)
    }

    pub(crate) fn worst(&self) -> f64 {
        self.percentile(100.0)
    }
}
