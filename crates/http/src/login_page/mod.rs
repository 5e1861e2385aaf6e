//! The page on which a person goes on with a login: `/login/{connection_id}`.
//!
//! A code opens it once, and gives the browser a cookie that opens it from then on, for this login alone. What the page shows it is told by a
//! stream; what the person gives goes back with the cookie. No API key has anything to do with it.

mod cookie;
mod handlers;
mod page;
mod state;

pub(crate) use handlers::{asset, enter, follow, live, open, submit};
