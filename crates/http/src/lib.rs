//! Routes, authentication, errors, OpenAPI, relays, pages.
