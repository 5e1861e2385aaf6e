//! The derives that give a wire type its schema in the OpenAPI document. The served program needs no schemas, and
//! their code would be a large part of it: without the feature `openapi` the derives do nothing.

#[cfg(any(test, feature = "openapi"))]
pub(crate) use utoipa::{IntoParams, ToSchema};

#[cfg(not(any(test, feature = "openapi")))]
pub(crate) use self::nothing::*;

#[cfg(not(any(test, feature = "openapi")))]
mod nothing {
    pub(crate) use casement_no_schema::{IntoParams, ToSchema};

    /// Any type, in place of those with a schema.
    pub(crate) trait ToSchema {}

    impl<T> ToSchema for T {}

    /// Any type, in place of those that describe parameters.
    pub(crate) trait IntoParams {}

    impl<T> IntoParams for T {}
}
