//! Routes, authentication, errors, OpenAPI, relays, pages.

pub mod relay;
