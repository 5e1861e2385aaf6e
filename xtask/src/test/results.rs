//! What the tests of a process did, read from its output.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write as _};
use std::time::Duration;

use cargo_metadata::TestMessage;
use cargo_metadata::libtest::{SuiteEvent, TestEvent};

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

/// What is known from the output of a process.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Output {
    pub(super) ended: Vec<Ended>,
    /// The tests that started and did not end.
    running: BTreeSet<String>,
}

/// Reads the output of a process until all its tests have ended; what a test left behind may hold the output open. Prints each ended test as a line with the title, because several
/// processes may print at once, and what is no event as it is. A failure is printed as one piece.
pub(super) fn read(title: &str, output: impl BufRead, print: impl Fn(&str)) -> Output {
    let mut read = Output::default();
    for line in output.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let (text, message) = parts(&line);
        if message.is_none() || !text.is_empty() {
            print(&format!("{text}\n"));
        }
        let event = match message {
            Some(TestMessage::Test(event)) => event,
            Some(TestMessage::Suite(SuiteEvent::Ok { .. } | SuiteEvent::Failed { .. })) => break,
            _ => continue,
        };
        match &event {
            TestEvent::Started { name } => drop(read.running.insert(name.clone())),
            TestEvent::Timeout { name } => print(&format!("running for over 60 s: {title} {name}\n")),
            _ => drop(read.running.remove(event.name())),
        }
        if let Some(test) = of_event(event) {
            print(&in_words(title, &test));
            read.ended.push(test);
        }
    }
    read
}

impl Output {
    /// Returns the tests of a process that has ended: each of these names that did not end has failed, and if all have
    /// passed, a failure of the process itself is one more failed test.
    pub(super) fn complete(self, names: &[String], outcome: &str, is_success: bool) -> Vec<Ended> {
        let Self { mut ended, running } = self;
        let known: BTreeSet<&str> = ended.iter().map(|test| test.name.as_str()).collect();
        let failed = |name: &str, what: &str| Ended {
            name: name.to_owned(),
            seconds: 0.0,
            failure: Some(format!("{what} when the test program ended with: {outcome}")),
        };
        let what = |name: &String| if running.contains(name) { "was running" } else { "had not started" };
        let missing = names.iter().filter(|name| !known.contains(name.as_str()));
        let mut missing: Vec<Ended> = missing.map(|name| failed(name, what(name))).collect();
        ended.append(&mut missing);
        if !is_success && ended.iter().all(|test| test.failure.is_none()) {
            ended.push(failed("(the program)", "all tests had passed"));
        }
        ended
    }
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
            let parts: Vec<String> = stdout.into_iter().chain(message).collect();
            Some(Ended { name, seconds: exec_time, failure: Some(parts.join("\n").trim_end().to_owned()) })
        }
        TestEvent::Started { .. } | TestEvent::Ignored { .. } | TestEvent::Timeout { .. } => None,
    }
}

fn in_words(title: &str, test: &Ended) -> String {
    let Ended { name, seconds, failure } = test;
    match failure {
        None => format!("ok     {seconds:>7.2} s  {title} {name}\n"),
        Some(failure) => format!("FAILED {seconds:>7.2} s  {title} {name}\n{failure}\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const OUTPUT: &str = r#"{ "type": "suite", "event": "started", "test_count": 2 }
{ "type": "test", "event": "started", "name": "all::one" }
{ "type": "test", "event": "started", "name": "all::three" }
text of a child
without an end{ "type": "test", "name": "all::one", "event": "ok", "exec_time": 1.5 }
{ "type": "test", "event": "timeout", "name": "all::two" }
{ "type": "test", "name": "all::two", "event": "failed", "exec_time": 61.0, "stdout": "left: 1\n" }
{ "type": "suite", "event": "failed", "passed": 1, "failed": 1, "ignored": 0, "measured": 0, "filtered_out": 0, "exec_time": 61.0 }
text of what a test left behind
"#;

    fn ended(name: &str, seconds: f32, failure: Option<&str>) -> Ended {
        Ended { name: name.to_owned(), seconds, failure: failure.map(str::to_owned) }
    }

    #[test]
    fn each_ended_test_is_read_also_after_text_of_another_process_until_the_last() {
        let printed = RefCell::new(String::new());
        let read = read("casement tests/all.rs", OUTPUT.as_bytes(), |text| printed.borrow_mut().push_str(text));
        assert_eq!(read.ended, [ended("all::one", 1.5, None), ended("all::two", 61.0, Some("left: 1"))]);
        assert_eq!(read.running, BTreeSet::from(["all::three".to_owned()]));
        let expected = "\
text of a child
without an end
ok        1.50 s  casement tests/all.rs all::one
running for over 60 s: casement tests/all.rs all::two
FAILED   61.00 s  casement tests/all.rs all::two
left: 1
";
        assert_eq!(printed.into_inner(), expected);
    }

    #[test]
    fn text_before_a_message_and_text_without_one_are_not_lost() {
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
        let one = ended("all::one", 1.5, None);
        let output = Output { ended: vec![one.clone()], running: BTreeSet::from(["all::two".to_owned()]) };
        let names = ["all::one", "all::two", "all::three"].map(str::to_owned);
        let two = ended("all::two", 0.0, Some("was running when the test program ended with: signal: 9 (SIGKILL)"));
        let three = "had not started when the test program ended with: signal: 9 (SIGKILL)";
        let expected = [one, two, ended("all::three", 0.0, Some(three))];
        assert_eq!(output.complete(&names, "signal: 9 (SIGKILL)", false), expected);
    }

    #[test]
    fn a_program_that_fails_after_its_tests_has_failed() {
        let names = ["all::one".to_owned()];
        let after = |test: &Ended, outcome: &str, is_success: bool| {
            Output { ended: vec![test.clone()], ..Output::default() }.complete(&names, outcome, is_success)
        };
        let (passed, failed) = (ended("all::one", 1.5, None), ended("all::one", 1.5, Some("left: 1")));
        assert_eq!(after(&passed, "exit status: 0", true), std::slice::from_ref(&passed));
        assert_eq!(after(&failed, "exit status: 101", false), std::slice::from_ref(&failed));
        let own =
            ended("(the program)", 0.0, Some("all tests had passed when the test program ended with: exit status: 3"));
        assert_eq!(after(&passed, "exit status: 3", false), [passed, own]);
    }
}
