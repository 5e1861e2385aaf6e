//! What the tests of a process did, read from its output.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write as _};
use std::time::Duration;

use cargo_metadata::TestMessage;
use cargo_metadata::libtest::TestEvent;

/// A test that has ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) seconds: f32,
    /// What it printed, if it failed.
    pub(super) failure: Option<String>,
}

/// What the tests of a process did.
#[derive(Debug, PartialEq)]
pub(super) struct Results {
    /// What a person calls the process.
    pub(super) title: String,
    /// The package of its program.
    pub(super) package: String,
    /// The number of tests that ran at a time.
    pub(super) threads: usize,
    pub(super) duration: Duration,
    pub(super) ended: Vec<Ended>,
}

impl Results {
    /// Returns each failed test with what it printed.
    pub(super) fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ended.iter().filter_map(|test| Some((test.name.as_str(), test.failure.as_deref()?)))
    }
}

/// Reads the output of a process until its end. Prints each ended test as a line with the title, because several
/// processes may print at once, and what is no event as it is. A failure is printed as one piece.
pub(super) fn read(title: &str, output: impl BufRead) -> Vec<Ended> {
    let mut ended = Vec::new();
    for line in output.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let (text, message) = parts(&line);
        if message.is_none() || !text.is_empty() {
            print(&format!("{text}\n"));
        }
        let Some(TestMessage::Test(event)) = message else { continue };
        if let TestEvent::Timeout { name } = &event {
            print(&format!("running for over 60 s: {title} {name}\n"));
        }
        if let Some(test) = of_event(event) {
            print(&in_words(title, &test));
            ended.push(test);
        }
    }
    ended
}

/// Returns the names that did not end, or a failure of the program itself, as failed tests; none after a success.
pub(super) fn missing(names: &[String], ended: &[Ended], outcome: &str, is_success: bool) -> Vec<Ended> {
    let known: BTreeSet<&str> = ended.iter().map(|test| test.name.as_str()).collect();
    let failed = |name: &str| Ended {
        name: name.to_owned(),
        seconds: 0.0,
        failure: Some(format!("did not end; the test program: {outcome}\n")),
    };
    let missing: Vec<Ended> =
        names.iter().filter(|name| !known.contains(name.as_str())).map(|name| failed(name)).collect();
    let is_explained = is_success || !missing.is_empty() || ended.iter().any(|test| test.failure.is_some());
    if is_explained { missing } else { vec![failed("(all passed)")] }
}

/// Writes to standard output; a reader that is gone does not end the tests.
pub(super) fn print(text: &str) {
    drop(io::stdout().lock().write_all(text.as_bytes()));
}

/// Returns the message in a line, and the text before it: a process that a test has started may write there too, also
/// without ending its line.
fn parts(line: &str) -> (&str, Option<TestMessage>) {
    let start = line.find("{ \"type\": \"").unwrap_or(line.len());
    match serde_json::from_str(&line[start..]) {
        Ok(message) => (&line[..start], Some(message)),
        Err(_) => (line, None),
    }
}

fn of_event(event: TestEvent) -> Option<Ended> {
    match event {
        TestEvent::Ok { name, exec_time, .. } => Some(Ended { name, seconds: exec_time, failure: None }),
        TestEvent::Failed { name, exec_time, stdout, message, .. } => {
            let failure = stdout.into_iter().chain(message).collect::<Vec<_>>().join("\n");
            Some(Ended { name, seconds: exec_time, failure: Some(failure) })
        }
        TestEvent::Started { .. } | TestEvent::Ignored { .. } | TestEvent::Timeout { .. } => None,
    }
}

fn in_words(title: &str, test: &Ended) -> String {
    let Ended { name, seconds, failure } = test;
    match failure {
        None => format!("ok     {seconds:>7.2} s  {title} {name}\n"),
        Some(failure) => format!("FAILED {seconds:>7.2} s  {title} {name}\n{failure}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"{ "type": "suite", "event": "started", "test_count": 2 }
{ "type": "test", "event": "started", "name": "all::one" }
text of a child
without an end{ "type": "test", "name": "all::one", "event": "ok", "exec_time": 1.5 }
{ "type": "test", "event": "timeout", "name": "all::two" }
{ "type": "test", "name": "all::two", "event": "failed", "exec_time": 61.0, "stdout": "left: 1\n" }
{ "type": "suite", "event": "failed", "passed": 1, "failed": 1, "ignored": 0, "measured": 0, "filtered_out": 0, "exec_time": 61.0 }
"#;

    fn ended(name: &str, seconds: f32, failure: Option<&str>) -> Ended {
        Ended { name: name.to_owned(), seconds, failure: failure.map(str::to_owned) }
    }

    #[test]
    fn each_ended_test_is_read_also_after_text_of_another_process() {
        let read = read("casement tests/all.rs", OUTPUT.as_bytes());
        assert_eq!(read, [ended("all::one", 1.5, None), ended("all::two", 61.0, Some("left: 1\n"))]);
    }

    #[test]
    fn text_before_a_message_and_text_without_one_are_kept() {
        let finished = r#"{ "type": "test", "name": "one", "event": "ok", "exec_time": 0.1 }"#;
        assert_eq!(parts(finished).0, "");
        assert!(parts(finished).1.is_some());
        assert_eq!(parts(&format!("a child{finished}")).0, "a child");
        for other in ["a child", r#"{ "type": "#, r#"{ "type": "unknown" }"#, ""] {
            assert_eq!(parts(other), (other, None));
        }
    }

    #[test]
    fn a_test_that_did_not_end_has_failed() {
        let names = ["all::one", "all::two"].map(str::to_owned);
        let missing = missing(&names, &[ended("all::one", 1.5, None)], "signal: 9 (SIGKILL)", false);
        assert_eq!(missing, [ended("all::two", 0.0, Some("did not end; the test program: signal: 9 (SIGKILL)\n"))]);
    }

    #[test]
    fn a_program_that_fails_after_its_tests_has_failed() {
        let one = [ended("all::one", 1.5, None)];
        let names = ["all::one".to_owned()];
        assert_eq!(missing(&names, &one, "exit status: 0", true), []);
        assert_eq!(missing(&names, &one, "exit status: 3", false).len(), 1);
        let failed = [ended("all::one", 1.5, Some("left: 1\n"))];
        assert_eq!(missing(&names, &failed, "exit status: 101", false), []);
    }
}
