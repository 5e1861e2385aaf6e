//! The cookies and the local storage of the browser, over its debugging protocol: `/v1/browser_state/…`.
//!
//! This is the part of a [profile](super::profile) that can be moved to and from a browser whose user data directory is
//! out of reach. `IndexedDB`, caches, service workers, permissions, history, storage of third parties in a partition of
//! another site, the time at which a cookie was created, and everything else of a profile is not part of it.
//!
//! No site receives a request. Chromium may open a connection to the host of an origin before the agent answers in its
//! place; nothing is requested on it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `POST` [`ReadState`] → [`StateReading`], as a stream of at most [`MAX_ANSWER_BYTES`]. Cookies that do not fit are an
/// error, `too_large`; an origin that does not fit is left out as a whole and counted.
pub const READ: &str = "/v1/browser_state/read";
/// `POST` [`BrowserState`] → [`StateWritten`]. Replaces all cookies, and the local storage of the given origins. After
/// an error a part may be written.
pub const WRITE: &str = "/v1/browser_state/write";

/// The longest state, in bytes of its JSON.
pub const MAX_STATE_BYTES: usize = 16 << 20;
/// The longest response of [`READ`], in bytes.
pub const MAX_ANSWER_BYTES: usize = MAX_STATE_BYTES + (64 << 10);
/// The maximum number of cookies.
pub const MAX_COOKIES: usize = 10_000;
/// The maximum number of origins of a state and of [`ReadState`].
pub const MAX_ORIGINS: usize = 1_000;

/// The cookies and the local storage of a browser. `Debug` hides what they contain.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BrowserState {
    /// The cookies.
    #[serde(default)]
    pub cookies: Vec<Cookie>,
    /// The local storage, at most once per origin.
    #[serde(default)]
    pub origins: Vec<OriginStorage>,
}

impl BrowserState {
    /// Returns the limit that the counts of the state exceed, if any.
    #[must_use]
    pub fn exceeded_limit(&self) -> Option<String> {
        if self.cookies.len() > MAX_COOKIES {
            Some(format!("a state has at most {MAX_COOKIES} cookies"))
        } else if self.origins.len() > MAX_ORIGINS {
            Some(format!("a state has at most {MAX_ORIGINS} origins"))
        } else {
            None
        }
    }
}

impl fmt::Debug for BrowserState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BrowserState({} cookies, {} origins)", self.cookies.len(), self.origins.len())
    }
}

/// A cookie. `Debug` hides its value.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cookie {
    /// The name, which may be empty.
    pub name: String,
    /// The value.
    pub value: String,
    /// The domain. It begins with a dot if the cookie is sent to subdomains, too.
    pub domain: String,
    /// The path.
    pub path: String,
    /// The expiry, in seconds since 1970; `None` for a session cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<f64>,
    /// True if scripts cannot read it.
    #[serde(default)]
    pub http_only: bool,
    /// True if it is sent over secure connections only.
    #[serde(default)]
    pub secure: bool,
    /// `Strict`, `Lax` or `None`, as in the debugging protocol; absent if the site did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_site: Option<String>,
    /// `Low`, `Medium` or `High`, as in the debugging protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// `Unset`, `NonSecure` or `Secure`, as in the debugging protocol: the scheme of the page that set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_scheme: Option<String>,
    /// The port of the page that set it; -1 if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<i32>,
    /// The partition of the cookie, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<CookiePartition>,
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({:?} of {:?} {:?})", self.name, self.domain, self.path)
    }
}

/// The partition of a cookie that a third party has set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CookiePartition {
    /// The site of the page in which it was set.
    pub top_level_site: String,
    /// True if a frame between the page and the third party is of another site.
    pub has_cross_site_ancestor: bool,
}

/// The local storage of an origin, without a partition. `Debug` hides what it contains.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginStorage {
    /// The origin, as `https://host` or `http://host:port`.
    pub origin: String,
    /// The keys and values, sorted by key. Empty if the origin has none (any more).
    pub local_storage: Vec<(StorageText, StorageText)>,
}

impl fmt::Debug for OriginStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OriginStorage({}, {} items)", self.origin, self.local_storage.len())
    }
}

/// A key or a value of the local storage: any sequence of UTF-16 units, which scripts use for compressed data, too.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StorageText {
    /// A text.
    Text(String),
    /// A sequence of units that is not a text.
    Units {
        /// The units, little endian, in base64.
        utf16: String,
    },
}

impl fmt::Debug for StorageText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StorageText(…)")
    }
}

impl From<&str> for StorageText {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Body of [`READ`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadState {
    /// The origins that are read in any case, also if their storage is empty, at most [`MAX_ORIGINS`]. Those that are
    /// not of `http` or `https` are ignored.
    #[serde(default)]
    pub origins: Vec<String>,
}

/// Response of [`READ`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StateReading {
    /// The state.
    pub state: BrowserState,
    /// True if the browser has listed the origins that store something. Otherwise only the requested origins, the
    /// origins in the histories of the open pages, and the hosts of the cookies (with `https`) were read.
    pub origins_listed: bool,
    /// The number of origins that were left out: they did not fit, could not be opened, or did not answer.
    pub origins_left_out: u32,
    /// The number of cookies that were left out: their partition exists in this browser only.
    pub cookies_left_out: u32,
}

/// Response of [`WRITE`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateWritten {
    /// The number of origins whose storage was not written: not of `http` or `https`, opened by the browser with
    /// another scheme, or larger than the browser allows. A storage that was begun is empty.
    pub origins_refused: u32,
    /// The number of cookies that the browser refused.
    pub cookies_refused: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> BrowserState {
        let cookie =
            Cookie { name: "sid".into(), value: "secret".into(), domain: ".a.test".into(), ..Cookie::default() };
        let units = StorageText::Units { utf16: "ANg=".to_owned() };
        let storage = OriginStorage { origin: "https://a.test".into(), local_storage: vec![("secret".into(), units)] };
        BrowserState { cookies: vec![cookie], origins: vec![storage] }
    }

    #[test]
    fn debug_output_contains_no_values() {
        let reading = StateReading { state: state(), ..StateReading::default() };
        for text in [format!("{reading:?}"), format!("{:?} {:?}", reading.state.cookies, reading.state.origins)] {
            assert!(!text.contains("secret") && !text.contains("ANg="), "{text}");
        }
    }

    #[test]
    fn a_state_survives_its_json() {
        let json = serde_json::to_string(&state()).expect("JSON");
        assert!(json.contains(r#"[["secret",{"utf16":"ANg="}]]"#), "{json}");
        assert_eq!(serde_json::from_str::<BrowserState>(&json).expect("a state"), state());
        assert_eq!(serde_json::from_str::<BrowserState>("{}").expect("a state"), BrowserState::default());
    }

    #[test]
    fn counts_beyond_the_limits_are_named() {
        assert_eq!(state().exceeded_limit(), None);
        let many = BrowserState { cookies: vec![Cookie::default(); MAX_COOKIES + 1], ..BrowserState::default() };
        assert!(many.exceeded_limit().is_some_and(|limit| limit.contains("cookies")));
        let origin = OriginStorage { origin: String::new(), local_storage: Vec::new() };
        let many = BrowserState { origins: vec![origin; MAX_ORIGINS + 1], ..BrowserState::default() };
        assert!(many.exceeded_limit().is_some_and(|limit| limit.contains("origins")));
    }
}
