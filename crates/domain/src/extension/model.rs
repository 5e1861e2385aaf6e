//! Extensions, and references to them.

use time::OffsetDateTime;

use crate::field::{FieldCode, Fields, InvalidValue};
use crate::ids::{ExtensionId, ProjectId};
use crate::name::SlugName;
use crate::reference::Reference;

/// The maximum size of the archive of an extension, in bytes.
pub const MAX_EXTENSION_BYTES: u64 = 50 << 20;
/// The maximum number of extensions of a new session, of a pool, or of one call that loads extensions.
pub const MAX_LOADED_AT_ONCE: usize = 20;

/// A stored extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The id.
    pub id: ExtensionId,
    /// The project that owns it.
    pub project: ProjectId,
    /// The name, unique in the project regardless of case and accents.
    pub name: Option<SlugName>,
    /// The size of the archive, in bytes.
    pub size_bytes: u64,
    /// The SHA-256 hash of the archive, in hexadecimal.
    pub checksum: String,
    /// The time of creation.
    pub created_at: OffsetDateTime,
    /// The last time at which a browser was started with the extension.
    pub last_used_at: Option<OffsetDateTime>,
}

impl Extension {
    /// Returns the blob key of the archive.
    #[must_use]
    pub fn blob(id: ExtensionId) -> String {
        format!("{}{id}", Self::BLOBS)
    }

    /// The prefix of the blob keys of all archives.
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
