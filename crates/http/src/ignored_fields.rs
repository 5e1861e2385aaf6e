//! Unknown fields of a JSON body. They are ignored, because a client may be newer, and named in a response header,
//! because a misspelt field would otherwise have no visible effect.

use actix_web::{
    HttpMessage as _, HttpRequest,
    dev::ServiceResponse,
    http::header::{HeaderName, HeaderValue},
};
use casement_domain::mask_secrets;

pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-casement-ignored-fields");
/// The maximum number of named fields, and of characters of each path.
const MAX_NAMED: usize = 20;
const MAX_PATH_CHARS: usize = 64;

/// The paths of the ignored fields of a body, up to a bound.
#[derive(Debug, Default)]
pub(crate) struct IgnoredFields {
    paths: Vec<String>,
    has_more: bool,
}

impl IgnoredFields {
    pub(crate) fn add(&mut self, path: impl FnOnce() -> String) {
        if self.paths.len() == MAX_NAMED {
            self.has_more = true;
            return;
        }
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || "_-.$".contains(letter) { letter } else { '?' };
        self.paths.push(mask_secrets(&path()).chars().take(MAX_PATH_CHARS).map(plain).collect());
    }

    #[cfg(test)]
    pub(crate) fn paths(&self) -> &[String] {
        &self.paths
    }

    /// Stores the fields with the request until its response.
    pub(crate) fn note(self, request: &HttpRequest) {
        if !self.paths.is_empty() {
            request.extensions_mut().insert(self);
        }
    }

    /// Returns the paths that were stored with a request, at most [`MAX_NAMED`]; none if nothing was ignored.
    pub(crate) fn of(request: &HttpRequest) -> Vec<String> {
        request.extensions().get::<Self>().map(|fields| fields.paths.clone()).unwrap_or_default()
    }

    fn header(&self) -> Option<HeaderValue> {
        let more = if self.has_more { ", ..." } else { "" };
        HeaderValue::from_str(&format!("{}{more}", self.paths.join(", "))).ok()
    }
}

/// Adds the header that names the ignored fields of the request.
pub(crate) fn add_header<B>(response: &mut ServiceResponse<B>) {
    let header = response.request().extensions().get::<IgnoredFields>().and_then(IgnoredFields::header);
    if let Some(header) = header {
        tracing::debug!(fields = header.to_str().unwrap_or_default(), "unknown fields of a body are ignored");
        response.headers_mut().insert(HEADER, header);
    }
}
