//! The tools that pages offer to agents by WebMCP: `/v1/webmcp/…`.
//!
//! A list reads the tools of every document in a world of its own, in which the page's code changes nothing. Nothing is
//! retained between requests except the numbers of tabs and frames, and the tools that callers have added: a reference to
//! a tool names its document, which the browser identifies, and a fingerprint of its definition or its id.

mod custom;
mod documents;
mod invoke;
mod numbers;
mod reference;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::json;

use self::custom::{Registered, Registry};
use self::documents::{Document, PageTarget, PageTool};
use self::numbers::Numbers;
use self::reference::ToolReference;
use crate::browser_handle::BrowserHandle;
use crate::cdp::Cdp;
use crate::reply::{Answer, Refusal, empty, ok, read, read_within};
use crate::script::Scripts;
use casement_agent_protocol::webmcp::{
    ADD_CUSTOM, CustomSource, Frame, INVOKE, LIST, LIST_CUSTOM, ListTools, MAX_LIST, MAX_SOURCE, MAX_TOOLS,
    REMOVE_CUSTOM, RemoveTool, Tool, ToolList,
};

/// The timeout of a call that does not depend on a page.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for a page to report its tools. A page that hangs has none.
const PAGE_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest request: an input with the longest JSON encoding.
const MAX_REQUEST: usize = 8 << 20;
/// The longest request to add tools: a source with the longest JSON encoding.
const MAX_ADD_REQUEST: usize = 6 * MAX_SOURCE + (64 << 10);

/// The tools of the session's pages.
#[derive(Debug)]
pub(crate) struct WebMcp {
    browser: BrowserHandle,
    /// The numbers of tabs and embedded frames.
    numbers: Mutex<Numbers>,
    /// The tools that callers have added.
    custom: Registry,
    /// Runs the code of custom tools.
    scripts: Arc<Scripts>,
}

impl WebMcp {
    pub(crate) fn new(browser: BrowserHandle, scripts: Arc<Scripts>) -> Self {
        let (numbers, custom) = Default::default();
        Self { browser, numbers, custom, scripts }
    }

    /// Serves `/v1/webmcp/…`.
    pub(crate) async fn serve(&self, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            LIST => {
                // An earlier server sends `null`.
                let ListTools { exclude_custom } = read::<Option<ListTools>>(body).await?.unwrap_or_default();
                ok(&self.list(exclude_custom).await?)
            }
            INVOKE => ok(&self.invoke(read_within(body, MAX_REQUEST).await?).await?),
            ADD_CUSTOM => ok(&self.add_custom(read_within(body, MAX_ADD_REQUEST).await?).await?),
            LIST_CUSTOM => ok(&self.custom.list()),
            REMOVE_CUSTOM => {
                let RemoveTool { id } = read(body).await?;
                self.custom.remove(&id)?;
                Ok(empty())
            }
            other => Err(Refusal::no_operation(other)),
        }
    }

    async fn list(&self, exclude_custom: bool) -> Result<ToolList, Refusal> {
        let running = self.browser.usable()?;
        let (cdp, _notices) = Cdp::connect_within(&self.browser.endpoint(), BROWSER_TIMEOUT).await?;
        let pages = documents::pages(&cdp).await?;
        let answering = pages.iter().filter(|page| running.browser.block_of(&page.target_id).is_none());
        let documents = join_all(answering.map(|page| documents::of_page(&cdp, page))).await;
        let custom = if exclude_custom { Vec::new() } else { self.custom.all() };
        let mut numbers = self.numbers.lock();
        // A page that does not answer keeps its number.
        let targets = pages.iter().flat_map(|page| std::iter::once(&page.target_id).chain(&page.frame_targets));
        numbers.retain(targets.chain(documents.iter().flatten().map(|document| &document.frame_id)));
        let mut list = ToolList { tools: Vec::new() };
        let mut left = MAX_LIST;
        for of_page in &documents {
            let Some(root) = of_page.iter().find(|document| !document.is_embedded) else { continue };
            let mut tools = Vec::new();
            for document in of_page {
                tools.extend(document.tools.iter().map(|tool| describe(root, document, tool, &mut numbers)));
            }
            let matching = custom.iter().filter(|registered| registered.matches(of_page).next().is_some());
            tools.extend(matching.map(|registered| describe_custom(root, registered, &mut numbers)));
            for tool in tools {
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
        output_schema: None,
        annotations: tool.annotations(),
        window_id: page.window_id,
        tab_id: numbers.of(&page.target_id),
        page_title: root.title.clone(),
        page_url: without_fragment(&root.url),
        frame,
        custom: None,
    }
}

/// Describes a custom tool for the page whose own document is `root`.
fn describe_custom(root: &Document<'_>, registered: &Registered, numbers: &mut Numbers) -> Tool {
    let (page, tool) = (root.page, &registered.tool);
    Tool {
        tool_ref: ToolReference::custom(root, &tool.id, &tool.name).encode(),
        name: tool.name.clone(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        input_schema: Some(tool.input_schema.clone()),
        output_schema: tool.output_schema.clone(),
        annotations: tool.annotations,
        window_id: page.window_id,
        tab_id: numbers.of(&page.target_id),
        page_title: root.title.clone(),
        page_url: without_fragment(&root.url),
        frame: None,
        custom: Some(CustomSource {
            id: tool.id.clone(),
            namespace: tool.namespace.clone(),
            target_id: page.target_id.clone(),
        }),
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
