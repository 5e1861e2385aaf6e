//! Extensions and starting Chromium anew: the words of `/v1/extension/…` and `/v1/restart`.

use serde::{Deserialize, Serialize};

use super::Viewport;

/// `POST`, arguments [`ExtensionName`], body: a ZIP → `{}`. Unpacks it; Chromium gets it at the next restart that names it. One of
/// that name that waits already is replaced.
pub const ADD: &str = "/v1/extension/add";
/// `POST`, [`RestartRequest`] → [`Status`](super::Status). Ends Chromium in good order and starts it anew with its profile; or, while the
/// agent holds back the first start ([`AgentConfig::held`](super::AgentConfig::held)), is that start. Answers when the page does.
///
/// Refused before anything is touched: an extension that was not added, a size that cannot be. `not_allowed` after Chromium was
/// started anew without the extensions that it does not take; the message names them. Any other failure ends the browser, and the
/// events say so.
pub const RESTART: &str = "/v1/restart";

/// The longest archive of an extension, in bytes.
pub const MAX_EXTENSION_BYTES: u64 = 50 << 20;
/// Most extensions that one session has.
pub const MAX_EXTENSIONS: usize = 40;

/// Names an extension: 1 to 255 of `A-Za-z0-9._-`, neither `.` nor `..`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionName {
    /// Which.
    pub name: String,
}

/// How Chromium is started anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRequest {
    /// The extensions added since, to be loaded in this order after those that it has. One that it has already takes its new form.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// Another size of the display; it may be larger than the display could grow to.
    #[serde(default)]
    pub viewport: Option<Viewport>,
    /// With the [profile that was loaded](super::profile::LOAD) in place of its own: neither pages nor anything else of before comes back.
    #[serde(default)]
    pub profile: bool,
}

/// Whether an extension may be called so.
#[must_use]
pub fn is_extension_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=255).contains(&name.len()) && name.bytes().all(good) && name != "." && name != ".."
}
