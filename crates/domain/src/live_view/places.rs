//! The live views that a session may have at the same time.
//!
//! A view-only link is passed on, so those who only watch may be many. They leave places to people who may act.

/// The maximum number of live views of a session.
pub const MAX_VIEWS: usize = 24;
/// The maximum number of live views that may only watch.
pub const MAX_WATCHING_VIEWS: usize = 16;

/// The session has no place for a further live view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session has {views} live views already")]
pub struct TooManyViews {
    /// The number of open live views that count against the limit.
    pub views: usize,
}

/// The open live views of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenViews {
    watching: usize,
    acting: usize,
}

impl OpenViews {
    /// Adds a live view. `may_act`: its person may use mouse and keyboard.
    ///
    /// # Errors
    /// [`TooManyViews`]; nothing was added.
    pub fn open(&mut self, may_act: bool) -> Result<(), TooManyViews> {
        let all = self.watching + self.acting;
        if all >= MAX_VIEWS {
            return Err(TooManyViews { views: all });
        }
        if !may_act && self.watching >= MAX_WATCHING_VIEWS {
            return Err(TooManyViews { views: self.watching });
        }
        *self.count(may_act) += 1;
        Ok(())
    }

    /// Removes a live view.
    pub fn close(&mut self, may_act: bool) {
        let count = self.count(may_act);
        *count = count.saturating_sub(1);
    }

    /// Returns whether no live view is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn count(&mut self, may_act: bool) -> &mut usize {
        if may_act { &mut self.acting } else { &mut self.watching }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_only_watch_leave_places_to_those_who_may_act() {
        let mut views = OpenViews::default();
        for _ in 0..MAX_WATCHING_VIEWS {
            views.open(false).expect("a place");
        }
        assert_eq!(views.open(false), Err(TooManyViews { views: MAX_WATCHING_VIEWS }));
        for _ in MAX_WATCHING_VIEWS..MAX_VIEWS {
            views.open(true).expect("a place");
        }
        assert_eq!(views.open(true), Err(TooManyViews { views: MAX_VIEWS }));
        views.close(false);
        views.open(true).expect("a place");
        assert_eq!(views.open(false), Err(TooManyViews { views: MAX_VIEWS }));
    }

    #[test]
    fn closed_views_leave_nothing() {
        let mut views = OpenViews::default();
        views.open(true).expect("a place");
        assert!(!views.is_empty());
        views.close(true);
        assert!(views.is_empty());
    }
}
