//! The tools that pages offer to agents by WebMCP: `/v1/webmcp/…`.
//!
//! A list reads the tools of every document in a world of its own, in which the page's code changes nothing. Nothing is
//! retained between requests except the numbers of tabs and frames: a reference to a tool names its document, which the
//! browser identifies, and a fingerprint of its definition.

mod documents;
mod invoke;
mod numbers;
mod reference;

use std::time::Duration;

use futures_util::future::join_all;
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::json;

use self::documents::{Document, PageTarget, PageTool};
use self::numbers::Numbers;
use self::reference::ToolReference;
use crate::browser_handle::BrowserHandle;
use crate::cdp::Cdp;
use crate::reply::{Answer, Refusal, ok, read_within};
use casement_agent_protocol::webmcp::{Frame, INVOKE, LIST, MAX_LIST, MAX_TOOLS, Tool, ToolList};

/// The timeout of a call that does not depend on a page.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for a page to report its tools. A page that hangs has none.
const PAGE_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest request: an input with the longest JSON encoding.
const MAX_REQUEST: usize = 8 << 20;

/// The tools of the session's pages.
#[derive(Debug)]
pub(crate) struct WebMcp {
    browser: BrowserHandle,
    /// The numbers of tabs and embedded frames.
    numbers: Mutex<Numbers>,
}

impl WebMcp {
    pub(crate) fn new(browser: BrowserHandle) -> Self {
        Self { browser, numbers: Mutex::default() }
    }

    /// Serves `/v1/webmcp/…`.
    pub(crate) async fn serve(&self, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            LIST => ok(&self.list().await?),
            INVOKE => ok(&self.invoke(read_within(body, MAX_REQUEST).await?).await?),
            other => Err(Refusal::no_operation(other)),
        }
    }

    async fn list(&self) -> Result<ToolList, Refusal> {
        let running = self.browser.usable()?;
        let (cdp, _notices) = Cdp::connect_within(&self.browser.endpoint(), BROWSER_TIMEOUT).await?;
        let pages = documents::pages(&cdp).await?;
        let answering = pages.iter().filter(|page| running.browser.dialog_of(&page.target_id).is_none());
        let documents = join_all(answering.map(|page| documents::of_page(&cdp, page))).await;
        let mut numbers = self.numbers.lock();
        // A page that does not answer keeps its number.
        let targets = pages.iter().flat_map(|page| std::iter::once(&page.target_id).chain(&page.frame_targets));
        numbers.retain(targets.chain(documents.iter().flatten().map(|document| &document.frame_id)));
        let mut list = ToolList { tools: Vec::new() };
        let mut left = MAX_LIST;
        let roots = documents.iter().filter_map(|of_page| {
            let root = of_page.iter().find(|document| !document.is_embedded)?;
            Some((root, of_page))
        });
        for (root, document) in roots.flat_map(|(root, of_page)| of_page.iter().map(move |document| (root, document))) {
            for tool in &document.tools {
                let tool = describe(root, document, tool, &mut numbers);
                let bytes = serde_json::to_vec(&tool).map_or(usize::MAX, |tool| tool.len());
                if list.tools.len() == MAX_TOOLS || bytes > left {
                    return Ok(list);
                }
                left -= bytes;
                list.tools.push(tool);
            }
        }
        Ok(list)
    }
}

/// Describes a tool of a document of the page whose own document is `root`.
fn describe(root: &Document<'_>, document: &Document<'_>, tool: &PageTool, numbers: &mut Numbers) -> Tool {
    let page = document.page;
    let frame = document
        .is_embedded
        .then(|| Frame { frame_id: numbers.of(&document.frame_id), url: without_fragment(&document.url) });
    Tool {
        tool_ref: ToolReference::new(document, tool).encode(),
        name: tool.name.clone(),
        title: tool.title.clone().filter(|title| !title.is_empty()),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        annotations: tool.annotations(),
        window_id: page.window_id,
        tab_id: numbers.of(&page.target_id),
        page_title: root.title.clone(),
        page_url: without_fragment(&root.url),
        frame,
    }
}

fn without_fragment(url: &str) -> String {
    url.split('#').next().unwrap_or_default().to_owned()
}

/// Returns the page of a target, with the number of its window.
async fn page_target(cdp: &Cdp, target: &str) -> PageTarget {
    let params = json!({ "targetId": target });
    let window = cdp.call(None, "Browser.getWindowForTarget", params, BROWSER_TIMEOUT).await;
    let window_id = window.ok().and_then(|window| window["windowId"].as_u64()).unwrap_or_default();
    PageTarget { target_id: target.to_owned(), window_id, frame_targets: Vec::new() }
}
