//! The BiDi address that a client of a classic session is told.

use serde_json::Value;
use url::Url;

/// A WebDriver session's identifier, as chromedriver makes them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WebDriverSessionId(String);

/// The text is no identifier of a WebDriver session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the identifier of a WebDriver session")]
pub struct BadSessionId;

impl WebDriverSessionId {
    /// Reads one from a path.
    ///
    /// # Errors
    /// [`BadSessionId`] unless it is 1 to 64 letters, digits or hyphens.
    pub fn parse(text: &str) -> Result<Self, BadSessionId> {
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if fits { Ok(Self(text.to_owned())) } else { Err(BadSessionId) }
    }

    /// The path of its BiDi socket at chromedriver.
    #[must_use]
    pub fn upstream_path(&self) -> String {
        format!("/session/{}", self.0)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// `…/webdriver?jwt=…` becomes `…/webdriver/session/<id>?jwt=…`.
fn of_session(webdriver_url: &Url, id: &WebDriverSessionId) -> String {
    let mut url = webdriver_url.clone();
    let path = format!("{}/session/{}", url.path().trim_end_matches('/'), id.as_str());
    url.set_path(&path);
    url.into()
}

/// Puts the public address in the place of chromedriver's own in `result`, the answer to a new session (an object
/// with `sessionId` and `capabilities`). Without one there, nothing changes.
pub(super) fn rewrite(result: &mut Value, webdriver_url: &Url) {
    let id = result.get("sessionId").and_then(Value::as_str).and_then(|id| WebDriverSessionId::parse(id).ok());
    let Some(Value::Object(capabilities)) = result.get_mut("capabilities") else { return };
    if !capabilities.get("webSocketUrl").is_some_and(Value::is_string) {
        return;
    }
    match id {
        Some(id) => capabilities.insert("webSocketUrl".to_owned(), of_session(webdriver_url, &id).into()),
        // An address of the inside is of no use to anybody.
        None => capabilities.remove("webSocketUrl"),
    };
}
