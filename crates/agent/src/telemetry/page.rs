//! Navigation and rendering.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::capture::{Capture, Timer};
use super::event::{Event, short_url};
use super::session::{Frame, Kind, TargetInfo};
use casement_agent_protocol::telemetry::Category;

/// How long nothing moves before a layout counts as settled.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct Navigated {
    frame: TreeFrame,
}

/// A frame as the browser tells of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TreeFrame {
    pub(super) id: String,
    pub(super) parent_id: Option<String>,
    #[serde(default)]
    loader_id: String,
    #[serde(default)]
    pub(super) url: String,
    pub(super) unreachable_url: Option<String>,
}

/// A frame and what is in it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tree {
    frame: TreeFrame,
    #[serde(default)]
    child_frames: Vec<Tree>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TreeAnswer {
    frame_tree: Tree,
}

#[derive(Deserialize)]
struct Fired {
    timestamp: f64,
}

#[derive(Deserialize)]
struct Timeline {
    event: Entry,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    frame_id: String,
    #[serde(rename = "type")]
    kind: String,
    time: f64,
    duration: Option<f64>,
    lcp_details: Option<LargestPaint>,
    layout_shift_details: Option<Shift>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LargestPaint {
    render_time: f64,
    load_time: f64,
    size: f64,
    element_id: Option<String>,
    url: Option<String>,
    node_id: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shift {
    value: f64,
    had_recent_input: bool,
}

impl Capture {
    /// A page that was opened since the capture began.
    pub(super) fn tab_opened(&self, info: &TargetInfo) {
        let mut event = Event::reported("page_tab_opened", Category::Page, "Target.attachedToTarget");
        event.put_text("target_id", &info.target_id);
        event.put("target_type", Kind::Page.word());
        event.put_text("opener_id", info.opener_id.as_deref().unwrap_or_default());
        // A page without a title has its address in the place of one.
        if !(info.url.contains(&info.title) && info.title.contains(['?', '#'])) {
            event.put("title", info.title.as_str());
        }
        event.put_url("url", &info.url);
        self.buffered.add(event);
    }

    /// What was open already when the capture came.
    pub(super) fn frames_reported(&mut self, session: &str, answer: &RawValue) {
        let Some(answer) = self.read::<TreeAnswer>(answer) else { return };
        let mut left = vec![answer.frame_tree];
        while let Some(tree) = left.pop() {
            left.extend(tree.child_frames);
            self.note_frame(session, &tree.frame);
            self.captcha_framed(session, &tree.frame);
        }
    }

    fn note_frame(&mut self, session: &str, frame: &TreeFrame) {
        let Some(session) = self.sessions.get_mut(session) else { return };
        let known = Frame { loader: frame.loader_id.clone(), url: short_url(&frame.url).into_owned() };
        session.remember_frame(&frame.id, known);
    }

    /// `Page.frameNavigated`.
    pub(super) fn frame_navigated(&mut self, session: &str, params: &RawValue, cut: bool) {
        let Some(Navigated { frame }) = self.read::<Navigated>(params) else { return };
        self.note_frame(session, &frame);
        let Some(known) = self.sessions.get_mut(session) else { return };
        if known.kind == Kind::Page && frame.id == known.target {
            let navigation = &mut known.navigation;
            navigation.count += 1;
            navigation.dom_loaded = false;
            navigation.layout_settled = false;
            navigation.settled = false;
            navigation.settles_at = None;
        }
        if self.on.page {
            let mut event = Event::reported("page_navigation", Category::Page, "Page.frameNavigated").cut(cut);
            event.put_url("url", &frame.url);
            event.put_text("frame_id", &frame.id);
            event.put_text("parent_frame_id", frame.parent_id.as_deref().unwrap_or_default());
            event.put_text("loader_id", &frame.loader_id);
            event.put_text("session_id", session);
            if let Some(root) = self.sessions.root_of(session) {
                event.put_text("target_id", &root.target);
                event.put("target_type", root.kind.word());
            }
            self.buffered.add(event);
        }
        self.captcha_framed(session, &frame);
    }

    /// `Page.navigatedWithinDocument`.
    pub(super) fn moved_within(&mut self, session: &str, params: &RawValue) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct FrameNavigated {
            frame_id: String,
            url: String,
        }
        let Some(moved) = self.read::<FrameNavigated>(params) else { return };
        let Some(session) = self.sessions.get_mut(session) else { return };
        let known = session.frame(&moved.frame_id).cloned().unwrap_or_default();
        session.remember_frame(&moved.frame_id, Frame { url: short_url(&moved.url).into_owned(), ..known });
    }

    /// `Page.frameDetached`.
    pub(super) fn frame_detached(&mut self, session: &str, params: &RawValue) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Detached {
            frame_id: String,
            #[serde(default)]
            reason: String,
        }
        let Some(detached) = self.read::<Detached>(params) else { return };
        if let Some(session) = self.sessions.get_mut(session) {
            session.frames.remove(&detached.frame_id);
        }
        // One that goes on in another process is still there.
        if detached.reason != "swap" {
            self.captcha_unframed(&detached.frame_id);
        }
    }

    /// `Page.domContentEventFired` and `Page.loadEventFired`.
    pub(super) fn page_loaded(&mut self, session: &str, method: &str, params: &RawValue) {
        let Some(fired) = self.read::<Fired>(params) else { return };
        let Some(page) = self.sessions.get_mut(session).filter(|page| page.kind == Kind::Page) else { return };
        let whole = method == "Page.loadEventFired";
        if whole {
            let at = Instant::now() + SETTLED_AFTER;
            page.navigation.settles_at = Some(at);
            self.timers.set(at, Timer::Settled(session.to_owned()));
        } else {
            page.navigation.dom_loaded = true;
        }
        if self.on.page {
            let kind = if whole { "page_load" } else { "page_dom_content_loaded" };
            let mut event = Event::reported(kind, Category::Page, method);
            self.sessions.locate(&mut event, session, None);
            event.put("cdp_timestamp", fired.timestamp);
            self.buffered.add(event);
        }
        if !whole {
            self.navigation_settled(session);
        }
    }

    /// `PerformanceTimeline.timelineEventAdded`.
    pub(super) fn rendered(&mut self, session: &str, params: &RawValue, cut: bool) {
        let Some(Timeline { event: entry }) = self.read::<Timeline>(params) else { return };
        let shift = entry.kind == "layout-shift";
        let kind = if shift { "page_layout_shift" } else { "page_lcp" };
        let mut event = Event::reported(kind, Category::Page, "PerformanceTimeline.timelineEventAdded")
            .at_ms(entry.time * 1000.0)
            .cut(cut);
        self.sessions.locate(&mut event, session, Some(&entry.frame_id));
        event.put_text("source_frame_id", &entry.frame_id);
        event.put("time", entry.time * 1000.0);
        if shift {
            event.put("duration", entry.duration.unwrap_or(0.0) * 1000.0);
            if let Some(details) = entry.layout_shift_details {
                let details = json!({ "value": details.value, "had_recent_input": details.had_recent_input });
                event.put("layout_shift_details", details);
            }
            self.shifted(session);
        } else if let Some(details) = entry.lcp_details {
            event.put("lcp_details", details.reported());
        }
        self.buffered.add(event);
    }

    /// The layout moved: it settles later.
    fn shifted(&mut self, session: &str) {
        let Some(root) = self.sessions.root_of(session) else { return };
        if root.navigation.settles_at.is_some() {
            let at = Instant::now() + SETTLED_AFTER;
            root.navigation.settles_at = Some(at);
            let id = root.id.clone();
            self.timers.set(at, Timer::Settled(id));
        }
    }

    /// Nothing moved for a while, if the time has come.
    pub(super) fn layout_settled(&mut self, session: &str) {
        let Some(page) = self.sessions.get_mut(session) else { return };
        match page.navigation.settles_at {
            Some(at) if at <= Instant::now() => page.navigation.settles_at = None,
            _ => return,
        }
        page.navigation.layout_settled = true;
        if self.on.page {
            let mut event = Event::reported("page_layout_settled", Category::Page, "Page.loadEventFired");
            self.sessions.locate(&mut event, session, None);
            self.buffered.add(event);
        }
        self.navigation_settled(session);
    }

    fn navigation_settled(&mut self, session: &str) {
        let Some(page) = self.sessions.get_mut(session) else { return };
        let navigation = &mut page.navigation;
        if navigation.settled || !navigation.dom_loaded || !navigation.layout_settled {
            return;
        }
        navigation.settled = true;
        if self.on.page {
            let mut event = Event::reported("page_navigation_settled", Category::Page, "Page.loadEventFired");
            self.sessions.locate(&mut event, session, None);
            self.buffered.add(event);
        }
        self.want_picture();
    }
}

impl LargestPaint {
    fn reported(self) -> Value {
        let mut reported = Map::new();
        let mut put =
            |name: &str, value: Value| drop((!value.is_null()).then(|| reported.insert(name.to_owned(), value)));
        put("element_id", self.element_id.filter(|id| !id.is_empty()).into());
        put("node_id", self.node_id.into());
        put("url", self.url.map(|url| short_url(&url).into_owned()).filter(|url| !url.is_empty()).into());
        put("size", self.size.into());
        put("load_time", (self.load_time * 1000.0).into());
        put("render_time", (self.render_time * 1000.0).into());
        Value::Object(reported)
    }
}
