//! The documents of all pages, with the tools that each has registered.

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{BROWSER_TIMEOUT, PAGE_TIMEOUT, page_target};
use crate::cdp::{Cdp, CdpError, text};
use casement_agent_protocol::webmcp::{Annotations, MAX_LIST, MAX_TOOLS};

/// The maximum number of pages and of frames with a target of their own that a list reads.
const MAX_TARGETS: usize = 128;
/// The maximum number of documents of a target.
const MAX_DOCUMENTS: usize = 64;
/// The world in which the tools are read.
const WORLD: &str = "casement-tools";

/// A page and the targets of its frames.
#[derive(Debug, Default)]
pub(super) struct PageTarget {
    pub(super) target_id: String,
    pub(super) window_id: u64,
    /// The frames that have targets of their own.
    pub(super) frame_targets: Vec<String>,
}

/// A document.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) page: &'a PageTarget,
    pub(super) target_id: String,
    pub(super) frame_id: String,
    pub(super) loader_id: String,
    pub(super) url: String,
    pub(super) is_embedded: bool,
    pub(super) title: String,
    pub(super) tools: Vec<PageTool>,
}

/// What a document says of itself.
#[derive(Debug, Default, Deserialize)]
struct Contents {
    #[serde(default)]
    title: String,
    #[serde(default)]
    tools: Vec<Value>,
}

/// A tool as its document describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageTool {
    pub(super) name: String,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) input_schema: Option<Value>,
    #[serde(default)]
    annotations: Value,
    /// For a form: true if it is submitted when it is filled in.
    #[serde(default)]
    pub(super) autosubmit: Option<bool>,
}

impl PageTool {
    pub(super) fn annotations(&self) -> Annotations {
        let hint = |name: &str| self.annotations[name].as_bool();
        Annotations {
            read_only: hint("readOnlyHint"),
            untrusted_content: hint("untrustedContentHint"),
            consequential: hint("consequentialHint"),
            autosubmit: self.autosubmit,
            ..Annotations::default()
        }
    }

    /// Returns true if it is a form that a person submits.
    pub(super) fn awaits_submission(&self) -> bool {
        self.autosubmit == Some(false)
    }
}

impl<'a> Document<'a> {
    /// Describes the document of a frame, as the browser reports the frame.
    pub(super) fn new(page: &'a PageTarget, target: &str, frame: &Value, is_embedded: bool) -> Self {
        let owned = |key: &str| text(&frame[key]).to_owned();
        let target_id = target.to_owned();
        let (frame_id, loader_id, url) = (owned("id"), owned("loaderId"), owned("url"));
        let (title, tools) = Default::default();
        Self { page, target_id, frame_id, loader_id, url, is_embedded, title, tools }
    }
}

/// Returns all pages.
pub(super) async fn pages(cdp: &Cdp) -> Result<Vec<PageTarget>, CdpError> {
    let reply = cdp.call(None, "Target.getTargets", json!({}), BROWSER_TIMEOUT).await?;
    let targets = reply["targetInfos"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_type = |wanted: &'static str| targets.iter().filter(move |info| info["type"] == wanted).take(MAX_TARGETS);
    let mut pages = join_all(of_type("page").map(|info| page_target(cdp, text(&info["targetId"])))).await;
    for frame in of_type("iframe") {
        let page = page_above(targets, frame);
        if let Some(page) = pages.iter_mut().find(|known| Some(known.target_id.as_str()) == page) {
            page.frame_targets.push(text(&frame["targetId"]).to_owned());
        }
    }
    Ok(pages)
}

/// Returns the page above a frame.
fn page_above<'a>(targets: &'a [Value], frame: &'a Value) -> Option<&'a str> {
    let mut above = frame;
    for _ in 0..MAX_DOCUMENTS {
        let parent = above["parentId"].as_str()?;
        above = targets.iter().find(|info| info["targetId"] == parent)?;
        if above["type"] == "page" {
            return Some(parent);
        }
    }
    None
}

/// Returns the documents of a page with their tools. Documents that do not answer are left out.
pub(super) async fn of_page<'a>(cdp: &Cdp, page: &'a PageTarget) -> Vec<Document<'a>> {
    let targets = std::iter::once(&page.target_id).chain(&page.frame_targets);
    let documents = targets.map(|target| async move {
        let within = timeout(PAGE_TIMEOUT, of_target(cdp, page, target)).await;
        within.map_err(|_| ()).and_then(|documents| documents.map_err(drop)).unwrap_or_default()
    });
    join_all(documents).await.into_iter().flatten().collect()
}

async fn of_target<'a>(cdp: &Cdp, page: &'a PageTarget, target: &str) -> Result<Vec<Document<'a>>, CdpError> {
    let session = cdp.attach(target, PAGE_TIMEOUT).await?;
    let mut documents = Vec::new();
    for (frame, is_root) in frames(cdp, &session).await? {
        let is_embedded = !is_root || target != page.target_id;
        let mut document = Document::new(page, target, &frame, is_embedded);
        (document.title, document.tools) = contents(cdp, &session, &document.frame_id).await.unwrap_or_default();
        documents.push(document);
    }
    // What was read in a frame that has changed since may be of another document.
    let now = frames(cdp, &session).await?;
    documents
        .retain(|document| now.iter().any(|(frame, _)| is_document(frame, &document.frame_id, &document.loader_id)));
    Ok(documents)
}

/// Returns the frames of a target, the first of which is its root.
pub(super) async fn frames(cdp: &Cdp, session: &str) -> Result<Vec<(Value, bool)>, CdpError> {
    let mut reply = cdp.call(Some(session), "Page.getFrameTree", json!({}), PAGE_TIMEOUT).await?;
    let mut pending = vec![(reply["frameTree"].take(), true)];
    let mut frames = Vec::new();
    while let Some((mut tree, is_root)) = pending.pop()
        && frames.len() < MAX_DOCUMENTS
    {
        if let Value::Array(children) = tree["childFrames"].take() {
            pending.extend(children.into_iter().rev().map(|child| (child, false)));
        }
        frames.push((tree["frame"].take(), is_root));
    }
    Ok(frames)
}

/// Returns true if a frame, as the browser reports it, contains this document.
pub(super) fn is_document(frame: &Value, frame_id: &str, loader_id: &str) -> bool {
    text(&frame["id"]) == frame_id && text(&frame["loaderId"]) == loader_id
}

/// Returns the tools of the document of a frame.
pub(super) async fn tools(cdp: &Cdp, session: &str, frame_id: &str) -> Result<Vec<PageTool>, CdpError> {
    contents(cdp, session, frame_id).await.map(|(_, tools)| tools)
}

/// Returns the title and the tools of the document of a frame.
async fn contents(cdp: &Cdp, session: &str, frame_id: &str) -> Result<(String, Vec<PageTool>), CdpError> {
    let world = json!({ "frameId": frame_id, "worldName": WORLD });
    let world = cdp.call(Some(session), "Page.createIsolatedWorld", world, PAGE_TIMEOUT).await?;
    let code = include_str!("tools.js");
    let code = code.replace("MAX_BYTES", &MAX_LIST.to_string()).replace("MAX_TOOLS", &MAX_TOOLS.to_string());
    let params = json!({
        "contextId": world["executionContextId"], "expression": code, "awaitPromise": true, "returnByValue": true,
    });
    let mut reply = cdp.call(Some(session), "Runtime.evaluate", params, PAGE_TIMEOUT).await?;
    let Contents { title, tools } = serde_json::from_value(reply["result"]["value"].take()).unwrap_or_default();
    // A tool that does not convert is no tool of the protocol.
    Ok((title, tools.into_iter().filter_map(|tool| serde_json::from_value(tool).ok()).collect()))
}
