//! Binds a WebDriver session to the browser that already runs.
//!
//! chromedriver obeys capabilities: a binary, arguments, preferences or a profile directory in them would start a
//! second browser under the caller's control. So only capabilities of the protocol are accepted, all others are
//! removed, and the server sets the debugger address.

use serde_json::{Map, Value, json};

/// The running browser's address inside the session.
const DEBUGGER_ADDRESS: &str = "127.0.0.1:9222";

/// The accepted capabilities. None of them affects a command line, a file or another host.
pub(crate) const ALLOWED_CAPABILITIES: [&str; 11] = [
    "acceptInsecureCerts",
    "browserName",
    "browserVersion",
    "goog:loggingPrefs",
    "pageLoadStrategy",
    "platformName",
    "setWindowRect",
    "strictFileInteractability",
    "timeouts",
    "unhandledPromptBehavior",
    "webSocketUrl",
];

/// The capabilities are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCapabilities {
    /// The parameters are not a JSON object.
    #[error("the parameters of a new session must be an object")]
    Parameters,
    /// `capabilities`, `alwaysMatch` or an element of `firstMatch` is not an object, or `firstMatch` is not an array.
    #[error("`{0}` has the wrong type")]
    Type(&'static str),
    /// `firstMatch` has more elements than allowed.
    #[error("`firstMatch` has too many elements")]
    TooMany,
}

/// The maximum number of elements of `firstMatch`; clients send fewer.
const MAX_ALTERNATIVES: usize = 64;

/// Whether the bound session has a BiDi endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bidi {
    /// Only if the caller requests it.
    AsRequested,
    /// Always, because the session is opened over BiDi.
    Forced,
}

/// Binds the parameters of `session.new` or of `POST /session` to the running browser. Removes all that is not
/// accepted; `desiredCapabilities` of the old protocol is read as `alwaysMatch`.
///
/// # Errors
/// [`BadCapabilities`] if the parameters are malformed.
pub fn bind(parameters: &Value, bidi: Bidi) -> Result<Value, BadCapabilities> {
    let parameters = parameters.as_object().ok_or(BadCapabilities::Parameters)?;
    let capabilities = match parameters.get("capabilities") {
        Some(value) => optional_object(Some(value), "capabilities")?,
        None => None,
    };
    let (always, first) = match capabilities {
        Some(capabilities) => {
            (optional_object(capabilities.get("alwaysMatch"), "alwaysMatch")?, capabilities.get("firstMatch"))
        }
        None => (optional_object(parameters.get("desiredCapabilities"), "desiredCapabilities")?, None),
    };
    let mut always = always.map(allowed).unwrap_or_default();
    always.insert("goog:chromeOptions".to_owned(), json!({ "debuggerAddress": DEBUGGER_ADDRESS }));
    let mut first = alternatives(first)?;
    if bidi == Bidi::Forced {
        always.insert("webSocketUrl".to_owned(), Value::Bool(true));
        for alternative in &mut first {
            alternative.remove("webSocketUrl");
        }
    }
    Ok(json!({ "capabilities": { "alwaysMatch": always, "firstMatch": first } }))
}

fn alternatives(first: Option<&Value>) -> Result<Vec<Map<String, Value>>, BadCapabilities> {
    let first = match first {
        None | Some(Value::Null) => return Ok(vec![Map::new()]),
        Some(Value::Array(first)) => first,
        Some(_) => return Err(BadCapabilities::Type("firstMatch")),
    };
    if first.len() > MAX_ALTERNATIVES {
        return Err(BadCapabilities::TooMany);
    }
    first.iter().map(|one| one.as_object().map(allowed).ok_or(BadCapabilities::Type("firstMatch"))).collect()
}

fn optional_object<'a>(
    value: Option<&'a Value>,
    name: &'static str,
) -> Result<Option<&'a Map<String, Value>>, BadCapabilities> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(BadCapabilities::Type(name)),
    }
}

fn allowed(capabilities: &Map<String, Value>) -> Map<String, Value> {
    capabilities
        .iter()
        .filter(|(name, _)| ALLOWED_CAPABILITIES.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
