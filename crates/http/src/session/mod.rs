//! `/browsers`: sessions.

mod handlers;
mod input;
mod record;

pub(crate) use self::{
    handlers::{
        __path_create_browser, __path_delete_browser, __path_get_browser, __path_list_browsers, __path_update_browser,
        create_browser, delete_browser, get_browser, list_browsers, update_browser,
    },
    input::{Reference, Telemetry, ViewportInput, checked, config_request, policy},
    record::{Captured, SessionBody, Urls, Viewport},
};
