//! Attaches to the targets of a capture and enables their notices.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use casement_agent_protocol::telemetry::Category;

use super::{Capture, PendingQuery};
use crate::own_page;
use crate::telemetry::categories::CapturedCategories;
use crate::telemetry::event::Event;
use crate::telemetry::interaction_script::{BINDING, SCRIPT, STOP, WORLD};
use crate::telemetry::requests::{MAX_POST, MAX_STORED_BODIES, MAX_STORED_BODY};
use crate::telemetry::session::{Kind, Session, TargetInfo};
use crate::telemetry::system::{Phase, crashed};

/// The maximum number of attached pages, frames and workers. Further targets are not captured.
pub(super) const MAX_SESSIONS: usize = 1000;
/// The maximum number of setup calls that a change of the categories waits for.
const MAX_SETUP_CALLS: usize = 20 * MAX_SESSIONS;
pub(super) const REMOVE_SCRIPT: &str = "Page.removeScriptToEvaluateOnNewDocument";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attached {
    session_id: String,
    target_info: TargetInfo,
    waiting_for_debugger: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Detached {
    session_id: String,
}

#[derive(Deserialize)]
struct Added {
    identifier: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    context: ContextDescription,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContextDescription {
    id: i64,
    #[serde(default)]
    aux_data: ContextPlace,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContextPlace {
    frame_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Destroyed {
    execution_context_id: i64,
}

impl Capture {
    /// Changes the captured categories.
    pub(super) fn set_categories(&mut self, categories: CapturedCategories) {
        let before = std::mem::replace(&mut self.categories, categories);
        let from = self.next_id;
        if categories.system && !before.system {
            let filter = json!([{ "type": "page" }, { "type": "iframe" }, { "type": "service_worker" }]);
            self.send(None, "Target.setDiscoverTargets", json!({ "discover": true, "filter": filter }));
        }
        if !categories.system && before.system {
            self.send(None, "Target.setDiscoverTargets", json!({ "discover": false }));
        }
        if categories.needs_targets() && !before.needs_targets() {
            self.is_attached = false;
            self.ask(None, "Target.setAutoAttach", auto_attach(true), PendingQuery::AutoAttach);
        }
        if !categories.needs_targets() && before.needs_targets() {
            self.send(None, "Target.setAutoAttach", auto_attach(false));
        }
        let sessions: Vec<(String, Kind)> = self.sessions.0.values().map(|one| (one.id.clone(), one.kind)).collect();
        for (session, kind) in sessions {
            self.set_up(&session, kind, before);
        }
        if !categories.network {
            self.requests.clear();
            self.sessions.0.values_mut().for_each(|session| session.navigation.forget_requests());
        }
        if !categories.captcha {
            self.captchas.clear();
        }
        self.screenshots.set_enabled(categories.screenshot);
        self.pending_setup.extend(from..self.next_id);
    }

    /// Enables or disables the notices of a session for the categories that have changed.
    fn set_up(&mut self, session: &str, kind: Kind, before: CapturedCategories) {
        let on = self.categories;
        let at = Some(session);
        if on.console != before.console {
            self.send(at, if on.console { "Runtime.enable" } else { "Runtime.disable" }, json!({}));
        }
        if on.network != before.network {
            let bounds = json!({
                "maxTotalBufferSize": MAX_STORED_BODIES, "maxResourceBufferSize": MAX_STORED_BODY, "maxPostDataSize": MAX_POST,
            });
            self.send(at, if on.network { "Network.enable" } else { "Network.disable" }, bounds);
        }
        // Reports the crash of a page's process, after which its requests get no response.
        if kind.has_frames() && on.page_crashes() != before.page_crashes() {
            self.send(at, if on.page_crashes() { "Inspector.enable" } else { "Inspector.disable" }, json!({}));
        }
        if kind.has_frames() && on.page != before.page {
            let kinds = if on.page { json!(["layout-shift", "largest-contentful-paint"]) } else { json!([]) };
            self.send(at, "PerformanceTimeline.enable", json!({ "eventTypes": kinds }));
        }
        if kind.has_frames() && on.interaction != before.interaction {
            self.capture_interactions(session, on.interaction);
        }
    }

    /// Starts or stops the capture of interactions in the pages of a session.
    fn capture_interactions(&mut self, session: &str, on: bool) {
        let at = Some(session);
        let scripts = self.sessions.get_mut(session).map(|session| std::mem::take(&mut session.scripts));
        for identifier in scripts.into_iter().flatten() {
            self.send(at, REMOVE_SCRIPT, json!({ "identifier": identifier }));
        }
        let source: &str = if on {
            self.send(at, "Runtime.addBinding", json!({ "name": BINDING, "executionContextName": WORLD }));
            &SCRIPT
        } else {
            self.send(at, "Runtime.removeBinding", json!({ "name": BINDING }));
            STOP
        };
        let script = json!({ "source": source, "worldName": WORLD, "runImmediately": true });
        self.ask(
            at,
            "Page.addScriptToEvaluateOnNewDocument",
            script,
            PendingQuery::NewDocumentScript { session: session.to_owned(), stays: on },
        );
    }

    /// Stores the identifier of a script for new documents, or removes a script for the current documents only.
    pub(super) fn add_script(&mut self, session: &str, stays: bool, result: &RawValue) {
        let Some(Added { identifier }) = self.read(result) else { return };
        match self.sessions.get_mut(session) {
            Some(known) if stays && self.categories.interaction => known.scripts.push(identifier),
            _ => {
                self.send(Some(session), REMOVE_SCRIPT, json!({ "identifier": identifier }));
            }
        }
    }

    pub(super) fn attached(&mut self, parent: Option<&str>, params: &RawValue) {
        let Some(attached) = self.read::<Attached>(params) else { return };
        let Attached { session_id: id, target_info: info, waiting_for_debugger: waiting } = attached;
        let kind = Kind::of(&info.kind).filter(|_| !own_page::is(&info.url));
        let is_new = !self.sessions.0.values().any(|one| one.target == info.target_id);
        let (Some(kind), true) = (kind, is_new && self.sessions.0.len() < MAX_SESSIONS) else {
            if waiting {
                self.send(Some(&id), "Runtime.runIfWaitingForDebugger", json!({}));
            }
            self.send(parent, "Target.detachFromTarget", json!({ "sessionId": id }));
            if kind.is_some() && is_new {
                self.lose();
            }
            return;
        };
        let from = self.next_id;
        let root = parent.and_then(|parent| Some(self.sessions.get(parent)?.root.clone()));
        let root = root.filter(|_| matches!(kind, Kind::Frame | Kind::Worker));
        self.sessions.0.insert(id.clone(), Session::new(&id, &info, kind, root));
        if kind == Kind::Page && self.is_attached && self.categories.page {
            self.tab_opened(&info);
        }
        if kind.has_frames() {
            self.send(Some(&id), "Page.enable", json!({}));
        }
        self.set_up(&id, kind, CapturedCategories::default());
        // Targets that do not support this call refuse it.
        self.send(Some(&id), "Target.setAutoAttach", auto_attach(true));
        if kind.has_frames() && !waiting {
            self.ask(Some(&id), "Page.getFrameTree", json!({}), PendingQuery::FrameTree { session: id.clone() });
        }
        if waiting {
            self.send(Some(&id), "Runtime.runIfWaitingForDebugger", json!({}));
        }
        // Bounded, because targets may end without a reply.
        if self.pending_request.is_some() && self.pending_setup.len() < MAX_SETUP_CALLS {
            self.pending_setup.extend(from..self.next_id);
        }
    }

    pub(super) fn detached(&mut self, params: &RawValue) {
        let Some(Detached { session_id: id }) = self.read(params) else { return };
        self.drop_pending(|session| session == id);
        self.forget_requests(&id);
        self.end_captchas_of_session(&id);
        self.sessions.0.remove(&id);
    }

    /// Removes the requests of a session, which get no response any more.
    pub(super) fn forget_requests(&mut self, session: &str) {
        let count = self.requests.remove_session(session);
        self.finish_requests(session, count);
    }

    /// Handles `Target.targetCrashed`, which the browser sends for all targets.
    pub(super) fn process_crashed(&self) {
        if self.categories.system {
            self.events
                .add(crashed("chromium-renderer", Phase::Running, None).with_source_event("Target.targetCrashed"));
        }
    }

    /// Handles `Inspector.targetCrashed`, which the browser sends to the session of the crashed target.
    pub(super) fn page_crashed(&mut self, session: &str) {
        self.forget_requests(session);
        let Some(crashed) = self.sessions.get(session).filter(|_| self.categories.page) else { return };
        let mut event = Event::from_browser("page_crashed", Category::Page, "Inspector.targetCrashed");
        event.put("target_id", crashed.target.as_str());
        event.put("target_type", crashed.kind.target_type());
        event.put_url("url", &crashed.url);
        self.events.add(event);
    }

    pub(super) fn add_context(&mut self, session: &str, params: &RawValue) {
        let Some(Context { context }) = self.read(params) else { return };
        if let Some(session) = self.sessions.get_mut(session) {
            session.add_context(context.id, context.aux_data.frame_id);
        }
    }

    pub(super) fn remove_context(&mut self, session: &str, params: &RawValue) {
        let Some(removed) = self.read::<Destroyed>(params) else { return };
        if let Some(session) = self.sessions.get_mut(session) {
            session.contexts.remove(&removed.execution_context_id);
        }
    }
}

fn auto_attach(on: bool) -> Value {
    // The browser attaches to service workers; a page would attach to them again.
    json!({ "autoAttach": on, "waitForDebuggerOnStart": on, "flatten": true })
}
