//! Extensions and the references to them.

use time::OffsetDateTime;

use crate::field::{FieldCode, Fields, InvalidValue};
use crate::ids::{ExtensionId, ProjectId};
use crate::name::SlugName;
use crate::reference::Reference;

/// The longest archive of an extension, in bytes.
pub const MAX_EXTENSION_BYTES: u64 = 50 << 20;
/// Most extensions of a session to create, of a pool, or of one call that loads some.
pub const MAX_LOADED_AT_ONCE: usize = 20;

/// An extension that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The identifier.
    pub id: ExtensionId,
    /// The project that owns it.
    pub project: ProjectId,
    /// Unique in the project, without case and accents.
    pub name: Option<SlugName>,
    /// How long the archive is.
    pub size_bytes: u64,
    /// SHA-256 of the archive, in hexadecimal.
    pub checksum: String,
    /// The time of its creation.
    pub created_at: OffsetDateTime,
    /// When a browser was last started with it.
    pub last_used_at: Option<OffsetDateTime>,
}

impl Extension {
    /// Under which key its bytes lie.
    #[must_use]
    pub fn blob(id: ExtensionId) -> String {
        format!("{}{id}", Self::BLOBS)
    }

    /// What all those keys begin with.
    pub(super) const BLOBS: &str = "extensions/";
}

/// Checks the references to the extensions of a session or pool.
pub fn references(requested: &[Reference], fields: &mut Fields) {
    if requested.len() > MAX_LOADED_AT_ONCE {
        let message = format!("must have at most {MAX_LOADED_AT_ONCE}");
        return fields.refuse("extensions", InvalidValue::new(FieldCode::TooMany, message));
    }
    for (n, one) in requested.iter().enumerate() {
        fields.take(&format!("extensions[{n}]"), one.parse());
    }
}
