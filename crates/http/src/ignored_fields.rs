//! Fields of a JSON body that no operation knows: they are ignored, since a client may be newer, and named in the answer, since a
//! misspelt one would do nothing without a word.

use actix_web::{
    HttpMessage as _, HttpRequest,
    dev::ServiceResponse,
    http::header::{HeaderName, HeaderValue},
};

pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-casement-ignored-fields");
/// How many are named, and how much of each path.
const MAX_NAMED: usize = 20;
const MAX_PATH: usize = 64;

/// The paths of the ignored fields of a body, as far as they are named.
#[derive(Debug, Default)]
pub(crate) struct IgnoredFields {
    named: Vec<String>,
    more: bool,
}

impl IgnoredFields {
    pub(crate) fn add(&mut self, path: &serde_ignored::Path<'_>) {
        if self.named.len() == MAX_NAMED {
            self.more = true;
            return;
        }
        // An optional value is a step of the path of its own, which is a question mark.
        let path = path.to_string().replace(".?", "");
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || "_-.$".contains(letter) { letter } else { '?' };
        self.named.push(path.chars().take(MAX_PATH).map(plain).collect());
    }

    /// Keeps them with the request until it is answered.
    pub(crate) fn note(self, request: &HttpRequest) {
        if !self.named.is_empty() {
            request.extensions_mut().insert(self);
        }
    }

    fn header(&self) -> Option<HeaderValue> {
        let more = if self.more { ", ..." } else { "" };
        HeaderValue::from_str(&format!("{}{more}", self.named.join(", "))).ok()
    }
}

/// Names in an answer what was ignored of its request.
pub(crate) fn tell<B>(response: &mut ServiceResponse<B>) {
    let header = response.request().extensions().get::<IgnoredFields>().and_then(IgnoredFields::header);
    if let Some(header) = header {
        tracing::debug!(fields = ?header, "fields of a body are not known, and ignored");
        response.headers_mut().insert(HEADER, header);
    }
}
