//! Chooses in the open list of a `<select>` with the mouse of a session without a display.
//!
//! The list is drawn by a widget of its own, which the debugging protocol does not reach with the mouse, but with the
//! keyboard. So the highlight of the list is moved with the arrow keys to the row at the mouse, and is followed in
//! pictures of the page. The row is chosen only once the highlight was seen there.

use std::ops::Range;
use std::time::Duration;

use super::input_error::InputError;
use super::key_sym::KeySym;
use super::look::decoded;
use super::page_input::{KEY_EVENT, PageInput, key_event};
use super::us_keys;
use crate::browser::focused::OpenPicker;
use crate::cdp::CdpError;
use crate::picture::Rgb;

const UP: KeySym = 0xff52;
const DOWN: KeySym = 0xff54;
const RETURN: KeySym = 0xff0d;
const HOME: KeySym = 0xff50;
/// The maximum number of moves of the highlight.
const MAX_MOVES: usize = 12;
/// The maximum number of pictures until the list has drawn a move of the highlight, and the pause between them.
const MAX_PICTURES: usize = 6;
const PAUSE: Duration = Duration::from_millis(40);
/// The pixels between two changed ones that belong to one range, because letters have the same colour in both.
const GAP: usize = 2;

/// A range of pixels from the top of the picture.
type Rows = Range<usize>;

/// The row at the mouse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// It is highlighted.
    Choice,
    /// It cannot be chosen.
    Fixed,
    Unclear,
}

/// How the highlight moved.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Moved {
    To(Rows),
    No,
    Unclear,
}

impl PageInput {
    /// Chooses the row at the mouse in an open list; a row that cannot be chosen keeps the list open. Returns false if the row
    /// is not known.
    pub(super) async fn choose_in_list(&mut self, list: &OpenPicker) -> Result<bool, InputError> {
        let found = self.highlight_row(list.is_last_selected()).await?;
        match found {
            Found::Choice => self.tap(RETURN, 1).await?,
            // The list chooses the highlighted row when it closes, so the highlight returns to where it was.
            Found::Fixed | Found::Unclear => {
                if let Some(selected) = list.selected() {
                    self.tap(HOME, 1).await?;
                    self.tap(DOWN, selected).await?;
                }
            }
        }
        Ok(found != Found::Unclear)
    }

    /// Moves the highlight to the row at the mouse. `is_at_end` is true if it cannot move down.
    async fn highlight_row(&mut self, is_at_end: bool) -> Result<Found, InputError> {
        let (x, y) = (self.at.x as usize, self.at.y as usize);
        let mut before = self.picture().await?;
        self.tap(if is_at_end { UP } else { DOWN }, 1).await?;
        let after = self.picture_after(&before, x).await?;
        let Moved::To(mut rows) = first_move(&changed_rows(&before, &after, x), !is_at_end) else {
            return Ok(Found::Unclear);
        };
        before = after;
        let mut last = None;
        for _ in 0..MAX_MOVES {
            if rows.contains(&y) {
                return Ok(Found::Choice);
            }
            let is_below = y >= rows.end;
            let distance = if is_below { y - rows.end } else { rows.start - y - 1 };
            let steps = distance / rows.len() + 1;
            // The highlight goes back and forth over a row that cannot be chosen.
            if steps == 1 && last == Some((!is_below, 1)) {
                return Ok(Found::Fixed);
            }
            last = Some((is_below, steps));
            self.tap(if is_below { DOWN } else { UP }, steps).await?;
            let after = self.picture_after(&before, x).await?;
            match next_move(&rows, &changed_rows(&before, &after, x)) {
                Moved::To(moved) => rows = moved,
                // Only rows that cannot be chosen follow.
                Moved::No => return Ok(Found::Fixed),
                Moved::Unclear => return Ok(Found::Unclear),
            }
            before = after;
        }
        Ok(Found::Unclear)
    }

    /// Presses and releases a key of the list several times.
    async fn tap(&mut self, key: KeySym, times: usize) -> Result<(), CdpError> {
        let Some(mut definition) = us_keys::definition(key, false) else { return Ok(()) };
        // The list handles the key itself; a character would arrive at the page.
        definition.text = None;
        for down in [true, false].repeat(times) {
            self.send(KEY_EVENT, key_event(&definition, 0, down)).await?;
        }
        Ok(())
    }

    async fn picture(&self) -> Result<Rgb, CdpError> {
        let page = self.page.as_ref().ok_or(CdpError::Closed)?;
        decoded(&self.browser.capture_visible(page).await?)
    }

    /// Returns the picture once the column differs from the one before and does not change any more.
    async fn picture_after(&self, before: &Rgb, x: usize) -> Result<Rgb, CdpError> {
        let mut last = self.picture().await?;
        for _ in 1..MAX_PICTURES {
            tokio::time::sleep(PAUSE).await;
            let next = self.picture().await?;
            let is_done = !changed_rows(before, &last, x).is_empty() && changed_rows(&last, &next, x).is_empty();
            last = next;
            if is_done {
                break;
            }
        }
        Ok(last)
    }
}

/// Returns the ranges of pixels of a column that differ.
fn changed_rows(before: &Rgb, after: &Rgb, x: usize) -> Vec<Rows> {
    let mut ranges: Vec<Rows> = Vec::new();
    for (y, (before, after)) in before.rows().zip(after.rows()).enumerate() {
        if before.get(x) == after.get(x) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if y - last.end <= GAP => last.end = y + 1,
            _ => ranges.push(y..y + 1),
        }
    }
    ranges
}

/// Returns the highlighted row after the first move, which changed two rows.
fn first_move(changed: &[Rows], is_down: bool) -> Moved {
    let (upper, lower) = match changed {
        [] => return Moved::No,
        // Two rows of the same height without anything between them.
        [both] if both.len() > 1 => {
            let middle = usize::midpoint(both.start, both.end);
            (both.start..middle, middle..both.end)
        }
        [upper, lower] => (upper.clone(), lower.clone()),
        _ => return Moved::Unclear,
    };
    Moved::To(if is_down { lower } else { upper })
}

/// Returns the highlighted row after a further move away from `rows`.
fn next_move(rows: &Rows, changed: &[Rows]) -> Moved {
    let sides =
        changed.iter().flat_map(|range| [range.start..range.end.min(rows.start), range.start.max(rows.end)..range.end]);
    let others: Vec<Rows> = sides.filter(|range| range.end > range.start + GAP).collect();
    match others.as_slice() {
        [] if changed.is_empty() => Moved::No,
        [to] => Moved::To(to.clone()),
        _ => Moved::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(changed: &[(usize, usize)], is_down: bool) -> Moved {
        let changed: Vec<Rows> = changed.iter().map(|(start, end)| *start..*end).collect();
        first_move(&changed, is_down)
    }

    fn next(changed: &[(usize, usize)]) -> Moved {
        let changed: Vec<Rows> = changed.iter().map(|(start, end)| *start..*end).collect();
        next_move(&(30..50), &changed)
    }

    #[test]
    fn the_highlight_is_found_in_what_a_move_changed() {
        assert_eq!(first(&[(10, 50)], true), Moved::To(30..50));
        assert_eq!(first(&[(10, 50)], false), Moved::To(10..30));
        assert_eq!(first(&[(10, 30), (50, 70)], true), Moved::To(50..70));
        assert_eq!(first(&[], true), Moved::No);
        assert_eq!(first(&[(1, 5), (6, 9), (20, 30)], true), Moved::Unclear);
        assert_eq!(next(&[(30, 70)]), Moved::To(50..70));
        assert_eq!(next(&[(10, 50)]), Moved::To(10..30));
        assert_eq!(next(&[(30, 50), (90, 110)]), Moved::To(90..110));
        assert_eq!(next(&[]), Moved::No);
        assert_eq!(next(&[(10, 20), (30, 50), (90, 110)]), Moved::Unclear);
    }
}
