//! The log of a build.

use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::clock::Clock;
use casement_domain::deployment::{Line, Lines};
use secrecy::SecretString;
use time::OffsetDateTime;

use crate::git;
use crate::link::LineSink;
use crate::protocol::OutputLine;

/// Writes a program's output to the build log, with the program's secret replaced.
pub(super) struct LogRelay<'a> {
    build_log: &'a BuildLog,
    secret: Option<&'a SecretString>,
    /// The last line that is not empty.
    last: String,
    /// The last error of pip, or the first one of npm, whose later ones are hints.
    error: Option<String>,
}

impl<'a> LogRelay<'a> {
    pub(super) fn new(build_log: &'a BuildLog, secret: Option<&'a SecretString>) -> Self {
        Self { build_log, secret, last: String::new(), error: None }
    }

    /// Returns the line that says why the program failed, as far as one does; else the last line.
    pub(super) fn reason(self) -> String {
        self.error.unwrap_or(self.last)
    }

    fn note(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        line.clone_into(&mut self.last);
        match error_of_npm(line) {
            Some(error) if self.error.is_none() => self.error = Some(error.to_owned()),
            None if line.starts_with("ERROR: ") => self.error = Some(line.to_owned()),
            _ => {}
        }
    }
}

#[async_trait]
impl LineSink for LogRelay<'_> {
    async fn push(&mut self, mut lines: Vec<OutputLine>) {
        for line in &mut lines {
            line.text = git::without_token(&line.text, self.secret);
        }
        lines.iter().for_each(|line| self.note(line.text.trim()));
        self.build_log.relay(lines).await;
    }
}

/// Returns what a line of npm says about an error; `None` for its code and for empty lines.
fn error_of_npm(line: &str) -> Option<&str> {
    let text = line.strip_prefix("npm error ").or_else(|| line.strip_prefix("npm ERR! "))?.trim();
    (!text.is_empty() && !text.starts_with("code ")).then_some(text)
}

/// The log of one build, which numbers the lines.
pub(super) struct BuildLog {
    lines: Arc<dyn Lines>,
    clock: Arc<dyn Clock>,
    next: tokio::sync::Mutex<u64>,
}

impl BuildLog {
    pub(super) async fn new(lines: Arc<dyn Lines>, clock: Arc<dyn Clock>) -> Self {
        let next = tokio::sync::Mutex::new(lines.taken().await);
        Self { lines, clock, next }
    }

    /// Writes a line of the builder itself.
    pub(super) async fn write(&self, text: &str) {
        let at = self.clock.now();
        self.push(vec![(at, text.to_owned())]).await;
    }

    /// Writes lines of a program.
    async fn relay(&self, lines: Vec<OutputLine>) {
        let now = self.clock.now();
        self.push(lines.into_iter().map(|line| (clamped_time(line.at, now), line.text)).collect()).await;
    }

    async fn push(&self, texts: Vec<(OffsetDateTime, String)>) {
        let mut next = self.next.lock().await;
        let lines: Vec<Line> =
            (*next..).zip(texts).map(|(number, (at, text))| Line { number, at, text: truncated_line(text) }).collect();
        *next += lines.len() as u64;
        if !lines.is_empty() {
            self.lines.push(lines).await;
        }
    }
}

/// Truncates a line to its maximum, and replaces NUL, which PostgreSQL cannot store.
pub(crate) fn truncated_line(text: String) -> String {
    let mut text = if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text };
    let end = (0..=Line::MAX_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.truncate(end);
    text
}

/// Converts an untrusted timestamp of a sandbox, in milliseconds since 1970. Returns `now` if the timestamp differs by
/// two days or more.
pub(crate) fn clamped_time(milliseconds: i64, now: OffsetDateTime) -> OffsetDateTime {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(milliseconds) * 1_000_000);
    time.ok().filter(|time| (*time - now).abs() < time::Duration::days(2)).unwrap_or(now)
}
