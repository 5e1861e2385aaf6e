//! Finds the page in front: the one that a person would see.
//!
//! The state that pages report is not sufficient. A client can emulate visibility and focus for any number of pages, as
//! Playwright does for all of its pages, and a page that hangs does not report. Therefore the browser's list of pages
//! counts too, which begins with the page that came to the front last.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dialogs::is_print_preview;
use super::{Browser, MAX_PAGES, PageState};
use crate::cdp::{CdpError, Endpoint};

/// The timeout for a page to report its state.
const PAGE_TIMEOUT: Duration = Duration::from_millis(500);
/// The timeout of the list of pages.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum size of the list of pages, in bytes. The list contains the URLs of pages, which pages can make long.
const MAX_LIST_BYTES: u64 = 8 << 20;

impl Browser {
    /// Returns the target of the page in front.
    pub(crate) async fn front_target(&self) -> Result<String, CdpError> {
        let pages = self.pages().await?;
        match pages.as_slice() {
            [] => Err(CdpError::Refused { method: "Target.getTargets", message: "no page is open".to_owned() }),
            [alone] => Ok(alone.clone()),
            _ => self.choose_front(pages).await,
        }
    }

    /// Chooses the only focused page, or else the first listed page that may be visible.
    async fn choose_front(&self, pages: Vec<String>) -> Result<String, CdpError> {
        let in_order = match &self.endpoint {
            Endpoint::Local { port, .. } => match timeout(LIST_TIMEOUT, list_pages(*port)).await {
                Ok(Some(list)) => list,
                // Without the list, the pages are used in another order.
                _ => pages,
            },
            // No call of the debugging protocol lists the pages in that order, but a new page comes to the front.
            Endpoint::Remote(_) => self.open_pages.newest_first(pages),
        };
        let states = join_all(in_order.iter().map(|target| self.state_of(target))).await;
        let is = |wanted: fn(&PageState) -> bool| move |state: &Option<PageState>| state.as_ref().is_some_and(wanted);
        let has_focus = is(|state| state.focused && !state.hidden);
        let mut focused = (0..states.len()).filter(|at| has_focus(&states[*at]));
        let only = focused.next().filter(|_| focused.next().is_none());
        // A page that does not answer may be visible.
        let is_hidden = is(|state| state.hidden);
        let first = || (0..states.len()).find(|at| !is_hidden(&states[*at]));
        let front = only.or_else(first).and_then(|at| in_order.get(at)).or(in_order.first());
        front.cloned().ok_or_else(|| CdpError::Refused { method: "/json/list", message: "no page is open".to_owned() })
    }

    async fn state_of(&self, target: &str) -> Option<PageState> {
        if self.block_of(target).is_some() {
            return None;
        }
        let page = self.attach(target.to_owned(), PAGE_TIMEOUT).await.ok()?;
        let state = self.page_state(&page.session, PAGE_TIMEOUT).await.ok();
        self.detach(&page).await;
        state
    }
}

/// Returns the browser's list of pages, which begins with the page that came to the front last.
async fn list_pages(port: u16) -> Option<Vec<String>> {
    let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await.ok()?);
    stream.write_all(format!("GET /json/list HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").as_bytes()).await.ok()?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        (&mut stream).take(4096).read_line(&mut line).await.ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok()?,
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    if length > MAX_LIST_BYTES {
        return None;
    }
    let mut body = Vec::new();
    stream.take(length).read_to_end(&mut body).await.ok()?;
    let list: Vec<Value> = serde_json::from_slice(&body).ok()?;
    let pages = list.iter().filter(|target| target["type"] == "page" && !is_print_preview(target));
    Some(pages.filter_map(|page| page["id"].as_str()).take(MAX_PAGES).map(str::to_owned).collect())
}
