//! The output of a program as lines, up to a limit.

use std::time::{SystemTime, UNIX_EPOCH};

use casement_domain::deployment::Line;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;

use crate::build::truncated_line;
use crate::protocol::OutputLine;

/// The maximum number of bytes buffered of the output before a call, so that there is space for the call's output.
const MAX_BYTES_BEFORE_CALL: u64 = 64 << 10;
/// The maximum number of lines of one message, and of their bytes.
const MAX_LINES_PER_MESSAGE: usize = 1000;
const BYTES_AT_ONCE: usize = 512 << 10;

/// The output lines. They are buffered until the sandbox ends, because a restarted server requests them again.
#[derive(Debug)]
pub(super) struct OutputBuffer {
    buffered: Mutex<BufferedLines>,
    /// The number of lines, and true if the output is complete.
    count: watch::Sender<(u64, bool)>,
}

#[derive(Debug, Default)]
struct BufferedLines {
    lines: Vec<OutputLine>,
    bytes: u64,
}

impl BufferedLines {
    /// Returns true if the output exceeds its limit. The line that exceeds the limit is still buffered, so that the
    /// server sees that there was more.
    fn is_full(&self) -> bool {
        self.bytes > Line::MAX_BYTES_IN_ALL
    }
}

/// Returns the size of a line in bytes, counted like in the store.
fn weight(text: &str) -> u64 {
    Line::MIN_BYTES.max(text.len() as u64)
}

impl Default for OutputBuffer {
    fn default() -> Self {
        Self { buffered: Mutex::default(), count: watch::Sender::new((0, false)) }
    }
}

impl OutputBuffer {
    /// Reads the output of a program to its end.
    pub(super) async fn take(&self, mut from: Receiver) {
        let (mut buffer, mut line) = (vec![0; 64 << 10], Vec::new());
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if self.buffered().is_full() {
                // Complete lines are dropped. The last incomplete line is retained, because there may be space again
                // when it is complete.
                let end = memchr::memrchr(b'\n', &buffer[..count]);
                if end.is_some() {
                    line.clear();
                }
                add(&mut line, &buffer[end.map_or(0, |end| end + 1)..count]);
                continue;
            }
            let (mut rest, at) = (&buffer[..count], now());
            while let Some(end) = memchr::memchr(b'\n', rest) {
                add(&mut line, &rest[..end]);
                self.push(&line, at);
                line.clear();
                rest = &rest[end + 1..];
            }
            add(&mut line, rest);
            self.notify();
        }
        if !line.is_empty() {
            self.push(&line, now());
        }
        self.notify();
    }

    /// Marks the beginning of a call: truncates the earlier output to [`MAX_BYTES_BEFORE_CALL`]. Must be called before
    /// the first request to follow the output.
    pub(super) fn begin_call(&self) {
        let lines = {
            let mut buffered = self.buffered();
            let mut bytes = 0;
            let fits = |line: &&OutputLine| {
                bytes += weight(&line.text);
                bytes <= MAX_BYTES_BEFORE_CALL
            };
            let fitting = buffered.lines.iter().take_while(fits).count();
            let at = buffered.lines.get(fitting).map(|line| line.at);
            buffered.lines.truncate(fitting);
            buffered.bytes = buffered.lines.iter().map(|line| weight(&line.text)).sum();
            if let Some(at) = at {
                let text =
                    format!("(more than {} KiB before the call; the rest is not kept)", MAX_BYTES_BEFORE_CALL >> 10);
                buffered.bytes += weight(&text);
                buffered.lines.push(OutputLine { number: fitting as u64, at, text });
            }
            buffered.lines.len() as u64
        };
        self.count.send_modify(|count| count.0 = lines);
    }

    /// Marks the output as complete.
    pub(super) fn close(&self) {
        self.count.send_modify(|count| count.1 = true);
    }

    /// Waits for lines from the number `from` on. Returns `None` if the output is complete.
    pub(super) async fn after(&self, from: u64) -> Option<Vec<OutputLine>> {
        let mut count = self.count.subscribe();
        loop {
            let (lines, closed) = *count.borrow_and_update();
            if lines > from {
                return Some(self.now(from));
            }
            if closed || count.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Returns the present lines from the number `from` on, as many as fit into one message.
    pub(super) fn now(&self, from: u64) -> Vec<OutputLine> {
        let buffered = self.buffered();
        let mut room = BYTES_AT_ONCE;
        let fits = |line: &&OutputLine| {
            let left = room.checked_sub(line.text.len());
            room = left.unwrap_or_default();
            left.is_some()
        };
        let lines = buffered.lines.iter().skip(usize::try_from(from).unwrap_or(usize::MAX));
        lines.take(MAX_LINES_PER_MESSAGE).take_while(fits).cloned().collect()
    }

    fn push(&self, line: &[u8], at: i64) {
        let mut buffered = self.buffered();
        if buffered.is_full() {
            return;
        }
        let text = truncated_line(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned());
        buffered.bytes += weight(&text);
        let number = buffered.lines.len() as u64;
        buffered.lines.push(OutputLine { number, at, text });
    }

    fn notify(&self) {
        let lines = self.buffered().lines.len() as u64;
        self.count.send_if_modified(|count| std::mem::replace(&mut count.0, lines) != lines);
    }

    fn buffered(&self) -> parking_lot::MutexGuard<'_, BufferedLines> {
        self.buffered.lock()
    }
}

/// Appends a part to a line, up to the longest line.
fn add(line: &mut Vec<u8>, part: &[u8]) {
    let room = Line::MAX_BYTES - line.len();
    line.extend_from_slice(&part[..part.len().min(room)]);
}

fn now() -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "when a line was written is known only here, and nothing is decided by it"
    )]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use casement_domain::deployment::{StoredLines, keep};
    use casement_domain::storage::StorageRoom;
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn empty_lines_count_towards_the_limit() {
        let output = OutputBuffer::default();
        let max = Line::MAX_BYTES_IN_ALL / Line::MIN_BYTES;
        (0..2 * max).for_each(|_| output.push(b"", 0));
        assert_eq!(output.buffered().lines.len() as u64, max + 1);
    }

    #[test]
    fn exceeding_output_is_marked_by_one_line() {
        let wide = "\u{fffd}".repeat(Line::MAX_BYTES);
        for line in [
            &b"a line that is quite ordinary and a little longer"[..],
            &[b'x'; 16 << 10],
            &[0xff; 16 << 10],
            wide.as_bytes(),
        ] {
            let output = OutputBuffer::default();
            (0..Line::MAX_BYTES_IN_ALL / 48).for_each(|_| output.push(&line[..line.len().min(Line::MAX_BYTES)], 0));
            let at = OffsetDateTime::UNIX_EPOCH;
            let lines = output.buffered().lines.clone();
            let lines: Vec<Line> =
                lines.into_iter().map(|line| Line { number: line.number, at, text: line.text }).collect();
            let (taken, stored) = keep(StoredLines::default(), &lines, &mut StorageRoom::unbounded());
            assert!(stored.full);
            let last = taken.last().expect("a line");
            assert_eq!(last.text, "(more than 10 MiB; the rest is not kept)");
        }
    }

    #[test]
    fn output_before_a_call_leaves_space_for_the_call() {
        let output = OutputBuffer::default();
        output.push(b"loading", 0);
        output.begin_call();
        assert_eq!(output.now(0).len(), 1);
        (0..2000).for_each(|_| output.push(&[b'x'; 16 << 10], 0));
        assert!(output.buffered().is_full());
        output.begin_call();
        assert!(output.buffered().bytes <= MAX_BYTES_BEFORE_CALL + 100);
        output.push(b"called", 0);
        let lines = output.now(0);
        let texts: Vec<&str> = lines.iter().rev().take(2).map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["called", "(more than 64 KiB before the call; the rest is not kept)"]);
        assert!(lines.iter().zip(0..).all(|(line, number)| line.number == number));
    }
}
