//! The routes `/browsers`: sessions.

mod handlers;
mod input;
mod record;

use self::{
    handlers::BrowserListParams,
    input::{CreateBrowser, UpdateBrowser},
};
pub(crate) use self::{
    handlers::{delete_browser, get_browser, list_browsers, region, update_browser},
    input::{Profile, Reference, Telemetry, ViewportInput, checked, config_request, policy},
    record::{Captured, SessionBody, Urls, Viewport, memory},
};
use crate::{
    operation::{ARCHIVED, LIMIT_REACHED, NAME_TAKEN, Operations},
    query::DeletedParams,
};

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Browsers", "The session does not exist");
    api.post("/browsers", "create_browser", handlers::create_browser)
        .summary("Creates a session that is ready to use.")
        .body::<CreateBrowser>()
        .created::<SessionBody>()
        .refuses([
            ("400", "A field breaks a rule, or this installation does not support it"),
            ARCHIVED,
            NAME_TAKEN,
            LIMIT_REACHED,
        ])
        .fails("No browser could be started");
    api.get("/browsers", "list_browsers", list_browsers)
        .summary("Lists sessions, newest first.")
        .query::<BrowserListParams>()
        .returns_page::<SessionBody>();
    api.get("/browsers/{id_or_name}", "get_browser", get_browser)
        .summary("Returns a session.")
        .query::<DeletedParams>()
        .returns::<SessionBody>();
    api.patch("/browsers/{id_or_name}", "update_browser", update_browser)
        .summary("Updates an active session.")
        .body::<UpdateBrowser>()
        .returns::<SessionBody>()
        .refuses([
            ("400", "A field breaks a rule, or this installation does not support it"),
            ("409", "The name is taken, somebody watches the session, or the allowed hosts have another revision"),
        ])
        .fails("The browser or the database cannot be reached");
    api.delete("/browsers/{id_or_name}", "delete_browser", delete_browser)
        .summary("Ends a session. Responds when nothing of its browser is left.")
        .no_content("Ended");
}
