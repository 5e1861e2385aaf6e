//! Extensions, and restarting Chromium: `/v1/extension/…` and `/v1/restart`.

use serde::{Deserialize, Serialize};

use super::{Location, Viewport};

/// `POST`, arguments [`ExtensionName`], body: a ZIP → `{}`. Unpacks it; Chromium loads it at the next restart that
/// names it. Replaces a pending extension of that name.
pub const ADD: &str = "/v1/extension/add";
/// `POST`, [`RestartRequest`] → [`Status`](super::Status). Closes Chromium and starts it again with its profile; if the
/// agent holds the first start back ([`AgentConfig::held`](super::AgentConfig::held)), starts it. Answers when the page
/// does.
///
/// Refused before anything changes: an extension that was not added, an invalid size, a locale that the browser cannot
/// have. `not_allowed` if Chromium was
/// restarted without extensions that it does not accept; the message names them. Any other failure ends the browser,
/// which the events report.
pub const RESTART: &str = "/v1/restart";

/// The longest archive of an extension, in bytes.
pub const MAX_EXTENSION_BYTES: u64 = 50 << 20;
/// The maximum number of extensions of a session.
pub const MAX_EXTENSIONS: usize = 40;

/// The name of an extension: 1 to 255 characters of `A-Za-z0-9._-`, neither `.` nor `..`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionName {
    /// The name.
    pub name: String,
}

/// The changes that a restart applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRequest {
    /// Added extensions, to be loaded in this order after the present ones. An extension with a present name replaces
    /// it.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// Another size of the display; it may exceed the size that the display could grow to.
    #[serde(default)]
    pub viewport: Option<Viewport>,
    /// Another time zone and locale; absent members have the default of the system.
    #[serde(default)]
    pub location: Option<Location>,
    /// True to replace the profile by the [loaded one](super::profile::LOAD): no pages and no data are restored.
    #[serde(default)]
    pub profile: bool,
}

/// Returns true if the name is valid for an extension.
#[must_use]
pub fn is_extension_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=255).contains(&name.len()) && name.bytes().all(good) && name != "." && name != ".."
}
