//! The documents of a tab, and calls of the script in their isolated worlds.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::tab::{Attached, CALL_TIMEOUT, Tab};
use crate::cdp::CdpError;

/// The script whose functions are called in documents.
const SCRIPT: &str = include_str!("page.js");
/// The name of the script's isolated world.
const WORLD: &str = "casement-login";
/// The maximum number of documents that are read.
pub(super) const MAX_FRAMES: usize = 30;
/// The maximum nesting of frames in one session.
const MAX_DEPTH: usize = 8;

/// A document of the tab.
#[derive(Debug, Clone)]
pub(super) struct Document {
    /// The debugging session of the document.
    pub(super) session: String,
    pub(super) frame: String,
    /// The id of the document among those of the frame.
    pub(super) loader: String,
    pub(super) url: String,
    /// The debugging session of the element that contains the frame; `None` for the page itself.
    pub(super) around: Option<String>,
    /// The execution context of the script's world.
    pub(super) context: i64,
}

impl Tab {
    /// Returns the documents of the page, with the script loaded in each. Each document follows the one that contains
    /// it; the page's own document is first. A frame that does not answer is omitted.
    pub(super) async fn documents(&self, page: &Attached, within: Duration) -> Result<Vec<Document>, CdpError> {
        let mut found: Vec<Document> = Vec::new();
        for attached in self.attached(page) {
            let tree =
                self.cdp.call(Some(&attached.session), "Page.getFrameTree", json!({}), within.min(CALL_TIMEOUT)).await;
            match tree {
                Ok(tree) => collect(&tree["frameTree"], &attached, attached.parent.clone(), 0, &mut found),
                Err(error) if found.is_empty() => return Err(error),
                Err(_) => {}
            }
            if found.len() >= MAX_FRAMES {
                break;
            }
        }
        let contexts = join_all(found.iter().map(|document| self.world(document, within))).await;
        let mut answering = Vec::new();
        for (at, (mut document, context)) in found.into_iter().zip(contexts).enumerate() {
            match context {
                Ok(context) => {
                    document.context = context;
                    answering.push(document);
                }
                Err(error) if at == 0 => return Err(error),
                Err(_) => {}
            }
        }
        Ok(answering)
    }

    async fn world(&self, document: &Document, within: Duration) -> Result<i64, CdpError> {
        let requested = json!({ "frameId": document.frame, "worldName": WORLD });
        let at = Some(document.session.as_str());
        let made = self.cdp.call(at, "Page.createIsolatedWorld", requested, within).await?;
        let context = made["executionContextId"].as_i64().unwrap_or_default();
        let script = json!({ "expression": SCRIPT, "contextId": context, "returnByValue": false });
        self.cdp.call(at, "Runtime.evaluate", script, within).await?;
        Ok(context)
    }

    /// Calls a function of the script in a document, and waits for its result.
    pub(super) async fn ask(
        &self,
        document: &Document,
        name: &str,
        arguments: &[Value],
        within: Duration,
    ) -> Result<Value, CdpError> {
        let mut answer = self.requested(document, name, arguments, true, within).await?;
        Ok(answer["result"]["value"].take())
    }

    /// Like [`Tab::ask`], for a function that returns an element: returns the object id; `None` without an element.
    pub(super) async fn object(
        &self,
        document: &Document,
        name: &str,
        arguments: &[Value],
        within: Duration,
    ) -> Result<Option<String>, CdpError> {
        let answer = self.requested(document, name, arguments, false, within).await?;
        Ok(answer["result"]["objectId"].as_str().map(str::to_owned))
    }

    async fn requested(
        &self,
        document: &Document,
        name: &str,
        arguments: &[Value],
        by_value: bool,
        within: Duration,
    ) -> Result<Value, CdpError> {
        const METHOD: &str = "Runtime.callFunctionOn";
        let given: Vec<Value> = arguments
            .iter()
            .map(|argument| match argument.get("objectId") {
                Some(_) => argument.clone(),
                None => json!({ "value": argument }),
            })
            .collect();
        let call = json!({
            "functionDeclaration": format!("function(...given) {{ return casement.{name}(...given) }}"),
            "executionContextId": document.context, "arguments": given, "returnByValue": by_value, "awaitPromise": true,
        });
        let answer = self.cdp.call(Some(&document.session), METHOD, call, within).await?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            let reason = thrown["exception"]["description"].as_str().or(thrown["text"].as_str()).unwrap_or_default();
            return Err(CdpError::Refused { method: METHOD, message: reason.chars().take(300).collect() });
        }
        Ok(answer)
    }
}

/// The element that contains a frame.
#[derive(Debug)]
pub(super) struct Owner {
    /// The index of the document that contains the element.
    pub(super) document: usize,
    /// The object id of the element in the script's world of that document.
    pub(super) object: String,
    /// The backend node id of the element.
    pub(super) node: i64,
}

impl Tab {
    /// Returns the element that contains a document's frame; `None` for the page itself, and if it is not found.
    pub(super) async fn owner(&self, documents: &[Document], at: usize, within: Duration) -> Option<Owner> {
        let document = documents.get(at)?;
        let around = document.around.as_deref()?;
        let requested = json!({ "frameId": document.frame });
        let owner = self.cdp.call(Some(around), "DOM.getFrameOwner", requested, within).await.ok()?;
        let node = owner["backendNodeId"].as_i64()?;
        // Several documents may share the session: the element belongs to one of them.
        for (index, outer) in
            documents.iter().enumerate().filter(|(index, outer)| *index != at && outer.session == around)
        {
            if let Some(object) = self.resolve(outer, node, within).await {
                let mine = self.ask(outer, "mine", &[json!({ "objectId": object })], within).await;
                if mine.is_ok_and(|mine| mine == true) {
                    return Some(Owner { document: index, object, node });
                }
            }
        }
        None
    }

    /// Returns the object id of a node in the script's world of the document; `None` if it cannot be resolved.
    pub(super) async fn resolve(&self, document: &Document, node: i64, within: Duration) -> Option<String> {
        let requested = json!({ "backendNodeId": node, "executionContextId": document.context });
        let resolved = self.cdp.call(Some(&document.session), "DOM.resolveNode", requested, within).await.ok()?;
        resolved["object"]["objectId"].as_str().map(str::to_owned)
    }
}

fn collect(tree: &Value, attached: &Attached, around: Option<String>, depth: usize, found: &mut Vec<Document>) {
    if found.len() >= MAX_FRAMES || depth > MAX_DEPTH {
        return;
    }
    let text = |key: &str| tree["frame"][key].as_str().unwrap_or_default().to_owned();
    let url = text("url") + tree["frame"]["urlFragment"].as_str().unwrap_or_default();
    found.push(Document {
        session: attached.session.clone(),
        frame: text("id"),
        loader: text("loaderId"),
        url,
        around,
        context: 0,
    });
    for child in tree["childFrames"].as_array().map(Vec::as_slice).unwrap_or_default() {
        collect(child, attached, Some(attached.session.clone()), depth + 1, found);
    }
}
