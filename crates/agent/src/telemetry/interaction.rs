//! The interactions of the page's user: clicks, keys and scrolls, reported by a script in an isolated world.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::capture::Capture;
use super::event::Event;
use super::interaction_script::BINDING;
use casement_agent_protocol::telemetry::Category;

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
    /// Handles `Runtime.bindingCalled`.
    pub(super) fn report_interaction(&mut self, session: &str, params: &RawValue, is_truncated: bool) {
        let Some(call) = self.read::<BindingCall>(params) else { return };
        if call.name != BINDING {
            return;
        }
        let Ok(interaction) = serde_json::from_str::<ReportedInteraction>(&call.payload) else { return self.lose() };
        let kind = match interaction {
            ReportedInteraction::Click { .. } => "interaction_click",
            ReportedInteraction::Key { .. } => "interaction_key",
            ReportedInteraction::Scroll { .. } => "interaction_scroll_settled",
        };
        let mut event =
            Event::from_browser(kind, Category::Interaction, "Runtime.bindingCalled").truncated(is_truncated);
        let known = self.sessions.get(session);
        let frame = known.and_then(|session| session.contexts.get(&call.execution_context_id)).cloned();
        self.sessions.locate(&mut event, session, frame.as_deref());
        match interaction {
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
        self.events.add(event);
    }
}
