//! The running browser.

use std::collections::BTreeSet;

use time::OffsetDateTime;

use super::{BrowserPolicy, Location, ReservedMemory, Viewport};
use crate::engine::EngineName;
use crate::field::{FieldCode, InvalidValue, check_max_length};
use crate::ids::{BrowserId, ExtensionId, NodeId, PoolId, ProxyId, SessionId};
use crate::network::Network;
use crate::pattern::visible;
use crate::profile::LoadedProfile;
use crate::text_enum::text_enum;

/// The properties with which a browser is started. Browsers of the same shape are interchangeable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The engine that starts the browser.
    pub engine: EngineName,
    /// True if the browser has no display.
    pub headless: bool,
    /// True if signs of automation are hidden.
    pub stealth: bool,
    /// True if the display shows the page only, without the window's frame. Only for browsers with a display.
    pub kiosk_mode: bool,
    /// The size of the display.
    pub viewport: Viewport,
    /// The Chrome policies.
    pub policy: Option<BrowserPolicy>,
    /// The stored extensions, in loading order.
    pub extensions: Vec<ExtensionId>,
    /// The proxy of the browser's traffic. A running browser can be switched to another proxy.
    pub proxy: Option<ProxyId>,
    /// The profile that is loaded at the start.
    pub profile: Option<LoadedProfile>,
    /// The memory; `None`: the node's default, of a pool or of a browser that an earlier version has started.
    pub memory: Option<ReservedMemory>,
    /// The time zone and the locale. Those of a running browser can be changed.
    pub location: Location,
    /// The network configuration of the browser's traffic. It can be given to a running browser.
    pub network: Option<Network>,
}

impl Shape {
    /// Returns the number of sessions that a browser counts as in the limits of sessions.
    #[must_use]
    pub fn places(&self) -> u32 {
        self.memory.map_or(1, |memory| memory.places)
    }

    /// Returns the proxies of the browser's traffic, in the order of their ids and each once.
    #[must_use]
    pub fn proxies(&self) -> Vec<ProxyId> {
        let routes = self.network.iter().flat_map(|network| network.proxy_routes.iter().flatten());
        let all: BTreeSet<_> = self.proxy.into_iter().chain(routes.map(|route| route.proxy)).collect();
        all.into_iter().collect()
    }

    /// Returns whether the traffic of the browser is not simply direct.
    #[must_use]
    pub fn directs_traffic(&self) -> bool {
        self.proxy.is_some() || self.network.is_some()
    }
}

/// An absolute URL that a session opens first, of at most 8,192 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartUrl(String);

impl StartUrl {
    /// The pattern of URLs, also of those that [`SCRIPT_PATTERN`](Self::SCRIPT_PATTERN) describes.
    pub const PATTERN: &str = concat!("^[A-Za-z][A-Za-z0-9+.-]*:", visible!(""), "+$");
    /// The pattern of URLs of scripts, which are refused.
    pub const SCRIPT_PATTERN: &str = "^[Jj][Aa][Vv][Aa][Ss][Cc][Rr][Ii][Pp][Tt]:";
    /// The maximum number of characters.
    pub const MAX_LENGTH: usize = 8192;

    /// # Errors
    /// `invalid_format` or `too_long`.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        check_max_length(text, Self::MAX_LENGTH)?;
        let bad = || InvalidValue::new(FieldCode::InvalidFormat, "must be an absolute URL");
        let (scheme, rest) = text.split_once(':').ok_or_else(bad)?;
        let scheme_is_good = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
        let plain = !text.chars().any(|c| c.is_control() || c.is_whitespace());
        // A script URL would run in the open page.
        if !scheme_is_good || rest.is_empty() || !plain || scheme.eq_ignore_ascii_case("javascript") {
            return Err(bad());
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

text_enum! {
    /// The state of a browser.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum BrowserState {
        /// The browser is being started for its pool.
        Warming => "warming",
        /// The browser is ready and has no session.
        Idle => "idle",
        /// A session uses the browser.
        Leased => "leased",
        /// The sandbox is ending; the row is deleted afterwards.
        Ending => "ending",
    }
}

/// A browser of a pool or a session. Spare browsers of a node are not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Browser {
    /// The id of the browser and of its sandbox.
    pub id: BrowserId,
    /// The node that runs the browser.
    pub node: NodeId,
    /// The pool of the browser; `None`: the browser was started for one session.
    pub pool: Option<PoolId>,
    /// The shape.
    pub shape: Shape,
    /// The state.
    pub state: BrowserState,
    /// The session that uses the browser, while it is leased.
    pub session: Option<SessionId>,
    /// The time of creation.
    pub created_at: OffsetDateTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_urls_are_absolute() {
        for good in ["https://example.com/", "about:blank", "chrome://version", "data:text/html,x", "chrome:version"] {
            assert_eq!(StartUrl::parse(good).expect(good).as_str(), good);
        }
        for bad in [
            "",
            "example.com",
            "/x",
            "https:",
            "ht tp://x",
            "http://a\nb",
            "javascript:alert(1)",
            "1a:b",
            "JavaScript:0",
        ] {
            assert_eq!(StartUrl::parse(bad).expect_err(bad).code, FieldCode::InvalidFormat, "{bad}");
        }
        assert_eq!(
            StartUrl::parse(&format!("https://{}", "x".repeat(8192))).expect_err("long").code,
            FieldCode::TooLong
        );
    }
}
