//! Credential stores with arbitrary responses, used like the program uses them.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod connect;
mod finding;
mod keepass;
mod remembering;
mod support;
