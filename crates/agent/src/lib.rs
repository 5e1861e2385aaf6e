//! The first program in a session's sandbox, and its protocol.

pub mod protocol;
