//! The settings of an engine on a WebDriver server.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use casement_domain::engine::EngineName;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

use crate::address::Address;
use crate::capabilities::{BROWSER, OPTIONS, OWNER};

const MAX_CREDENTIAL: usize = 1024;
const MAX_OWNER: usize = 128;
const MAX_CAPABILITIES: usize = 16 * 1024;
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// A setting that an engine cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the setting {setting} of the engine {why}")]
pub struct ConfigError {
    /// The name of the setting: a member of [`WebDriverConfig`].
    pub setting: &'static str,
    /// The broken rule, as the end of a sentence. It holds no secret.
    pub why: Cow<'static, str>,
}

/// The user and the password for a WebDriver server. The password is neither printed nor logged.
#[derive(Clone)]
pub struct Credentials {
    user: String,
    password: SecretString,
}

impl Credentials {
    /// Creates credentials.
    #[must_use]
    pub fn new(user: String, password: impl Into<SecretString>) -> Self {
        Self { user, password: password.into() }
    }

    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    pub(crate) const fn password(&self) -> &SecretString {
        &self.password
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// The settings of an engine on a WebDriver server.
#[derive(Clone, Debug)]
pub struct WebDriverConfig {
    /// The name of the engine.
    pub name: EngineName,
    pub(crate) address: Address,
    /// The user and the password, for the server itself or a proxy before it.
    pub credentials: Option<Credentials>,
    /// Further capabilities of each session. Arguments of `goog:chromeOptions` are appended to the engine's own ones.
    pub capabilities: Map<String, Value>,
    /// The mark of this installation and node: 1 to 128 letters, digits, `-`, `_`, `.` and `:`. Sessions with it are
    /// ended if they are unknown, so no two running servers may have the same one.
    pub owner: String,
    /// The maximum number of sessions at the same time; `None`: no limit of its own.
    pub max_sessions: Option<u32>,
    /// How long the start of a browser may take, after the time in the queue.
    pub start_timeout: Duration,
    /// How long a start may wait in the server's queue, in addition to `start_timeout`; `None`: as long as that.
    pub queue_timeout: Option<Duration>,
    /// How long any other command may take.
    pub command_timeout: Duration,
    /// The time without commands after which the server ends a session. Each session gets a sign of life in a third of
    /// it.
    pub session_timeout: Duration,
    /// The path of a session's CDP WebSocket under the server's URL, where `{id}` is the session; `None`: the one that
    /// the server answers, or that of a Selenium Grid.
    pub cdp_path: Option<String>,
    /// The only trusted certificate authorities, in PEM; `None`: those of this machine.
    pub ca: Option<Vec<u8>>,
}

impl WebDriverConfig {
    /// Creates the settings for the server at `url`, with default values. Credentials in the URL are moved out of it.
    ///
    /// # Errors
    /// [`ConfigError`] if the URL or the owner breaks a rule.
    pub fn new(name: EngineName, url: &str, owner: String) -> Result<Self, ConfigError> {
        let (address, credentials) = Address::parse(url)?;
        let config = Self {
            name,
            address,
            credentials,
            capabilities: Map::new(),
            owner,
            max_sessions: None,
            start_timeout: Duration::from_secs(60),
            queue_timeout: None,
            command_timeout: Duration::from_secs(30),
            session_timeout: Duration::from_secs(300),
            cdp_path: None,
            ca: None,
        };
        config.check()?;
        Ok(config)
    }

    /// Returns the URL of the server without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        self.address.to_string()
    }

    /// Returns how long a start may take altogether.
    pub(crate) fn whole_start(&self) -> Duration {
        self.start_timeout + self.queue_timeout.unwrap_or(self.start_timeout)
    }

    /// Checks all settings except the certificates.
    ///
    /// # Errors
    /// [`ConfigError`] with the first setting that breaks a rule.
    pub fn check(&self) -> Result<(), ConfigError> {
        let bad = |setting: &'static str, why: &'static str| Err(ConfigError { setting, why: why.into() });
        let is_mark = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
        if !(1..=MAX_OWNER).contains(&self.owner.len()) || !self.owner.bytes().all(is_mark) {
            return bad("owner", "must have 1 to 128 letters, digits, '-', '_', '.' and ':'");
        }
        if let Some(Credentials { user, password }) = &self.credentials {
            let is_long = user.len() > MAX_CREDENTIAL || password.expose_secret().len() > MAX_CREDENTIAL;
            if is_long || user.is_empty() || user.contains(':') {
                return bad("credentials", "must have a user without ':', and at most 1024 characters each");
            }
        }
        if self.max_sessions == Some(0) {
            return bad("max_sessions", "must be at least 1");
        }
        if self.ca.is_some() && !self.address.secure {
            return bad("ca", "has no effect, because the URL does not begin with https://");
        }
        self.check_capabilities()?;
        self.check_timeouts()?;
        match self.cdp_path.as_deref() {
            None => Ok(()),
            Some(path) if path.len() <= 256 && is_path(path) && path.matches("{id}").count() == 1 => Ok(()),
            Some(_) => bad("cdp_path", "must begin with '/', hold '{id}' once and be a path of at most 256 characters"),
        }
    }

    fn check_capabilities(&self) -> Result<(), ConfigError> {
        let bad = |why: String| Err(ConfigError { setting: "capabilities", why: why.into() });
        for reserved in ["browserName", "webSocketUrl", "se:name", OWNER, BROWSER] {
            if self.capabilities.contains_key(reserved) {
                return bad(format!("must not hold {reserved}, which the engine sets"));
            }
        }
        if let Some(name) = self.capabilities.keys().find(|name| name.len() > 128 || name.contains(char::is_control)) {
            return bad(format!("hold a name of {} bytes that is no name of a capability", name.len()));
        }
        if let Some(options) = self.capabilities.get(OPTIONS) {
            let args = options.as_object().map(|options| options.get("args"));
            let are_texts = |args: &Value| args.as_array().is_some_and(|args| args.iter().all(Value::is_string));
            match args {
                None => return bad(format!("must hold an object as {OPTIONS}")),
                Some(Some(args)) if !are_texts(args) => return bad(format!("must hold texts as args of {OPTIONS}")),
                Some(_) => {}
            }
        }
        let size = serde_json::to_vec(&self.capabilities).map_or(usize::MAX, |bytes| bytes.len());
        if size > MAX_CAPABILITIES {
            return bad("must have at most 16 KiB of JSON".to_owned());
        }
        Ok(())
    }

    fn check_timeouts(&self) -> Result<(), ConfigError> {
        let second = Duration::from_secs(1);
        let day = Duration::from_secs(86_400);
        for (setting, value, max) in [
            ("start_timeout", self.start_timeout, MAX_TIMEOUT),
            ("queue_timeout", self.queue_timeout.unwrap_or(second), MAX_TIMEOUT),
            ("command_timeout", self.command_timeout, MAX_TIMEOUT),
            ("session_timeout", self.session_timeout, day),
        ] {
            let least = if setting == "session_timeout" { 10 * second } else { second };
            if !(least..=max).contains(&value) {
                let why = format!("must be {} to {} seconds", least.as_secs(), max.as_secs());
                return Err(ConfigError { setting, why: why.into() });
            }
        }
        Ok(())
    }
}

/// Returns whether a text is an absolute path that needs no escaping, apart from a place for the session's id.
fn is_path(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_graphic() && !b"\"<>\\^`#?%".contains(&b);
    text.starts_with('/') && text.replace("{id}", "").bytes().all(|b| is_plain(b) && !b"{}".contains(&b))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> WebDriverConfig {
        let name = EngineName::parse("grid").expect("a name");
        WebDriverConfig::new(name, "http://me:geheim@grid:4444", "installation-1".to_owned()).expect("valid")
    }

    fn refused(change: impl FnOnce(&mut WebDriverConfig)) -> &'static str {
        let mut config = config();
        change(&mut config);
        config.check().expect_err("it breaks a rule").setting
    }

    #[test]
    fn a_setting_that_breaks_a_rule_is_named() {
        assert_eq!(refused(|c| c.owner = String::new()), "owner");
        assert_eq!(refused(|c| c.owner = "a b".to_owned()), "owner");
        assert_eq!(refused(|c| c.max_sessions = Some(0)), "max_sessions");
        assert_eq!(refused(|c| c.ca = Some(Vec::new())), "ca");
        assert_eq!(refused(|c| c.start_timeout = Duration::ZERO), "start_timeout");
        assert_eq!(refused(|c| c.queue_timeout = Some(Duration::MAX)), "queue_timeout");
        assert_eq!(refused(|c| c.command_timeout = Duration::ZERO), "command_timeout");
        assert_eq!(refused(|c| c.session_timeout = Duration::from_secs(1)), "session_timeout");
        assert_eq!(refused(|c| c.credentials = Some(Credentials::new("a:b".to_owned(), "c"))), "credentials");
        for path in ["/cdp", "cdp/{id}", "/{id}/{id}", "/{id} HTTP/1.1", "/{id}?x", "/{id}{}"] {
            assert_eq!(refused(|c| c.cdp_path = Some(path.to_owned())), "cdp_path", "{path}");
        }
    }

    #[test]
    fn capabilities_that_the_engine_sets_are_refused() {
        for capability in [
            json!({ "browserName": "firefox" }),
            json!({ "webSocketUrl": false }),
            json!({ OWNER: "another" }),
            json!({ OPTIONS: "text" }),
            json!({ OPTIONS: { "args": "text" } }),
            json!({ OPTIONS: { "args": [1] } }),
            json!({ "x:large": "a".repeat(17_000) }),
        ] {
            let capabilities = capability.as_object().cloned().expect("an object");
            assert_eq!(refused(|c| c.capabilities = capabilities), "capabilities", "{capability}");
        }
    }

    #[test]
    fn settings_are_printed_without_the_password() {
        let config = config();
        assert!(config.credentials.is_some());
        assert!(!format!("{config:?} {}", config.url()).contains("geheim"));
        let url = "http://me:geheim@grid?x";
        let refused = WebDriverConfig::new(EngineName::LOCAL, url, "o".to_owned()).expect_err("a query");
        assert!(!format!("{refused} {refused:?}").contains("geheim"));
    }
}
