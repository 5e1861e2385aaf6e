//! The derives of utoipa by name, for a program that serves the committed OpenAPI document: they accept the same
//! attributes and derive nothing.

use proc_macro::TokenStream;

/// Accepts the attributes of `utoipa::ToSchema`.
#[proc_macro_derive(ToSchema, attributes(schema, serde))]
pub fn to_schema(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Accepts the attributes of `utoipa::IntoParams`.
#[proc_macro_derive(IntoParams, attributes(param, into_params))]
pub fn into_params(_: TokenStream) -> TokenStream {
    TokenStream::new()
}
