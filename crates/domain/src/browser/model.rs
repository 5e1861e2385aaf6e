//! What a running browser is.

use time::OffsetDateTime;

use super::{BrowserPolicy, Viewport};
use crate::field::{FieldCode, InvalidValue, check_max_length};
use crate::ids::{BrowserId, ExtensionId, NodeId, PoolId, ProxyId, SessionId};
use crate::profile::LoadedProfile;
use crate::text_enum::text_enum;

/// What a browser is started as; two browsers of one shape can stand for one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Without a display.
    pub headless: bool,
    /// Hides what tells an automated browser from a person's.
    pub stealth: bool,
    /// The page alone on the display, without the window's frame; headful only.
    pub kiosk_mode: bool,
    /// Size of the display.
    pub viewport: Viewport,
    /// Chrome policies.
    pub policy: Option<BrowserPolicy>,
    /// Kept extensions, in the order they are loaded.
    pub extensions: Vec<ExtensionId>,
    /// What its traffic goes through. Not of the browser itself: any of the same shape can be sent through another.
    pub proxy: Option<ProxyId>,
    /// The profile that it is started with.
    pub profile: Option<LoadedProfile>,
}

/// An absolute URL that a session opens first; at most 8,192 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartUrl(String);

impl StartUrl {
    /// # Errors
    /// `invalid_format` or `too_long`.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        check_max_length(text, 8192)?;
        let bad = || InvalidValue::new(FieldCode::InvalidFormat, "must be an absolute URL");
        let (scheme, rest) = text.split_once(':').ok_or_else(bad)?;
        let scheme_is_good = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
        let plain = !text.chars().any(|c| c.is_control() || c.is_whitespace());
        // A script is not an address, and it would run in whatever page is open.
        if !scheme_is_good || rest.is_empty() || !plain || scheme.eq_ignore_ascii_case("javascript") {
            return Err(bad());
        }
        Ok(Self(text.to_owned()))
    }

    /// The URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

text_enum! {
    /// Where a browser stands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum BrowserState {
        /// It is being started for its pool.
        Warming => "warming",
        /// It is ready, and nobody has it.
        Idle => "idle",
        /// A session has it.
        Leased => "leased",
        /// Its sandbox is being ended; after that it is gone.
        Ending => "ending",
    }
}

/// A browser that is somebody's: a pool's, or a session's. Spare ones of a node are not kept in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Browser {
    /// Which one; its sandbox bears the same id.
    pub id: BrowserId,
    /// Which node runs it.
    pub node: NodeId,
    /// Which pool it belongs to; `None`: made for one session.
    pub pool: Option<PoolId>,
    /// What it was started as.
    pub shape: Shape,
    /// Where it stands.
    pub state: BrowserState,
    /// Who has it, while leased.
    pub session: Option<SessionId>,
    /// When it was made.
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
