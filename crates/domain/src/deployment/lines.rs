//! How lines are cut and counted.

use super::{Line, StoredLines};
use crate::storage::{ROW_BYTES, StorageRoom};

/// What is kept of these lines after what is kept already, and how much is kept then. Numbers that were kept before are passed over;
/// each line is cut at its bound; the first one for which there is no room is replaced by a word that nothing more is kept. `room` is what
/// is left of it afterwards.
#[must_use]
pub fn keep(mut kept: StoredLines, lines: &[Line], room: &mut StorageRoom) -> (Vec<Line>, StoredLines) {
    let mut taken = Vec::new();
    for line in lines {
        if kept.full || line.number < kept.next {
            continue;
        }
        let text = clean(&line.text);
        let line = Line { text, ..line.clone() };
        kept.next = line.number + 1;
        if let Some(why) = no_room(kept, &line, room) {
            kept.full = true;
            let last = Line { text: format!("({why}; the rest is not kept)"), ..line };
            room.spend(last.stored_bytes());
            taken.push(last);
            break;
        }
        kept.bytes += line.bytes();
        taken.push(line);
    }
    (taken, kept)
}

impl Line {
    /// What it counts for among the lines of its build or call.
    fn bytes(&self) -> u64 {
        Self::MIN_BYTES.max(self.text.len() as u64)
    }

    /// What it takes where it is stored.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        ROW_BYTES + self.bytes()
    }
}

/// Why a line is not kept; takes its room if it is.
fn no_room(kept: StoredLines, line: &Line, room: &mut StorageRoom) -> Option<String> {
    if kept.bytes + line.bytes() > Line::MAX_BYTES_IN_ALL {
        return Some(format!("more than {} MiB", Line::MAX_BYTES_IN_ALL >> 20));
    }
    room.take(line.stored_bytes()).err().map(|limit| limit.message().to_owned())
}

/// At most [`Line::MAX_BYTES`], whole characters, and nothing that no store takes.
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
    fn a_line_is_kept_once_and_cut_at_its_bound() {
        let long = "ä".repeat(Line::MAX_BYTES);
        let (taken, kept) = keep(
            StoredLines::default(),
            &[line(0, "a\0b"), line(1, long), line(1, "again")],
            &mut StorageRoom::unbounded(),
        );
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0].text, "a\u{fffd}b");
        assert_eq!(taken[1].text.len(), Line::MAX_BYTES);
        assert_eq!(kept.next, 2);
        let (again, same) = keep(kept, &[line(0, "x"), line(1, "x")], &mut StorageRoom::unbounded());
        assert!(again.is_empty());
        assert_eq!(same, kept);
    }

    #[test]
    fn after_the_bound_one_line_says_so_and_nothing_more_is_kept() {
        let full = "x".repeat(Line::MAX_BYTES);
        let lines: Vec<Line> = (0..1000).map(|number| line(number, full.clone())).collect();
        let (taken, kept) = keep(StoredLines::default(), &lines, &mut StorageRoom::unbounded());
        assert_eq!(kept.bytes, Line::MAX_BYTES_IN_ALL);
        assert!(kept.full);
        assert_eq!(taken.len() as u64, Line::MAX_BYTES_IN_ALL / Line::MAX_BYTES as u64 + 1);
        assert_eq!(taken.last().map(|line| line.text.as_str()), Some("(more than 10 MiB; the rest is not kept)"));
        assert!(keep(kept, &[line(5000, "x")], &mut StorageRoom::unbounded()).0.is_empty());
    }

    #[test]
    fn where_a_limit_of_storage_is_reached_one_line_says_which_and_nothing_more_is_kept() {
        let mut room = StorageRoom { project: 2 * (ROW_BYTES + Line::MIN_BYTES), ..StorageRoom::unbounded() };
        let lines: Vec<Line> = (0..5).map(|number| line(number, "x")).collect();
        let (taken, kept) = keep(StoredLines::default(), &lines, &mut room);
        let said = "(the project's storage is used up; the rest is not kept)";
        assert_eq!(taken.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["x", "x", said]);
        assert!(kept.full);
        assert_eq!(room.project, 0);
    }

    #[test]
    fn empty_lines_count_towards_the_limit() {
        let most = Line::MAX_BYTES_IN_ALL / Line::MIN_BYTES;
        let lines: Vec<Line> = (0..2 * most).map(|number| line(number, "")).collect();
        let (taken, kept) = keep(StoredLines::default(), &lines, &mut StorageRoom::unbounded());
        assert!(kept.full);
        assert_eq!(taken.len() as u64, most + 1);
    }
}
