//! The names of engines, their kinds and capabilities.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::field::{FieldCode, InvalidValue, check_length};
use crate::not_supported::NotSupported;
use crate::text_enum::text_enum;

/// The name of an engine: `^[a-z][a-z0-9-]{0,31}$`. `local` is the engine of this program's own sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineName(Cow<'static, str>);

impl EngineName {
    /// The pattern of names.
    pub const PATTERN: &str = "^[a-z][a-z0-9-]{0,31}$";
    /// The maximum number of characters.
    pub const MAX_LENGTH: usize = 32;
    /// The engine that starts Chromium in sandboxes of this program.
    pub const LOCAL: Self = Self(Cow::Borrowed("local"));

    /// # Errors
    /// Returns the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        check_length(text, Self::MAX_LENGTH)?;
        let is_rest = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if !text.starts_with(|c: char| c.is_ascii_lowercase()) || !text.bytes().all(is_rest) {
            let message = "must begin with a small letter and may hold small letters, digits and '-' only";
            return Err(InvalidValue::new(FieldCode::InvalidFormat, message));
        }
        Ok(if text == Self::LOCAL.as_str() { Self::LOCAL } else { Self(Cow::Owned(text.to_owned())) })
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is the engine of this program's own sandboxes.
    #[must_use]
    pub fn is_local(&self) -> bool {
        *self == Self::LOCAL
    }
}

impl Default for EngineName {
    fn default() -> Self {
        Self::LOCAL
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_enum! {
    /// The kind of an engine.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum EngineKind {
        /// Chromium in sandboxes of this program.
        Local => "local",
        /// Browsers of a W3C WebDriver server, for example of a Selenium Grid.
        WebDriver => "webdriver",
    }
}

text_enum! {
    /// Something that an engine may be able to do with its browsers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Capability {
        /// Pools of warm browsers.
        Pools => "pools",
        /// Driving a browser over CDP.
        Cdp => "cdp",
        /// Driving a browser over WebDriver BiDi.
        Bidi => "bidi",
        /// Driving a browser over classic WebDriver.
        WebDriver => "webdriver",
        /// Setting the size of the page.
        Viewport => "viewport",
        /// A browser without a display.
        Headless => "headless",
        /// A browser with a display, whose window has a frame.
        Display => "display",
        /// A display that shows the page only.
        KioskMode => "kiosk_mode",
        /// Hiding signs of automation.
        Stealth => "stealth",
        /// Screenshots.
        Screenshots => "screenshots",
        /// Mouse and keyboard.
        MouseAndKeyboard => "mouse_and_keyboard",
        /// The clipboard.
        Clipboard => "clipboard",
        /// Scripts beside the browser, and their executors.
        Scripts => "scripts",
        /// Telemetry of the browser.
        Telemetry => "telemetry",
        /// The live view.
        LiveView => "live_view",
        /// Recordings of a session.
        Replays => "replays",
        /// Tools of pages (`WebMCP`).
        WebMcp => "webmcp",
        /// Requests from the browser's network.
        Curl => "curl",
        /// Logs of the session.
        Logs => "logs",
        /// The files of the session.
        Files => "files",
        /// Files that the browser downloads.
        Downloads => "downloads",
        /// Processes beside the browser.
        Processes => "processes",
        /// Profiles: cookies and storage.
        Profiles => "profiles",
        /// Extensions.
        Extensions => "extensions",
        /// Policies of Chromium.
        Policies => "policies",
        /// The proxy and the network configuration of the browser's traffic.
        Network => "network",
        /// The time zone and the locale.
        Location => "location",
        /// The memory limit of a browser.
        Memory => "memory",
        /// Connections that log in to websites.
        Logins => "logins",
    }
}

impl Capability {
    /// Returns the capability as part of a sentence, for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Pools => "pools of warm browsers",
            Self::Cdp => "CDP",
            Self::Bidi => "WebDriver BiDi",
            Self::WebDriver => "classic WebDriver",
            Self::Viewport => "the viewport",
            Self::Headless => "browsers without a display",
            Self::Display => "a display with a window",
            Self::KioskMode => "kiosk mode",
            Self::Stealth => "stealth",
            Self::Screenshots => "screenshots",
            Self::MouseAndKeyboard => "mouse and keyboard",
            Self::Clipboard => "the clipboard",
            Self::Scripts => "scripts",
            Self::Telemetry => "telemetry",
            Self::LiveView => "the live view",
            Self::Replays => "replays",
            Self::WebMcp => "WebMCP",
            Self::Curl => "curl",
            Self::Logs => "session logs",
            Self::Files => "the file system",
            Self::Downloads => "downloads",
            Self::Processes => "processes",
            Self::Profiles => "profiles",
            Self::Extensions => "extensions",
            Self::Policies => "Chrome policies",
            Self::Network => "proxies and network configuration",
            Self::Location => "time zone and locale",
            Self::Memory => "memory sizes",
            Self::Logins => "auth connections",
        }
    }
}

/// How far an engine supports a capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// As it is documented.
    Full,
    /// With a limitation, which the text describes for people.
    Partial(Cow<'static, str>),
    /// Not at all, for the reason that the text gives for people.
    None(Cow<'static, str>),
}

impl Support {
    /// Returns the limitation or the reason; `None` if the support is full.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        match self {
            Self::Full => None,
            Self::Partial(note) | Self::None(note) => Some(note),
        }
    }
}

/// An engine of this installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineDescription {
    /// The name.
    pub name: EngineName,
    /// The kind.
    pub kind: EngineKind,
    /// The maximum number of browsers at the same time; `None`: no limit of its own.
    pub max_sessions: Option<u32>,
    support: BTreeMap<Capability, Support>,
}

impl EngineDescription {
    /// Describes the engine of this program's own sandboxes, which can do everything.
    #[must_use]
    pub fn local() -> Self {
        let support = Capability::ALL.into_iter().map(|capability| (capability, Support::Full)).collect();
        Self { name: EngineName::LOCAL, kind: EngineKind::Local, max_sessions: None, support }
    }

    /// Describes the engine of a WebDriver server.
    #[must_use]
    pub fn webdriver(name: EngineName, max_sessions: Option<u32>) -> Self {
        let support = Capability::ALL.into_iter().map(|capability| (capability, of_webdriver(capability))).collect();
        Self { name, kind: EngineKind::WebDriver, max_sessions, support }
    }

    /// Describes an engine that this installation no longer has: it supports nothing.
    #[must_use]
    pub fn gone(name: EngineName) -> Self {
        let none = || Support::None("this installation no longer has the engine".into());
        let support = Capability::ALL.into_iter().map(|capability| (capability, none())).collect();
        Self { name, kind: EngineKind::WebDriver, max_sessions: None, support }
    }

    /// Returns how far the engine supports a capability.
    #[must_use]
    pub fn support(&self, capability: Capability) -> &Support {
        self.support.get(&capability).unwrap_or(&Support::Full)
    }

    /// Returns the refusal of a capability, if the engine does not support it.
    ///
    /// # Errors
    /// [`EngineRefused`] with the reason.
    pub fn check(&self, capability: Capability) -> Result<(), EngineRefused> {
        match self.support(capability) {
            Support::Full | Support::Partial(_) => Ok(()),
            Support::None(why) => Err(EngineRefused { engine: self.name.clone(), capability, why: why.clone() }),
        }
    }
}

/// The support of a WebDriver server for a capability.
fn of_webdriver(capability: Capability) -> Support {
    let partial = |note: &'static str| Support::Partial(note.into());
    let none = |why: &'static str| Support::None(why.into());
    match capability {
        Capability::Pools | Capability::Bidi | Capability::WebDriver | Capability::Headless => Support::Full,
        Capability::Cdp => partial("at the address of the browser; pages have no addresses of their own"),
        Capability::Curl => partial("in a tab in the background, which other clients of the browser see"),
        Capability::Telemetry => partial("without what happens while this server does not run"),
        Capability::Viewport => partial("the size of the page; there is no refresh rate"),
        Capability::Screenshots => partial("of the page, without the window's frame"),
        Capability::MouseAndKeyboard => {
            partial("in the page; other windows and the browser's own controls receive nothing")
        }
        Capability::Scripts => partial("scripts run beside the server and have no files in common with the browser"),
        Capability::LiveView | Capability::Replays => partial("of the page, without the window's frame"),
        Capability::WebMcp => partial("if the server starts Chrome with the feature WebMCP"),
        Capability::Display => none("the server decides whether its browsers have a display; request headless: true"),
        Capability::KioskMode => none("the browser's display is not this program's"),
        Capability::Stealth => none("the flags of the browser belong to the server"),
        Capability::Clipboard => none("the clipboard belongs to the server's machine"),
        Capability::Logs => none("the browser's logs are on the server's machine"),
        Capability::Files => none("the browser's files are on the server's machine, except for its downloads"),
        Capability::Downloads => partial(
            "to list and to read in /home/casement/downloads, at most 32 MiB each, if the server hands them out",
        ),
        Capability::Processes => none("nothing runs beside the browser"),
        Capability::Profiles => partial("cookies and local storage only"),
        Capability::Extensions => none("extensions cannot be loaded into the server's browsers"),
        Capability::Policies => none("policies belong to the server's machine"),
        Capability::Network => none("the traffic of the browser does not pass this program"),
        Capability::Location => none("time zone and locale belong to the server's machine"),
        Capability::Memory => none("the memory of the browser belongs to the server's machine"),
        Capability::Logins => none("a login needs the files and the network of its browser"),
    }
}

/// The refusal of something that an engine cannot do. Nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine {engine} does not support {}: {why}", capability.title())]
pub struct EngineRefused {
    /// The engine.
    pub engine: EngineName,
    /// The capability that it lacks.
    pub capability: Capability,
    /// The reason.
    pub why: Cow<'static, str>,
}

impl EngineRefused {
    /// Returns the refusal of a request's field.
    #[must_use]
    pub fn of(self, field: &'static str) -> NotSupported {
        NotSupported { field, why: self.to_string().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_engines_are_short_words_in_small_letters() {
        for good in ["local", "grid", "grid-2", "a", &"a".repeat(32)] {
            assert_eq!(EngineName::parse(good).expect(good).as_str(), good);
        }
        for bad in ["Grid", "2grid", "-a", "a_b", "a b", "grid/1", "ä"] {
            assert_eq!(EngineName::parse(bad).expect_err(bad).code, FieldCode::InvalidFormat, "{bad}");
        }
        assert_eq!(EngineName::parse("").expect_err("empty").code, FieldCode::TooShort);
        assert_eq!(EngineName::parse(&"a".repeat(33)).expect_err("long").code, FieldCode::TooLong);
    }

    #[test]
    fn the_local_engine_supports_everything() {
        let local = EngineDescription::local();
        assert!(Capability::ALL.into_iter().all(|capability| *local.support(capability) == Support::Full));
    }

    #[test]
    fn a_refusal_names_the_engine_the_capability_and_the_reason() {
        let grid = EngineDescription::webdriver(EngineName::parse("grid").expect("a name"), None);
        let refused = grid.check(Capability::Processes).expect_err("no processes");
        let text = refused.to_string();
        assert_eq!(text, "the engine grid does not support processes: nothing runs beside the browser");
        assert_eq!(refused.of("field").field, "field");
        assert_eq!(grid.check(Capability::Cdp), Ok(()));
    }
}
