//! Limits the number of open pages. Each page takes memory and time in every operation on all pages, so that an
//! unlimited number would make the browser unusable.

use parking_lot::Mutex;
use serde_json::json;

use super::Browser;
use crate::cdp::CdpError;

/// The maximum number of open pages. Further pages are closed.
pub(super) const MAX_OPEN: usize = 200;

/// The targets of the open pages, in the order in which they were opened.
#[derive(Debug, Default)]
pub(super) struct OpenPages(Mutex<Vec<String>>);

impl OpenPages {
    /// Adds a page; returns false if there are too many already.
    pub(super) fn admit(&self, target: &str) -> bool {
        let mut open = self.0.lock();
        if open.iter().any(|known| known == target) {
            return true;
        }
        let has_room = open.len() < MAX_OPEN;
        if has_room {
            open.push(target.to_owned());
        }
        has_room
    }

    pub(super) fn remove(&self, target: &str) {
        self.0.lock().retain(|known| known != target);
    }

    /// Sorts pages: the one that was opened last comes first, and unknown ones before it.
    pub(super) fn newest_first(&self, mut pages: Vec<String>) -> Vec<String> {
        let open = self.0.lock();
        let rank = |target: &String| open.iter().position(|known| known == target).unwrap_or(open.len());
        pages.sort_by_key(|target| std::cmp::Reverse(rank(target)));
        pages
    }

    /// Replaces the open pages by `all`, and returns those that exceed the limit.
    fn surplus(&self, all: &[String]) -> Vec<String> {
        let mut open = self.0.lock();
        open.retain(|target| all.contains(target));
        let mut surplus = Vec::new();
        for target in all {
            if !open.contains(target) {
                if open.len() < MAX_OPEN {
                    open.push(target.clone());
                } else {
                    surplus.push(target.clone());
                }
            }
        }
        surplus
    }
}

impl Browser {
    /// Closes a page that exceeds the limit.
    pub(super) async fn close_page(&self, target: &str) {
        tracing::debug!(max = MAX_OPEN, "closes a page because too many are open");
        drop(self.cdp.send(None, "Target.closeTarget", json!({ "targetId": target })).await);
    }

    /// Closes the pages over the limit. Needed because notices of new pages can be lost when too many open at once.
    pub(crate) async fn close_surplus_pages(&self) -> Result<(), CdpError> {
        let all: Vec<String> = self.page_addresses().await?.into_iter().map(|(target, _)| target).collect();
        for target in self.open_pages.surplus(&all) {
            self.close_page(&target).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_pages_are_found_and_a_closed_page_makes_room() {
        let open_pages = OpenPages::default();
        let all: Vec<String> = (0..=MAX_OPEN).map(|number| number.to_string()).collect();
        assert!(all[..MAX_OPEN].iter().all(|target| open_pages.admit(target)));
        assert!(open_pages.admit("0") && !open_pages.admit("one more"));
        assert_eq!(open_pages.surplus(&all), [MAX_OPEN.to_string()]);
        open_pages.remove("0");
        assert_eq!(open_pages.surplus(&all[1..]), Vec::<String>::new());
    }

    #[test]
    fn the_page_that_was_opened_last_comes_before_earlier_ones() {
        let open_pages = OpenPages::default();
        assert!(["a", "b", "c"].iter().all(|target| open_pages.admit(target)));
        open_pages.remove("b");
        let sorted = open_pages.newest_first(["a", "c", "new"].map(str::to_owned).to_vec());
        assert_eq!(sorted, ["new", "c", "a"]);
    }
}
