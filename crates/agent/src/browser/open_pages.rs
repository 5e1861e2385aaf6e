//! How many pages a browser may have. Each costs memory and is asked when something is asked of all of them; a page or a client that opens
//! them without end would leave a browser that answers nobody.

use std::collections::HashSet;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::Browser;
use crate::cdp::CdpError;

/// Pages that may be open at once. What is opened beyond is closed again.
pub(super) const MAX_OPEN: usize = 200;

/// The pages that are open.
#[derive(Debug, Default)]
pub(super) struct OpenPages(Mutex<HashSet<String>>);

impl OpenPages {
    /// Notes a page; `false` if there are too many already.
    pub(super) fn admit(&self, target: &str) -> bool {
        let mut open = self.0.lock();
        open.contains(target) || (open.len() < MAX_OPEN && open.insert(target.to_owned()))
    }

    pub(super) fn left(&self, target: &str) {
        self.0.lock().remove(target);
    }

    /// Those of `all` that are too many; what is not among them is open no more.
    fn beyond(&self, all: &[String]) -> Vec<String> {
        let mut open = self.0.lock();
        open.retain(|target| all.contains(target));
        let mut beyond = Vec::new();
        for target in all {
            if !open.contains(target) {
                if open.len() < MAX_OPEN {
                    open.insert(target.clone());
                } else {
                    beyond.push(target.clone());
                }
            }
        }
        beyond
    }
}

impl Browser {
    /// Closes a page that is one too many.
    pub(super) async fn close_page(&self, target: &str) {
        tracing::debug!(most = MAX_OPEN, "a page is closed: too many are open");
        drop(self.cdp.report(None, "Target.closeTarget", json!({ "targetId": target })).await);
    }

    /// Closes what is open beyond the bound. The browser tells of each page that opens; a flood of them may be too much to hear.
    pub(crate) async fn close_beyond_bound(&self) -> Result<(), CdpError> {
        let answer = self.cdp.call(None, "Target.getTargets", json!({}), super::BROWSER).await?;
        let infos = answer["targetInfos"].as_array().map(Vec::as_slice).unwrap_or_default();
        let page = |info: &&Value| info["type"] == "page";
        let all: Vec<String> =
            infos.iter().filter(page).filter_map(|info| info["targetId"].as_str()).map(str::to_owned).collect();
        for target in self.open_pages.beyond(&all) {
            self.close_page(&target).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_opened_beyond_the_bound_is_reported_and_what_closed_makes_room() {
        let open_pages = OpenPages::default();
        let all: Vec<String> = (0..=MAX_OPEN).map(|number| number.to_string()).collect();
        assert!(all[..MAX_OPEN].iter().all(|target| open_pages.admit(target)));
        assert!(open_pages.admit("0") && !open_pages.admit("one more"));
        assert_eq!(open_pages.beyond(&all), [MAX_OPEN.to_string()]);
        open_pages.left("0");
        assert_eq!(open_pages.beyond(&all[1..]), Vec::<String>::new());
    }
}
