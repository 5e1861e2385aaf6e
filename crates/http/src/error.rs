//! The format of all errors of the API, and the closed list of their codes.

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
    mask_secrets,
    session_operation::UpstreamFault,
};
use serde::Serialize;

use crate::schema::ToSchema;

/// The maximum number of characters of a message, which is written for people.
const MAX_MESSAGE: usize = 1000;
/// Codes of the WebDriver protocol for errors that have no code there.
const UNKNOWN_ERROR: &str = "unknown error";
const SESSION_NOT_CREATED: &str = "session not created";

macro_rules! codes {
    ($($variant:ident => $text:literal, $status:literal, $when:literal;)*) => {
        /// The codes by which a caller distinguishes errors. Each has one status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $when] $variant,)*
        }

        impl Code {
            /// All codes, in the order of the documented table.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the code as it is written in the body.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Returns the HTTP status of the code.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Returns the documented meaning of the code.
            #[must_use]
            pub const fn when(self) -> &'static str {
                match self { $(Self::$variant => $when,)* }
            }
        }
    };
}

codes! {
    BadRequest => "bad_request", 400, "The request cannot be parsed: its JSON, its query, a header or its percent-encoding.";
    InvalidInput => "invalid_input", 400, "The request can be parsed, but a field breaks a rule; `details` names the fields and the rules.";
    InvalidBrowserLocation => "invalid_browser_location", 400, "The time zone or the locale of a session is not supported; `details` names them.";
    InvalidCursor => "invalid_cursor", 400, "The token was not issued by this server, or belongs to other filters.";
    NotSupported => "not_supported", 400, "The request is valid, but this installation does not support it, or a field of it; 404 for an operation that only other servers have.";
    AmbiguousProxyName => "ambiguous_proxy_name", 400, "Several proxies have the name; use the id of one.";
    Unauthorized => "unauthorized", 401, "The credential is missing or not valid.";
    Forbidden => "forbidden", 403, "The credential is valid, but does not permit the request.";
    InsufficientScope => "insufficient_scope", 403, "The policy of the key does not allow the request, or the use of a resource that it names; the message names the action that it needs.";
    ProjectArchived => "project_archived", 403, "The project is archived and does not accept the change; 400 for a request with the token of a session.";
    PathForbidden => "path_forbidden", 403, "The sandbox's user may not access the path in this way; 400 for a request with the token of the session.";
    NotFound => "not_found", 404, "The resource does not exist in the scope of the credential, or the session has ended.";
    RouteNotFound => "route_not_found", 404, "The route does not exist.";
    MethodNotAllowed => "method_not_allowed", 405, "The route does not support the method; `Allow` lists the methods that it supports.";
    RequestTimeout => "request_timeout", 408, "No data of the body was received for 60 s.";
    NameConflict => "name_conflict", 409, "The name is taken.";
    AlreadyExists => "already_exists", 409, "The resource or the file exists already.";
    InvalidState => "invalid_state", 409, "The state of the resource does not allow the request.";
    StaleNetwork => "stale_network", 409, "The network configuration is not the one that the request expects; nothing was changed.";
    ResourceInUse => "resource_in_use", 409, "Other resources use the resource.";
    Gone => "gone", 410, "The route was removed; the message names its successor.";
    PayloadTooLarge => "payload_too_large", 413, "The body exceeds its limit.";
    Misdirected => "misdirected", 421, "Another node relayed the request to a node that it is not meant for; clients do not see this.";
    UnsupportedMediaType => "unsupported_media_type", 415, "The body is not JSON.";
    LimitExceeded => "limit_exceeded", 429, "A limit of the session, the project, the organization or the nodes is reached.";
    RateLimited => "rate_limited", 429, "The key exceeds the rate that the operator has set, or too many credentials from the address were refused.";
    Internal => "internal", 500, "The server failed, or lost a browser or the database during an operation, which may have been done.";
    UpstreamError => "upstream_error", 502, "A server that the request depends on failed or sent an invalid response.";
    BrowserUnavailable => "browser_unavailable", 503, "The session's browser cannot be reached; nothing was done.";
    Unavailable => "unavailable", 503, "The server is starting or stopping, the database cannot be reached, or there is no room for a browser.";
    Timeout => "timeout", 504, "The time limit of the operation is reached.";
}

/// One refused field.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Detail {
    /// The reason, from a closed list, such as `out_of_range`.
    code: &'static str,
    /// The path of the field, a colon, and the rule: `viewport.width: must be from 1 to 16384`.
    message: String,
}

/// The underlying failure.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct InnerError {
    /// The kind of failure: `browser_crashed`, `browser_hung`, `agent_error`, `display_error`, `proxy_error`, `engine_error`,
    /// `dns_error`, `connect_error`, `tls_error`, `http_status` or `provider_error`.
    code: &'static str,
    /// A text for people.
    message: String,
}

/// The body of every response with a status of 400 or more.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// The error code, from a closed list.
    code: &'static str,
    /// A text for people, in English; at most 1000 characters.
    message: String,
    /// One entry per refused field; with `invalid_input`, and with `insufficient_scope` if a field names a resource that
    /// the key may not use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<Detail>,
    /// The underlying failure, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    inner_error: Option<InnerError>,
}

/// The body of an error for a WebDriver client. It has no other member: with one, Selenium for Python does not look into
/// `value`, and raises an error without its class.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebDriverError)]
pub(crate) struct WebDriverBody {
    value: W3cError,
}

/// An error of the WebDriver protocol.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebDriverErrorValue)]
pub(crate) struct W3cError {
    /// The error code of the protocol: `invalid session id`, `session not created`, …
    error: &'static str,
    /// The message of `data`.
    message: String,
    /// Always empty.
    stacktrace: &'static str,
    /// The error as other clients get it.
    data: ErrorBody,
}

/// An error response. Its message is sent to the caller; its source is logged and never sent.
#[derive(Debug)]
pub struct ApiError(Box<Parts>);

#[derive(Debug)]
struct Parts {
    code: Code,
    message: String,
    details: Vec<Detail>,
    inner: Option<InnerError>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// A status that replaces the code's own.
    status: Option<StatusCode>,
    /// The error code for a WebDriver client if [`Code`] has none of its own; `None` for other clients.
    webdriver: Option<&'static str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// Whether a node made no session because it is full.
    node_is_full: bool,
}

impl ApiError {
    /// Creates an error with a message for the caller.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let mut headers = Vec::new();
        if matches!(code, Code::Unavailable | Code::BrowserUnavailable) {
            // Both codes promise that nothing was done, so a client library may retry the call.
            headers.push((header::RETRY_AFTER, HeaderValue::from_static("1")));
        }
        Self(Box::new(Parts {
            code,
            message: message.into(),
            details: Vec::new(),
            inner: None,
            headers,
            status: None,
            webdriver: None,
            source: None,
            node_is_full: false,
        }))
    }

    /// Creates the error for a failure of the server. The caller is sent no details.
    #[must_use]
    pub fn internal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(Code::Internal, "internal error; the log has more under this request id").caused_by(source)
    }

    /// Creates the error for one refused field.
    #[must_use]
    pub fn field(field: &str, code: FieldCode, message: impl Into<String>) -> Self {
        InvalidInput::one(FieldError { field: field.to_owned(), code, message: message.into() }).into()
    }

    /// Creates the error for a missing or invalid credential. `sent`: the request had a credential.
    #[must_use]
    pub fn unauthorized(sent: bool) -> Self {
        let challenge =
            if sent { "Bearer realm=\"casement\", error=\"invalid_token\"" } else { "Bearer realm=\"casement\"" };
        Self::new(Code::Unauthorized, "the credential is missing or not valid")
            .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    /// Creates the error for a missing credential on a route where some clients send it with their first request only.
    #[must_use]
    pub fn without_token() -> Self {
        let message = "the request has no credential: the session's token must come with every request, \
                       as the query parameter jwt or as the password of HTTP Basic";
        Self::new(Code::Unauthorized, message)
            .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"casement\""))
    }

    /// Sets the source of the error, which is logged and not sent.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Sets the underlying failure.
    #[must_use]
    pub fn with_inner(mut self, fault: impl Into<InnerCode>, message: impl Into<String>) -> Self {
        let InnerCode(code) = fault.into();
        self.0.inner = Some(InnerError { code, message: shortened(message.into()) });
        self
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// Sets a status that replaces the code's own.
    #[must_use]
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.0.status = Some(status);
        self
    }

    /// Makes this the error of a node that made no session because it is full.
    #[must_use]
    pub(crate) fn for_full_node(mut self) -> Self {
        self.0.node_is_full = true;
        self
    }

    /// Returns whether a node made no session because it is full. It has done nothing.
    pub(crate) fn is_for_full_node(&self) -> bool {
        self.0.node_is_full
    }

    /// Makes this the response to a range outside of the content: status 416, with the size of the content in bytes
    /// (RFC 9110 §15.5.17).
    #[must_use]
    pub fn for_range(mut self, size: u64) -> Self {
        self.0.status = Some(StatusCode::RANGE_NOT_SATISFIABLE);
        match HeaderValue::try_from(format!("bytes */{size}")) {
            Ok(whole) => self.with_header(header::CONTENT_RANGE, whole),
            Err(_) => self,
        }
    }

    /// Gives the body the format of the WebDriver protocol.
    #[must_use]
    pub fn for_webdriver(mut self) -> Self {
        self.0.webdriver.get_or_insert(UNKNOWN_ERROR);
        self
    }

    /// Makes this the response to a WebDriver client that wants a new session.
    #[must_use]
    pub(crate) fn for_new_webdriver_session(mut self) -> Self {
        self.0.webdriver = Some(SESSION_NOT_CREATED);
        self
    }

    /// Returns the body of the response.
    pub(crate) fn to_body(&self) -> ErrorBody {
        ErrorBody {
            code: self.0.code.as_str(),
            message: shown(&self.0.message),
            details: self
                .0
                .details
                .iter()
                .map(|detail| Detail { message: shown(&detail.message), ..*detail })
                .collect(),
            inner_error: self.0.inner.as_ref().map(|inner| InnerError { message: shown(&inner.message), ..*inner }),
        }
    }

    /// Returns the error code of the W3C WebDriver protocol.
    fn w3c(&self, otherwise: &'static str) -> &'static str {
        match self.0.code {
            Code::BadRequest | Code::InvalidInput | Code::PayloadTooLarge => "invalid argument",
            // The path names a session that does not exist.
            Code::NotFound if otherwise != SESSION_NOT_CREATED => "invalid session id",
            Code::RouteNotFound => "unknown command",
            Code::MethodNotAllowed => "unknown method",
            Code::Timeout | Code::RequestTimeout => "timeout",
            _ => otherwise,
        }
    }

    /// Sorts the refused fields by the first segment of their paths, in the order of `fields`; all others come last.
    #[must_use]
    pub(crate) fn in_order_of(mut self, fields: &[&str]) -> Self {
        let place = |detail: &Detail| {
            let first = detail.message.split(['.', '[', ':']).next();
            fields.iter().position(|field| Some(*field) == first).unwrap_or(fields.len())
        };
        self.0.details.sort_by_key(place);
        self
    }

    /// Returns the code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the message and the whole chain of causes, in one line for the log.
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

/// The code of an underlying failure, from a closed list.
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
            EngineFault::RemoteError => "engine_error",
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

/// Truncates a text to [`MAX_MESSAGE`] characters.
/// Returns the text for a caller: what a request repeats may hold a key that is in the wrong place.
fn shown(text: &str) -> String {
    shortened(mask_secrets(text).into_owned())
}

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
        let Some(otherwise) = self.0.webdriver else { return response.json(body) };
        let value = W3cError { error: self.w3c(otherwise), message: body.message.clone(), stacktrace: "", data: body };
        // The protocol requires this header in every response.
        response.insert_header((header::CACHE_CONTROL, "no-cache"));
        response.json(WebDriverBody { value })
    }
}

impl From<InvalidInput> for ApiError {
    fn from(invalid: InvalidInput) -> Self {
        let only_location = invalid.fields().iter().all(|error| error.field.starts_with("location."));
        let mut error = match invalid.insufficient_scope() {
            Some(field) => Self::new(Code::InsufficientScope, field.to_string()),
            None if only_location => Self::new(Code::InvalidBrowserLocation, invalid.to_string()),
            None => Self::new(Code::InvalidInput, invalid.to_string()),
        };
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
        let description = crate::declared_openapi();
        let InnerCode(provider) = InnerCode::from(&ProviderFault::Refused);
        let engine = [
            EngineFault::BrowserCrashed,
            EngineFault::BrowserHung,
            EngineFault::AgentError,
            EngineFault::DisplayError,
            EngineFault::ProxyError,
            EngineFault::RemoteError,
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
