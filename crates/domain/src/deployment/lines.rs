//! How lines are cut and counted.

use super::{Kept, Line};

/// What is kept of these lines after what is kept already, and how much is kept then. Numbers that were kept before are passed over;
/// each line is cut at its bound; the first one for which there is no room is replaced by a word that nothing more is kept.
#[must_use]
pub fn keep(mut kept: Kept, lines: &[Line]) -> (Vec<Line>, Kept) {
    let mut taken = Vec::new();
    for line in lines {
        if kept.full || line.number < kept.next {
            continue;
        }
        let text = clean(&line.text);
        let bytes = Line::LEAST_BYTES.max(text.len() as u64);
        kept.next = line.number + 1;
        if kept.bytes + bytes > Line::MOST_BYTES_IN_ALL {
            kept.full = true;
            let text = format!("(more than {} MiB; the rest is not kept)", Line::MOST_BYTES_IN_ALL >> 20);
            taken.push(Line { text, ..line.clone() });
            break;
        }
        kept.bytes += bytes;
        taken.push(Line { text, ..line.clone() });
    }
    (taken, kept)
}

/// At most [`Line::MOST_BYTES`], whole characters, and nothing that no store takes.
fn clean(text: &str) -> String {
    let mut end = text.len().min(Line::MOST_BYTES);
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
        let long = "ä".repeat(Line::MOST_BYTES);
        let (taken, kept) = keep(Kept::default(), &[line(0, "a\0b"), line(1, long), line(1, "again")]);
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0].text, "a\u{fffd}b");
        assert_eq!(taken[1].text.len(), Line::MOST_BYTES);
        assert_eq!(kept.next, 2);
        let (again, same) = keep(kept, &[line(0, "x"), line(1, "x")]);
        assert!(again.is_empty());
        assert_eq!(same, kept);
    }

    #[test]
    fn after_the_bound_one_line_says_so_and_nothing_more_is_kept() {
        let full = "x".repeat(Line::MOST_BYTES);
        let lines: Vec<Line> = (0..1000).map(|number| line(number, full.clone())).collect();
        let (taken, kept) = keep(Kept::default(), &lines);
        assert_eq!(kept.bytes, Line::MOST_BYTES_IN_ALL);
        assert!(kept.full);
        assert_eq!(taken.len() as u64, Line::MOST_BYTES_IN_ALL / Line::MOST_BYTES as u64 + 1);
        assert_eq!(taken.last().map(|line| line.text.as_str()), Some("(more than 10 MiB; the rest is not kept)"));
        assert!(keep(kept, &[line(5000, "x")]).0.is_empty());
    }

    #[test]
    fn empty_lines_come_to_the_bound_too() {
        let most = Line::MOST_BYTES_IN_ALL / Line::LEAST_BYTES;
        let lines: Vec<Line> = (0..2 * most).map(|number| line(number, "")).collect();
        let (taken, kept) = keep(Kept::default(), &lines);
        assert!(kept.full);
        assert_eq!(taken.len() as u64, most + 1);
    }
}
