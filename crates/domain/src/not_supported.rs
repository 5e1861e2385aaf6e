//! Refusals of valid requests that an installation does not support.

use std::borrow::Cow;

/// The error of a valid request that this installation does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct NotSupported {
    /// The field.
    pub field: &'static str,
    /// The reason.
    pub why: Cow<'static, str>,
}
