//! The capabilities of a remote browser's session: what clients may ask of a session that already runs, and what they
//! are told about it.

use serde_json::{Map, Value};
use url::Url;

use super::{
    WebDriverSessionId,
    capabilities::{self, BadCapabilities, Bidi},
    public_url::session_url,
};
use crate::relay::RemoteSessionInfo;

/// The capabilities of a Selenium Grid that contain no address.
const PLAIN_OF_GRID: [&str; 2] = ["se:cdpVersion", "se:downloadsEnabled"];
/// The beginnings of names whose capabilities concern the server of the browser: its addresses, its options and the
/// marks of this program.
const OF_THE_SERVER: [&str; 4] = ["se:", "casement:", "appium:directConnect", "webSocketUrl"];
/// The capabilities with an address at which the server reaches its browser.
const WITH_ADDRESSES: [&str; 3] = ["goog:chromeOptions", "ms:edgeOptions", "moz:debuggerAddress"];

/// What a client requests of the session.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Requested {
    /// Whether it wants the address of the BiDi socket.
    pub(super) bidi: bool,
    /// The timeouts of the protocol, which may be set in a running session.
    pub(super) timeouts: Option<Value>,
}

/// A new session was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unmatched {
    #[error(transparent)]
    Malformed(#[from] BadCapabilities),
    /// The browser was started with another value, and cannot be changed.
    #[error("{name}: the browser runs with {value}, which cannot be changed")]
    Different { name: String, value: String },
}

/// Compares the parameters of a new session with the session that runs. As with a browser of this program,
/// capabilities that are not of the protocol have no effect.
///
/// # Errors
/// [`Unmatched`] if the parameters are malformed, or none of the alternatives is that of the session; it names the first
/// difference.
pub(super) fn compare(parameters: &Value, bidi: Bidi, session: &RemoteSessionInfo) -> Result<Requested, Unmatched> {
    let bound = capabilities::bind(parameters, bidi)?;
    let always = bound["capabilities"]["alwaysMatch"].as_object().cloned().unwrap_or_default();
    let alternatives = bound["capabilities"]["firstMatch"].as_array().cloned().unwrap_or_default();
    let mut first_difference = None;
    for alternative in alternatives {
        let mut merged = always.clone();
        merged.extend(alternative.as_object().cloned().unwrap_or_default());
        merged.remove("goog:chromeOptions");
        merged.retain(|_, value| !value.is_null());
        let is_met = |name: &str, value: &Value| {
            session.requested.get(name) == Some(value) || is_met(name, value, &session.capabilities)
        };
        match merged.iter().find(|(name, value)| !is_met(name, value)) {
            Some((name, _)) => {
                first_difference.get_or_insert_with(|| name.clone());
            }
            None => {
                let wants_bidi = merged.get("webSocketUrl") == Some(&Value::Bool(true));
                return Ok(Requested { bidi: wants_bidi, timeouts: merged.remove("timeouts") });
            }
        }
    }
    // There is one alternative at least, unless the client sent an empty list, which asks for nothing that exists.
    let name = first_difference.unwrap_or_else(|| "firstMatch".to_owned());
    let value = session.capabilities.get(&name).map_or_else(|| "no such value".to_owned(), shown);
    Err(Unmatched::Different { name, value })
}

/// Returns a value as part of a message.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    if is_address(value) || text.contains("://") {
        "another value".to_owned()
    } else {
        text.chars().take(100).collect()
    }
}

fn is_met(name: &str, requested: &Value, session: &Map<String, Value>) -> bool {
    let has = session.get(name);
    let (text, has_text) = (requested.as_str().unwrap_or_default(), has.and_then(Value::as_str).unwrap_or_default());
    match name {
        "timeouts" => requested.is_object(),
        "webSocketUrl" => *requested == Value::Bool(false) || (*requested == Value::Bool(true) && !has_text.is_empty()),
        "browserName" => text.is_empty() || is_same_browser(text, has_text),
        "browserVersion" => {
            let rest = has_text.strip_prefix(text);
            text.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        }
        "platformName" => ["", "any"].contains(&&*text.to_lowercase()) || text.eq_ignore_ascii_case(has_text),
        "unhandledPromptBehavior" => has.is_some_and(|has| prompt_behavior(has) == prompt_behavior(requested)),
        _ => has == Some(requested),
    }
}

/// Returns the one behavior of all dialogs: BiDi writes it by kind of dialog. `None` if the kinds differ.
fn prompt_behavior(value: &Value) -> Option<&str> {
    match value {
        Value::Object(by_kind) => {
            let mut behaviors = by_kind.values().map(Value::as_str);
            let first = behaviors.next()??;
            behaviors.all(|behavior| behavior == Some(first)).then_some(first)
        }
        value => value.as_str(),
    }
}

fn is_same_browser(one: &str, other: &str) -> bool {
    let family = |name: &str| match &*name.to_lowercase() {
        "chromium" | "chrome-headless-shell" => "chrome".to_owned(),
        name => name.to_owned(),
    };
    family(one) == family(other)
}

/// Returns the capabilities for clients: without addresses of the server, with the public ones. `bidi`: the public
/// `…/webdriver?jwt=…` URL, if the client requested the BiDi socket. `cdp`: the public address of the DevTools endpoint.
pub(super) fn public(
    session: &RemoteSessionInfo,
    id: &WebDriverSessionId,
    bidi: Option<&Url>,
    cdp: Option<&str>,
) -> Map<String, Value> {
    let is_public = |name: &str| {
        let is_plain = PLAIN_OF_GRID.contains(&name);
        is_plain || !(WITH_ADDRESSES.contains(&name) || OF_THE_SERVER.iter().any(|prefix| name.starts_with(prefix)))
    };
    let mut public: Map<String, Value> = session
        .capabilities
        .iter()
        .filter(|(name, _)| is_public(name))
        .filter_map(|(name, value)| without_addresses(value).map(|value| (name.clone(), value)))
        .collect();
    if let Some(url) = bidi {
        public.insert("webSocketUrl".to_owned(), session_url(url, id).into());
    }
    if let Some(cdp) = cdp {
        public.insert("se:cdp".to_owned(), cdp.into());
    }
    public
}

/// Returns the value without the texts that contain a URL; `None` if it is one.
fn without_addresses(value: &Value) -> Option<Value> {
    match value {
        Value::Object(members) => {
            let left = members.iter().filter_map(|(name, value)| Some((name.clone(), without_addresses(value)?)));
            Some(Value::Object(left.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(without_addresses).collect())),
        other => (!is_address(other)).then(|| other.clone()),
    }
}

fn is_address(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains("://"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn session() -> RemoteSessionInfo {
        let capabilities = json!({
            "browserName": "chrome",
            "browserVersion": "143.0.7499.40",
            "platformName": "linux",
            "pageLoadStrategy": "normal",
            "acceptInsecureCerts": false,
            "unhandledPromptBehavior": "dismiss and notify",
            "timeouts": { "implicit": 0 },
            "goog:chromeOptions": { "debuggerAddress": "localhost:40000" },
            "webSocketUrl": "ws://10.0.0.7:4444/session/abc/se/bidi",
            "se:cdp": "ws://10.0.0.7:4444/session/abc/se/cdp",
            "se:cdpVersion": "143.0.7499.40",
            "se:vnc": "ws://10.0.0.7:4444/session/abc/se/vnc",
            "se:downloadsEnabled": true,
            "se:noVncPort": 7900,
            "casement:owner": "mark",
            "appium:directConnectHost": "10.0.0.7",
            "x:links": ["http://10.0.0.7/a", "b"],
        });
        let Value::Object(capabilities) = capabilities else { panic!("an object") };
        let requested = json!({ "goog:loggingPrefs": { "browser": "INFO" }, "browserVersion": "stable" });
        let Value::Object(requested) = requested else { panic!("an object") };
        RemoteSessionInfo { id: "abc".to_owned(), capabilities, requested }
    }

    fn compared(always: Value, first: Value) -> Result<Requested, String> {
        let parameters = json!({ "capabilities": { "alwaysMatch": always, "firstMatch": first } });
        compare(&parameters, Bidi::AsRequested, &session()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_running_session_has_may_be_requested() {
        let requested = json!({
            "browserName": "Chromium",
            "browserVersion": "143",
            "platformName": "ANY",
            "pageLoadStrategy": "normal",
            "webSocketUrl": true,
            "timeouts": { "script": 5 },
            "goog:chromeOptions": { "args": ["--x"] },
            "acceptInsecureCerts": null,
        });
        let timeouts = Some(json!({ "script": 5 }));
        assert_eq!(compared(requested, json!([{}])), Ok(Requested { bidi: true, timeouts }));
        let requested = json!({ "goog:loggingPrefs": { "browser": "INFO" }, "browserVersion": "stable" });
        assert_eq!(compared(requested, json!([{}])), Ok(Requested::default()));
        let alternatives = json!([{ "browserName": "firefox" }, { "browserName": "chrome" }]);
        assert_eq!(compared(json!({}), alternatives), Ok(Requested::default()));
    }

    #[test]
    fn what_the_running_session_does_not_have_is_refused_by_name() {
        for (name, value) in [
            ("browserName", json!("firefox")),
            ("browserVersion", json!("14")),
            ("platformName", json!("windows")),
            ("pageLoadStrategy", json!("none")),
            ("unhandledPromptBehavior", json!("ignore")),
            ("unhandledPromptBehavior", json!({ "alert": "accept", "default": "dismiss and notify" })),
            ("goog:loggingPrefs", json!({ "browser": "ALL" })),
            ("timeouts", json!(1)),
            ("webSocketUrl", json!("yes")),
        ] {
            let refused = compared(json!({ name: value }), json!([{}])).expect_err(name);
            assert!(refused.starts_with(&format!("{name}: ")) && !refused.contains("10.0.0.7"), "{refused}");
        }
    }

    #[test]
    fn no_address_and_no_mark_of_the_server_is_public() {
        let id = WebDriverSessionId::parse("abc").expect("an id");
        let url: Url = "wss://casement.test/vm/S/webdriver?jwt=TOKEN".parse().expect("a URL");
        let text = Value::Object(public(&session(), &id, None, None)).to_string();
        for secret in ["10.0.0.7", "40000", "mark", "7900"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert!(text.contains("143.0.7499.40") && text.contains(r#""se:downloadsEnabled":true"#), "{text}");
        let public = public(&session(), &id, Some(&url), Some("wss://casement.test/vm/S/cdp?jwt=TOKEN"));
        assert_eq!(public["webSocketUrl"], "wss://casement.test/vm/S/webdriver/session/abc?jwt=TOKEN");
        assert_eq!(public["se:cdp"], "wss://casement.test/vm/S/cdp?jwt=TOKEN");
        assert_eq!(public["x:links"], json!(["b"]));
    }
}
