//! `…/curl`: one HTTP request through a session's browser.

mod handlers;
mod raw;

pub(crate) use self::{
    handlers::{__path_curl, curl},
    raw::raw,
};
