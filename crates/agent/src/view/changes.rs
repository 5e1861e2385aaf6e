//! The numbered changes of a display.

use std::collections::VecDeque;

/// The maximum number of stored changes. A viewer that is further behind receives the whole display.
const REMEMBERED: usize = 64;
/// The side of a JPEG block, in pixels. A part that does not begin at a block would show its edges.
const BLOCK: u32 = 16;

/// A rectangle of pixels; `right` and `bottom` are exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) left: u32,
    pub(super) top: u32,
    pub(super) right: u32,
    pub(super) bottom: u32,
}

impl Area {
    /// The whole display.
    pub(super) const ALL: Self = Self { left: 0, top: 0, right: u32::MAX, bottom: u32::MAX };

    /// Creates an area from coordinates of the X server, which may be outside of the display.
    pub(super) fn at(x: i32, y: i32, width: u16, height: u16) -> Self {
        let edge = |value: i32| u32::try_from(value).unwrap_or(0);
        let (right, bottom) = (x.saturating_add(width.into()), y.saturating_add(height.into()));
        Self { left: edge(x), top: edge(y), right: edge(right), bottom: edge(bottom) }
    }

    pub(super) fn width(self) -> u32 {
        self.right.saturating_sub(self.left)
    }

    pub(super) fn height(self) -> u32 {
        self.bottom.saturating_sub(self.top)
    }

    fn with(self, other: Self) -> Self {
        Self {
            left: self.left.min(other.left),
            top: self.top.min(other.top),
            right: self.right.max(other.right),
            bottom: self.bottom.max(other.bottom),
        }
    }

    /// Returns the smallest rectangle of whole blocks that contains the area, clipped to the display; never empty.
    pub(super) fn aligned(self, width: u32, height: u32) -> Self {
        let start = |edge: u32, whole: u32| edge.min(whole.saturating_sub(1)) / BLOCK * BLOCK;
        let end = |edge: u32, start: u32, whole: u32| {
            edge.checked_next_multiple_of(BLOCK).unwrap_or(whole).max(start + 1).min(whole)
        };
        let (left, top) = (start(self.left, width), start(self.top, height));
        Self { left, top, right: end(self.right, left, width), bottom: end(self.bottom, top, height) }
    }
}

/// The changes of one display, numbered.
#[derive(Debug)]
pub(super) struct Changes {
    /// The number of the last change.
    state: u64,
    /// The stored changes with their numbers, oldest first.
    recent: VecDeque<(u64, Area)>,
    size: (u32, u32),
}

impl Changes {
    /// Creates changes whose numbers begin above `state`.
    pub(super) fn above(state: u64) -> Self {
        Self { state: state + 1, recent: VecDeque::new(), size: (0, 0) }
    }

    pub(super) fn state(&self) -> u64 {
        self.state
    }

    /// Adds a change of this area.
    pub(super) fn note(&mut self, area: Area) {
        self.state += 1;
        self.recent.push_back((self.state, area));
        if self.recent.len() > REMEMBERED {
            self.recent.pop_front();
        }
    }

    /// Returns the current state, and the area that changed after `since` on a display of this size.
    pub(super) fn since(&mut self, since: Option<u64>, size: (u32, u32)) -> (u64, Area) {
        if self.size != size {
            // Earlier changes belong to a display of another size.
            self.size = size;
            self.recent.clear();
            self.state += 1;
        }
        let oldest = self.recent.front().map_or(self.state + 1, |(number, _)| *number);
        let all = match since {
            Some(since) => since + 1 < oldest || since > self.state,
            None => true,
        };
        if all {
            return (self.state, Area::ALL);
        }
        let newer = self.recent.iter().filter(|(number, _)| Some(*number) > since).map(|(_, area)| *area);
        (self.state, newer.reduce(Area::with).unwrap_or(Area::at(0, 0, 1, 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: (u32, u32) = (100, 80);

    #[test]
    fn a_viewer_sees_changes_since_its_last_look_and_everything_after_a_long_time() {
        let mut changes = Changes::above(7);
        let (first, all) = changes.since(None, SIZE);
        assert_eq!(all, Area::ALL);
        changes.note(Area::at(10, 10, 5, 5));
        changes.note(Area::at(50, 20, 5, 5));
        let (second, both) = changes.since(Some(first), SIZE);
        assert_eq!(both, Area { left: 10, top: 10, right: 55, bottom: 25 });
        changes.note(Area::at(0, 70, 5, 5));
        assert_eq!(changes.since(Some(second), SIZE).1, Area::at(0, 70, 5, 5));
        for _ in 0..REMEMBERED {
            changes.note(Area::at(0, 0, 1, 1));
        }
        assert_eq!(changes.since(Some(second), SIZE).1, Area::ALL, "too long ago");
        assert_eq!(changes.since(Some(u64::MAX - 1), SIZE).1, Area::ALL, "never said by us");
    }

    #[test]
    fn another_size_is_a_change_of_everything() {
        let mut changes = Changes::above(0);
        let (state, _) = changes.since(None, SIZE);
        assert_eq!(changes.since(Some(state), (101, 80)).1, Area::ALL);
    }

    #[test]
    fn parts_are_made_of_whole_blocks_inside_of_the_display() {
        let aligned = |area: Area| area.aligned(SIZE.0, SIZE.1);
        assert_eq!(aligned(Area::at(17, 33, 2, 2)), Area { left: 16, top: 32, right: 32, bottom: 48 });
        assert_eq!(aligned(Area::ALL), Area { left: 0, top: 0, right: 100, bottom: 80 });
        assert_eq!(aligned(Area::at(95, 75, 50, 50)), Area { left: 80, top: 64, right: 100, bottom: 80 });
        let outside = aligned(Area::at(500, -20, 10, 10));
        assert!(outside.width() > 0 && outside.height() > 0 && outside.right <= 100, "{outside:?}");
    }
}
