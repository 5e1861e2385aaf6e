//! What is known of the pages, frames and workers that the capture is attached to.

use std::collections::HashMap;

use serde::Deserialize;
use tokio::time::Instant;

use super::event::{Event, short_url};

/// Frames and script contexts remembered of one session.
const MAX_FRAMES: usize = 1000;

/// What a session is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Page,
    /// A frame in a process of its own, inside of a page.
    Frame,
    BackgroundPage,
    ServiceWorker,
    SharedWorker,
    /// A worker of one page, and what else runs scripts.
    Worker,
}

impl Kind {
    /// The browser's word for it; none for what is not captured.
    pub(super) fn of(word: &str) -> Option<Self> {
        Some(match word {
            "page" => Self::Page,
            "iframe" => Self::Frame,
            "background_page" => Self::BackgroundPage,
            "service_worker" => Self::ServiceWorker,
            "shared_worker" => Self::SharedWorker,
            "worker" => Self::Worker,
            _ => return None,
        })
    }

    /// In the words of an event. A frame is a part of its page.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Page | Self::Frame => "page",
            Self::BackgroundPage => "background_page",
            Self::ServiceWorker => "service_worker",
            Self::SharedWorker => "shared_worker",
            Self::Worker => "other",
        }
    }

    /// Has frames.
    pub(super) const fn shows(self) -> bool {
        matches!(self, Self::Page | Self::Frame | Self::BackgroundPage)
    }
}

/// As the browser tells of a target.
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

/// One frame of a page.
#[derive(Debug, Clone, Default)]
pub(super) struct Frame {
    pub(super) loader: String,
    pub(super) url: String,
}

/// How far the navigation of a page is.
#[derive(Debug, Default)]
pub(super) struct Navigation {
    /// Navigations so far.
    pub(super) count: u64,
    pub(super) dom_loaded: bool,
    /// The layout has not moved for a while.
    pub(super) layout_settled: bool,
    pub(super) settled: bool,
    /// When the layout will have settled, if nothing moves.
    pub(super) settles_at: Option<Instant>,
    /// Requests that wait for their answers.
    pub(super) in_flight: usize,
    /// When the network will be idle, if nothing is asked.
    pub(super) idle_at: Option<Instant>,
}

impl Navigation {
    /// Nothing is known of requests any more.
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
    /// The session of the page that it is part of; of a page: its own.
    pub(super) root: String,
    pub(super) frames: HashMap<String, Frame>,
    /// The frame around the target, where the browser says it.
    pub(super) parent_frame: Option<String>,
    /// In which frame a script context is.
    pub(super) contexts: HashMap<i64, String>,
    /// The scripts for new documents that are in place, by the browser's names.
    pub(super) scripts: Vec<String>,
    /// Objects that the browser keeps for us, since they were let go.
    pub(super) objects: u32,
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
            objects: 0,
            navigation: Navigation::default(),
        }
    }

    /// The frame of the page itself: the browser names it like the target.
    pub(super) fn main_frame(&self) -> &str {
        if self.kind.shows() { &self.target } else { "" }
    }

    pub(super) fn frame(&self, id: &str) -> Option<&Frame> {
        self.frames.get(id)
    }

    pub(super) fn remember_frame(&mut self, id: &str, frame: Frame) {
        if id == self.target {
            self.url.clone_from(&frame.url);
        }
        if self.frames.len() < MAX_FRAMES || self.frames.contains_key(id) {
            self.frames.insert(id.to_owned(), frame);
        }
    }

    pub(super) fn remember_context(&mut self, id: i64, frame: String) {
        if self.contexts.len() < MAX_FRAMES {
            self.contexts.insert(id, frame);
        }
    }
}

/// The sessions that are attached.
#[derive(Debug, Default)]
pub(super) struct Sessions(pub(super) HashMap<String, Session>);

impl Sessions {
    pub(super) fn get(&self, id: &str) -> Option<&Session> {
        self.0.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut Session> {
        self.0.get_mut(id)
    }

    /// The page that a session is part of.
    pub(super) fn root_of(&mut self, id: &str) -> Option<&mut Session> {
        let root = self.0.get(id)?.root.clone();
        self.0.get_mut(&root)
    }

    /// Says where an event happened: in this frame of this session, or in its main one.
    pub(super) fn locate(&self, event: &mut Event, id: &str, frame: Option<&str>) {
        self.locate_at(event, id, frame, None);
    }

    /// As [`locate`](Self::locate), at this address.
    pub(super) fn locate_at(&self, event: &mut Event, id: &str, frame: Option<&str>, url: Option<&str>) {
        let Some(session) = self.get(id) else { return };
        let page = match session.kind {
            Kind::Frame => self.get(&session.root).unwrap_or(session),
            _ => session,
        };
        event.put_text("target_id", &page.target);
        event.put_text("session_id", &session.id);
        event.put("target_type", session.kind.word());
        let frame = frame.unwrap_or_else(|| session.main_frame());
        event.put_text("frame_id", frame);
        let known = session.frame(frame);
        if let Some(known) = known {
            event.put_text("loader_id", &known.loader);
        }
        if let Some(root) = self.get(&session.root).filter(|root| root.kind.shows()) {
            event.put("nav_seq", root.navigation.count);
        }
        event.put_url("url", url.unwrap_or_else(|| known.map_or(&session.url, |known| &known.url)));
    }
}
