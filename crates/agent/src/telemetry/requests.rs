//! The requests of a capture, from their start to the report of their response.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The maximum number of requests without a reported response.
pub(super) const MAX_REQUESTS: usize = 10_000;
/// The maximum number of bytes of response bodies that the browser stores: of one body, and of all bodies of a page.
pub(super) const MAX_STORED_BODY: u64 = 2 << 20;
pub(super) const MAX_STORED_BODIES: u64 = 8 << 20;
/// The longest captured body of a request, in bytes.
pub(super) const MAX_POST: u64 = 64 << 10;

/// A request without a reported response.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) session: String,
    pub(super) url: String,
    pub(super) method: String,
    pub(super) resource_type: String,
    pub(super) frame: Option<String>,
    pub(super) loader: String,
    pub(super) response: Option<Response>,
    pub(super) length: u64,
}

/// The head of a response.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Response {
    pub(super) url: String,
    pub(super) status: i64,
    pub(super) status_text: String,
    pub(super) headers: Map<String, Value>,
    pub(super) mime_type: String,
}

/// The requests without a reported response, by their ids. The session is no part of the key, because a worker's script
/// may be requested in one session and arrive in another.
#[derive(Debug, Default)]
pub(super) struct Requests(pub(super) HashMap<String, Request>);

impl Requests {
    /// Removes the requests of a session and returns their number.
    pub(super) fn remove_session(&mut self, session: &str) -> usize {
        let before = self.0.len();
        self.0.retain(|_, request| request.session != session);
        before - self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0 = HashMap::new();
    }
}
