//! The one form of every error that leaves the API, and the closed list of its codes.

use std::{error::Error as StdError, fmt};

use actix_web::{
    HttpResponse, ResponseError,
    http::{
        StatusCode,
        header::{self, HeaderName, HeaderValue},
    },
};
use casement_domain::{
    browser::EngineFault,
    credential_provider::ProviderFault,
    field::{FieldCode, FieldError, InvalidInput},
    session_operation::UpstreamFault,
};
use serde::Serialize;
use utoipa::ToSchema;

/// A message is for people; nobody reads more.
const MAX_MESSAGE: usize = 1000;

macro_rules! codes {
    ($($variant:ident => $text:literal, $status:literal, $when:literal;)*) => {
        /// What a caller can tell apart. Each has one status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $when] $variant,)*
        }

        impl Code {
            /// All of them, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// As it stands in the body.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The status it is answered with.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// When it is answered.
            #[must_use]
            pub const fn when(self) -> &'static str {
                match self { $(Self::$variant => $when,)* }
            }
        }
    };
}

codes! {
    BadRequest => "bad_request", 400, "The request cannot be read: its JSON, query, a header, percent-encoding.";
    InvalidInput => "invalid_input", 400, "Readable, but a field breaks a rule; `details` says which and why.";
    InvalidCursor => "invalid_cursor", 400, "The token is none of ours, or belongs to other filters.";
    NotSupported => "not_supported", 400, "Valid, but this installation cannot do it.";
    Unauthorized => "unauthorized", 401, "No credential, or not a good one.";
    Forbidden => "forbidden", 403, "The credential is good, but does not reach so far.";
    ProjectArchived => "project_archived", 403, "Something new in an archived project.";
    PathForbidden => "path_forbidden", 403, "The sandbox's user may not do that to that path.";
    NotFound => "not_found", 404, "There is no such resource here; ended sessions too.";
    RouteNotFound => "route_not_found", 404, "There is no such route.";
    MethodNotAllowed => "method_not_allowed", 405, "The route knows other methods; `Allow` names them.";
    RequestTimeout => "request_timeout", 408, "The body stopped coming for 60 s.";
    NameConflict => "name_conflict", 409, "The name is taken.";
    AlreadyExists => "already_exists", 409, "Something is there already.";
    InvalidState => "invalid_state", 409, "The resource's state does not allow it.";
    ResourceInUse => "resource_in_use", 409, "Other resources hang on it.";
    Gone => "gone", 410, "The route was removed; the message names its successor.";
    PayloadTooLarge => "payload_too_large", 413, "The body is over its limit.";
    UnsupportedMediaType => "unsupported_media_type", 415, "The body is not JSON.";
    LimitExceeded => "limit_exceeded", 429, "A limit of the session, the project or the organization is reached.";
    RateLimited => "rate_limited", 429, "The key calls too often, where the operator has set a rate; or too many credentials of the address were refused.";
    Internal => "internal", 500, "Our fault; also a browser or the database lost in the middle of an operation, which may have been done.";
    UpstreamError => "upstream_error", 502, "What was asked answered nonsense.";
    BrowserUnavailable => "browser_unavailable", 503, "The session's browser cannot be reached; nothing was handed to it.";
    Unavailable => "unavailable", 503, "Starting, stopping, the database is away, or there is no room for a browser.";
    Timeout => "timeout", 504, "The operation's own time limit is reached.";
}

/// One refused field.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Detail {
    /// Why: one of a closed list, `out_of_range`.
    code: &'static str,
    /// The field's path, a colon, the rule: `viewport.width: must be from 1 to 16384`.
    message: String,
}

/// What failed below.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct InnerError {
    /// What failed: `browser_crashed`, `browser_hung`, `agent_error`, `display_error`, `proxy_error`, `dns_error`,
    /// `connect_error`, `tls_error`, `http_status` or `provider_error`.
    code: &'static str,
    /// For people.
    message: String,
}

/// The body of every answer with a status of 400 and above.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// What went wrong; a closed list.
    code: &'static str,
    /// For people, in English; at most 1000 characters.
    message: String,
    /// One per refused field, with `invalid_input` only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<Detail>,
    /// What failed below, if something did.
    #[serde(skip_serializing_if = "Option::is_none")]
    inner_error: Option<InnerError>,
}

/// The body that a WebDriver client reads.
#[derive(Serialize)]
struct WebDriverBody {
    #[serde(flatten)]
    body: ErrorBody,
    value: W3cError,
}

#[derive(Serialize)]
struct W3cError {
    error: &'static str,
    message: String,
    stacktrace: &'static str,
}

/// An error on its way to a caller. What the caller reads and what the log says are two texts: the source is logged
/// and never sent.
#[derive(Debug)]
pub struct ApiError(Box<Parts>);

#[derive(Debug)]
struct Parts {
    code: Code,
    message: String,
    details: Vec<Detail>,
    inner: Option<InnerError>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// In place of the code's own.
    status: Option<StatusCode>,
    /// Whether a WebDriver client reads it.
    webdriver: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl ApiError {
    /// An error that says `message` to the caller.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let mut headers = Vec::new();
        if matches!(code, Code::Unavailable | Code::BrowserUnavailable) {
            // Both promise that nothing was done, so the client may repeat the call by itself.
            headers.push((header::RETRY_AFTER, HeaderValue::from_static("1")));
        }
        Self(Box::new(Parts {
            code,
            message: message.into(),
            details: Vec::new(),
            inner: None,
            headers,
            status: None,
            webdriver: false,
            source: None,
        }))
    }

    /// Our own fault; the caller learns nothing but that.
    #[must_use]
    pub fn internal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(Code::Internal, "internal error; the log has more under this request id").caused_by(source)
    }

    /// One refused field.
    #[must_use]
    pub fn field(field: &str, code: FieldCode, message: impl Into<String>) -> Self {
        InvalidInput::one(FieldError { field: field.to_owned(), code, message: message.into() }).into()
    }

    /// No good credential. `sent`: there was one.
    #[must_use]
    pub fn unauthorized(sent: bool) -> Self {
        let challenge =
            if sent { "Bearer realm=\"casement\", error=\"invalid_token\"" } else { "Bearer realm=\"casement\"" };
        Self::new(Code::Unauthorized, "the credential is missing or not valid")
            .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    /// No credential where clients are known that send theirs with the first request alone.
    #[must_use]
    pub fn without_token() -> Self {
        let message = "the request has no credential: the session's token must come with every request, \
                       as the query parameter jwt or as the password of HTTP Basic";
        Self::new(Code::Unauthorized, message)
            .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"casement\""))
    }

    /// What the log says and the caller does not read.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What failed below.
    #[must_use]
    pub fn with_inner(mut self, fault: impl Into<InnerCode>, message: impl Into<String>) -> Self {
        let InnerCode(code) = fault.into();
        self.0.inner = Some(InnerError { code, message: shortened(message.into()) });
        self
    }

    /// A header of the answer.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// For who asked for a part that is not there: 416, and how much there is (RFC 9110 §15.5.17).
    #[must_use]
    pub fn for_range(mut self, size: u64) -> Self {
        self.0.status = Some(StatusCode::RANGE_NOT_SATISFIABLE);
        match HeaderValue::try_from(format!("bytes */{size}")) {
            Ok(whole) => self.with_header(header::CONTENT_RANGE, whole),
            Err(_) => self,
        }
    }

    /// For a WebDriver client: the body says the same in the words of its protocol as well.
    #[must_use]
    pub fn for_webdriver(mut self) -> Self {
        self.0.webdriver = true;
        self
    }

    /// The body that says it.
    pub(crate) fn to_body(&self) -> ErrorBody {
        ErrorBody {
            code: self.0.code.as_str(),
            message: shortened(self.0.message.clone()),
            details: self.0.details.clone(),
            inner_error: self.0.inner.clone(),
        }
    }

    /// The error code of the W3C protocol.
    fn w3c(&self) -> &'static str {
        match self.0.code {
            Code::BadRequest | Code::InvalidInput | Code::PayloadTooLarge => "invalid argument",
            // The address names a session, and it is not there.
            Code::NotFound => "invalid session id",
            Code::RouteNotFound => "unknown command",
            Code::MethodNotAllowed => "unknown method",
            Code::Timeout | Code::RequestTimeout => "timeout",
            _ => "unknown error",
        }
    }

    /// With its refused fields in this order, by what their paths begin with; all others come last.
    #[must_use]
    pub(crate) fn in_order_of(mut self, fields: &[&str]) -> Self {
        let place = |detail: &Detail| {
            let first = detail.message.split(['.', '[', ':']).next();
            fields.iter().position(|field| Some(*field) == first).unwrap_or(fields.len())
        };
        self.0.details.sort_by_key(place);
        self
    }

    /// What the caller can tell apart.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The whole chain of causes, for one line of the log.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.0.message.clone();
        if let Some(inner) = &self.0.inner {
            text.push_str(&format!(": {}: {}", inner.code, inner.message));
        }
        let mut next = self.0.source.as_deref().map(|source| source as &dyn StdError);
        while let Some(cause) = next {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            next = cause.source();
        }
        text
    }
}

/// The word for what failed below; one of a closed list.
#[derive(Clone, Copy, Debug)]
pub struct InnerCode(&'static str);

impl From<EngineFault> for InnerCode {
    fn from(fault: EngineFault) -> Self {
        Self(match fault {
            EngineFault::BrowserCrashed => "browser_crashed",
            EngineFault::BrowserHung => "browser_hung",
            EngineFault::AgentError => "agent_error",
            EngineFault::DisplayError => "display_error",
            EngineFault::ProxyError => "proxy_error",
        })
    }
}

impl From<UpstreamFault> for InnerCode {
    fn from(fault: UpstreamFault) -> Self {
        Self(match fault {
            UpstreamFault::Dns => "dns_error",
            UpstreamFault::Connect => "connect_error",
            UpstreamFault::Tls => "tls_error",
            UpstreamFault::Proxy => "proxy_error",
            UpstreamFault::HttpStatus => "http_status",
        })
    }
}

impl From<&ProviderFault> for InnerCode {
    fn from(_: &ProviderFault) -> Self {
        Self("provider_error")
    }
}

/// At most [`MAX_MESSAGE`] characters.
fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_MESSAGE - 1) {
        Some((cut, last)) if cut + last.len_utf8() < text.len() => format!("{}…", &text[..cut]),
        _ => text,
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.as_str(), self.0.message)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        let own = || StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.0.status.unwrap_or_else(own)
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        for header in &self.0.headers {
            response.insert_header(header.clone());
        }
        let body = self.to_body();
        if !self.0.webdriver {
            return response.json(body);
        }
        let value = W3cError { error: self.w3c(), message: body.message.clone(), stacktrace: "" };
        // The protocol wants this one of every answer.
        response.insert_header((header::CACHE_CONTROL, "no-cache"));
        response.json(WebDriverBody { body, value })
    }
}

impl From<InvalidInput> for ApiError {
    fn from(invalid: InvalidInput) -> Self {
        let mut error = Self::new(Code::InvalidInput, invalid.to_string());
        error.0.details = invalid
            .fields()
            .iter()
            .map(|field| Detail { code: field.code.as_str(), message: shortened(field.to_string()) })
            .collect();
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_what_can_have_failed_below() {
        let description = crate::openapi();
        let InnerCode(provider) = InnerCode::from(&ProviderFault::Refused);
        let engine = [
            EngineFault::BrowserCrashed,
            EngineFault::BrowserHung,
            EngineFault::AgentError,
            EngineFault::DisplayError,
            EngineFault::ProxyError,
        ];
        let upstream = [
            UpstreamFault::Dns,
            UpstreamFault::Connect,
            UpstreamFault::Tls,
            UpstreamFault::Proxy,
            UpstreamFault::HttpStatus,
        ];
        let codes = engine.map(InnerCode::from).into_iter().chain(upstream.map(InnerCode::from)).map(|code| code.0);
        for code in codes.chain([provider]) {
            assert!(description.contains(&format!("`{code}`")), "{code}");
        }
    }

    #[test]
    fn a_message_has_at_most_1000_characters() {
        assert_eq!(shortened("ä".repeat(1000)), "ä".repeat(1000));
        assert_eq!(shortened("ä".repeat(1001)).chars().count(), 1000);
        assert_eq!(shortened("short".to_owned()), "short");
    }
}
