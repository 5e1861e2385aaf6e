//! `/wd/hub`: WebDriver for clients that make their sessions themselves, as with Selenium Grid. A new WebDriver session
//! is a new browser session, and its end is that session's end.
//!
//! The id of a WebDriver session is the id of the browser session, a hyphen, and chromedriver's own id. So it needs no
//! registry and outlives a restart of the server.

mod capabilities;
mod handlers;

use serde::Deserialize;
use serde_json::{Map, Value};

use self::capabilities::VendorOptions;
pub(crate) use self::handlers::command;
use crate::{
    operation::{ARCHIVED, LIMIT_REACHED, NAME_TAKEN, Operations},
    schema::ToSchema,
};

/// A new WebDriver session.
#[derive(Deserialize, ToSchema)]
#[expect(dead_code, reason = "only the OpenAPI document uses it; the capabilities are read one by one")]
struct NewWebDriverSession {
    capabilities: Option<Alternatives>,
}

/// The capabilities of the protocol.
#[derive(Deserialize, ToSchema)]
#[schema(as = WebDriverCapabilities)]
#[expect(dead_code, reason = "as above")]
struct Alternatives {
    /// The capabilities that the session must have.
    #[serde(rename = "alwaysMatch")]
    always_match: Option<Capabilities>,
    /// Alternatives, each together with `alwaysMatch`; the first one of this browser is taken.
    #[serde(rename = "firstMatch")]
    first_match: Option<Vec<Capabilities>>,
}

/// One set of capabilities.
#[derive(Deserialize, ToSchema)]
#[schema(as = WebDriverCapabilitySet)]
#[expect(dead_code, reason = "as above")]
struct Capabilities {
    /// `chrome` or `chromium`.
    #[serde(rename = "browserName")]
    browser_name: Option<String>,
    /// The browser of this service.
    #[serde(rename = "casement:options")]
    options: Option<VendorOptions>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("WebDriver", "The session does not exist");
    api.get("/wd/hub/status", "webdriver_status", handlers::status)
        .summary("Reports whether new WebDriver sessions can be made.")
        .content::<Value>("200", "application/json", "`value.ready`");
    api.post("/wd/hub/session", "create_webdriver_session", handlers::create)
        .summary("Makes a session and a WebDriver session in it.")
        .body::<NewWebDriverSession>()
        .content::<Value>("200", "application/json", "`value.sessionId` and `value.capabilities`")
        .refuses([
            ("400", "A capability breaks a rule, or this installation does not support it"),
            ARCHIVED,
            NAME_TAKEN,
            LIMIT_REACHED,
        ])
        .fails("No browser could be started");
    api.delete("/wd/hub/session/{id}", "delete_webdriver_session", handlers::delete)
        .summary("Ends a WebDriver session with its session.")
        .content::<Value>("200", "application/json", "Ended");
}
