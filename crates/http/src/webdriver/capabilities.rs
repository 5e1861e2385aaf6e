//! Binds a WebDriver session to the browser that already runs.
//!
//! chromedriver does what capabilities say: a binary, arguments, preferences or a profile folder in them would start
//! a second browser of the caller's own making. So only capabilities that shape the conversation pass, everything
//! else is left out, and the debugger address is ours.

use serde_json::{Map, Value, json};

/// Where chromedriver finds the running browser, seen from inside the session.
const DEBUGGER_ADDRESS: &str = "127.0.0.1:9222";

/// Capabilities that pass. None of them reaches a command line, a file or another host.
const PASSED: [&str; 11] = [
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

/// The capabilities cannot be bound, because they are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCapabilities {
    /// The parameters are no JSON object.
    #[error("the parameters of a new session must be an object")]
    Parameters,
    /// `capabilities`, `alwaysMatch` or an element of `firstMatch` is no object, or `firstMatch` no list.
    #[error("`{0}` has the wrong type")]
    Type(&'static str),
    /// More alternatives than any client sends.
    #[error("`firstMatch` has too many elements")]
    TooMany,
}

/// More elements of `firstMatch` than this are refused.
const MAX_ALTERNATIVES: usize = 64;

/// Whether the bound session must come with a BiDi endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bidi {
    /// As the caller asks.
    AsAsked,
    /// Always: the session is opened over BiDi itself.
    Forced,
}

/// The parameters of `session.new` or of `POST /session`, bound to the running browser. Whatever else they held is
/// left out, `desiredCapabilities` of the old protocol read as `alwaysMatch`.
///
/// # Errors
/// [`BadCapabilities`] when they have not the shape of capabilities.
pub fn bind(parameters: &Value, bidi: Bidi) -> Result<Value, BadCapabilities> {
    let parameters = parameters.as_object().ok_or(BadCapabilities::Parameters)?;
    let capabilities = match parameters.get("capabilities") {
        Some(given) => present(Some(given), "capabilities")?,
        None => None,
    };
    let (always, first) = match capabilities {
        Some(capabilities) => {
            (present(capabilities.get("alwaysMatch"), "alwaysMatch")?, capabilities.get("firstMatch"))
        }
        None => (present(parameters.get("desiredCapabilities"), "desiredCapabilities")?, None),
    };
    let mut always = always.map(passed).unwrap_or_default();
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
    first.iter().map(|one| one.as_object().map(passed).ok_or(BadCapabilities::Type("firstMatch"))).collect()
}

fn present<'a>(
    value: Option<&'a Value>,
    name: &'static str,
) -> Result<Option<&'a Map<String, Value>>, BadCapabilities> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(BadCapabilities::Type(name)),
    }
}

fn passed(given: &Map<String, Value>) -> Map<String, Value> {
    given
        .iter()
        .filter(|(name, _)| PASSED.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
