//! The public BiDi URL of a classic session.

use serde_json::Value;
use url::Url;

/// The id of a WebDriver session, which chromedriver creates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WebDriverSessionId(String);

/// The text is not the id of a WebDriver session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the identifier of a WebDriver session")]
pub struct BadSessionId;

impl WebDriverSessionId {
    /// Parses an id from a path.
    ///
    /// # Errors
    /// [`BadSessionId`] unless it is 1 to 64 letters, digits or hyphens.
    pub fn parse(text: &str) -> Result<Self, BadSessionId> {
        let is_valid = (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if is_valid { Ok(Self(text.to_owned())) } else { Err(BadSessionId) }
    }

    /// Returns the path of the session's BiDi socket at chromedriver.
    #[must_use]
    pub fn upstream_path(&self) -> String {
        format!("/session/{}", self.0)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns `…/webdriver/session/<id>?jwt=…` for `…/webdriver?jwt=…`.
pub(super) fn session_url(webdriver_url: &Url, id: &WebDriverSessionId) -> String {
    let mut url = webdriver_url.clone();
    let path = format!("{}/session/{}", url.path().trim_end_matches('/'), id.as_str());
    url.set_path(&path);
    url.into()
}

/// Replaces chromedriver's own URL by the public one in `result`, the response to a new session (an object with
/// `sessionId` and `capabilities`). Does nothing if the response has no URL.
pub(super) fn rewrite(result: &mut Value, webdriver_url: &Url) {
    let id = result.get("sessionId").and_then(Value::as_str).and_then(|id| WebDriverSessionId::parse(id).ok());
    let Some(Value::Object(capabilities)) = result.get_mut("capabilities") else { return };
    if !capabilities.get("webSocketUrl").is_some_and(Value::is_string) {
        return;
    }
    match id {
        Some(id) => capabilities.insert("webSocketUrl".to_owned(), session_url(webdriver_url, &id).into()),
        // An internal URL is useless to clients.
        None => capabilities.remove("webSocketUrl"),
    };
}
