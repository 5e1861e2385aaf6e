//! The list of the browser's tabs, from DevTools target discovery.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The maximum number of listed tabs.
const MAX_TABS: usize = 200;
/// The maximum length of target and session ids; Chromium's have 32 characters.
const MAX_ID_BYTES: usize = 64;
const MAX_TITLE_CHARS: usize = 200;
const MAX_URL_CHARS: usize = 500;

/// One tab. Title and URL are controlled by the page and must be treated as untrusted text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Tab {
    pub(super) id: String,
    title: String,
    url: String,
}

/// Returns whether a text can be the id of a target or a session. Ids are stored, and the browser may be compromised.
pub(super) fn is_id(text: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&text.len())
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
    /// Reads a `targetInfo`; `None` for other targets than pages.
    fn parse(info: &Value) -> Option<Self> {
        let info = TargetInfo::deserialize(info).ok()?;
        let is_page = info.r#type == "page" && !info.url.starts_with("devtools://");
        (is_page && is_id(&info.target_id)).then(|| Self {
            id: info.target_id,
            title: info.title.chars().take(MAX_TITLE_CHARS).collect(),
            url: info.url.chars().take(MAX_URL_CHARS).collect(),
        })
    }
}

/// The list of tabs, oldest first.
#[derive(Debug, Default)]
pub(super) struct Tabs {
    tabs: Vec<Tab>,
    has_changed: bool,
}

impl Tabs {
    /// Adds or updates a tab from a `targetInfo`. Returns its id if it is new.
    pub(super) fn upsert(&mut self, info: &Value) -> Option<String> {
        let tab = Tab::parse(info)?;
        if self.has(&tab.id) {
            self.update(tab);
            return None;
        }
        if self.tabs.len() >= MAX_TABS {
            return None;
        }
        self.has_changed = true;
        let id = tab.id.clone();
        self.tabs.push(tab);
        Some(id)
    }

    /// Updates tabs from the response to `Target.getTargets`. Only events add and remove tabs.
    pub(super) fn refresh(&mut self, infos: &Value) {
        for tab in infos.as_array().into_iter().flatten().filter_map(Tab::parse) {
            self.update(tab);
        }
    }

    fn update(&mut self, tab: Tab) {
        if let Some(known) = self.tabs.iter_mut().find(|known| known.id == tab.id && **known != tab) {
            *known = tab;
            self.has_changed = true;
        }
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.tabs.retain(|tab| tab.id != id);
        self.has_changed = true;
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.tabs.iter().any(|tab| tab.id == id)
    }

    pub(super) fn newest(&self) -> Option<String> {
        self.tabs.last().map(|tab| tab.id.clone())
    }

    /// Returns the ids of the tabs other than `current`, newest first.
    pub(super) fn others(&self, current: Option<&str>) -> Vec<String> {
        self.tabs.iter().rev().filter(|tab| Some(tab.id.as_str()) != current).map(|tab| tab.id.clone()).collect()
    }

    pub(super) fn mark_changed(&mut self) {
        self.has_changed = true;
    }

    /// Returns the list for the page, if it has changed since the last call.
    pub(super) fn take_update(&mut self, current: Option<&str>) -> Option<Value> {
        std::mem::take(&mut self.has_changed).then(|| json!({ "t": "tabs", "current": current, "tabs": self.tabs }))
    }
}
