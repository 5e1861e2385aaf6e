//! Performs acts on a page: clicks and keys as input events, texts by the script in the document.

use std::time::Duration;

use serde_json::{Value, json};

use super::frames::Document;
use super::tab::{Attached, Tab};
use crate::cdp::CdpError;
use casement_agent_protocol::login_page::{Act, Fault, Key};

/// The timeout of one call to a document.
const DO: Duration = Duration::from_secs(5);
/// The maximum nesting of frames with processes of their own.
const MAX_DEPTH: usize = 8;

/// The reason why an act failed.
#[derive(Debug)]
pub(super) enum ActionError {
    /// A fault of the page.
    Page(Fault),
    /// A fault of the browser.
    Browser(CdpError),
}

impl From<CdpError> for ActionError {
    fn from(error: CdpError) -> Self {
        Self::Browser(error)
    }
}

fn not_usable<T>(reason: impl Into<String>) -> Result<T, ActionError> {
    Err(ActionError::Page(Fault::NotUsable { reason: reason.into() }))
}

/// An element: the index of its document, and its number there.
struct Found {
    document: usize,
    number: u64,
}

/// A page and its documents, which are valid until something navigates.
struct DocumentInput<'a> {
    tab: &'a Tab,
    page: &'a Attached,
    documents: Vec<Document>,
}

impl Tab {
    /// Performs the acts in order.
    pub(super) async fn act(&self, acts: Vec<Act>) -> Result<(), ActionError> {
        let page = self.page()?;
        self.cdp.send(Some(&page.session), "Page.bringToFront", json!({})).await?;
        let typed = acts.iter().rposition(|act| matches!(act, Act::Fill { .. } | Act::FillCode { .. }));
        for (at, act) in acts.into_iter().enumerate() {
            // The previous act may have replaced documents.
            let documents = self.documents(&page, DO).await?;
            match (DocumentInput { tab: self, page: &page, documents }).act(act).await {
                // All texts were typed, and the page has submitted them by itself.
                Err(ActionError::Page(Fault::Stale { handle }))
                    if typed.is_some_and(|typed| typed < at) && self.is_replaced(&page, &handle).await? =>
                {
                    return Ok(());
                }
                done => done?,
            }
        }
        Ok(())
    }

    /// Returns true if the document of the handle does not exist any more.
    async fn is_replaced(&self, page: &Attached, handle: &str) -> Result<bool, CdpError> {
        let documents = self.documents(page, DO).await?;
        Ok(!documents.iter().any(|document| document.holds(handle)))
    }
}

impl Document {
    /// Returns true if the handle belongs to this document. A handle consists of the frame, the loader and a number.
    fn holds(&self, handle: &str) -> bool {
        let mut parts = handle.splitn(3, ':');
        parts.next() == Some(&*self.frame) && parts.next() == Some(&*self.loader)
    }
}

impl DocumentInput<'_> {
    async fn act(&self, act: Act) -> Result<(), ActionError> {
        match act {
            Act::Fill { into, text, origin } => {
                self.fill(&into, &text.0, &origin).await?;
                self.stir().await
            }
            Act::FillCode { into, code, origin } => self.fill_code(&into, &code.0, &origin).await,
            Act::Check { what, on } => self.check(&what, on).await,
            Act::Choose { from, option, origin } => {
                self.ask(&from, "choose", &[json!(option), json!(origin)]).await?;
                Ok(())
            }
            Act::Click { what, window } => {
                self.tab.will_click(window);
                self.click(&what).await
            }
            Act::Press { on, key } => {
                if let Some(on) = on {
                    self.ask(&on, "focus", &[]).await?;
                }
                self.tab.will_click(false);
                self.press(key).await
            }
        }
    }

    fn find(&self, handle: &str) -> Result<Found, ActionError> {
        let stale = || ActionError::Page(Fault::Stale { handle: handle.to_owned() });
        let number = handle.splitn(3, ':').nth(2).and_then(|number| number.parse().ok()).ok_or_else(stale)?;
        let document = self.documents.iter().position(|document| document.holds(handle)).ok_or_else(stale)?;
        Ok(Found { document, number })
    }

    /// Calls a function of the script with the element's number. Returns a fault that the function reports as an error.
    async fn ask(&self, handle: &str, name: &str, rest: &[Value]) -> Result<Value, ActionError> {
        let found = self.find(handle)?;
        let document = self.documents.get(found.document).ok_or(CdpError::Closed)?;
        let arguments: Vec<Value> = std::iter::once(json!(found.number)).chain(rest.iter().cloned()).collect();
        let answer = match self.tab.ask(document, name, &arguments, DO).await {
            // The document was replaced during the call.
            Err(CdpError::Refused { .. }) => return Err(ActionError::Page(Fault::Stale { handle: handle.to_owned() })),
            other => other?,
        };
        if let Some(found) = answer["found"].as_str() {
            let wanted = rest.get(1).and_then(Value::as_str).unwrap_or_default().to_owned();
            return Err(ActionError::Page(Fault::WrongOrigin { wanted, found: found.chars().take(300).collect() }));
        }
        if answer["stale"] == true {
            return Err(ActionError::Page(Fault::Stale { handle: handle.to_owned() }));
        }
        match answer["reason"].as_str() {
            Some(reason) => not_usable(reason.chars().take(200).collect::<String>()),
            None => Ok(answer),
        }
    }

    /// Types into one element. The script checks the origin of the document and types in one synchronous step.
    async fn fill(&self, handle: &str, text: &str, origin: &str) -> Result<(), ActionError> {
        self.ask(handle, "fill", &[json!(text), json!(origin)]).await.map(drop)
    }

    async fn fill_code(&self, handles: &[String], code: &str, origin: &str) -> Result<(), ActionError> {
        let [_, _, ..] = handles else {
            let [one] = handles else { return not_usable("no box was named") };
            self.fill(one, code, origin).await?;
            return self.stir().await;
        };
        let characters: Vec<String> =
            code.chars().filter(|c| !c.is_whitespace() && *c != '-').map(String::from).collect();
        if characters.len() != handles.len() {
            return not_usable(format!("there are {} boxes for {} characters", handles.len(), characters.len()));
        }
        for (at, (handle, character)) in handles.iter().zip(&characters).enumerate() {
            let typed = self.fill(handle, character, origin).await;
            match typed {
                Ok(()) => self.stir().await?,
                // The page submits the code after the last character.
                Err(ActionError::Page(Fault::Stale { .. })) if at + 1 == handles.len() => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    async fn check(&self, handle: &str, on: bool) -> Result<(), ActionError> {
        if self.ask(handle, "isTicked", &[]).await?["on"] == on {
            return Ok(());
        }
        let clicked = self.click(handle).await;
        if clicked.is_ok() && self.ask(handle, "isTicked", &[]).await?["on"] == on {
            return Ok(());
        }
        self.ask(handle, "tick", &[json!(on)]).await.map(drop)
    }

    /// Presses and releases a key that types nothing, for pages that check a field only on key events. The key reveals
    /// nothing of the typed text, because the focus may have moved.
    async fn stir(&self) -> Result<(), ActionError> {
        self.key("End", "End", 35, None).await
    }

    async fn press(&self, key: Key) -> Result<(), ActionError> {
        match key {
            Key::Enter => self.key("Enter", "Enter", 13, Some("\r")).await,
            Key::Escape => self.key("Escape", "Escape", 27, None).await,
        }
    }

    async fn key(&self, key: &str, code: &str, number: u32, text: Option<&str>) -> Result<(), ActionError> {
        let session = Some(self.page.session.as_str());
        let mut down = json!({
            "type": if text.is_some() { "keyDown" } else { "rawKeyDown" }, "key": key, "code": code, "windowsVirtualKeyCode": number,
        });
        if let Some(text) = text {
            down["text"] = text.into();
        }
        let up = json!({ "type": "keyUp", "key": key, "code": code, "windowsVirtualKeyCode": number });
        self.tab.cdp.call(session, "Input.dispatchKeyEvent", down, DO).await?;
        self.tab.cdp.call(session, "Input.dispatchKeyEvent", up, DO).await?;
        Ok(())
    }

    async fn click(&self, handle: &str) -> Result<(), ActionError> {
        let target = self.ask(handle, "aim", &[]).await?["target"].as_u64().unwrap_or_default();
        let found = self.find(handle)?;
        let document = self.documents.get(found.document).ok_or(CdpError::Closed)?;
        let object = self.tab.object(document, "at", &[json!(target)], DO).await?;
        let object = object.ok_or_else(|| ActionError::Page(Fault::Stale { handle: handle.to_owned() }))?;
        let (x, y) = self.middle(document, &object).await?;
        let (dx, dy) = self.offset(found.document).await?;
        let (x, y) = (x + dx, y + dy);
        let session = Some(self.page.session.as_str());
        let mouse = |kind: &str, buttons: u32| {
            json!({ "type": kind, "x": x, "y": y, "button": if kind == "mouseMoved" { "none" } else { "left" },
                "buttons": buttons, "clickCount": 1 })
        };
        for (kind, buttons) in [("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)] {
            self.tab.cdp.call(session, "Input.dispatchMouseEvent", mouse(kind, buttons), DO).await?;
        }
        Ok(())
    }

    /// Returns the middle of an element, in the coordinates of its process.
    async fn middle(&self, document: &Document, object: &str) -> Result<(f64, f64), ActionError> {
        let session = Some(document.session.as_str());
        let requested = json!({ "objectId": object });
        drop(self.tab.cdp.call(session, "DOM.scrollIntoViewIfNeeded", requested.clone(), DO).await);
        let quads = match self.tab.cdp.call(session, "DOM.getContentQuads", requested, DO).await {
            Err(CdpError::Refused { .. }) => return not_usable("it is not seen"),
            other => other?,
        };
        let corner = |at: usize| quads["quads"][0][at].as_f64();
        let (Some(left), Some(top), Some(right), Some(bottom)) = (corner(0), corner(1), corner(4), corner(5)) else {
            return not_usable("it is not seen");
        };
        Ok((f64::midpoint(left, right), f64::midpoint(top, bottom)))
    }

    /// Returns the origin of the coordinates of a document's process, in the coordinates of the page.
    async fn offset(&self, of: usize) -> Result<(f64, f64), ActionError> {
        let (mut x, mut y) = (0.0, 0.0);
        let mut at = of;
        for _ in 0..MAX_DEPTH {
            let Some(document) = self.documents.get(at) else { break };
            if document.session == self.page.session {
                break;
            }
            // The outermost document of this process is contained in an element of another process.
            let outermost =
                |one: &Document| one.session == document.session && one.around.as_ref() != Some(&document.session);
            let Some(outer) = self.documents.iter().position(outermost) else { break };
            let Some(owner) = self.tab.owner(&self.documents, outer, DO).await else {
                return not_usable("its frame is not seen");
            };
            let around = self.documents.get(owner.document).map(|document| document.session.clone());
            let requested = json!({ "backendNodeId": owner.node });
            let place = match self.tab.cdp.call(around.as_deref(), "DOM.getBoxModel", requested, DO).await {
                Err(CdpError::Refused { .. }) => return not_usable("its frame is not seen"),
                other => other?,
            };
            x += place["model"]["content"][0].as_f64().unwrap_or_default();
            y += place["model"]["content"][1].as_f64().unwrap_or_default();
            at = owner.document;
        }
        Ok((x, y))
    }
}
