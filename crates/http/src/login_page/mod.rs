//! The hosted page on which a person continues a login: `/login/{connection_id}`.
//!
//! A code opens the page once and is exchanged for a cookie, which opens the page from then on, for this login only. A
//! stream reports the state of the login to the page; input is authorized by the cookie. No API key is involved.

mod cookie;
mod handlers;
mod page;
mod state;

pub(crate) use handlers::{asset, enter, follow, live, open, submit};
