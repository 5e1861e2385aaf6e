//! What is printed after all tests: what took how long, and what failed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::processors::Times;
use super::results::{Ended, Results};
use crate::step::readable;

/// The number of tests that are listed with their durations.
const SLOWEST: usize = 20;

/// A part of a run.
pub(super) struct Step {
    title: &'static str,
    duration: Duration,
    /// How much the processors of the machine worked meanwhile, if it took a second or more.
    busy_percent: Option<u64>,
}

impl Step {
    /// Runs a part; returns what it returns, and how long it took.
    pub(super) fn timed<T>(title: &'static str, part: impl FnOnce() -> T) -> (T, Self) {
        let (started, earlier) = (Instant::now(), Times::now());
        let result = part();
        let duration = started.elapsed();
        let times = Times::now().zip(earlier).filter(|_| duration.as_secs() > 0);
        (result, Self { title, duration, busy_percent: times.map(|(now, earlier)| now.busy_percent_since(earlier)) })
    }

    fn line(&self) -> String {
        let busy = self.busy_percent.map(|percent| format!(", processors {percent} % busy")).unwrap_or_default();
        format!("{:>12}  {}{busy}\n", readable(self.duration), self.title)
    }
}

/// Returns the durations of the steps and of the processes, longest first, the slowest tests, the failures, and last the line
/// `==> tests: N passed, N failed`.
pub(super) fn text(steps: &[Step], results: &[Results]) -> String {
    let mut text = String::from("==> what took how long\n");
    steps.iter().for_each(|step| text.push_str(&step.line()));
    let mut longest_first: Vec<&Results> = results.iter().collect();
    longest_first.sort_by_key(|one| Reverse(one.duration));
    for Results { title, threads, duration, ended, .. } in longest_first {
        let tests = ended.len();
        text.push_str(&format!("{:>12}  {title}: {tests} tests, {threads} at a time\n", readable(*duration)));
    }
    text.push_str(&slowest(results));
    let failed: usize = results.iter().map(|one| one.failed().count()).sum();
    if failed > 0 {
        text.push_str(&failures(results));
    }
    let passed = results.iter().map(|one| one.ended.len()).sum::<usize>() - failed;
    text.push_str(&format!("==> tests: {passed} passed, {failed} failed\n"));
    text
}

fn slowest(results: &[Results]) -> String {
    let with_title =
        |one: &'_ Results| one.ended.iter().map(|test| (one.title.clone(), test.clone())).collect::<Vec<_>>();
    let mut tests: Vec<(String, Ended)> = results.iter().flat_map(with_title).collect();
    tests.sort_by(|(_, one), (_, other)| other.seconds.total_cmp(&one.seconds));
    let lines =
        tests.iter().take(SLOWEST).map(|(title, test)| format!("{:>10.2} s  {title} {}\n", test.seconds, test.name));
    format!("==> the slowest tests\n{}", lines.collect::<String>())
}

fn failures(results: &[Results]) -> String {
    let mut text = String::from("==> failures\n");
    let mut again: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in results {
        for (name, failure) in one.failed() {
            text.push_str(&format!("---- {} {name}\n{failure}\n", one.title));
            again.entry(&one.package).or_default().push(name);
        }
    }
    text.push_str("==> to run them again\n");
    for (package, names) in again {
        text.push_str(&format!("cargo xtask test -p {package} {}\n", names.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(name: &str, seconds: f32, failure: Option<&str>) -> Ended {
        Ended { name: name.to_owned(), seconds, failure: failure.map(str::to_owned) }
    }

    fn results(package: &str, seconds: u64, ended: Vec<Ended>) -> Results {
        let (title, duration) = (format!("{package} tests/all.rs"), Duration::from_secs(seconds));
        Results { title, package: package.to_owned(), threads: 2, duration, ended }
    }

    #[test]
    fn the_summary_has_durations_and_failures_and_counts_over_all_lanes() {
        let all = [
            results("casement-http", 2, vec![ended("all::c", 1.5, None)]),
            results("casement", 65, vec![ended("all::a", 3.0, None), ended("all::b", 60.25, Some("left: 1\n"))]),
        ];
        let expected = "\
==> what took how long
   5 min 1 s  building, processors 97 % busy
   1 min 5 s  casement tests/all.rs: 2 tests, 2 at a time
       2.0 s  casement-http tests/all.rs: 1 tests, 2 at a time
==> the slowest tests
     60.25 s  casement tests/all.rs all::b
      3.00 s  casement tests/all.rs all::a
      1.50 s  casement-http tests/all.rs all::c
==> failures
---- casement tests/all.rs all::b
left: 1

==> to run them again
cargo xtask test -p casement all::b
==> tests: 2 passed, 1 failed
";
        let building = Step { title: "building", duration: Duration::from_secs(301), busy_percent: Some(97) };
        assert_eq!(text(&[building], &all), expected);
    }

    #[test]
    fn only_the_twenty_slowest_tests_are_listed() {
        let many = (0..30_u8).map(|n| ended(&format!("all::t{n}"), f32::from(n), None)).collect();
        let text = text(&[], &[results("casement", 65, many)]);
        assert!(text.contains("all::t10\n") && !text.contains("all::t9\n"), "{text}");
        assert!(text.ends_with("==> tests: 30 passed, 0 failed\n"), "{text}");
    }
}
