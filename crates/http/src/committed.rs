//! The committed OpenAPI document and table of operations, which the program serves and prints. A test compares them
//! with the declared operations.

static OPENAPI: &str = include_str!("../../../docs/openapi.json");
static OPERATIONS: &str = include_str!("../../../docs/operations.md");

/// Returns the OpenAPI document as indented JSON that ends in a line break.
#[must_use]
pub fn openapi() -> &'static str {
    OPENAPI
}

/// Returns the page `docs/operations.md`: a table of all operations.
#[must_use]
pub fn operations_page() -> &'static str {
    OPERATIONS
}
