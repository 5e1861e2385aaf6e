//! The next-browser cache: the pool and its next browser as read after the last lease, so that the next caller reads
//! nothing before the lease itself.
//!
//! Correctness does not depend on it: the lease fails if the pool has changed, and the browser is probed after the
//! lease as usual.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::super::Pool;
use crate::ids::{BrowserId, ProjectId};

/// The maximum of cached pools; when it is reached, the cache is emptied.
const MAX_COUNT: usize = 1000;

/// A pool and the browser that its next lease most likely takes.
#[derive(Clone, Debug)]
pub(super) struct NextBrowser {
    pub(super) pool: Pool,
    pub(super) next: BrowserId,
}

/// The cache, keyed by project and the pool's name or id as callers write it. Each entry is taken by one caller.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct NextBrowserCache(Arc<Mutex<HashMap<(ProjectId, String), NextBrowser>>>);

impl NextBrowserCache {
    fn all(&self) -> MutexGuard<'_, HashMap<(ProjectId, String), NextBrowser>> {
        self.0.lock()
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
    fn a_cached_browser_goes_to_one_caller_only() {
        let next_browsers = NextBrowserCache::default();
        next_browsers.note(project_id(), "one", next_browser(1));
        for (project, which) in [(ProjectId::from_ulid(ulid::Ulid(2)), "one"), (project_id(), "two")] {
            assert!(!next_browsers.has(project, which) && next_browsers.take(project, which).is_none());
        }
        assert!(next_browsers.has(project_id(), "one") && next_browsers.take(project_id(), "one").is_some());
        assert!(!next_browsers.has(project_id(), "one") && next_browsers.take(project_id(), "one").is_none());
    }

    #[test]
    fn the_number_of_cached_pools_is_bounded() {
        let next_browsers = NextBrowserCache::default();
        for n in 0..=MAX_COUNT {
            next_browsers.note(project_id(), &n.to_string(), next_browser(1));
        }
        assert_eq!(next_browsers.all().len(), 1);
    }
}
