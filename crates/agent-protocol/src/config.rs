//! The configuration of an agent.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{EGRESS_PATH, Location, PROTOCOL_VERSION, Viewport};

/// The configuration of an agent, as JSON at [`CONFIG_PATH`](crate::CONFIG_PATH).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentConfig {
    /// The protocol version of the writer.
    pub version: u32,
    /// A random nonce that the agent repeats in its status, so that a restarted server recognizes its own sandbox.
    pub nonce: String,
    /// True for a browser without a display.
    pub headless: bool,
    /// Hides the signs of automation.
    #[serde(default)]
    pub stealth: bool,
    /// Shows the page without the window's frame. Has no effect when headless.
    #[serde(default)]
    pub kiosk_mode: bool,
    /// True if a policy of the browser restricts downloads. Chromium ignores such a policy where a client, also the agent,
    /// has set what is done with downloads.
    #[serde(default)]
    pub restricts_downloads: bool,
    /// The size of the display, or of the page when headless.
    pub viewport: Viewport,
    /// The time zone and the locale.
    #[serde(default)]
    pub location: Location,
    /// The URL to load at the start, without waiting for it.
    #[serde(default)]
    pub start_url: Option<String>,
    /// The path of Chromium's real binary in the sandbox.
    #[serde(default = "default_chromium")]
    pub chromium: PathBuf,
    /// The path of chromedriver in the sandbox.
    #[serde(default = "default_chromedriver")]
    pub chromedriver: PathBuf,
    /// The path of the X server in the sandbox, for a display.
    #[serde(default = "default_xvfb")]
    pub xvfb: PathBuf,
    /// The path of ffmpeg in the sandbox, for recordings.
    #[serde(default = "default_ffmpeg")]
    pub ffmpeg: PathBuf,
    /// The path of bubblewrap in the sandbox: a script runs in a nested sandbox, which ends its descendants.
    #[serde(default = "default_bwrap")]
    pub bwrap: PathBuf,
    /// The folder of the script runner in the sandbox. `None`: scripts are not supported.
    #[serde(default)]
    pub script_runner: Option<PathBuf>,
    /// Chromium's profile directory in the sandbox.
    #[serde(default = "default_profile")]
    pub profile: PathBuf,
    /// The directory of unpacked extensions in the sandbox.
    #[serde(default = "default_extensions")]
    pub extensions: PathBuf,
    /// True to start Chromium only at the first [restart](crate::extension::RESTART).
    #[serde(default)]
    pub held: bool,
    /// True if the profile is saved even when the browser ends by itself: the agent then continues for a while.
    #[serde(default)]
    pub keeps_profile: bool,
    /// The port of Chromium's debugging protocol on the sandbox's loopback.
    #[serde(default = "default_debugging_port")]
    pub debugging_port: u16,
    /// The port of chromedriver on the sandbox's loopback.
    #[serde(default = "default_chromedriver_port")]
    pub chromedriver_port: u16,
    /// The port of the forwarder that Chromium uses as its proxy, on the sandbox's loopback.
    #[serde(default = "default_forwarder_port")]
    pub forwarder_port: u16,
    /// The unix socket of the egress proxy.
    #[serde(default = "default_egress")]
    pub egress_socket: PathBuf,
    /// The idle timeout in seconds: the agent ends itself if no server has contacted it for that time. 0 disables it.
    #[serde(default)]
    pub idle_end_seconds: u64,
    /// The unix socket of a remote browser in the sandbox: each connection to it carries one WebSocket of that browser's
    /// debugging protocol. The agent then starts no program of its own. `None`: Chromium runs in the sandbox.
    #[serde(default)]
    pub remote: Option<PathBuf>,
    /// The time in seconds within which a lost connection to a remote browser is opened again. It counts only while the
    /// server serves the socket.
    #[serde(default = "default_reconnect_seconds")]
    pub reconnect_seconds: u64,
    /// Ends the browser if everything in the sandbox together exceeds this memory (PSS), in bytes.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
    /// Additional switches for Chromium, appended last. Switches that the isolation depends on cannot be overridden.
    #[serde(default)]
    pub extra_chromium_args: Vec<String>,
}

impl AgentConfig {
    /// Creates a configuration with the default paths and ports.
    #[must_use]
    pub fn new(nonce: impl Into<String>, headless: bool, viewport: Viewport) -> Self {
        Self {
            version: PROTOCOL_VERSION,
            nonce: nonce.into(),
            headless,
            stealth: false,
            kiosk_mode: false,
            restricts_downloads: false,
            viewport,
            location: Location::default(),
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
            remote: None,
            reconnect_seconds: default_reconnect_seconds(),
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

const fn default_reconnect_seconds() -> u64 {
    30
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
