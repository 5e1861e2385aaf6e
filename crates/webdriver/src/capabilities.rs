//! The capabilities that are requested of a WebDriver server, and those that it returns.

use casement_domain::browser::Shape;
use casement_domain::ids::BrowserId;
use serde_json::{Map, Value, json};
use url::Url;

use crate::config::WebDriverConfig;
use crate::error::GridError;
use crate::record::{Cdp, RemoteSession, is_request_path, is_session_id};

/// The capability with the mark of the installation.
pub(crate) const OWNER: &str = "casement:owner";
/// The capability with the browser's id.
pub(crate) const BROWSER: &str = "casement:browser";
/// The options of Chrome.
pub(crate) const OPTIONS: &str = "goog:chromeOptions";
/// The same marks as arguments of Chrome, for a chromedriver that returns no capabilities that it does not know.
pub(crate) const OWNER_ARGUMENT: &str = "--casement-owner=";
pub(crate) const BROWSER_ARGUMENT: &str = "--casement-browser=";
/// The capability of a Selenium Grid to hand out what the browser downloads.
pub(crate) const DOWNLOADS: &str = "se:downloadsEnabled";

/// Returns the body of the request for a session. Downloads are requested only of a server all of whose nodes hand them
/// out, because others never match. What the configuration says comes before what a client requests.
pub(crate) fn request(
    config: &WebDriverConfig,
    browser: BrowserId,
    shape: &Shape,
    requested: &Map<String, Value>,
    downloads: bool,
) -> Value {
    let mut wanted = requested.clone();
    wanted.retain(|name, _| !is_own(name));
    wanted.extend(config.capabilities.clone());
    let mut options = match wanted.remove(OPTIONS) {
        Some(Value::Object(options)) => options,
        _ => Map::new(),
    };
    let mut args = arguments(config, browser, shape);
    if let Some(Value::Array(further)) = options.remove("args") {
        args.extend(further);
    }
    options.insert("args".to_owned(), Value::Array(args));
    for (name, value) in [
        (OPTIONS, Value::Object(options)),
        ("browserName", json!("chrome")),
        ("webSocketUrl", json!(true)),
        ("se:name", json!(format!("casement {browser}"))),
        (OWNER, json!(config.owner)),
        (BROWSER, json!(browser.to_string())),
    ] {
        wanted.insert(name.to_owned(), value);
    }
    // A dialog waits for an answer, over CDP or by a person, as in browsers of this program.
    wanted.entry("unhandledPromptBehavior").or_insert(json!("ignore"));
    if downloads {
        wanted.entry(DOWNLOADS).or_insert(json!(true));
    }
    json!({ "capabilities": { "alwaysMatch": wanted, "firstMatch": [{}] } })
}

/// Returns whether only this crate decides about a capability.
fn is_own(name: &str) -> bool {
    [OPTIONS, "browserName", "webSocketUrl"].contains(&name) || name.starts_with("se:") || name.starts_with("casement:")
}

fn arguments(config: &WebDriverConfig, browser: BrowserId, shape: &Shape) -> Vec<Value> {
    let size = shape.viewport;
    let headless = shape.headless.then(|| "--headless=new".to_owned());
    let own = [
        format!("--window-size={},{}", size.width, size.height),
        format!("{OWNER_ARGUMENT}{}", config.owner),
        format!("{BROWSER_ARGUMENT}{browser}"),
    ];
    headless.into_iter().chain(own).map(Value::String).collect()
}

/// Reads the answer to the request for a session.
///
/// # Errors
/// [`GridError::Nonsense`].
pub(crate) fn read(config: &WebDriverConfig, browser: BrowserId, answer: Value) -> Result<RemoteSession, GridError> {
    let Value::Object(mut answer) = answer else { return Err(GridError::nonsense("a new session is no object")) };
    match (answer.remove("sessionId"), answer.remove("capabilities")) {
        (Some(Value::String(id)), Some(Value::Object(capabilities))) => session(config, browser, id, capabilities),
        _ => Err(GridError::nonsense("a new session has no id or no capabilities")),
    }
}

/// Describes a session with the capabilities that the server returns for it.
///
/// # Errors
/// [`GridError::Nonsense`].
pub(crate) fn session(
    config: &WebDriverConfig,
    browser: BrowserId,
    id: String,
    capabilities: Map<String, Value>,
) -> Result<RemoteSession, GridError> {
    if !is_session_id(&id) {
        return Err(GridError::nonsense("the id of a new session cannot be part of a path"));
    }
    let prefix = &config.address.prefix;
    let text = |name: &str| capabilities.get(name).and_then(Value::as_str);
    let cdp = match &config.cdp_path {
        Some(template) => format!("{prefix}{}", template.replace("{id}", &id)),
        None => text("se:cdp")
            .and_then(|url| path_of(prefix, &id, url))
            .unwrap_or_else(|| format!("{prefix}/session/{id}/se/cdp")),
    };
    let bidi = text("webSocketUrl").and_then(|url| path_of(prefix, &id, url));
    let version = text("browserVersion").unwrap_or_default();
    let browser_version = version.chars().filter(|c| !c.is_control()).take(32).collect();
    let requested = Map::new();
    recordable(RemoteSession { id, browser, browser_version, cdp: Cdp::Path(cdp), bidi, capabilities, requested })
}

/// Adds what a client requested to its session, except for what the configuration said instead.
///
/// # Errors
/// [`GridError::Nonsense`].
pub(crate) fn with_requested(
    config: &WebDriverConfig,
    session: RemoteSession,
    requested: &Map<String, Value>,
) -> Result<RemoteSession, GridError> {
    let mut requested = requested.clone();
    requested.retain(|name, _| !is_own(name) && !config.capabilities.contains_key(name));
    recordable(RemoteSession { requested, ..session })
}

/// Removes the largest of the server's capabilities until the session can be recorded.
fn recordable(mut session: RemoteSession) -> Result<RemoteSession, GridError> {
    let sizes = session.capabilities.iter().map(|(name, value)| (name.len() + value.to_string().len(), name.clone()));
    let mut sizes: Vec<(usize, String)> = sizes.collect();
    sizes.sort_unstable();
    let mut total = 0;
    for (size, name) in sizes {
        total += size;
        if total > RemoteSession::MAX_RECORD {
            session.capabilities.remove(&name);
        }
    }
    while !session.is_recordable() {
        let sizes = session.capabilities.iter().map(|(name, value)| (value.to_string().len(), name));
        let Some(largest) = sizes.max().map(|(_, name)| name.clone()) else {
            return Err(GridError::nonsense("a new session cannot be recorded"));
        };
        session.capabilities.remove(&largest);
    }
    Ok(session)
}

/// Returns the path of a session's WebSocket at the configured URL. The rest of the address names a node of the server,
/// which may not be reachable from here.
fn path_of(prefix: &str, id: &str, address: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    let path = url.path();
    let of_session = path.split('/').any(|part| part == id);
    let path = if path.starts_with(prefix) { path.to_owned() } else { format!("{prefix}{path}") };
    (of_session && is_request_path(&path)).then_some(path)
}

/// Returns the debugging port of a browser that a chromedriver of this machine has started.
pub(crate) fn debugger_port(config: &WebDriverConfig, capabilities: &Map<String, Value>) -> Option<u16> {
    if config.cdp_path.is_some() || capabilities.contains_key("se:cdp") || !config.address.is_loopback() {
        return None;
    }
    let address = capabilities.get(OPTIONS)?.get("debuggerAddress")?.as_str()?;
    let (host, port) = address.rsplit_once(':')?;
    if matches!(host, "localhost" | "127.0.0.1") { port.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use casement_domain::engine::EngineName;
    use pretty_assertions::assert_eq;

    use super::*;

    fn config(url: &str) -> WebDriverConfig {
        WebDriverConfig::new(EngineName::LOCAL, url, "me".to_owned()).expect("valid")
    }

    fn browser() -> BrowserId {
        BrowserId::from_ulid(ulid::Ulid::from_parts(1, 2))
    }

    fn capabilities(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn configured_capabilities_are_requested_and_arguments_are_appended() {
        let mut config = config("http://grid");
        config.capabilities = capabilities(&json!({
            "platformName": "linux",
            OPTIONS: { "args": ["--lang=de"], "binary": "/opt/chrome" },
        }));
        let shape = Shape { headless: true, ..Shape::default() };
        let body = request(&config, browser(), &shape, &Map::new(), true);
        let wanted = &body["capabilities"]["alwaysMatch"];
        assert_eq!(wanted["platformName"], "linux");
        assert_eq!(wanted[OPTIONS]["binary"], "/opt/chrome");
        let mark = format!("--casement-browser={}", browser());
        let args = json!(["--headless=new", "--window-size=1920,1080", "--casement-owner=me", mark, "--lang=de"]);
        assert_eq!(wanted[OPTIONS]["args"], args);
        assert_eq!(wanted[OWNER], "me");
        assert_eq!(wanted["webSocketUrl"], true);
        assert_eq!(wanted[DOWNLOADS], true);
    }

    #[test]
    fn requested_capabilities_are_passed_except_for_those_that_others_decide() {
        let mut config = config("http://grid");
        config.capabilities = capabilities(&json!({ "platformName": "linux" }));
        let requested = capabilities(&json!({
            "pageLoadStrategy": "none",
            "unhandledPromptBehavior": "accept",
            "platformName": "windows",
            "browserName": "firefox",
            "webSocketUrl": false,
            "se:recordVideo": true,
            OWNER: "other",
            OPTIONS: { "binary": "/bin/sh" },
        }));
        let body = request(&config, browser(), &Shape::default(), &requested, false);
        let wanted = capabilities(&body["capabilities"]["alwaysMatch"]);
        for (name, value) in [
            ("pageLoadStrategy", json!("none")),
            ("unhandledPromptBehavior", json!("accept")),
            ("platformName", json!("linux")),
            ("browserName", json!("chrome")),
            ("webSocketUrl", json!(true)),
            (OWNER, json!("me")),
        ] {
            assert_eq!(wanted.get(name), Some(&value), "{name}");
        }
        assert!(!wanted.contains_key("se:recordVideo") && !wanted[OPTIONS].to_string().contains("/bin/sh"));
        let answer = json!({ "sessionId": "abc", "capabilities": {} });
        let session = read(&config, browser(), answer).expect("a session");
        let session = with_requested(&config, session, &requested).expect("recordable");
        let known = json!({ "pageLoadStrategy": "none", "unhandledPromptBehavior": "accept" });
        assert_eq!(session.requested, capabilities(&known));
    }

    #[test]
    fn addresses_in_an_answer_are_replaced_by_the_configured_one() {
        let answer = json!({ "sessionId": "abc", "capabilities": {
            "browserVersion": "156",
            "se:cdp": "ws://10.0.0.7:5555/session/abc/se/cdp",
            "webSocketUrl": "ws://10.0.0.7:5555/session/abc/se/bidi",
        }});
        let session = read(&config("https://grid/sub"), browser(), answer).expect("a session");
        assert_eq!(session.cdp, Cdp::Path("/sub/session/abc/se/cdp".to_owned()));
        assert_eq!(session.bidi.as_deref(), Some("/sub/session/abc/se/bidi"));
    }

    #[test]
    fn an_address_of_another_session_is_not_used() {
        let answer = json!({ "sessionId": "abc", "capabilities": {
            "se:cdp": "ws://grid/session/other/se/cdp",
            "webSocketUrl": "ws://grid/session/other/se/bidi",
        }});
        let session = read(&config("http://grid"), browser(), answer).expect("a session");
        assert_eq!((session.cdp, session.bidi), (Cdp::Path("/session/abc/se/cdp".to_owned()), None));
    }

    #[test]
    fn the_path_of_cdp_follows_the_configured_template() {
        let mut config = config("http://moon/wd/hub");
        config.cdp_path = Some("/devtools/{id}/browser".to_owned());
        let answer = json!({ "sessionId": "abc", "capabilities": {} });
        let session = read(&config, browser(), answer).expect("a session");
        assert_eq!(session.cdp, Cdp::Path("/wd/hub/devtools/abc/browser".to_owned()));
    }

    #[test]
    fn nonsense_instead_of_a_session_is_refused() {
        let config = config("http://grid");
        for answer in [
            json!(null),
            json!({}),
            json!({ "sessionId": 1, "capabilities": {} }),
            json!({ "sessionId": "a/../b", "capabilities": {} }),
            json!({ "sessionId": "", "capabilities": {} }),
            json!({ "sessionId": "abc", "capabilities": [] }),
        ] {
            let read = read(&config, browser(), answer.clone());
            assert!(matches!(read, Err(GridError::Nonsense { .. })), "{answer}");
        }
    }

    #[test]
    fn large_capabilities_of_an_answer_are_left_out() {
        let answer =
            json!({ "sessionId": "abc", "capabilities": { "x:y": "a".repeat(20_000), "browserName": "chrome" }});
        let session = read(&config("http://grid"), browser(), answer).expect("a session");
        assert_eq!(session.capabilities, capabilities(&json!({ "browserName": "chrome" })));
    }

    #[test]
    fn a_debugging_port_is_used_on_this_machine_only() {
        let plain = capabilities(&json!({ OPTIONS: { "debuggerAddress": "localhost:9222" } }));
        assert_eq!(debugger_port(&config("http://127.0.0.1:9515"), &plain), Some(9222));
        assert_eq!(debugger_port(&config("http://grid:9515"), &plain), None);
        let elsewhere = capabilities(&json!({ OPTIONS: { "debuggerAddress": "10.0.0.7:9222" } }));
        assert_eq!(debugger_port(&config("http://127.0.0.1:9515"), &elsewhere), None);
    }
}
