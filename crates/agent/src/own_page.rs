//! Pages that the agent opens for itself beside those of the caller.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::endpoint::Endpoint;
use crate::random_id::new_id;

/// The first URL of a page of the agent in a remote browser. It is random, so that no page can pretend to be one.
static FIRST_URL: LazyLock<String> = LazyLock::new(|| format!("about:blank#{}", new_id()));

/// Returns the parameters of `Target.createTarget` for a page that the caller does not see, as far as the browser allows.
pub(crate) fn hidden(endpoint: &Endpoint) -> Value {
    if endpoint.is_remote() {
        // A chromedriver that speaks BiDi pauses the hidden pages of others and never continues them.
        visible()
    } else {
        json!({ "url": "about:blank", "hidden": true, "background": true })
    }
}

/// Returns the parameters of `Target.createTarget` for an ordinary page in the background.
pub(crate) fn visible() -> Value {
    json!({ "url": *FIRST_URL, "background": true })
}

/// Returns whether a new target with this URL is a page of the agent. Telemetry, replays and page input leave it out.
pub(crate) fn is(url: &str) -> bool {
    url == *FIRST_URL
}
