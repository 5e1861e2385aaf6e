//! The query of an address to connect to: the parameters of this server, and those of other services that have a
//! meaning here. All others are refused by name.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use casement_domain::field::{FieldCode, InvalidInput, within};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    browser_arguments,
    options::{BrowserOptions, set, size},
};
use crate::{
    cluster::Lifetime,
    connect_credential::CONNECT_TOKEN,
    error::{ApiError, Code},
    json,
    query::Query,
    schema::IntoParams,
};

/// The longest bound of a session's whole duration: one day.
pub(crate) const MAX_DURATION_MS: u32 = 86_400_000;

/// The stored idle timeout of a session that ends with its connections: the shortest that there is. It counts after a
/// restart of the server.
const SHORTEST_TIMEOUT_SECONDS: i64 = 10;

/// The names of other services for parameters of this server.
const ALIASES: [(&str, &str); 7] = [
    ("sessionId", "session"),
    ("session_id", "session"),
    ("profileId", "profile"),
    ("persistProfile", "save_changes"),
    ("proxy_id", "proxy"),
    ("trackingId", "name"),
    ("kiosk", "kiosk_mode"),
];

/// Parameters of other services without a meaning here.
const FOREIGN: [&str; 33] = [
    "acceptInsecureCerts",
    "blockAds",
    "blockConsentModals",
    "credentials",
    "devtools",
    "dimensions",
    "dumpio",
    "emulationMedia",
    "externalProxyServer",
    "humanlike",
    "ignoreDefaultArgs",
    "ignoreHTTPSErrors",
    "inactivityTimeout",
    "isSelenium",
    "namespace",
    "optimizeBandwidth",
    "os",
    "proxyCity",
    "proxyCountry",
    "proxyLocaleMatch",
    "proxySticky",
    "proxyUrl",
    "record",
    "region",
    "replay",
    "sessionContext",
    "slowMo",
    "solveCaptcha",
    "solveCaptchas",
    "useProxy",
    "userAgent",
    "userDataDir",
    "waitForInitialPage",
];

/// The parameters.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ConnectParams {
    /// A pool, by id or name, whose browser is leased. Default: a session on demand.
    pool: Option<String>,
    /// With `pool`: the longest wait in seconds, 0 to 3600. Default: as of the pool.
    acquire_timeout_seconds: Option<i64>,
    /// An active session, by id or name, to connect to. Default: a new one.
    session: Option<String>,
    /// A profile to load, by id or name.
    profile: Option<String>,
    /// Whether the state of the session is saved to the profile. Default: false.
    save_changes: Option<bool>,
    /// A proxy, by id or name.
    proxy: Option<String>,
    /// Extensions, by id or name, separated by commas.
    #[param(required = false)]
    extensions: Vec<String>,
    /// The engine that starts the browser, by its name. Default: `local`, or the first one of the installation.
    engine: Option<String>,
    /// Whether the browser runs without a display. Default: false, or true for an engine without displays.
    headless: Option<String>,
    /// Whether signs of automation are hidden. Default: false.
    stealth: Option<bool>,
    /// Whether the display shows only the page. Default: false.
    kiosk_mode: Option<bool>,
    /// The size of the display as `WIDTHxHEIGHT`. Default: 1920x1080.
    viewport: Option<String>,
    /// The name of the session.
    name: Option<String>,
    /// An absolute URL to open first.
    start_url: Option<String>,
    /// `tags[key]=value`: tags of the session.
    #[param(style = DeepObject, explode, required = false)]
    tags: BTreeMap<String, String>,
    /// The idle timeout of a session with `keep`, in seconds, 10 to 259200. Default: 60.
    timeout_seconds: Option<i64>,
    /// Whether the session lives on after its last connection, until its idle timeout. Default: false.
    keep: Option<bool>,
    /// The longest duration of the session in milliseconds, up to a day. Default: none.
    timeout: Option<i64>,
    /// Options as JSON, also in base 64: `headless`, `stealth` and `args`.
    launch: Option<String>,
}

/// The names of the struct's fields.
const NAMES: [&str; 19] = [
    "pool",
    "acquire_timeout_seconds",
    "session",
    "profile",
    "save_changes",
    "proxy",
    "extensions",
    "engine",
    "headless",
    "stealth",
    "kiosk_mode",
    "viewport",
    "name",
    "start_url",
    "tags",
    "timeout_seconds",
    "keep",
    "timeout",
    "launch",
];

/// What a client wants to connect to.
pub(super) enum Target {
    /// An active session, by id or name.
    Existing(String),
    /// A browser of its own.
    Own(Lifetime, Box<BrowserOptions>),
}

/// Reads the query of an address to connect to.
///
/// # Errors
/// `bad_request`, `invalid_input` and `not_supported`, with the name of the parameter.
pub(super) fn read(query: &Query) -> Result<Target, ApiError> {
    let query = query.renamed(&ALIASES);
    let mut options = BrowserOptions::default();
    for (name, value) in query.all() {
        check_name(name)?;
        if name.starts_with("--") {
            let argument = if value.is_empty() { name.to_owned() } else { format!("{name}={value}") };
            browser_arguments::apply(&argument, &mut options)?;
        }
    }
    let params: ConnectParams = query.read()?;
    let given = query.all().filter(|(name, _)| *name != CONNECT_TOKEN).count();
    match params.session {
        Some(session) if given == 1 => Ok(Target::Existing(session)),
        Some(_) => Err(ApiError::field(
            "session",
            FieldCode::MutuallyExclusive,
            "names an existing session; remove all other parameters",
        )),
        None => params.own(options),
    }
}

fn check_name(name: &str) -> Result<(), ApiError> {
    let (base, in_brackets) = name.split_once('[').map_or((name, None), |(base, rest)| (base, rest.strip_suffix(']')));
    let is_read = match (base, in_brackets) {
        ("tags", key) => key.is_some(),
        ("extensions", Some("")) => true,
        _ => name.starts_with("--") || name == CONNECT_TOKEN || NAMES.contains(&name),
    };
    if is_read {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    if FOREIGN.contains(&base) {
        let message = format!("{shown}: this server does not support it, and does not ignore it; leave it out");
        return Err(ApiError::new(Code::NotSupported, message));
    }
    Err(ApiError::field(&shown, FieldCode::NotAllowed, "is not a parameter of this address"))
}

impl ConnectParams {
    fn own(self, mut options: BrowserOptions) -> Result<Target, ApiError> {
        if let Some(launch) = &self.launch {
            apply_launch(launch, &mut options)?;
        }
        if let Some(headless) = &self.headless {
            set(&mut options.headless, is_headless("headless", headless)?, "headless")?;
        }
        if let Some(viewport) = &self.viewport {
            set(&mut options.viewport, size("viewport", viewport)?, "viewport")?;
        }
        for (option, value, name) in
            [(&mut options.stealth, self.stealth, "stealth"), (&mut options.kiosk_mode, self.kiosk_mode, "kiosk_mode")]
        {
            value.map_or(Ok(()), |value| set(option, value, name))?;
        }
        if let Some(proxy) = self.proxy {
            set(&mut options.proxy, proxy, "proxy")?;
        }
        let keep = self.keep.unwrap_or(false);
        if self.timeout_seconds.is_some() && !keep {
            let message = "is for a session with keep=true only: others end with their last connection";
            return Err(ApiError::field("timeout_seconds", FieldCode::MutuallyExclusive, message));
        }
        let max_duration = self.timeout.map(|ms| within(ms, 1, MAX_DURATION_MS)).transpose();
        let max_duration = max_duration.map_err(|invalid| ApiError::from(InvalidInput::of("timeout", invalid)))?;
        let lifetime = Lifetime { keep, max_duration: max_duration.map(|ms| Duration::from_millis(ms.into())) };
        let ends_with_connections = self.pool.is_none() && !keep;
        let options = BrowserOptions {
            pool: self.pool,
            engine: self.engine,
            acquire_timeout_seconds: self.acquire_timeout_seconds,
            timeout_seconds: if ends_with_connections { Some(SHORTEST_TIMEOUT_SECONDS) } else { self.timeout_seconds },
            profile: self.profile,
            save_changes: self.save_changes,
            extensions: self.extensions,
            name: self.name,
            start_url: self.start_url,
            tags: Some(self.tags).filter(|tags| !tags.is_empty()),
            ..options
        };
        Ok(Target::Own(lifetime, Box::new(options)))
    }
}

/// Applies the parameter `launch`. Members that ask for nothing (null, false, empty) are ignored.
fn apply_launch(text: &str, options: &mut BrowserOptions) -> Result<(), ApiError> {
    let decoded = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let members: Map<String, Value> = json::text("launch", decoded.as_deref().unwrap_or(text))?;
    for (name, value) in members {
        match (name.as_str(), &value) {
            (_, Value::Null) => {}
            ("headless", Value::Bool(headless)) => set(&mut options.headless, *headless, "launch.headless")?,
            ("headless", Value::String(text)) => {
                set(&mut options.headless, is_headless("launch.headless", text)?, "launch.headless")?;
            }
            ("stealth", Value::Bool(stealth)) => set(&mut options.stealth, *stealth, "launch.stealth")?,
            ("args", Value::Array(arguments)) => {
                for argument in arguments {
                    let argument = argument.as_str().ok_or_else(|| not_text("launch.args"))?;
                    browser_arguments::apply(argument, options)?;
                }
            }
            (_, value) if asks_for_nothing(value) => {}
            (name, _) => {
                let shown: String = name.chars().take(64).collect();
                let message = format!("launch.{shown}: this server does not support it, and does not ignore it");
                return Err(ApiError::new(Code::NotSupported, message));
            }
        }
    }
    Ok(())
}

/// Returns whether a value is the same as its absence: false, an empty list or an empty object.
pub(crate) fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

fn not_text(name: &str) -> ApiError {
    ApiError::field(name, FieldCode::InvalidType, "must hold texts")
}

/// Parses the modes of browsers without a display.
fn is_headless(name: &str, text: &str) -> Result<bool, ApiError> {
    match text {
        "true" | "1" | "new" | "shell" | "chrome" | "" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(ApiError::field(name, FieldCode::NotAllowed, "must be true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Target, String> {
        read(&Query::parse(text).expect("a query")).map_err(|error| error.to_string())
    }

    fn own(text: &str) -> (Lifetime, BrowserOptions) {
        match read_text(text) {
            Ok(Target::Own(lifetime, options)) => (lifetime, *options),
            Ok(Target::Existing(session)) => panic!("{text}: the session {session}"),
            Err(error) => panic!("{text}: {error}"),
        }
    }

    #[test]
    fn the_names_are_those_of_the_declared_parameters() {
        let declared = ConnectParams::into_params(|| None);
        assert_eq!(declared.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), NAMES);
    }

    #[test]
    fn parameters_of_other_services_are_understood() {
        let launch = r#"{"headless":"new","stealth":true,"args":["--window-size=800,600"],"devtools":false}"#;
        let encoded: String = url::form_urlencoded::byte_serialize(launch.as_bytes()).collect();
        let in_base_64: String = url::form_urlencoded::byte_serialize(STANDARD.encode(launch).as_bytes()).collect();
        for text in [encoded, in_base_64] {
            let (lifetime, options) = own(&format!("launch={text}&timeout=30000&trackingId=mine"));
            assert_eq!(lifetime, Lifetime { keep: false, max_duration: Some(Duration::from_secs(30)) });
            assert_eq!(
                (options.headless, options.stealth, options.name.as_deref()),
                (Some(true), Some(true), Some("mine"))
            );
            assert_eq!(options.viewport.and_then(|size| size.height), Some(600));
        }
        let (_, options) = own("--headless&--window-size=800,600&profileId=work&persistProfile=true&headless=true");
        assert_eq!((options.headless, options.save_changes), (Some(true), Some(true)));
        assert!(
            matches!(read_text("sessionId=mine&connect_token=x"), Ok(Target::Existing(session)) if session == "mine")
        );
    }

    #[test]
    fn lists_and_tags_are_read_with_brackets() {
        let (_, options) = own("extensions[]=a&extensions[]=b&tags[team]=x");
        assert_eq!(options.extensions, ["a", "b"]);
        assert_eq!(options.tags.expect("tags")["team"], "x");
    }

    #[test]
    fn unknown_parameters_are_refused_by_name() {
        for (text, name) in [
            ("blockAds=true", "blockAds"),
            ("solveCaptcha=true", "solveCaptcha"),
            ("x=1", "x"),
            ("proxy[]=office", "proxy[]"),
            ("pool[]=x", "pool[]"),
            ("session[]=x", "session[]"),
            ("sessionId[]=x", "sessionId[]"),
            ("extensions[a]=x", "extensions[a]"),
            ("extensions[=x", "extensions["),
            ("tags=x", "tags"),
            ("tags[a=x", "tags[a"),
            ("connect_token[]=x", "connect_token[]"),
            ("blockAds[]=x", "blockAds[]"),
            ("launch={\"slowMo\":1}", "launch.slowMo"),
            ("launch=x", "launch"),
            ("--lang=de", "--lang"),
            ("timeout=0", "timeout"),
            ("timeout_seconds=60", "timeout_seconds"),
            ("session=a&headless=true", "session"),
            ("headless=true&--headless=false", "headless"),
            ("name=a&trackingId=b", "name"),
        ] {
            match read_text(text) {
                Err(error) => assert!(error.contains(name), "{text}: {error}"),
                Ok(_) => panic!("{text} is accepted"),
            }
        }
    }
}
