//! Routes, authentication, errors, OpenAPI, relays, pages.

pub mod live_view;
pub mod relay;
pub mod webdriver;
