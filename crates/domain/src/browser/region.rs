//! The region of an installation.

use crate::field::{FieldCode, InvalidValue};
use crate::text_enum::text_enum;

text_enum! {
    /// The label of the place where the browsers of an installation run: one of those that public clients know.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum BrowserRegion {
        /// The first one of the clients, and the default.
        #[default]
        UsEast => "us-east",
        /// The west of the United States.
        UsWest => "us-west",
        /// Western Europe.
        EuWest => "eu-west",
        /// South-east Asia.
        ApSoutheast => "ap-southeast",
    }
}

impl BrowserRegion {
    /// Parses a region.
    ///
    /// # Errors
    /// `not_allowed` if clients know no such region.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        Self::ALL.into_iter().find(|region| region.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            InvalidValue::new(FieldCode::NotAllowed, format!("must be one of {known}"))
        })
    }
}
