//! The last lines of output of the session's own programs.

use std::collections::VecDeque;
use std::io;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::sync::Notify;

use crate::clock::now_ms;
use casement_agent_protocol::session_log::LogLine;

/// The maximum size of the retained lines of each log, in bytes.
const MAX_BUFFERED: usize = 256 << 10;
/// The memory of a line in addition to its text, in bytes.
const LINE_COST: usize = 48;
/// The maximum length of a line, in bytes. A longer line is split.
const MAX_LINE: usize = 4 << 10;

/// The logs of the browser, the X server and the agent.
pub(crate) static CHROMIUM: RetainedLines = RetainedLines::new();
pub(crate) static DISPLAY: RetainedLines = RetainedLines::new();
pub(crate) static AGENT: RetainedLines = RetainedLines::new();

/// The last lines of one log. Grows as needed, up to its bound.
pub(crate) struct RetainedLines {
    lines: Mutex<Lines>,
    news: Notify,
}

struct Lines {
    retained: VecDeque<LogLine>,
    weight: usize,
    /// The number of dropped lines, which is also the number of the first retained line.
    dropped: u64,
}

impl RetainedLines {
    const fn new() -> Self {
        let lines = Lines { retained: VecDeque::new(), weight: 0, dropped: 0 };
        Self { lines: Mutex::new(lines), news: Notify::const_new() }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock()
    }

    /// Adds a line without its line end.
    pub(crate) fn add(&self, line: &[u8]) {
        let message = String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']).to_owned();
        let mut lines = self.lines();
        lines.weight += message.len() + LINE_COST;
        lines.retained.push_back(LogLine { read_at_ms: now_ms(), message });
        while lines.weight > MAX_BUFFERED {
            let Some(oldest) = lines.retained.pop_front() else { break };
            lines.weight -= oldest.message.len() + LINE_COST;
            lines.dropped += 1;
        }
        drop(lines);
        self.news.notify_waiters();
    }

    /// Returns the lines from number `next` on, up to about `max` bytes, and the number after them.
    pub(crate) fn read(&self, next: u64, max: usize) -> (Vec<LogLine>, u64) {
        let lines = self.lines();
        let skipped = usize::try_from(next.saturating_sub(lines.dropped)).unwrap_or(usize::MAX);
        let mut weight = 0;
        let wanted = lines.retained.iter().skip(skipped).take_while(|line| {
            let fits = weight < max;
            weight += line.message.len();
            fits
        });
        let read: Vec<LogLine> = wanted.cloned().collect();
        let next = next.max(lines.dropped) + read.len() as u64;
        (read, next)
    }

    /// Returns a future that completes when a line is added after the future was enabled or first polled.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.news.notified()
    }

    /// Adds the lines of `source` until its end.
    pub(crate) async fn fill(&self, source: impl AsyncRead + Unpin) {
        let mut reader = BufReader::with_capacity(1024, source);
        let mut line = Vec::new();
        loop {
            line.clear();
            // Bounded: a line without an end is read in pieces.
            match (&mut reader).take(MAX_LINE as u64).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => self.add(&line),
            }
        }
    }
}

/// The writer of the agent's log: passes it to the standard error unchanged, and retains its last lines.
#[derive(Debug, Default)]
pub struct AgentLog;

impl io::Write for AgentLog {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            line.chunks(MAX_LINE).for_each(|part| AGENT.add(part));
        }
        io::stderr().write_all(text)?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(retained: &RetainedLines, next: u64) -> (Vec<String>, u64) {
        let (lines, next) = retained.read(next, usize::MAX);
        (lines.into_iter().map(|line| line.message).collect(), next)
    }

    #[test]
    fn a_reader_goes_on_where_it_was() {
        let retained = RetainedLines::new();
        retained.add(b"one\r\n");
        retained.add(b"two \xff");
        assert_eq!(messages(&retained, 0), (vec!["one".to_owned(), "two \u{fffd}".to_owned()], 2));
        assert_eq!(messages(&retained, 2), (vec![], 2));
        retained.add(b"three");
        assert_eq!(messages(&retained, 2), (vec!["three".to_owned()], 3));
        assert_eq!(retained.read(0, 1).0.len(), 1);
    }

    #[test]
    fn a_log_is_bounded_and_a_late_reader_gets_its_last_lines() {
        let retained = RetainedLines::new();
        for n in 0..100_000 {
            retained.add(format!("line {n}").as_bytes());
        }
        let (lines, next) = messages(&retained, 0);
        assert_eq!((next, lines.last().map(String::as_str)), (100_000, Some("line 99999")));
        assert!(lines.len() > 3000 && lines.len() * LINE_COST < MAX_BUFFERED, "{}", lines.len());
        assert_eq!(messages(&retained, 17).0.len(), lines.len());
    }
}
