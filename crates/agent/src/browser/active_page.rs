//! Which page is in front: the one that a person would see.
//!
//! Asking the pages is not enough. A client can make any number of them believe that they are seen and have the focus, as Playwright
//! does with all of its pages, and one that hangs says nothing. So the order in which the browser lists its pages counts, too: the one
//! that came to the front last is the first of the list.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{BROWSER, Browser, MAX_PAGES, Page, Seen};
use crate::cdp::CdpError;

/// How long a page may take to say whether it is seen.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long the list may take.
const LIST: Duration = Duration::from_secs(2);
/// Longest list; the addresses of pages stand in it, and pages can make them long.
const MAX_LIST: u64 = 8 << 20;

impl Browser {
    /// The target of the page in front.
    pub(crate) async fn front_target(&self) -> Result<String, CdpError> {
        let pages = self.pages().await?;
        match pages.as_slice() {
            [] => Err(CdpError::Refused { method: "Target.getTargets", message: "no page is open".to_owned() }),
            [alone] => Ok(alone.clone()),
            _ => self.front_of(pages).await,
        }
    }

    /// The page in front. The caller detaches from it.
    pub(super) async fn front(&self) -> Result<Page, CdpError> {
        let target = self.front_target().await?;
        self.attach(target, BROWSER).await
    }

    /// The only one that has the focus, else the first of the list that may be seen.
    async fn front_of(&self, pages: Vec<String>) -> Result<String, CdpError> {
        let in_order = match timeout(LIST, listed(self.port)).await {
            Ok(Some(listed)) => listed,
            // Another order is better than none.
            _ => pages,
        };
        let seen = join_all(in_order.iter().map(|target| self.glance(target))).await;
        let is = |wanted: fn(&Seen) -> bool| move |seen: &Option<Seen>| seen.as_ref().is_some_and(wanted);
        let has_focus = is(|seen| seen.focused && !seen.hidden);
        let mut focused = (0..seen.len()).filter(|at| has_focus(&seen[*at]));
        let only = focused.next().filter(|_| focused.next().is_none());
        // One that does not answer may be the one: it hangs before a person's eyes.
        let is_hidden = is(|seen| seen.hidden);
        let first = || (0..seen.len()).find(|at| !is_hidden(&seen[*at]));
        let front = only.or_else(first).and_then(|at| in_order.get(at)).or(in_order.first());
        front.cloned().ok_or_else(|| CdpError::Refused { method: "/json/list", message: "no page is open".to_owned() })
    }

    async fn glance(&self, target: &str) -> Option<Seen> {
        if self.dialog_of(target).is_some() {
            return None;
        }
        let page = self.attach(target.to_owned(), CHECK_INTERVAL).await.ok()?;
        let seen = self.look(&page.session, CHECK_INTERVAL).await.ok();
        self.detach(&page).await;
        seen
    }
}

/// The pages as the browser lists them, the one that came to the front last before the others.
async fn listed(port: u16) -> Option<Vec<String>> {
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
    if length > MAX_LIST {
        return None;
    }
    let mut body = Vec::new();
    stream.take(length).read_to_end(&mut body).await.ok()?;
    let list: Vec<Value> = serde_json::from_slice(&body).ok()?;
    let pages = list.iter().filter(|target| target["type"] == "page");
    Some(pages.filter_map(|page| page["id"].as_str()).take(MAX_PAGES).map(str::to_owned).collect())
}
