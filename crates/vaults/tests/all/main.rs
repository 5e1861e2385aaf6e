//! Tests of credential stores with arbitrary responses.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod cache;
mod connect;
mod finding;
mod keepass;
mod support;
