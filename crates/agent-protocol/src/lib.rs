//! The messages between the server and the agent in a sandbox: the configuration file, the requests of the `agent` socket and the two
//! bytes of the `dial` socket. [`client`] is the server's side.
//!
//! A sandbox runs a copy of the agent and outlives the server, so the protocol is versioned: a server speaks [`PROTOCOL_VERSION`] and
//! the version before it, unknown fields are ignored, and a field that is added has a default.

pub mod client;
pub mod computer;
pub mod curl;
pub mod extension;
pub mod fs;
pub mod login_page;
pub mod process;
pub mod profile;
pub mod replay;
pub mod script;
pub mod session_log;
pub mod telemetry;
pub mod view;

use std::path::PathBuf;

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// Version of this protocol. A server speaks this one and the previous one.
pub const PROTOCOL_VERSION: u32 = 1;

/// Where the agent finds its configuration inside the sandbox.
pub const CONFIG_PATH: &str = "/run/casement/in/agent.json";
/// Where the agent finds the way to the web inside the sandbox, unless the configuration says otherwise.
pub const EGRESS_PATH: &str = "/run/casement/egress/egress.sock";
/// Descriptor of the listening `agent` socket.
pub const AGENT_FD: i32 = 3;
/// Descriptor of the listening `dial` socket.
pub const DIAL_FD: i32 = 4;

/// Longest JSON body accepted in either direction, in bytes.
pub const MAX_JSON_BYTES: usize = 1 << 20;
/// Longest screenshot accepted by the client, in bytes.
pub const MAX_IMAGE_BYTES: usize = 256 << 20;
/// How long `GET /v1/ready` waits at most, in seconds.
pub const READY_WAIT_SECONDS: u64 = 60;
/// How often an event stream carries a heartbeat, in seconds.
pub const HEARTBEAT_SECONDS: u64 = 10;
/// The deadline of a hand-out that names none, in milliseconds.
pub const DEFAULT_HANDOUT_MS: u64 = 1000;
/// Largest width or height of a viewport, in pixels.
pub const MAX_SIDE: u32 = 16_384;

/// Header every request carries: the protocol version the caller speaks.
pub const VERSION_HEADER: &str = "casement-agent-version";

/// Header of a request whose body is a stream of bytes: its arguments, as JSON in base64.
pub const ARGUMENTS_HEADER: &str = "casement-agent-arguments";

/// What the server tells a new agent, as JSON at [`CONFIG_PATH`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentConfig {
    /// The protocol version the writer speaks.
    pub version: u32,
    /// Random word the agent repeats in its status: a server that finds a sandbox again knows that it is the one it made.
    pub nonce: String,
    /// Without a display.
    pub headless: bool,
    /// Hide the signs of automation.
    #[serde(default)]
    pub stealth: bool,
    /// Show the page without the window's frame. Has no effect when headless.
    #[serde(default)]
    pub kiosk_mode: bool,
    /// Size of the display, or of the page when headless.
    pub viewport: Viewport,
    /// Address opened at the start; navigation is begun, not awaited.
    #[serde(default)]
    pub start_url: Option<String>,
    /// Chromium's real binary, as seen inside the sandbox.
    #[serde(default = "default_chromium")]
    pub chromium: PathBuf,
    /// chromedriver, as seen inside the sandbox.
    #[serde(default = "default_chromedriver")]
    pub chromedriver: PathBuf,
    /// The X server of a session with a display, as seen inside the sandbox.
    #[serde(default = "default_xvfb")]
    pub xvfb: PathBuf,
    /// What films a session, as seen inside the sandbox.
    #[serde(default = "default_ffmpeg")]
    pub ffmpeg: PathBuf,
    /// bubblewrap, as seen inside the sandbox: what a script starts ends with a sandbox of its own.
    #[serde(default = "default_bwrap")]
    pub bwrap: PathBuf,
    /// The folder of the script runner, as seen inside the sandbox. None: scripts are not supported.
    #[serde(default)]
    pub script_runner: Option<PathBuf>,
    /// Chromium's profile directory inside the sandbox.
    #[serde(default = "default_profile")]
    pub profile: PathBuf,
    /// Directory of unpacked extensions inside the sandbox.
    #[serde(default = "default_extensions")]
    pub extensions: PathBuf,
    /// Chromium is not started before the first [restart](extension::RESTART) asks for it.
    #[serde(default)]
    pub held: bool,
    /// Its profile is wanted even when it ends by itself: the agent stays for a while after that.
    #[serde(default)]
    pub keeps_profile: bool,
    /// Port of Chromium's debugging protocol on the sandbox's loopback.
    #[serde(default = "default_debugging_port")]
    pub debugging_port: u16,
    /// Port of chromedriver on the sandbox's loopback.
    #[serde(default = "default_chromedriver_port")]
    pub chromedriver_port: u16,
    /// Port of the forwarder that Chromium uses as its proxy, on the sandbox's loopback.
    #[serde(default = "default_forwarder_port")]
    pub forwarder_port: u16,
    /// Unix socket of the proxy that leads out.
    #[serde(default = "default_egress")]
    pub egress_socket: PathBuf,
    /// The agent ends itself when no server has spoken to it for this many seconds. Zero: never.
    #[serde(default)]
    pub idle_end_seconds: u64,
    /// Ends the browser when everything in the sandbox together holds more memory (PSS) than this, in bytes.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
    /// Further switches for Chromium, appended last. The ones the isolation rests on cannot be overridden here.
    #[serde(default)]
    pub extra_chromium_args: Vec<String>,
}

impl AgentConfig {
    /// A configuration with the usual paths and ports.
    #[must_use]
    pub fn new(nonce: impl Into<String>, headless: bool, viewport: Viewport) -> Self {
        Self {
            version: PROTOCOL_VERSION,
            nonce: nonce.into(),
            headless,
            stealth: false,
            kiosk_mode: false,
            viewport,
            start_url: None,
            chromium: default_chromium(),
            chromedriver: default_chromedriver(),
            xvfb: default_xvfb(),
            ffmpeg: default_ffmpeg(),
            bwrap: default_bwrap(),
            script_runner: None,
            profile: default_profile(),
            extensions: default_extensions(),
            held: false,
            keeps_profile: false,
            debugging_port: default_debugging_port(),
            chromedriver_port: default_chromedriver_port(),
            forwarder_port: default_forwarder_port(),
            egress_socket: default_egress(),
            idle_end_seconds: 0,
            memory_limit_bytes: None,
            extra_chromium_args: Vec::new(),
        }
    }
}

fn default_chromium() -> PathBuf {
    PathBuf::from("/usr/lib/chromium/chromium")
}

fn default_chromedriver() -> PathBuf {
    PathBuf::from("/usr/bin/chromedriver")
}

fn default_xvfb() -> PathBuf {
    PathBuf::from("/usr/bin/Xvfb")
}

fn default_bwrap() -> PathBuf {
    PathBuf::from("/usr/bin/bwrap")
}

fn default_ffmpeg() -> PathBuf {
    PathBuf::from("/usr/bin/ffmpeg")
}

fn default_profile() -> PathBuf {
    PathBuf::from("/home/casement/profile")
}

fn default_extensions() -> PathBuf {
    PathBuf::from("/home/casement/extensions")
}

fn default_egress() -> PathBuf {
    PathBuf::from(EGRESS_PATH)
}

const fn default_debugging_port() -> u16 {
    9222
}

const fn default_chromedriver_port() -> u16 {
    9515
}

const fn default_forwarder_port() -> u16 {
    3128
}

const fn default_refresh_rate() -> u32 {
    60
}

/// Size of a display in pixels and its refresh rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Viewport {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
    /// Frames per second. A virtual display has none of its own; kept for what reads it back.
    #[serde(default = "default_refresh_rate")]
    pub refresh_rate: u32,
}

/// Answer of `GET /v1/status` and `GET /v1/ready`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The protocol version the agent speaks.
    pub version: u32,
    /// The word of [`AgentConfig::nonce`].
    pub nonce: String,
    /// How the browser is.
    pub state: State,
    /// Path of the browser's debugging WebSocket (`/devtools/browser/<uuid>`); empty until known.
    pub browser_ws_path: String,
    /// Product and version as the browser gives it (`Chrome/156.0.0.0`); empty until known.
    pub browser_version: String,
    /// User agent its pages send; empty until known.
    pub user_agent: String,
    /// Command line of the running browser as the kernel shows it; empty until started.
    pub chromium_argv: Vec<String>,
    /// The viewport in force.
    pub viewport: Viewport,
    /// How long each step of the start took, in order.
    pub stages: Vec<Stage>,
}

/// How the browser is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Not answering yet.
    Starting,
    /// Answered `Browser.getVersion` and evaluated an expression on a page.
    Ready,
    /// Did not come up.
    Failed {
        /// Stable word for the cause.
        code: FailureCode,
        /// For people.
        message: String,
    },
    /// Was closed in order and stays so, for the sake of its [profile](profile::CAPTURE). The agent goes on.
    Closed,
    /// Was up and is gone.
    Exited {
        /// Why.
        reason: ExitReason,
    },
}

/// Why a browser did not come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// The configuration is not usable.
    Config,
    /// The X display did not come up.
    Display,
    /// The browser could not be started or ended during its start.
    BrowserSpawn,
    /// The kernel or the container forbids the nested namespaces of Chromium's own sandbox.
    NoUsableSandbox,
    /// The debugging port did not answer in time.
    DebuggingPort,
    /// No page answered in time.
    PageUnresponsive,
    /// The browser does not take an extension.
    Extension,
    /// Everything else.
    #[serde(other)]
    Other,
}

/// Why a browser is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// Ended by itself.
    Crashed,
    /// Ended for the memory it took.
    Oom,
    /// Never came up.
    Failed,
    /// Closed from inside: by a client, or by a person, also with its last window.
    Closed,
    /// Ended because it did not answer any more.
    Hung,
    /// Ended because it was asked to.
    Shutdown,
    /// Ended because no server spoke to the agent for the configured time.
    Idle,
    /// A word of a newer agent.
    #[serde(other)]
    Other,
}

/// One step of the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// `display`, `spawn`, `devtools_port`, `attach` or `evaluated`.
    pub name: String,
    /// Milliseconds since the agent began.
    pub ms: f64,
}

/// Body of `POST /v1/handout`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handout {
    /// Address to begin to open; not awaited.
    #[serde(default)]
    pub start_url: Option<String>,
    /// In place of [`AgentConfig::idle_end_seconds`] from now on.
    #[serde(default)]
    pub idle_end_seconds: Option<u64>,
    /// How long the page has to prove that it answers, in milliseconds; [`DEFAULT_HANDOUT_MS`] when absent.
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
    /// Left edge.
    pub x: u32,
    /// Upper edge.
    pub y: u32,
    /// Pixels from left to right, at least one.
    pub width: u32,
    /// Pixels from top to bottom, at least one.
    pub height: u32,
}

/// Body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Stable word for the cause.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
    /// The request's field that is at fault, if it is one field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// With [`ErrorCode::Upstream`]: what failed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<curl::Upstream>,
}

/// Stable words of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The page did not answer within the deadline.
    BrowserHung,
    /// The browser is not ready, or gone.
    NotReady,
    /// A region or size lies outside of what there is.
    OutOfRange,
    /// The request cannot be read.
    BadRequest,
    /// The body is longer than [`MAX_JSON_BYTES`].
    TooLarge,
    /// No such operation.
    NotFound,
    /// The caller speaks a version this agent does not.
    UnsupportedVersion,
    /// A value is none of those allowed.
    NotAllowed,
    /// This sandbox cannot do it.
    NotSupported,
    /// What the request names is not there: a file, a process, a watch, a recording.
    Missing,
    /// The sandbox's user may not do that to that path.
    PathForbidden,
    /// Something is there already.
    Exists,
    /// The path is not a directory.
    NotADirectory,
    /// The path is a directory.
    IsADirectory,
    /// What the request names is in a state that does not allow it.
    InvalidState,
    /// A number of things that a session may have is reached.
    LimitReached,
    /// The session's disk is full.
    DiskFull,
    /// The caller's stream of bytes broke off or cannot be read.
    BrokenBody,
    /// What the session asked of the web failed.
    Upstream,
    /// The operation's own time is over.
    TimedOut,
    /// It was begun and failed, so that a part of it may have taken effect.
    Failed,
    /// Everything else.
    #[serde(other)]
    Internal,
}

impl ErrorCode {
    /// The status it is answered with.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::BrowserHung | Self::NotReady => StatusCode::SERVICE_UNAVAILABLE,
            Self::OutOfRange
            | Self::BadRequest
            | Self::UnsupportedVersion
            | Self::NotAllowed
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
        /// The protocol version the agent speaks.
        version: u32,
        /// The word of [`AgentConfig::nonce`].
        nonce: String,
    },
    /// Every [`HEARTBEAT_SECONDS`].
    Heartbeat,
    /// The browser is ready; said again when it was started anew, and answers at another path.
    Ready,
    /// The browser is gone, and the agent soon after it.
    Exited {
        /// Why.
        reason: ExitReason,
        /// For people.
        detail: String,
    },
    /// A word of a newer agent.
    #[serde(other)]
    Other,
}

/// What a dialled connection leads to: the one byte a caller of the `dial` socket sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Chromium's debugging port.
    Cdp,
    /// chromedriver, started on first use.
    WebDriver,
}

impl Channel {
    /// The byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Cdp => b'C',
            Self::WebDriver => b'W',
        }
    }

    /// The channel a byte stands for.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'C' => Some(Self::Cdp),
            b'W' => Some(Self::WebDriver),
            _ => None,
        }
    }
}

/// First byte of an answer on the `dial` socket that carries a connected socket.
pub const DIAL_OK: u8 = 0;
/// First byte of an answer on the `dial` socket that carries a short word instead.
pub const DIAL_REFUSED: u8 = 1;
