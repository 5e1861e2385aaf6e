//! The committed OpenAPI document and table of operations, which the program serves and prints. A test compares them
//! with the declared operations.

use std::{io::Write as _, sync::LazyLock};

use actix_web::web::Bytes;
use sha2::{Digest as _, Sha256};

static OPENAPI: &str = include_str!("../../../docs/openapi.json");
static OPERATIONS: &str = include_str!("../../../docs/operations.md");

/// Returns the OpenAPI document as indented JSON that ends in a line break.
#[must_use]
pub fn openapi() -> &'static str {
    OPENAPI
}

/// The OpenAPI document as responses have it.
pub(crate) struct Document {
    /// The bytes, which all responses share.
    pub(crate) bytes: Bytes,
    /// The strong entity tag, in quotation marks.
    pub(crate) etag: String,
    pub(crate) is_packed: bool,
}

impl Document {
    fn new(bytes: Bytes, is_packed: bool) -> Self {
        let digest = Sha256::digest(&bytes);
        let etag = digest[..16].iter().fold(String::from('"'), |tag, byte| format!("{tag}{byte:02x}")) + "\"";
        Self { bytes, etag, is_packed }
    }
}

/// Returns the OpenAPI document, which is made once.
pub(crate) fn plain_openapi() -> &'static Document {
    static PLAIN: LazyLock<Document> = LazyLock::new(|| Document::new(Bytes::from_static(OPENAPI.as_bytes()), false));
    &PLAIN
}

/// Returns the OpenAPI document in gzip's format, which is made once; the plain one if it cannot be made.
pub(crate) fn packed_openapi() -> &'static Document {
    static PACKED: LazyLock<Option<Document>> = LazyLock::new(|| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(OPENAPI.as_bytes()).ok()?;
        encoder.finish().ok().map(|packed| Document::new(packed.into(), true))
    });
    PACKED.as_ref().unwrap_or_else(plain_openapi)
}

/// Returns the page `docs/operations.md`: a table of all operations.
#[must_use]
pub fn operations_page() -> &'static str {
    OPERATIONS
}
