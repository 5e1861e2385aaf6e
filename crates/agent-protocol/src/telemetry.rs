//! What happens in a session: the words of `/v1/telemetry/…`.
//!
//! **Two counts.** The agent numbers its events from 1 on, for as long as it lives, in the order in which they are told; nothing else
//! counts there. A session has one sequence for everything that happened in it, the agent's events and the server's own, and the
//! server gives those numbers when it stores the events. With them, in the same transaction, it stores the agent's number of the last
//! one: however it is killed, it asks for the events after that number ([`FollowRequest::after`]) and stores each exactly once.
//!
//! **No loss without a word.** The agent keeps what is not [confirmed](CONFIRM), [`MAX_UNCONFIRMED_EVENTS`] and [`MAX_UNCONFIRMED_BYTES`] at most, and drops
//! the oldest beyond that. What was dropped is a gap in its numbers: the stream's next number is higher than the one expected. An event
//! that could not even be taken in (the browser tells more than can be read) has its number too, so that it shows as a gap as well.
//! There is never a gap at the end: whatever is dropped is followed by an event, or, if need be, the last of what was lost is told
//! itself, as a [`GAP`].
//!
//! A browser belongs to one session at most, so the numbers of an agent are those of one session.
//!
//! What the agent tells comes out of a sandbox and is not to be believed: names, sizes and times are checked by who reads it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The type, in the category [`Category::Other`], of a line that says of its number that it was lost.
pub const GAP: &str = "gap";

/// `POST`, [`ConfigureRequest`] → `{}`. From now on these categories are captured, and no others. Answers when the browser tells of them
/// wherever a page is open, so that what is opened afterwards is captured from its beginning on. None: nothing is captured, and what
/// was and is not read yet can still be.
pub const CONFIGURE: &str = "/v1/telemetry/configure";
/// `POST`, [`FollowRequest`] → lines, a [`EventLine`] each: those that are kept, then each as it happens, until the caller goes. A second follower
/// ends the first.
pub const FOLLOW: &str = "/v1/telemetry/follow";
/// `POST`, [`ConfirmRequest`] → `{}`. What is confirmed is let go.
pub const CONFIRM: &str = "/v1/telemetry/confirm";

/// `POST` → [`FinishResponse`]. Takes in what the browser has told until now, and captures nothing more.
pub const FINISH: &str = "/v1/telemetry/finish";

/// Most events that are kept unconfirmed.
pub const MAX_UNCONFIRMED_EVENTS: usize = 20_000;
/// Most bytes of events that are kept unconfirmed, as lines.
pub const MAX_UNCONFIRMED_BYTES: usize = 16 << 20;
/// Longest event but for a picture, in bytes as JSON; the largest strings of a longer one are cut.
pub const MAX_EVENT_BYTES: usize = 256 << 10;
/// Longest picture as a PNG, in bytes.
pub const MAX_PNG_BYTES: usize = 2 << 20;

/// Body of [`CONFIGURE`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigureRequest {
    /// What is captured.
    #[serde(default)]
    pub categories: Vec<Category>,
    /// How much is told of the addresses in all events.
    #[serde(default)]
    pub addresses: Addresses,
}

/// How much of an address is told. The user and the password in one never are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// With query and fragment.
    #[default]
    Full,
    /// Up to the query or the fragment.
    WithoutQuery,
}

/// Body of [`FOLLOW`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowRequest {
    /// The number of the last event that the caller has; 0: none. Those up to it are confirmed with this.
    #[serde(default)]
    pub after: u64,
}

/// Body of [`CONFIRM`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmRequest {
    /// The events up to this number are in safe keeping.
    pub through: u64,
}

/// Answer of [`FINISH`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishResponse {
    /// The number of the last event; 0: there was none. Whatever has a number up to it and is not told was lost.
    pub last: u64,
}

/// What kind of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Messages of the page's console, errors that nobody caught.
    Console,
    /// Requests and responses.
    Network,
    /// Navigation and rendering.
    Page,
    /// Clicks, keys and scrolls of the page's user.
    Interaction,
    /// Crashes, memory.
    System,
    /// Pictures.
    Screenshot,
    /// Captchas, as far as pages show them.
    Captcha,
    /// The capture itself. Not to be configured: it is captured with any of console, network, page and interaction.
    Monitor,
    /// A word of a newer caller or agent, and those that the server captures itself.
    #[serde(other)]
    Other,
}

/// One line of [`FOLLOW`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventLine {
    /// The agent's number of it.
    pub seq: u64,
    /// Its name, such as `console_log`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What kind of event.
    pub category: Category,
    /// When it happened, in microseconds since 1970, by the clock of the machine.
    pub ts: u64,
    /// Who says so.
    pub source: Source,
    /// What happened. Strings may hold any character, NUL too; numbers are finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Map<String, Value>>,
    /// Something in `data` was cut.
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncated: bool,
}

/// Who says that something happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// What told.
    pub kind: SourceKind,
    /// Its own name for it, such as `Runtime.consoleAPICalled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
}

/// What tells of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// The browser, by its debugging protocol.
    Cdp,
    /// An extension in the browser.
    Extension,
    /// The agent, of the programs beside the browser.
    LocalProcess,
    /// A word of a newer agent.
    #[serde(other)]
    Other,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}
