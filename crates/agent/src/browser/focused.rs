//! The document that has the keyboard: whether it prevents the effect of a key, and its open list or picker.
//!
//! Both are asked in an isolated world, where the page cannot change the answers.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Browser, Page};
use crate::cdp::{CdpError, text};

/// The timeout of one question.
const QUESTION: Duration = Duration::from_secs(10);
/// The name of the isolated world.
const WORLD: &str = "casement-input";
/// The maximum nesting of frames.
const MAX_DEPTH: usize = 10;

/// Returns the frame that has the focus in a document, if any.
const INNER: &str = "(() => {
    let inner = document.activeElement;
    while (inner?.shadowRoot?.activeElement) inner = inner.shadowRoot.activeElement;
    return inner instanceof HTMLIFrameElement || inner instanceof HTMLFrameElement ? inner : null;
})()";
/// Notes the next pressed key of a document.
const LISTEN: &str = "globalThis.key = null;
    addEventListener('keydown', event => { globalThis.key = event }, { capture: true, once: true }); 0";
/// Returns whether the noted key has no effect of the browser; true if the page let nobody see it.
const PREVENTED: &str = "globalThis.key?.defaultPrevented ?? true";
/// Returns the element whose list or picker is open. A list that is drawn as a part of the page is none. `before` is the
/// number of options that can be chosen before the selected one; -1 if that cannot be chosen.
const OPEN: &str = "(() => {
    let inner = document.activeElement;
    while (inner?.shadowRoot?.activeElement) inner = inner.shadowRoot.activeElement;
    const open = 'select:open, input:open';
    let owner;
    try { owner = inner?.matches(open) ? inner : document.querySelector(open) } catch { return null }
    if (!owner || getComputedStyle(owner, '::picker(select)').appearance === 'base-select') return null;
    const options = [...owner.options ?? []].filter(option => !option.matches(':disabled'));
    const before = options.indexOf(owner.selectedOptions?.[0]);
    return { name: owner.localName, kind: owner.type, choices: options.length, before };
})()";

/// The document that has the focus of a page.
#[derive(Debug)]
pub(crate) struct Focused {
    session: String,
    context: i64,
    /// The frames of other processes that were attached to.
    attached: Vec<Page>,
}

/// An element whose list or picker is open.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct OpenPicker {
    name: String,
    kind: String,
    /// The number of options that can be chosen.
    choices: usize,
    before: isize,
}

impl OpenPicker {
    /// Finds the element whose list or picker is open in the document that has the focus of a page.
    pub(crate) async fn find(browser: &Browser, page: &Page) -> Result<Option<Self>, CdpError> {
        let mut focused = Focused::find(browser, page).await?;
        let picker = focused.open_picker(browser).await;
        focused.leave(browser).await;
        picker
    }

    /// Returns true for the list of a `<select>`.
    pub(crate) fn is_list(&self) -> bool {
        self.name == "select"
    }

    /// Returns true for a list with several options that can be chosen.
    pub(crate) fn has_choice(&self) -> bool {
        self.is_list() && self.choices > 1
    }

    /// Returns true if no option that can be chosen follows the selected one.
    pub(crate) fn is_last_selected(&self) -> bool {
        self.selected().is_some_and(|before| before + 1 == self.choices)
    }

    /// Returns the number of options that can be chosen before the selected one; `None` if that cannot be chosen.
    pub(crate) fn selected(&self) -> Option<usize> {
        usize::try_from(self.before).ok()
    }
}

impl std::fmt::Display for OpenPicker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_list() {
            return f.write_str("the list of a <select>");
        }
        let kind: String = self.kind.chars().filter(char::is_ascii_graphic).take(20).collect();
        write!(f, "the picker of an <input type={kind}>")
    }
}

impl Focused {
    /// Finds the document that has the focus of a page.
    pub(crate) async fn find(browser: &Browser, page: &Page) -> Result<Self, CdpError> {
        let session = page.session.clone();
        let tree = browser.cdp.call(Some(&session), "Page.getFrameTree", json!({}), QUESTION).await?;
        let frame = text(&tree["frameTree"]["frame"]["id"]).to_owned();
        let context = world(browser, &session, &frame).await?;
        let mut focused = Self { session, context, attached: Vec::new() };
        for _ in 0..MAX_DEPTH {
            match focused.enter(browser).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    focused.leave(browser).await;
                    return Err(error);
                }
            }
        }
        Ok(focused)
    }

    /// Goes on to the document of the focused frame; returns false if no frame has the focus.
    async fn enter(&mut self, browser: &Browser) -> Result<bool, CdpError> {
        let frame = self.ask(browser, INNER, false).await?;
        let Some(object) = frame["objectId"].as_str() else { return Ok(false) };
        let at = Some(self.session.as_str());
        let node = browser.cdp.call(at, "DOM.describeNode", json!({ "objectId": object }), QUESTION).await?;
        let Some(frame) = node["node"]["frameId"].as_str() else { return Ok(false) };
        match world(browser, &self.session, frame).await {
            Ok(context) => self.context = context,
            // The frame has a process of its own.
            Err(CdpError::Refused { .. }) => {
                let page = browser.attach(frame.to_owned(), QUESTION).await?;
                self.session = page.session.clone();
                self.attached.push(page);
                self.context = world(browser, &self.session, frame).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    async fn ask(&self, browser: &Browser, expression: &str, by_value: bool) -> Result<Value, CdpError> {
        let question = json!({ "expression": expression, "contextId": self.context, "returnByValue": by_value });
        let mut answer = browser.cdp.call(Some(&self.session), "Runtime.evaluate", question, QUESTION).await?;
        Ok(answer["result"].take())
    }

    /// Begins to watch the next pressed key.
    pub(crate) async fn listen(&self, browser: &Browser) -> Result<(), CdpError> {
        self.ask(browser, LISTEN, true).await.map(drop)
    }

    /// Returns whether the page has prevented the effect of the watched key, also by leaving.
    pub(crate) async fn has_prevented(&self, browser: &Browser) -> bool {
        self.ask(browser, PREVENTED, true).await.map_or(true, |answer| answer["value"].as_bool().unwrap_or(true))
    }

    async fn open_picker(&self, browser: &Browser) -> Result<Option<OpenPicker>, CdpError> {
        let mut answer = self.ask(browser, OPEN, true).await?;
        Ok(serde_json::from_value(answer["value"].take()).unwrap_or_default())
    }

    /// Detaches from the frames.
    pub(crate) async fn leave(&mut self, browser: &Browser) {
        for page in self.attached.drain(..) {
            browser.detach(&page).await;
        }
    }
}

async fn world(browser: &Browser, session: &str, frame: &str) -> Result<i64, CdpError> {
    let world = json!({ "frameId": frame, "worldName": WORLD });
    let made = browser.cdp.call(Some(session), "Page.createIsolatedWorld", world, QUESTION).await?;
    Ok(made["executionContextId"].as_i64().unwrap_or_default())
}
