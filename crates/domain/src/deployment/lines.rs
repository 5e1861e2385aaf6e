//! The bounds of log lines.

use super::{Line, StoredLines};
use crate::storage::{ROW_BYTES, StorageRoom};

/// Returns the lines to store after the stored ones, and the new totals. Lines that are stored already are skipped;
/// long lines are cut; the first line that exceeds a limit is replaced by a message that no more is stored. The stored
/// bytes are subtracted from `room`.
#[must_use]
pub fn keep(mut stored: StoredLines, lines: &[Line], room: &mut StorageRoom) -> (Vec<Line>, StoredLines) {
    let mut taken = Vec::new();
    for line in lines {
        if stored.full || line.number < stored.next {
            continue;
        }
        let text = clean(&line.text);
        let line = Line { text, ..line.clone() };
        stored.next = line.number + 1;
        if let Some(why) = no_room(stored, &line, room) {
            stored.full = true;
            let last = Line { text: format!("({why}; the rest is not kept)"), ..line };
            room.spend(last.stored_bytes());
            taken.push(last);
            break;
        }
        stored.bytes += line.bytes();
        taken.push(line);
    }
    (taken, stored)
}

impl Line {
    /// Returns the bytes that count against the limit of a build or an invocation.
    fn bytes(&self) -> u64 {
        Self::MIN_BYTES.max(self.text.len() as u64)
    }

    /// Returns the bytes that the line takes in the store.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        ROW_BYTES + self.bytes()
    }
}

/// Reserves the room of a line; returns the reason if there is none.
fn no_room(stored: StoredLines, line: &Line, room: &mut StorageRoom) -> Option<String> {
    if stored.bytes + line.bytes() > Line::MAX_BYTES_IN_ALL {
        return Some(format!("more than {} MiB", Line::MAX_BYTES_IN_ALL >> 20));
    }
    room.take(line.stored_bytes()).err().map(|limit| limit.message().to_owned())
}

/// Returns at most [`Line::MAX_BYTES`] of whole characters, without NUL, which the store does not accept.
fn clean(text: &str) -> String {
    let mut end = text.len().min(Line::MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    fn line(number: u64, text: impl Into<String>) -> Line {
        Line { number, at: OffsetDateTime::UNIX_EPOCH, text: text.into() }
    }

    #[test]
    fn a_line_is_stored_once_and_truncated_at_its_limit() {
        let long = "ä".repeat(Line::MAX_BYTES);
        let (taken, stored) = keep(
            StoredLines::default(),
            &[line(0, "a\0b"), line(1, long), line(1, "again")],
            &mut StorageRoom::unbounded(),
        );
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0].text, "a\u{fffd}b");
        assert_eq!(taken[1].text.len(), Line::MAX_BYTES);
        assert_eq!(stored.next, 2);
        let (again, same) = keep(stored, &[line(0, "x"), line(1, "x")], &mut StorageRoom::unbounded());
        assert!(again.is_empty());
        assert_eq!(same, stored);
    }

    #[test]
    fn after_the_limit_one_line_says_so_and_nothing_more_is_stored() {
        let full = "x".repeat(Line::MAX_BYTES);
        let lines: Vec<Line> = (0..1000).map(|number| line(number, full.clone())).collect();
        let (taken, stored) = keep(StoredLines::default(), &lines, &mut StorageRoom::unbounded());
        assert_eq!(stored.bytes, Line::MAX_BYTES_IN_ALL);
        assert!(stored.full);
        assert_eq!(taken.len() as u64, Line::MAX_BYTES_IN_ALL / Line::MAX_BYTES as u64 + 1);
        assert_eq!(taken.last().map(|line| line.text.as_str()), Some("(more than 10 MiB; the rest is not kept)"));
        assert!(keep(stored, &[line(5000, "x")], &mut StorageRoom::unbounded()).0.is_empty());
    }

    #[test]
    fn at_a_storage_limit_one_line_names_it_and_nothing_more_is_stored() {
        let mut room = StorageRoom { project: 2 * (ROW_BYTES + Line::MIN_BYTES), ..StorageRoom::unbounded() };
        let lines: Vec<Line> = (0..5).map(|number| line(number, "x")).collect();
        let (taken, stored) = keep(StoredLines::default(), &lines, &mut room);
        let message = "(the project's storage is used up; the rest is not kept)";
        assert_eq!(taken.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["x", "x", message]);
        assert!(stored.full);
        assert_eq!(room.project, 0);
    }

    #[test]
    fn empty_lines_count_towards_the_limit() {
        let max = Line::MAX_BYTES_IN_ALL / Line::MIN_BYTES;
        let lines: Vec<Line> = (0..2 * max).map(|number| line(number, "")).collect();
        let (taken, stored) = keep(StoredLines::default(), &lines, &mut StorageRoom::unbounded());
        assert!(stored.full);
        assert_eq!(taken.len() as u64, max + 1);
    }
}
