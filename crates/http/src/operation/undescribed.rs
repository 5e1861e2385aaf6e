//! The declarations of a program that serves the committed document: what only the document says is dropped.

use super::{Operation, Refusal};
use crate::schema::{IntoParams, ToSchema};

/// Nothing: `described` has the description of a document that is generated.
pub(crate) struct Description;

impl Description {
    pub(super) const fn new(_path: &str, _id: &str, _tag: &str, _not_found: &str) -> Self {
        Self
    }
}

/// Makes functions that drop their arguments, with the signatures of `described`.
macro_rules! dropped {
    ($($name:ident $([$kind:ident])? ($($argument:ty),*),)*) => {
        impl Operation {
            $(
                pub(crate) fn $name$(<T: $kind>)?(&mut self, $(_: $argument),*) -> &mut Self {
                    self
                }
            )*
        }
    };
}

dropped! {
    summary(&str),
    description(&str),
    query[IntoParams](),
    headers[IntoParams](),
    body[ToSchema](),
    body_with[ToSchema](&str),
    form[ToSchema](),
    bytes[ToSchema](),
    requires_body(),
    returns[ToSchema](),
    created[ToSchema](),
    responds[ToSchema](&'static str, &str),
    returns_list[ToSchema](),
    returns_page[ToSchema](),
    page_headers(),
    header[ToSchema](&str, &str),
    no_content(&str),
    no_content_with(&'static str, &str),
    content[ToSchema](&'static str, &str, &str),
    file(&str),
    removed(&str),
    fails(&str),
}

impl Operation {
    pub(crate) fn refuses<const N: usize>(&mut self, _: [Refusal; N]) -> &mut Self {
        self
    }

    pub(crate) fn streams<T: ToSchema>(&mut self) -> &mut Self {
        self.is_stream = true;
        self
    }
}
