//! The first program in a session's sandbox, and its protocol.
