//! What a program writes, as lines, the first so many bytes of it.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;

use crate::protocol::Said;

/// As much of a line, and of all of them, as is kept.
const MOST_OF_LINE: usize = 16 << 10;
const MOST: usize = 10 << 20;
/// What the shortest line counts as: it takes that much memory, also if it is empty.
const LEAST: usize = 48;
/// How many lines are sent at once, and how many bytes of them.
const LINES_AT_ONCE: usize = 1000;
const BYTES_AT_ONCE: usize = 512 << 10;

/// The lines that were written by now. They are kept until the sandbox ends: a server that comes back asks for them again.
#[derive(Debug)]
pub(super) struct Output {
    kept: Mutex<Kept>,
    /// How many there are, and whether there will be more.
    count: watch::Sender<(u64, bool)>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: Vec<Said>,
    bytes: usize,
}

impl Default for Output {
    fn default() -> Self {
        Self { kept: Mutex::default(), count: watch::Sender::new((0, false)) }
    }
}

impl Output {
    /// Takes what a program writes, to its end.
    pub(super) async fn take(&self, mut from: Receiver) {
        let (mut buffer, mut line, mut cut) = (vec![0; 64 << 10], Vec::new(), false);
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if self.is_full() {
                continue;
            }
            let (mut rest, at) = (&buffer[..count], now());
            while let Some(end) = memchr::memchr(b'\n', rest) {
                add(&mut line, &rest[..end], &mut cut);
                self.push(&line, at);
                line.clear();
                cut = false;
                rest = &rest[end + 1..];
            }
            add(&mut line, rest, &mut cut);
            self.tell();
        }
        if !line.is_empty() {
            self.push(&line, now());
        }
        self.tell();
    }

    /// There will be no more.
    pub(super) fn close(&self) {
        self.count.send_modify(|count| count.1 = true);
    }

    /// Some lines from the number `from` on, once there are any; `None` when there will be none.
    pub(super) async fn after(&self, from: u64) -> Option<Vec<Said>> {
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

    /// Some lines from the number `from` on that are there by now.
    pub(super) fn now(&self, from: u64) -> Vec<Said> {
        let kept = self.kept();
        let mut room = BYTES_AT_ONCE;
        let fits = |said: &&Said| {
            let left = room.checked_sub(said.text.len());
            room = left.unwrap_or_default();
            left.is_some()
        };
        let lines = kept.lines.iter().skip(usize::try_from(from).unwrap_or(usize::MAX));
        lines.take(LINES_AT_ONCE).take_while(fits).cloned().collect()
    }

    fn push(&self, line: &[u8], at: i64) {
        let mut kept = self.kept();
        if kept.bytes >= MOST {
            return;
        }
        let text = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned();
        kept.bytes += (text.len() + 1).max(LEAST);
        let number = kept.lines.len() as u64;
        kept.lines.push(Said { number, at, text });
    }

    fn tell(&self) {
        let lines = self.kept().lines.len() as u64;
        self.count.send_if_modified(|count| std::mem::replace(&mut count.0, lines) != lines);
    }

    fn is_full(&self) -> bool {
        self.kept().bytes >= MOST
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(line: &mut Vec<u8>, part: &[u8], cut: &mut bool) {
    let room = MOST_OF_LINE - line.len();
    *cut |= part.len() > room;
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
    use super::*;

    #[test]
    fn empty_lines_come_to_the_bound_too() {
        let output = Output::default();
        (0..MOST).for_each(|_| output.push(b"", 0));
        assert_eq!(output.kept().lines.len(), MOST.div_ceil(LEAST));
    }
}
