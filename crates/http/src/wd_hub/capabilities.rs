//! The capabilities of a new WebDriver session: what they ask of the browser, and what is left for chromedriver.

use std::collections::BTreeMap;

use bytes::Bytes;
use casement_domain::{
    field::FieldCode,
    untrusted_json::{self, UntrustedJsonError},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    connect::{BrowserOptions, apply_browser_argument, asks_for_nothing, set, size},
    error::{ApiError, Code},
    json,
    schema::ToSchema,
    session::ViewportInput,
    webdriver::{ALLOWED_CAPABILITIES, BadCapabilities},
};

/// The capability of this server.
const OURS: &str = "casement:options";
/// Prefixes of capabilities that concern the client itself.
const OF_CLIENTS: [&str; 1] = ["wdio:"];

/// The capability `casement:options`. Every member is optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = CasementOptions)]
#[serde(deny_unknown_fields)]
pub(super) struct VendorOptions {
    /// A pool, by id or name, whose browser is leased. Default: a session on demand.
    pool: Option<String>,
    /// With `pool`: the longest wait in seconds, 0 to 3600. Default: as of the pool.
    acquire_timeout_seconds: Option<i64>,
    /// A profile to load, by id or name.
    profile: Option<String>,
    /// Whether the state of the session is saved to the profile. Default: false.
    save_changes: Option<bool>,
    /// A proxy, by id or name.
    proxy: Option<String>,
    /// Extensions, by id or name.
    extensions: Option<Vec<String>>,
    /// The engine that starts the browser, by its name. Default: `local`, or the first one of the installation.
    engine: Option<String>,
    /// Whether the browser runs without a display. Default: false, or true for an engine without displays.
    headless: Option<bool>,
    /// Whether signs of automation are hidden. Default: false.
    stealth: Option<bool>,
    /// Whether the display shows only the page. Default: false.
    kiosk_mode: Option<bool>,
    /// The size of the display. Default: 1920 × 1080.
    viewport: Option<ViewportInput>,
    /// The idle timeout in seconds, 10 to 259200. Default: 60.
    timeout_seconds: Option<i64>,
    /// The name of the session.
    name: Option<String>,
    /// An absolute URL to open first.
    start_url: Option<String>,
    /// Tags of the session.
    tags: Option<BTreeMap<String, String>>,
}

/// The names of the members.
const MEMBERS: [&str; 15] = [
    "pool",
    "acquire_timeout_seconds",
    "profile",
    "save_changes",
    "proxy",
    "extensions",
    "engine",
    "headless",
    "stealth",
    "kiosk_mode",
    "viewport",
    "timeout_seconds",
    "name",
    "start_url",
    "tags",
];

/// A new WebDriver session.
pub(super) struct NewSession {
    /// What it asks of the browser.
    pub(super) options: BrowserOptions,
    /// The body for chromedriver.
    pub(super) body: Bytes,
    /// Whether the client reads downloads.
    pub(super) downloads: bool,
}

/// Reads the body of a new session.
///
/// # Errors
/// `bad_request` for malformed capabilities; `not_supported` and `invalid_input` with the name of a capability.
pub(super) fn read(body: &[u8]) -> Result<NewSession, ApiError> {
    let refused = |error: UntrustedJsonError| match error {
        UntrustedJsonError::TooManyValues { .. } => ApiError::new(Code::BadRequest, error.to_string()),
        UntrustedJsonError::Form(_) => ApiError::new(Code::BadRequest, "the body is not JSON"),
    };
    let body: Value = untrusted_json::parse(body).map_err(refused)?;
    let mut new = Reader::default();
    for (name, value) in chosen(&body)? {
        new.take(name, value)?;
    }
    let body = json!({ "capabilities": { "alwaysMatch": new.left } }).to_string().into();
    new.options.capabilities = new.left;
    Ok(NewSession { options: new.options, body, downloads: new.downloads })
}

/// Returns the capabilities that all sessions need, merged with those of the first alternative of this browser.
fn chosen(body: &Value) -> Result<Map<String, Value>, ApiError> {
    let (always, first) = match (body, body.get("capabilities")) {
        (Value::Object(body), None | Some(Value::Null)) => (body.get("desiredCapabilities"), None),
        (Value::Object(_), Some(Value::Object(both))) => (both.get("alwaysMatch"), both.get("firstMatch")),
        (Value::Object(_), _) => return Err(malformed("capabilities")),
        _ => return Err(ApiError::new(Code::BadRequest, BadCapabilities::Parameters.to_string())),
    };
    let always = members("alwaysMatch", always)?;
    let alternatives = match first {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(alternatives)) => alternatives.iter().collect(),
        Some(_) => return Err(malformed("firstMatch")),
    };
    if alternatives.is_empty() {
        return of_this_browser(&always).then_some(always).ok_or_else(other_browser);
    }
    for alternative in alternatives {
        let mut merged = always.clone();
        let alternative = alternative.as_object().ok_or_else(|| malformed("firstMatch"))?;
        merged.extend(alternative.clone());
        if of_this_browser(&merged) {
            return Ok(merged);
        }
    }
    Err(other_browser())
}

fn members(name: &'static str, value: Option<&Value>) -> Result<Map<String, Value>, ApiError> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(members)) => Ok(members.clone()),
        Some(_) => Err(malformed(name)),
    }
}

fn of_this_browser(capabilities: &Map<String, Value>) -> bool {
    match capabilities.get("browserName") {
        None | Some(Value::Null) => true,
        Some(name) => name.as_str().is_some_and(|name| matches!(&*name.to_lowercase(), "chrome" | "chromium" | "")),
    }
}

fn other_browser() -> ApiError {
    ApiError::new(Code::NotSupported, "browserName: the browser is chrome; there are no others")
}

fn malformed(name: &'static str) -> ApiError {
    ApiError::new(Code::BadRequest, BadCapabilities::Type(name).to_string())
}

fn unsupported(name: &str) -> ApiError {
    let shown: String = name.chars().take(128).collect();
    let message = format!("{shown}: this server does not support it, and does not ignore it; leave it out");
    ApiError::new(Code::NotSupported, message)
}

/// The capabilities read so far.
#[derive(Default)]
struct Reader {
    options: BrowserOptions,
    downloads: bool,
    /// The capabilities for chromedriver.
    left: Map<String, Value>,
}

impl Reader {
    fn take(&mut self, name: String, value: Value) -> Result<(), ApiError> {
        match (name.as_str(), &value) {
            (_, Value::Null) | ("browserName", _) => {}
            ("se:downloadsEnabled", Value::Bool(enabled)) => self.downloads = *enabled,
            // The address that the client has, perhaps with a key.
            ("se:remoteUrl", Value::String(_)) => {}
            ("se:name", Value::String(text)) => set(&mut self.options.name, text.clone(), &name)?,
            ("se:screenResolution", Value::String(text)) => {
                set(&mut self.options.viewport, size(&name, text)?, &name)?;
            }
            ("goog:chromeOptions", Value::Object(members)) => {
                members.iter().try_for_each(|(name, value)| self.chrome_option(name, value))?;
            }
            ("proxy", Value::Object(proxy)) if !goes_directly(proxy) => return Err(unsupported("proxy")),
            ("proxy", Value::Object(_)) => {}
            (OURS, Value::Object(members)) => self.ours(members)?,
            (OURS, _) => return Err(malformed(OURS)),
            (known, _) if ALLOWED_CAPABILITIES.contains(&known) => {
                self.left.insert(name, value);
            }
            (known, _) if OF_CLIENTS.iter().any(|prefix| known.starts_with(prefix)) => {}
            (_, value) if asks_for_nothing(value) => {}
            (name, _) => return Err(unsupported(name)),
        }
        Ok(())
    }

    fn chrome_option(&mut self, name: &str, value: &Value) -> Result<(), ApiError> {
        match (name, value) {
            ("args", Value::Array(arguments)) => arguments.iter().try_for_each(|argument| match argument {
                Value::String(argument) => apply_browser_argument(argument, &mut self.options),
                _ => Err(malformed("goog:chromeOptions")),
            }),
            ("excludeSwitches", Value::Array(switches)) => switches.iter().try_for_each(|switch| {
                match switch.as_str().map(|switch| switch.trim_start_matches('-')) {
                    Some("enable-automation") => set(&mut self.options.stealth, true, "goog:chromeOptions"),
                    Some("enable-logging") => Ok(()),
                    _ => Err(unsupported("goog:chromeOptions.excludeSwitches")),
                }
            }),
            ("w3c", Value::Bool(true)) => Ok(()),
            (_, value) if asks_for_nothing(value) => Ok(()),
            (name, _) => Err(unsupported(&format!("goog:chromeOptions.{name}"))),
        }
    }

    fn ours(&mut self, members: &Map<String, Value>) -> Result<(), ApiError> {
        if let Some(unknown) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
            let shown: String = unknown.chars().take(64).collect();
            return Err(ApiError::field(&format!("{OURS}.{shown}"), FieldCode::NotAllowed, "is not an option"));
        }
        let ours: VendorOptions = json::text(OURS, &Value::Object(members.clone()).to_string())?;
        let options = &mut self.options;
        for (option, value, name) in [
            (&mut options.headless, ours.headless, "headless"),
            (&mut options.stealth, ours.stealth, "stealth"),
            (&mut options.kiosk_mode, ours.kiosk_mode, "kiosk_mode"),
        ] {
            value.map_or(Ok(()), |value| set(option, value, name))?;
        }
        for (option, value, name) in [(&mut options.proxy, ours.proxy, "proxy"), (&mut options.name, ours.name, "name")]
        {
            value.map_or(Ok(()), |value| set(option, value, name))?;
        }
        if let Some(viewport) = ours.viewport {
            set(&mut options.viewport, viewport.into(), "viewport")?;
        }
        options.pool = ours.pool;
        options.engine = ours.engine;
        options.acquire_timeout_seconds = ours.acquire_timeout_seconds;
        options.profile = ours.profile;
        options.save_changes = ours.save_changes;
        options.extensions = ours.extensions.unwrap_or_default();
        options.timeout_seconds = ours.timeout_seconds;
        options.start_url = ours.start_url;
        options.tags = ours.tags;
        Ok(())
    }
}

/// Returns whether the capability `proxy` asks for no proxy.
fn goes_directly(proxy: &Map<String, Value>) -> bool {
    let kind = proxy.get("proxyType").and_then(Value::as_str).unwrap_or_default();
    proxy.is_empty() || matches!(&*kind.to_lowercase(), "direct" | "system")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_always(always: Value) -> Result<NewSession, String> {
        let body = json!({ "capabilities": { "alwaysMatch": always, "firstMatch": [{}] } });
        read(body.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_names_are_those_of_the_members() {
        use utoipa::PartialSchema as _;
        let schema = serde_json::to_value(VendorOptions::schema()).expect("JSON");
        let mut members = MEMBERS.to_vec();
        members.sort_unstable();
        let mut declared: Vec<_> = schema["properties"].as_object().expect("members").keys().cloned().collect();
        declared.sort_unstable();
        assert_eq!(declared, members);
    }

    #[test]
    fn options_are_read_and_the_rest_is_left_for_chromedriver() {
        let new = read_always(json!({
            "browserName": "chrome",
            "pageLoadStrategy": "eager",
            "webSocketUrl": true,
            "wdio:enforceWebDriverClassic": true,
            "se:downloadsEnabled": true,
            "goog:chromeOptions": { "args": ["--headless=new", "--no-sandbox"], "extensions": [], "prefs": {} },
            "casement:options": { "profile": "work", "viewport": { "width": 800, "height": 600 } },
        }))
        .expect("accepted");
        assert!(new.downloads);
        assert_eq!((new.options.headless, new.options.profile.as_deref()), (Some(true), Some("work")));
        assert_eq!(new.options.viewport.and_then(|size| size.width), Some(800));
        let body: Value = serde_json::from_slice(&new.body).expect("JSON");
        let left = json!({ "pageLoadStrategy": "eager", "webSocketUrl": true });
        assert_eq!(body["capabilities"]["alwaysMatch"], left);
        assert_eq!(Value::Object(new.options.capabilities), left);
    }

    #[test]
    fn the_first_alternative_of_this_browser_is_taken() {
        let first = json!([{ "browserName": "firefox" }, { "browserName": "chrome", "pageLoadStrategy": "none" }]);
        let new = read(json!({ "capabilities": { "firstMatch": first } }).to_string().as_bytes()).expect("accepted");
        let body: Value = serde_json::from_slice(&new.body).expect("JSON");
        assert_eq!(body["capabilities"]["alwaysMatch"], json!({ "pageLoadStrategy": "none" }));
    }

    #[test]
    fn capabilities_without_a_meaning_are_refused_by_name() {
        for (capabilities, name) in [
            (json!({ "browserName": "firefox" }), "browserName"),
            (json!({ "goog:chromeOptions": { "binary": "/tmp/x" } }), "goog:chromeOptions.binary"),
            (json!({ "goog:chromeOptions": { "prefs": { "a": 1 } } }), "goog:chromeOptions.prefs"),
            (json!({ "goog:chromeOptions": { "args": ["--lang=de"] } }), "--lang"),
            (json!({ "proxy": { "proxyType": "manual", "httpProxy": "h:1" } }), "proxy"),
            (json!({ "se:recordVideo": true }), "se:recordVideo"),
            (json!({ "bstack:options": { "os": "x" } }), "bstack:options"),
            (json!({ "casement:options": { "pol": "x" } }), "casement:options.pol"),
            (json!({ "casement:options": { "headless": "yes" } }), "casement:options.headless"),
        ] {
            match read_always(capabilities.clone()) {
                Err(error) => assert!(error.contains(name), "{capabilities}: {error}"),
                Ok(_) => panic!("{capabilities} is accepted"),
            }
        }
    }
}
