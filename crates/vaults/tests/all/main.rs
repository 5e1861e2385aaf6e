//! Stores of logins, asked as the program asks them; what they answer may be anything.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod connect;
mod finding;
mod keepass;
mod remembering;
mod support;
