//! A session as a caller sees it.

use serde_json::Value;

/// A session as in the server's response.
#[derive(Clone, Debug)]
pub struct Session(pub Value);

impl Session {
    /// Returns a text field, such as `cdp_ws_url`.
    pub fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_else(|| panic!("the session has no {field}: {}", self.0))
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &str {
        self.text("session_id")
    }

    /// Returns the session token.
    pub fn token(&self) -> &str {
        self.text("cdp_ws_url").split_once("jwt=").map(|(_, token)| token).expect("the address has a token")
    }
}
