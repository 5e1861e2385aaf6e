//! Telemetry events of a session: `/v1/telemetry/…`.
//!
//! **Two sequences.** The agent numbers its events from 1, from its start to its end. A session has one sequence for
//! all its events, the agent's and the server's, whose numbers the server assigns when it stores the events. In the
//! same transaction it stores the agent's number of the last one. After a crash it requests the events after that
//! number ([`FollowRequest::after`]), so that each is stored exactly once.
//!
//! **No silent loss.** The agent retains [unconfirmed](CONFIRM) events, at most [`MAX_UNCONFIRMED_EVENTS`] and
//! [`MAX_UNCONFIRMED_BYTES`], and drops the oldest beyond that. Dropped events are gaps in its numbers. An event that
//! could not even be read, because the browser sends too many, has a number too and becomes a gap. There is never a gap
//! at the end: a dropped event is followed by another event or, if need be, by a [`GAP`] line.
//!
//! A browser belongs to at most one session, so an agent's numbers belong to one session.
//!
//! The agent's events are untrusted: the reader checks names, sizes and times.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The type, in the category [`Category::Other`], of a line whose number denotes a lost event.
pub const GAP: &str = "gap";

/// `POST`, [`ConfigureRequest`] → `{}`. From now on exactly these categories are captured. Answers when the capture is
/// active on all open pages, so that later pages are captured from their beginning. Without categories nothing is
/// captured; earlier events can still be read.
pub const CONFIGURE: &str = "/v1/telemetry/configure";
/// `POST`, [`FollowRequest`] → lines, an [`EventLine`] each: first the retained events, then each event as it happens,
/// until the caller disconnects. A second follower ends the stream of the first.
pub const FOLLOW: &str = "/v1/telemetry/follow";
/// `POST`, [`ConfirmRequest`] → `{}`. Drops the confirmed events.
pub const CONFIRM: &str = "/v1/telemetry/confirm";

/// `POST` → [`FinishResponse`]. Processes what the browser has sent so far, and captures nothing more.
pub const FINISH: &str = "/v1/telemetry/finish";

/// The maximum number of unconfirmed events that are retained.
pub const MAX_UNCONFIRMED_EVENTS: usize = 20_000;
/// The maximum number of bytes of unconfirmed events that are retained, as lines.
pub const MAX_UNCONFIRMED_BYTES: usize = 16 << 20;
/// The longest event without a screenshot, in bytes of JSON; the largest strings of a longer one are truncated.
pub const MAX_EVENT_BYTES: usize = 256 << 10;
/// The longest screenshot as a PNG, in bytes.
pub const MAX_PNG_BYTES: usize = 2 << 20;

/// Body of [`CONFIGURE`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigureRequest {
    /// The captured categories.
    #[serde(default)]
    pub categories: Vec<Category>,
    /// The parts of URLs that all events contain.
    #[serde(default)]
    pub addresses: Addresses,
}

/// The parts of a URL that events contain. User and password are never among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// With query and fragment.
    #[default]
    Full,
    /// Without query and fragment.
    WithoutQuery,
}

/// Body of [`FOLLOW`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowRequest {
    /// The number of the last event that the caller has, or 0. Confirms the events up to it.
    #[serde(default)]
    pub after: u64,
}

/// Body of [`CONFIRM`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmRequest {
    /// The number up to which events are stored.
    pub through: u64,
}

/// Answer of [`FINISH`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishResponse {
    /// The number of the last event, or 0. A missing number up to it is a lost event.
    pub last: u64,
}

/// The category of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Console messages and uncaught errors of pages.
    Console,
    /// Requests and responses.
    Network,
    /// Navigation and rendering.
    Page,
    /// Clicks, keys and scrolls of the page's user.
    Interaction,
    /// Crashes and memory.
    System,
    /// Screenshots.
    Screenshot,
    /// Captchas that pages show.
    Captcha,
    /// The capture itself. Not configurable: captured with any of console, network, page and interaction.
    Monitor,
    /// A category of a newer caller or agent, and those that the server captures itself.
    #[serde(other)]
    Other,
}

/// One line of [`FOLLOW`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventLine {
    /// The agent's number.
    pub seq: u64,
    /// Its name, such as `console_log`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The category.
    pub category: Category,
    /// The time of the event, in microseconds since 1970.
    pub ts: u64,
    /// The source.
    pub source: Source,
    /// The content. Strings may hold any character, including NUL; numbers are finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Map<String, Value>>,
    /// True if something in `data` was truncated.
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncated: bool,
}

/// The source of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The kind of source.
    pub kind: SourceKind,
    /// The source's own name of the event, such as `Runtime.consoleAPICalled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
}

/// The kind of an event's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// The browser, by its debugging protocol.
    Cdp,
    /// An extension in the browser.
    Extension,
    /// The agent, about the programs beside the browser.
    LocalProcess,
    /// A source of a newer agent.
    #[serde(other)]
    Other,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}
