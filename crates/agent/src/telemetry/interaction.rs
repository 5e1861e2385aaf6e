//! What the page's user does: clicks, keys and scrolls, told by a script in a world of its own.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::capture::Capture;
use super::event::Event;
use super::secrets::{NAMES, PARTS, WORDS};
use casement_agent_protocol::telemetry::Category;

/// The world of the script, and the function by which it tells.
pub(super) const WORLD: &str = "casement";
pub(super) const BINDING: &str = "__binding__";
pub(super) static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    let secrets = json!({ "words": WORDS, "parts": PARTS, "names": NAMES });
    include_str!("interaction.js").replace("'__secrets__'", &secrets.to_string())
});
/// Ends what the script does in a document.
pub(super) const STOP: &str = "globalThis[Symbol.for('casement.stop')]?.()";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingCall {
    name: String,
    payload: String,
    execution_context_id: i64,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum ReportedInteraction {
    Click { x: f64, y: f64, text: String, selector: String, tag: String },
    Key { key: String, selector: String, tag: String },
    Scroll { from_x: i64, from_y: i64, to_x: i64, to_y: i64, selector: String },
}

impl Capture {
    /// `Runtime.bindingCalled`.
    pub(super) fn interacted(&mut self, session: &str, params: &RawValue, cut: bool) {
        let Some(called) = self.read::<BindingCall>(params) else { return };
        if called.name != BINDING {
            return;
        }
        let reported = serde_json::from_str::<ReportedInteraction>(&called.payload);
        let Ok(reported) = reported else { return self.lose() };
        let kind = match reported {
            ReportedInteraction::Click { .. } => "interaction_click",
            ReportedInteraction::Key { .. } => "interaction_key",
            ReportedInteraction::Scroll { .. } => "interaction_scroll_settled",
        };
        let mut event = Event::reported(kind, Category::Interaction, "Runtime.bindingCalled").cut(cut);
        let known = self.sessions.get(session);
        let frame = known.and_then(|session| session.contexts.get(&called.execution_context_id)).cloned();
        self.sessions.locate(&mut event, session, frame.as_deref());
        match reported {
            ReportedInteraction::Click { x, y, text, selector, tag } => {
                event.put("x", x.round() as i64);
                event.put("y", y.round() as i64);
                event.put_text("text", &text);
                event.put("selector", selector);
                event.put("tag", tag);
            }
            ReportedInteraction::Key { key, selector, tag } => {
                event.put("key", key);
                event.put("selector", selector);
                event.put("tag", tag);
            }
            ReportedInteraction::Scroll { from_x, from_y, to_x, to_y, selector } => {
                event.put("from_x", from_x);
                event.put("from_y", from_y);
                event.put("to_x", to_x);
                event.put("to_y", to_y);
                event.put("target_selector", selector);
            }
        }
        self.buffered.add(event);
    }
}
