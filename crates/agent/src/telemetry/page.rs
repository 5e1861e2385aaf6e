//! Navigation and rendering.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::capture::{Capture, Timer};
use super::event::{Event, short_url};
use super::session::{Frame, Kind, TargetInfo, TreeFrame};
use casement_agent_protocol::telemetry::Category;

/// The time without a layout shift after which a layout counts as settled.
const SETTLE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct Navigated {
    frame: TreeFrame,
}

/// A frame and its child frames.
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
    /// Reports a page that was opened since the capture began.
    pub(super) fn tab_opened(&self, info: &TargetInfo) {
        let mut event = Event::from_browser("page_tab_opened", Category::Page, "Target.attachedToTarget");
        event.put_text("target_id", &info.target_id);
        event.put("target_type", Kind::Page.name());
        event.put_text("opener_id", info.opener_id.as_deref().unwrap_or_default());
        // Without a title the browser reports the URL as the title.
        if !(info.url.contains(&info.title) && info.title.contains(['?', '#'])) {
            event.put("title", info.title.as_str());
        }
        event.put_url("url", &info.url);
        self.events.add(event);
    }

    /// Handles the reply of `Page.getFrameTree` for a target that was open before the capture.
    pub(super) fn add_frame_tree(&mut self, session: &str, answer: &RawValue) {
        let Some(answer) = self.read::<TreeAnswer>(answer) else { return };
        let mut remaining = vec![answer.frame_tree];
        while let Some(tree) = remaining.pop() {
            remaining.extend(tree.child_frames);
            self.update_frame(session, &tree.frame);
            self.check_captcha_frame(session, &tree.frame);
        }
    }

    fn update_frame(&mut self, session: &str, frame: &TreeFrame) {
        let Some(session) = self.sessions.get_mut(session) else { return };
        let known = Frame { loader: frame.loader_id.clone(), url: short_url(&frame.url).into_owned() };
        session.set_frame(&frame.id, known);
    }

    /// Handles `Page.frameNavigated`.
    pub(super) fn frame_navigated(&mut self, session: &str, params: &RawValue, is_truncated: bool) {
        let Some(Navigated { frame }) = self.read::<Navigated>(params) else { return };
        self.update_frame(session, &frame);
        let Some(known) = self.sessions.get_mut(session) else { return };
        if known.kind == Kind::Page && frame.id == known.target {
            let navigation = &mut known.navigation;
            navigation.count += 1;
            navigation.dom_loaded = false;
            navigation.layout_settled = false;
            navigation.settled = false;
            navigation.settles_at = None;
        }
        if self.categories.page {
            let mut event =
                Event::from_browser("page_navigation", Category::Page, "Page.frameNavigated").truncated(is_truncated);
            event.put_url("url", &frame.url);
            event.put_text("frame_id", &frame.id);
            event.put_text("parent_frame_id", frame.parent_id.as_deref().unwrap_or_default());
            event.put_text("loader_id", &frame.loader_id);
            event.put_text("session_id", session);
            if let Some(root) = self.sessions.root_of(session) {
                event.put_text("target_id", &root.target);
                event.put("target_type", root.kind.name());
            }
            self.events.add(event);
        }
        self.check_captcha_frame(session, &frame);
    }

    /// Handles `Page.navigatedWithinDocument`.
    pub(super) fn navigated_within_document(&mut self, session: &str, params: &RawValue) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct FrameNavigated {
            frame_id: String,
            url: String,
        }
        let Some(moved) = self.read::<FrameNavigated>(params) else { return };
        let Some(session) = self.sessions.get_mut(session) else { return };
        let known = session.frame(&moved.frame_id).cloned().unwrap_or_default();
        session.set_frame(&moved.frame_id, Frame { url: short_url(&moved.url).into_owned(), ..known });
    }

    /// Handles `Page.frameDetached`.
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
        // A frame that moves to another process still exists.
        if detached.reason != "swap" {
            self.end_captcha_of_frame(&detached.frame_id);
        }
    }

    /// Handles `Page.domContentEventFired` and `Page.loadEventFired`.
    pub(super) fn page_loaded(&mut self, session: &str, method: &str, params: &RawValue) {
        let Some(fired) = self.read::<Fired>(params) else { return };
        let Some(page) = self.sessions.get_mut(session).filter(|page| page.kind == Kind::Page) else { return };
        let is_complete = method == "Page.loadEventFired";
        if is_complete {
            let at = Instant::now() + SETTLE_INTERVAL;
            page.navigation.settles_at = Some(at);
            self.timers.set(at, Timer::Settled(session.to_owned()));
        } else {
            page.navigation.dom_loaded = true;
        }
        if self.categories.page {
            let kind = if is_complete { "page_load" } else { "page_dom_content_loaded" };
            let mut event = Event::from_browser(kind, Category::Page, method);
            self.sessions.locate(&mut event, session, None);
            event.put("cdp_timestamp", fired.timestamp);
            self.events.add(event);
        }
        if !is_complete {
            self.navigation_settled(session);
        }
    }

    /// Handles `PerformanceTimeline.timelineEventAdded`.
    pub(super) fn rendered(&mut self, session: &str, params: &RawValue, is_truncated: bool) {
        let Some(Timeline { event: entry }) = self.read::<Timeline>(params) else { return };
        let shift = entry.kind == "layout-shift";
        let kind = if shift { "page_layout_shift" } else { "page_lcp" };
        let mut event = Event::from_browser(kind, Category::Page, "PerformanceTimeline.timelineEventAdded")
            .at_ms(entry.time * 1000.0)
            .truncated(is_truncated);
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
            event.put("lcp_details", details.into_json());
        }
        self.events.add(event);
    }

    /// Postpones the settling of a layout after a shift.
    fn shifted(&mut self, session: &str) {
        let Some(root) = self.sessions.root_of(session) else { return };
        if root.navigation.settles_at.is_some() {
            let at = Instant::now() + SETTLE_INTERVAL;
            root.navigation.settles_at = Some(at);
            let id = root.id.clone();
            self.timers.set(at, Timer::Settled(id));
        }
    }

    /// Reports that the layout has settled, if it did not shift meanwhile.
    pub(super) fn layout_settled(&mut self, session: &str) {
        let Some(page) = self.sessions.get_mut(session) else { return };
        match page.navigation.settles_at {
            Some(at) if at <= Instant::now() => page.navigation.settles_at = None,
            _ => return,
        }
        page.navigation.layout_settled = true;
        if self.categories.page {
            let mut event = Event::from_browser("page_layout_settled", Category::Page, "Page.loadEventFired");
            self.sessions.locate(&mut event, session, None);
            self.events.add(event);
        }
        self.navigation_settled(session);
    }

    /// Tracks the captcha of a frame, if captchas are captured.
    fn check_captcha_frame(&mut self, session: &str, frame: &TreeFrame) {
        if self.categories.captcha {
            self.track_captcha(session, frame);
        }
    }

    fn navigation_settled(&mut self, session: &str) {
        let Some(page) = self.sessions.get_mut(session) else { return };
        let navigation = &mut page.navigation;
        if navigation.settled || !navigation.dom_loaded || !navigation.layout_settled {
            return;
        }
        navigation.settled = true;
        if self.categories.page {
            let mut event = Event::from_browser("page_navigation_settled", Category::Page, "Page.loadEventFired");
            self.sessions.locate(&mut event, session, None);
            self.events.add(event);
        }
        self.screenshots.request();
    }
}

impl LargestPaint {
    fn into_json(self) -> Value {
        let mut fields = Map::new();
        let mut put =
            |name: &str, value: Value| drop((!value.is_null()).then(|| fields.insert(name.to_owned(), value)));
        put("element_id", self.element_id.filter(|id| !id.is_empty()).into());
        put("node_id", self.node_id.into());
        put("url", self.url.map(|url| short_url(&url).into_owned()).filter(|url| !url.is_empty()).into());
        put("size", self.size.into());
        put("load_time", (self.load_time * 1000.0).into());
        put("render_time", (self.render_time * 1000.0).into());
        Value::Object(fields)
    }
}
