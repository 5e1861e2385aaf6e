//! The routes `…/curl`: one HTTP request through a session's browser.

mod handlers;
mod raw;

use self::handlers::{CurlBody, CurlBrowser};
pub(crate) use self::raw::raw;
use crate::operation::Operations;

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Curl", "The session does not exist");
    api.post("/browsers/{id_or_name}/curl", "curl", handlers::curl)
        .summary("Sends one HTTP request through the session's browser, with its cookies, its proxy and its TLS.")
        .body::<CurlBrowser>()
        .responds::<CurlBody>("200", "The target has responded; `status` is its status")
        .refuses([("429", "8 requests of the session are running")])
        .fails("The target did not respond, the timeout is reached, or the session does not respond");
}
