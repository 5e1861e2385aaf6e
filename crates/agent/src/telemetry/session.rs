//! The attached pages, frames and workers of a capture.

use std::collections::HashMap;

use serde::Deserialize;
use tokio::time::Instant;

use super::event::{Event, short_url};

/// The maximum number of frames, and of script contexts, of one session.
const MAX_FRAMES: usize = 1000;

/// The kind of an attached target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Page,
    /// A frame in a process of its own.
    Frame,
    BackgroundPage,
    ServiceWorker,
    SharedWorker,
    /// A worker of one page, or another target that runs scripts.
    Worker,
}

impl Kind {
    /// Parses the browser's name of a kind; `None` for a kind that is not captured.
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "page" => Self::Page,
            "iframe" => Self::Frame,
            "background_page" => Self::BackgroundPage,
            "service_worker" => Self::ServiceWorker,
            "shared_worker" => Self::SharedWorker,
            "worker" => Self::Worker,
            _ => return None,
        })
    }

    /// Returns the name in events. A frame is a part of its page.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Page | Self::Frame => "page",
            Self::BackgroundPage => "background_page",
            Self::ServiceWorker => "service_worker",
            Self::SharedWorker => "shared_worker",
            Self::Worker => "other",
        }
    }

    /// Returns the name of the target itself. Most events have [`name`](Self::name) instead, which older clients know.
    pub(super) const fn target_type(self) -> &'static str {
        match self {
            Self::Frame => "iframe",
            Self::Worker => "worker",
            other => other.name(),
        }
    }

    /// Returns true for a kind with frames.
    pub(super) const fn has_frames(self) -> bool {
        matches!(self, Self::Page | Self::Frame | Self::BackgroundPage)
    }
}

/// A target as the browser reports it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TargetInfo {
    pub(super) target_id: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) title: String,
    pub(super) url: String,
    pub(super) opener_id: Option<String>,
    pub(super) parent_frame_id: Option<String>,
}

/// A frame as the browser reports it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TreeFrame {
    pub(super) id: String,
    pub(super) parent_id: Option<String>,
    #[serde(default)]
    pub(super) loader_id: String,
    #[serde(default)]
    pub(super) url: String,
    pub(super) unreachable_url: Option<String>,
}

/// A frame of a page.
#[derive(Debug, Clone, Default)]
pub(super) struct Frame {
    pub(super) loader: String,
    pub(super) url: String,
}

/// The progress of a page's navigation.
#[derive(Debug, Default)]
pub(super) struct Navigation {
    /// The number of navigations.
    pub(super) count: u64,
    pub(super) dom_loaded: bool,
    /// True once the layout has not shifted for a while.
    pub(super) layout_settled: bool,
    pub(super) settled: bool,
    /// The time when the layout settles, unless it shifts.
    pub(super) settles_at: Option<Instant>,
    /// The number of requests without a response.
    pub(super) in_flight: usize,
    /// The time when the network becomes idle, unless a request is sent.
    pub(super) idle_at: Option<Instant>,
}

impl Navigation {
    /// Resets the state of the requests.
    pub(super) fn forget_requests(&mut self) {
        self.in_flight = 0;
        self.idle_at = None;
    }
}

/// An attached target.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) target: String,
    pub(super) kind: Kind,
    pub(super) url: String,
    /// The session of the page that contains the target; for a page the page's own session.
    pub(super) root: String,
    pub(super) frames: HashMap<String, Frame>,
    /// The frame that contains the target, if the browser reports it.
    pub(super) parent_frame: Option<String>,
    /// The frame of each script context.
    pub(super) contexts: HashMap<i64, String>,
    /// The identifiers of the scripts for new documents.
    pub(super) scripts: Vec<String>,
    /// The number of console objects that the browser holds since the last release.
    pub(super) held_objects: u32,
    pub(super) navigation: Navigation,
}

impl Session {
    pub(super) fn new(id: &str, info: &TargetInfo, kind: Kind, root: Option<String>) -> Self {
        Self {
            id: id.to_owned(),
            target: info.target_id.clone(),
            kind,
            url: short_url(&info.url).into_owned(),
            root: root.unwrap_or_else(|| id.to_owned()),
            frames: HashMap::new(),
            parent_frame: info.parent_frame_id.clone(),
            contexts: HashMap::new(),
            scripts: Vec::new(),
            held_objects: 0,
            navigation: Navigation::default(),
        }
    }

    /// Returns the id of the main frame, which is the target's; empty for a target without frames.
    pub(super) fn main_frame(&self) -> &str {
        if self.kind.has_frames() { &self.target } else { "" }
    }

    pub(super) fn frame(&self, id: &str) -> Option<&Frame> {
        self.frames.get(id)
    }

    pub(super) fn set_frame(&mut self, id: &str, frame: Frame) {
        if id == self.target {
            self.url.clone_from(&frame.url);
        }
        if self.frames.len() < MAX_FRAMES || self.frames.contains_key(id) {
            self.frames.insert(id.to_owned(), frame);
        }
    }

    pub(super) fn add_context(&mut self, id: i64, frame: String) {
        if self.contexts.len() < MAX_FRAMES {
            self.contexts.insert(id, frame);
        }
    }
}

/// The attached sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions(pub(super) HashMap<String, Session>);

impl Sessions {
    pub(super) fn get(&self, id: &str) -> Option<&Session> {
        self.0.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut Session> {
        self.0.get_mut(id)
    }

    /// Returns the page of a session.
    pub(super) fn root_of(&mut self, id: &str) -> Option<&mut Session> {
        let root = self.0.get(id)?.root.clone();
        self.0.get_mut(&root)
    }

    /// Sets the location of an event: a frame of a session, or its main frame.
    pub(super) fn locate(&self, event: &mut Event, id: &str, frame: Option<&str>) {
        self.locate_at(event, id, frame, None);
    }

    /// Like [`locate`](Self::locate), with this URL.
    pub(super) fn locate_at(&self, event: &mut Event, id: &str, frame: Option<&str>, url: Option<&str>) {
        let Some(session) = self.get(id) else { return };
        let page = match session.kind {
            Kind::Frame => self.get(&session.root).unwrap_or(session),
            _ => session,
        };
        event.put_text("target_id", &page.target);
        event.put_text("session_id", &session.id);
        event.put("target_type", session.kind.name());
        let frame = frame.unwrap_or_else(|| session.main_frame());
        event.put_text("frame_id", frame);
        let known = session.frame(frame);
        if let Some(known) = known {
            event.put_text("loader_id", &known.loader);
        }
        if let Some(root) = self.get(&session.root).filter(|root| root.kind.has_frames()) {
            event.put("nav_seq", root.navigation.count);
        }
        event.put_url("url", url.unwrap_or_else(|| known.map_or(&session.url, |known| &known.url)));
    }
}
