//! The browser's tabs, as its discovery tells them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// More tabs than this are not listed.
const MAX_TABS: usize = 200;
/// The browser's own names of targets and of its sessions with them have 32 characters.
const MAX_ID: usize = 64;
const MAX_TITLE: usize = 200;
const MAX_URL: usize = 500;

/// One tab; title and address are the page's own words and must stay inert.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Tab {
    pub(super) id: String,
    title: String,
    url: String,
}

/// Whether this may be the name of a target or of a session: what the browser says is kept, and it may have been taken over.
pub(super) fn is_id(text: &str) -> bool {
    (1..=MAX_ID).contains(&text.len())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetInfo {
    target_id: String,
    r#type: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    url: String,
}

impl Tab {
    /// Nothing, if `info` is of something else.
    fn of(info: &Value) -> Option<Self> {
        let info = TargetInfo::deserialize(info).ok()?;
        let page = info.r#type == "page" && !info.url.starts_with("devtools://");
        (page && is_id(&info.target_id)).then(|| Self {
            id: info.target_id,
            title: info.title.chars().take(MAX_TITLE).collect(),
            url: info.url.chars().take(MAX_URL).collect(),
        })
    }
}

/// The list, oldest first.
#[derive(Debug, Default)]
pub(super) struct Tabs {
    tabs: Vec<Tab>,
    changed: bool,
}

impl Tabs {
    /// Takes a `targetInfo` in; answers the tab's id if it is new.
    pub(super) fn put(&mut self, info: &Value) -> Option<String> {
        let tab = Tab::of(info)?;
        if self.has(&tab.id) {
            self.update(tab);
            return None;
        }
        if self.tabs.len() >= MAX_TABS {
            return None;
        }
        self.changed = true;
        let id = tab.id.clone();
        self.tabs.push(tab);
        Some(id)
    }

    /// Takes in what the browser answers when it is asked for its tabs. Which there are, only its events say.
    pub(super) fn refresh(&mut self, infos: &Value) {
        for tab in infos.as_array().into_iter().flatten().filter_map(Tab::of) {
            self.update(tab);
        }
    }

    fn update(&mut self, tab: Tab) {
        if let Some(known) = self.tabs.iter_mut().find(|known| known.id == tab.id && **known != tab) {
            *known = tab;
            self.changed = true;
        }
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.tabs.retain(|tab| tab.id != id);
        self.changed = true;
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.tabs.iter().any(|tab| tab.id == id)
    }

    pub(super) fn newest(&self) -> Option<String> {
        self.tabs.last().map(|tab| tab.id.clone())
    }

    /// Those that are not `current`, newest first.
    pub(super) fn others(&self, current: Option<&str>) -> Vec<String> {
        self.tabs.iter().rev().filter(|tab| Some(tab.id.as_str()) != current).map(|tab| tab.id.clone()).collect()
    }

    pub(super) fn touch(&mut self) {
        self.changed = true;
    }

    /// The list for the page, if it changed since the last call.
    pub(super) fn news(&mut self, current: Option<&str>) -> Option<Value> {
        std::mem::take(&mut self.changed).then(|| json!({ "t": "tabs", "current": current, "tabs": self.tabs }))
    }
}
