//! References to resources of a project.

use crate::field::{FieldCode, InvalidValue};
use crate::ids::is_id_shaped;

/// An unchecked reference to a resource of the project, by either its id or its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// The id.
    pub id: Option<String>,
    /// The name.
    pub name: Option<String>,
}

impl Reference {
    /// Creates a reference from a text that is an id or a name. No name has the shape of an id.
    #[must_use]
    pub fn id_or_name(text: &str) -> Self {
        let text = Some(text.to_owned());
        if text.as_deref().is_some_and(is_id_shaped) {
            Self { id: text, name: None }
        } else {
            Self { id: None, name: text }
        }
    }

    /// Returns the id or the name. An empty reference is `None`.
    ///
    /// # Errors
    /// Returns `mutually_exclusive` if both are given.
    pub fn parse_optional(&self) -> Result<Option<&str>, InvalidValue> {
        match (&self.id, &self.name) {
            (Some(_), Some(_)) => {
                Err(InvalidValue::new(FieldCode::MutuallyExclusive, "takes an id or a name, not both"))
            }
            (one, other) => Ok(one.as_deref().or(other.as_deref())),
        }
    }

    /// Returns the id or the name.
    ///
    /// # Errors
    /// Returns `required` or `mutually_exclusive` unless exactly one of both is given.
    pub fn parse(&self) -> Result<&str, InvalidValue> {
        let text = self.parse_optional()?;
        text.ok_or_else(|| InvalidValue::new(FieldCode::Required, "needs an id or a name"))
    }
}
