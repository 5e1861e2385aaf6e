//! The protocol between the server and the agent in a sandbox: the configuration file, the requests of the `agent`
//! socket and the two bytes of the `dial` socket. [`client`] is the server's side.
//!
//! A sandbox runs a copy of the agent and continues after the server ends, so the protocol is versioned: a server
//! supports [`PROTOCOL_VERSION`] and the version before it, unknown fields are ignored, and new fields have a default.

pub mod browser_state;
pub mod client;
pub mod computer;
mod config;
pub mod curl;
pub mod extension;
pub mod fs;
pub mod login_page;
pub mod process;
pub mod profile;
pub mod repl;
pub mod replay;
pub mod script;
pub mod session_log;
pub mod telemetry;
pub mod view;
pub mod webmcp;

use http::StatusCode;
use serde::{Deserialize, Serialize};

pub use self::config::AgentConfig;

/// The version of this protocol. A server supports this one and the previous one.
pub const PROTOCOL_VERSION: u32 = 1;

/// The path of the agent's configuration in the sandbox.
pub const CONFIG_PATH: &str = "/run/casement/in/agent.json";
/// The path of the egress socket in the sandbox, unless configured otherwise.
pub const EGRESS_PATH: &str = "/run/casement/egress/egress.sock";
/// The path of a remote browser's socket in its sandbox.
pub const REMOTE_PATH: &str = "/run/casement/egress/browser.sock";
/// The descriptor of the listening `agent` socket.
pub const AGENT_FD: i32 = 3;
/// The descriptor of the listening `dial` socket.
pub const DIAL_FD: i32 = 4;

/// The longest JSON body in either direction, in bytes.
pub const MAX_JSON_BYTES: usize = 1 << 20;
/// The longest screenshot that the client accepts, in bytes.
pub const MAX_IMAGE_BYTES: usize = 256 << 20;
/// The longest wait of `GET /v1/ready`, in seconds.
pub const READY_WAIT_SECONDS: u64 = 60;
/// The heartbeat interval of an event stream, in seconds.
pub const HEARTBEAT_SECONDS: u64 = 10;
/// The default timeout of a hand-out's liveness probe, in milliseconds.
pub const DEFAULT_HANDOUT_MS: u64 = 1000;
/// The largest width or height of a viewport, in pixels.
pub const MAX_SIDE: u32 = 16_384;

/// The header with the caller's protocol version, in every request.
pub const VERSION_HEADER: &str = "casement-agent-version";

/// The header with the arguments of a request whose body is a stream: JSON in base64.
pub const ARGUMENTS_HEADER: &str = "casement-agent-arguments";

const fn default_refresh_rate() -> u32 {
    60
}

/// The size of a display in pixels, and its refresh rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Viewport {
    /// The width in pixels.
    pub width: u32,
    /// The height in pixels.
    pub height: u32,
    /// Frames per second. A virtual display has no refresh rate; the value is only returned to callers.
    #[serde(default = "default_refresh_rate")]
    pub refresh_rate: u32,
}

/// Response of `GET /v1/status` and `GET /v1/ready`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The protocol version of the agent.
    pub version: u32,
    /// The nonce of [`AgentConfig::nonce`].
    pub nonce: String,
    /// The state of the browser.
    pub state: State,
    /// The path of the browser's debugging WebSocket (`/devtools/browser/<uuid>`); empty until known, and for a remote
    /// browser.
    pub browser_ws_path: String,
    /// The product and version of the browser (`Chrome/156.0.0.0`); empty until known.
    pub browser_version: String,
    /// The user agent of its pages; empty until known.
    pub user_agent: String,
    /// The command line of the running browser; empty until started.
    pub chromium_argv: Vec<String>,
    /// The current viewport.
    pub viewport: Viewport,
    /// The location with which the browser is started; `None`: an agent that cannot change it.
    #[serde(default)]
    pub location: Option<Location>,
    /// The stages of the start, in order.
    pub stages: Vec<Stage>,
}

/// The time zone and the locale of a browser.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The IANA name of the time zone; `None`: the system's.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// The BCP 47 tag of the locale; `None`: English of the United States.
    #[serde(default)]
    pub locale: Option<String>,
}

/// The state of the browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// It does not answer yet.
    Starting,
    /// It answered `Browser.getVersion` and evaluated an expression on a page.
    Ready,
    /// It did not start.
    Failed {
        /// The stable code of the cause.
        code: FailureCode,
        /// The text for people.
        message: String,
    },
    /// It was closed for good, to save its [profile](profile::CAPTURE). The agent continues.
    Closed,
    /// It started and has ended.
    Exited {
        /// The reason.
        reason: ExitReason,
    },
}

impl State {
    /// Returns the state for logs; of an ended browser, the reason.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Failed { .. } => "failed",
            Self::Closed => "closed",
            Self::Exited { reason } => reason.name(),
        }
    }
}

/// The reason why a browser did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// The configuration is invalid.
    Config,
    /// The X display did not start.
    Display,
    /// The browser could not be started, or ended during its start.
    BrowserSpawn,
    /// The kernel or the container forbids the nested namespaces of Chromium's own sandbox.
    NoUsableSandbox,
    /// The debugging port did not answer in time.
    DebuggingPort,
    /// No page answered in time.
    PageUnresponsive,
    /// The browser does not accept an extension.
    Extension,
    /// Any other cause.
    #[serde(other)]
    Other,
}

/// The reason why a browser ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// It ended by itself.
    Crashed,
    /// It exceeded its memory limit.
    Oom,
    /// It never started.
    Failed,
    /// It was closed from inside: by a client, or by a person, also with its last window.
    Closed,
    /// It did not answer any more.
    Hung,
    /// Its end was requested.
    Shutdown,
    /// No server contacted the agent for the idle timeout.
    Idle,
    /// The code of a newer agent.
    #[serde(other)]
    Other,
}

impl ExitReason {
    /// Returns the reason for logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crashed => "crashed",
            Self::Oom => "oom",
            Self::Failed => "failed",
            Self::Closed => "browser_closed",
            Self::Hung => "browser_hung",
            Self::Shutdown => "shutdown",
            Self::Idle => "idle",
            Self::Other => "other",
        }
    }
}

/// A stage of the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// `display`, `spawn`, `devtools_port`, `attach` or `evaluated`.
    pub name: String,
    /// Milliseconds since the agent's start.
    pub ms: f64,
}

/// Body of `POST /v1/handout`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handout {
    /// The URL to load, without waiting for it.
    #[serde(default)]
    pub start_url: Option<String>,
    /// Replaces [`AgentConfig::idle_end_seconds`].
    #[serde(default)]
    pub idle_end_seconds: Option<u64>,
    /// The timeout of the liveness probe in milliseconds; [`DEFAULT_HANDOUT_MS`] when absent.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// Body of `POST /v1/screenshot`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScreenshotRequest {
    /// The part to capture; everything when absent.
    #[serde(default)]
    pub region: Option<Region>,
}

/// A rectangle in device pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// The left edge.
    pub x: u32,
    /// The upper edge.
    pub y: u32,
    /// The width, at least one.
    pub width: u32,
    /// The height, at least one.
    pub height: u32,
}

/// Body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The stable code of the cause.
    pub code: ErrorCode,
    /// The text for people.
    pub message: String,
    /// The invalid field of the request, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// With [`ErrorCode::Upstream`]: the failure of the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<curl::Upstream>,
}

/// The stable codes of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The page did not answer within the timeout.
    BrowserHung,
    /// The browser is not ready, or has ended.
    NotReady,
    /// The server of the remote browser cannot be reached. Nothing was done, and the browser may live.
    RemoteAway,
    /// A region or size is out of range.
    OutOfRange,
    /// The request is invalid.
    BadRequest,
    /// The body is longer than [`MAX_JSON_BYTES`].
    TooLarge,
    /// The operation does not exist.
    NotFound,
    /// The agent does not support the caller's version.
    UnsupportedVersion,
    /// A value is not allowed.
    NotAllowed,
    /// A value or a file has an invalid format.
    InvalidFormat,
    /// This sandbox does not support the operation.
    NotSupported,
    /// The named object does not exist: a file, a process, a watch, a recording.
    Missing,
    /// The sandbox's user lacks the permission for the path.
    PathForbidden,
    /// The path or object exists already.
    Exists,
    /// The path is not a directory.
    NotADirectory,
    /// The path is a directory.
    IsADirectory,
    /// The state of the named object does not allow the operation.
    InvalidState,
    /// A limit of the session is reached.
    LimitReached,
    /// The session's disk is full.
    DiskFull,
    /// The caller's stream broke or is invalid.
    BrokenBody,
    /// An upstream request of the session failed.
    Upstream,
    /// The operation exceeded its own timeout.
    TimedOut,
    /// The operation began and failed, so a part of it may have taken effect.
    Failed,
    /// Any other cause.
    #[serde(other)]
    Internal,
}

impl ErrorCode {
    /// Returns the status code of the response.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::BrowserHung | Self::NotReady | Self::RemoteAway => StatusCode::SERVICE_UNAVAILABLE,
            Self::OutOfRange
            | Self::BadRequest
            | Self::UnsupportedVersion
            | Self::NotAllowed
            | Self::InvalidFormat
            | Self::NotSupported
            | Self::NotADirectory
            | Self::IsADirectory
            | Self::BrokenBody => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotFound | Self::Missing => StatusCode::NOT_FOUND,
            Self::PathForbidden => StatusCode::FORBIDDEN,
            Self::Exists | Self::InvalidState => StatusCode::CONFLICT,
            Self::LimitReached => StatusCode::TOO_MANY_REQUESTS,
            Self::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            Self::Upstream => StatusCode::BAD_GATEWAY,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::Failed | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// One line of `GET /v1/events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first line.
    Hello {
        /// The protocol version of the agent.
        version: u32,
        /// The nonce of [`AgentConfig::nonce`].
        nonce: String,
    },
    /// Sent every [`HEARTBEAT_SECONDS`].
    Heartbeat,
    /// The browser is ready; repeated after a restart, because its path has changed.
    Ready,
    /// The browser has ended, and the agent ends soon after it.
    Exited {
        /// The reason.
        reason: ExitReason,
        /// The text for people.
        detail: String,
    },
    /// An event of a newer agent.
    #[serde(other)]
    Other,
}

/// The target of a dialled connection: the one byte that a client of the `dial` socket sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Chromium's debugging port.
    Cdp,
    /// chromedriver, started on first use.
    WebDriver,
}

impl Channel {
    /// Returns the byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Cdp => b'C',
            Self::WebDriver => b'W',
        }
    }

    /// Returns the channel of a byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'C' => Some(Self::Cdp),
            b'W' => Some(Self::WebDriver),
            _ => None,
        }
    }
}

/// The first byte of a `dial` response that carries a connected socket.
pub const DIAL_OK: u8 = 0;
/// The first byte of a `dial` response that carries a short message instead.
pub const DIAL_REFUSED: u8 = 1;
