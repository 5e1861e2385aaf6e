//! What was seen of a pool after its last lease: how it is, and which browser comes next. The next caller then reads nothing before the
//! lease itself.
//!
//! Nothing depends on it. The lease says as which pool it was seen and gets nothing if that has changed, and its browser is asked after
//! the lease, as any.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Pool;
use crate::ids::{BrowserId, ProjectId};

/// How many pools are remembered; beyond that all are forgotten.
const MAX_COUNT: usize = 1000;

/// What was seen.
#[derive(Clone, Debug)]
pub(super) struct NextBrowser {
    pub(super) pool: Pool,
    pub(super) next: BrowserId,
}

/// What was seen of each pool, by what callers called it. Each is taken by one caller.
#[derive(Clone, Debug, Default)]
pub(super) struct NextBrowserCache(Arc<Mutex<HashMap<(ProjectId, String), NextBrowser>>>);

impl NextBrowserCache {
    fn all(&self) -> MutexGuard<'_, HashMap<(ProjectId, String), NextBrowser>> {
        // Every change is one call, so a panic elsewhere leaves nothing half-made.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self, project: ProjectId, which: &str) -> Option<NextBrowser> {
        self.all().remove(&(project, which.to_owned()))
    }

    pub(super) fn has(&self, project: ProjectId, which: &str) -> bool {
        self.all().contains_key(&(project, which.to_owned()))
    }

    pub(super) fn note(&self, project: ProjectId, which: &str, next_browser: NextBrowser) {
        let mut all = self.all();
        if all.len() >= MAX_COUNT {
            all.clear();
        }
        all.insert((project, which.to_owned()), next_browser);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{browser_id, pool, project_id};

    fn next_browser(next: u32) -> NextBrowser {
        NextBrowser { pool: pool(1).build(), next: browser_id(next) }
    }

    #[test]
    fn one_caller_alone_gets_what_was_seen() {
        let next_browsers = NextBrowserCache::default();
        next_browsers.note(project_id(), "one", next_browser(1));
        for (project, which) in [(ProjectId::from_ulid(ulid::Ulid(2)), "one"), (project_id(), "two")] {
            assert!(!next_browsers.has(project, which) && next_browsers.take(project, which).is_none());
        }
        assert!(next_browsers.has(project_id(), "one") && next_browsers.take(project_id(), "one").is_some());
        assert!(!next_browsers.has(project_id(), "one") && next_browsers.take(project_id(), "one").is_none());
    }

    #[test]
    fn pools_without_end_are_not_remembered() {
        let next_browsers = NextBrowserCache::default();
        for n in 0..=MAX_COUNT {
            next_browsers.note(project_id(), &n.to_string(), next_browser(1));
        }
        assert_eq!(next_browsers.all().len(), 1);
    }
}
