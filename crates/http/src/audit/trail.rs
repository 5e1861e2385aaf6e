//! Creates the audit record of a request: its caller and its result.

use std::{
    cell::{Cell, OnceCell, RefCell},
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use actix_web::{
    HttpMessage as _, HttpRequest, ResponseError as _,
    body::BoxBody,
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, StatusCode,
        header::{self, HeaderMap},
    },
};
use casement_domain::{
    ApiKeyId, AuditRecordId, Clock, ProjectId, StoreError,
    api_key::KeySecret,
    audit::{AuditEntry, AuditService, AuditTrail, AuthStrategy, PreparedRecord, PreparedRecordOutcome},
    mask_secrets,
};
use ipnet::IpNet;
use time::OffsetDateTime;

use crate::{
    cluster::Hop,
    error::{ApiError, Code},
    state::Api,
    ui::THUMBNAIL,
};

/// The maximum bytes that are stored of a path, a host and a method.
const MAX_PATH_BYTES: usize = 1024;
const MAX_HOST_BYTES: usize = 255;
const MAX_METHOD_BYTES: usize = 32;
/// The status of a call whose client disconnected before the response, as in the logs of common proxies.
const CLIENT_CLOSED: u16 = 499;

/// The authenticated caller of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    strategy: AuthStrategy,
    api_key: Option<ApiKeyId>,
    project: Option<ProjectId>,
}

/// The record of a request as far as it is known.
struct Draft {
    trail: Arc<dyn AuditTrail>,
    clock: Arc<dyn Clock>,
    started: Instant,
    identity: Cell<Option<Identity>>,
    /// Whether the caller is a program of a deployment.
    is_app: Cell<bool>,
    /// Whether another node relays the request, and records it.
    is_relayed: bool,
    /// Whether the audit intent is stored.
    has_intent: Cell<bool>,
    /// The record as far as it is known before routing; `None` once [`Draft::take_entry`] has returned it.
    entry: RefCell<Option<AuditEntry>>,
    prepared: OnceCell<Arc<PreparedRecord>>,
}

/// The request extension that holds the draft.
#[derive(Clone)]
struct DraftSlot(Rc<Draft>);

impl DraftSlot {
    fn of(request: &HttpRequest) -> Option<Rc<Draft>> {
        request.extensions().get::<Self>().map(|slot| Rc::clone(&slot.0))
    }
}

impl Draft {
    /// Returns the record, once; `None` for a caller without a credential and for pages.
    fn take_entry(&self, route: &str, status: u16) -> Option<AuditEntry> {
        let entry = self.entry.take().filter(|_| !self.is_relayed)?;
        let mut entry = self.complete_entry(entry, route, status)?;
        if let Some(prepared) = self.prepared() {
            // The prepared record is stored, or may be at any moment.
            entry.at = prepared.entry().at;
        }
        Some(entry)
    }

    /// Writes the record of a request of which only the status is known.
    fn write(&self, status: u16) {
        let Some(entry) = self.take_entry("", status) else { return };
        match entry.auth_strategy {
            AuthStrategy::None => self.trail.refused(entry),
            _ => self.trail.note(entry, self.prepared()),
        }
    }

    /// Returns the prepared record, unless it was declined.
    fn prepared(&self) -> Option<Arc<PreparedRecord>> {
        self.prepared.get().filter(|prepared| prepared.outcome() != PreparedRecordOutcome::Declined).cloned()
    }

    fn complete_entry(&self, entry: AuditEntry, route: &str, status: u16) -> Option<AuditEntry> {
        let identity = self.identity.get()?;
        if route == "/live/{session_id}" || route == THUMBNAIL {
            return None;
        }
        Some(AuditEntry {
            at: to_microseconds(self.clock.now()),
            auth_strategy: identity.strategy,
            api_key: identity.api_key,
            project: identity.project,
            service: match entry.service {
                AuditService::Api if self.is_app.get() => AuditService::Apps,
                service => service,
            },
            route: route.to_owned(),
            status,
            duration_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            ..entry
        })
    }
}

impl Identity {
    /// Notes a valid API key, and its project if known.
    pub(crate) fn key(request: &HttpRequest, key: ApiKeyId, project: Option<ProjectId>) {
        Self { strategy: AuthStrategy::ApiKey, api_key: Some(key), project }.store(request);
    }

    /// Notes a valid token of a session, or a valid cookie of a hosted login page, of this project.
    pub(crate) fn token(request: &HttpRequest, project: ProjectId) {
        Self { strategy: AuthStrategy::SessionToken, api_key: None, project: Some(project) }.store(request);
    }

    /// Notes a refused credential, if it contains the id of a key.
    pub(crate) fn refused(request: &HttpRequest, credential: &str) {
        if let Some((key, _)) = KeySecret::parse_key(credential) {
            Self { strategy: AuthStrategy::None, api_key: Some(key), project: None }.store(request);
        }
    }

    /// Notes that the caller is a program of a deployment.
    pub(crate) fn mark_app(request: &HttpRequest) {
        if let Some(draft) = DraftSlot::of(request) {
            draft.is_app.set(true);
        }
    }

    fn store(self, request: &HttpRequest) {
        if let Some(draft) = DraftSlot::of(request) {
            draft.identity.set(Some(self));
        }
    }
}

/// Returns the id of the request.
pub(crate) fn request_id(request: &HttpRequest) -> String {
    let draft = DraftSlot::of(request);
    draft.and_then(|draft| draft.entry.borrow().as_ref().map(|entry| entry.request_id.clone())).unwrap_or_default()
}

/// Prepares the record of this request for a response with `status`, for a use case that can store it in the
/// transaction of its change. Called once, when the caller is known.
pub(crate) fn prepared_record(request: &HttpRequest, status: StatusCode) -> Option<Arc<PreparedRecord>> {
    let draft = DraftSlot::of(request).filter(|draft| !draft.is_relayed)?;
    let entry = draft.entry.borrow().clone()?;
    let route = request.match_pattern().unwrap_or_default();
    let prepared =
        Arc::new(PreparedRecord::new(draft.complete_entry(entry, &route, status.as_u16())?, Arc::clone(&draft.trail)));
    draft.prepared.set(Arc::clone(&prepared)).ok().map(|()| prepared)
}

/// Stores the audit intent of a call that may change something, when its caller is known and before anything is done.
/// A call whose handler has a [`prepared_record`] needs it only if that is declined.
///
/// # Errors
/// `unavailable`; nothing was done.
pub(crate) async fn begin(request: &HttpRequest) -> Result<(), ApiError> {
    let draft =
        DraftSlot::of(request).filter(|draft| !(draft.is_relayed || draft.has_intent.get()) && may_change(request));
    let Some(draft) = draft else { return Ok(()) };
    let entry = draft.entry.borrow().clone();
    let route = request.match_pattern().unwrap_or_default();
    let arrived_at = entry.as_ref().map(|entry| entry.at);
    let completed = entry.and_then(|entry| draft.complete_entry(entry, &route, AuditEntry::UNKNOWN));
    let Some((entry, at)) = completed.zip(arrived_at) else { return Ok(()) };
    let stored = draft.trail.begin(AuditEntry { at, ..entry }).await;
    stored.map_err(|error| {
        ApiError::new(Code::Unavailable, "the call cannot be recorded now; nothing was done").caused_by(error)
    })?;
    draft.has_intent.set(true);
    Ok(())
}

/// Returns whether a call may change something: by its method, or because it opens a WebSocket to a session or sends a
/// request through a session's browser.
pub(crate) fn may_change(request: &HttpRequest) -> bool {
    !is_reading(request.method())
        || request.headers().contains_key(header::UPGRADE)
        || request.match_pattern().is_some_and(|route| route.ends_with("/curl/raw"))
}

/// Returns whether the call was refused by the rate limit.
fn is_rate_limited(response: &ServiceResponse<BoxBody>) -> bool {
    response.status() == StatusCode::TOO_MANY_REQUESTS && response.headers().contains_key(header::RETRY_AFTER)
}

fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// A request whose record is written with its response, or when it is dropped because its client has disconnected.
pub(crate) struct Audited {
    draft: Rc<Draft>,
}

impl Audited {
    pub(crate) fn begin(api: &Api, request: &ServiceRequest, request_id: &str) -> Self {
        let headers = request.headers();
        let text = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
        // The `Host` that is checked before the request continues, not `Forwarded`, which clients can forge.
        let host = text(header::HOST).unwrap_or_default();
        let path = mask_secrets(request.path());
        let entry = AuditEntry {
            id: AuditRecordId::mint(api.services.ids.as_ref()),
            at: to_microseconds(api.services.clock.now()),
            auth_strategy: AuthStrategy::None,
            service: if path.starts_with("/vm/") || path.starts_with("/live/") {
                AuditService::Session
            } else {
                AuditService::Api
            },
            api_key: None,
            project: None,
            client_ip: caller_ip(request.peer_addr(), headers, api).map(|ip| ip.to_string()).unwrap_or_default(),
            domain: truncate(&mask_secrets(&host), MAX_HOST_BYTES),
            method: truncate(request.method().as_str(), MAX_METHOD_BYTES),
            path: truncate(&path, MAX_PATH_BYTES),
            route: String::new(),
            status: CLIENT_CLOSED,
            duration_ms: 0,
            user_agent: AuditEntry::user_agent(&mask_secrets(&text(header::USER_AGENT).unwrap_or_default())),
            request_id: request_id.to_owned(),
            count: 1,
        };
        let draft = Rc::new(Draft {
            trail: Arc::clone(&api.services.trail),
            clock: Arc::clone(&api.services.clock),
            started: Instant::now(),
            identity: Cell::default(),
            is_app: Cell::default(),
            is_relayed: Hop::is(request.request()),
            has_intent: Cell::default(),
            entry: RefCell::new(Some(entry)),
            prepared: OnceCell::new(),
        });
        request.extensions_mut().insert(DraftSlot(Rc::clone(&draft)));
        Self { draft }
    }

    /// Writes the record and returns the response, once the record is durable or if the request changed nothing; an
    /// error response if the record cannot be stored.
    pub(crate) async fn complete(self, response: ServiceResponse<BoxBody>, route: &str) -> ServiceResponse<BoxBody> {
        let Some(entry) = self.draft.take_entry(route, response.status().as_u16()) else { return response };
        let stored = |prepared: &Arc<PreparedRecord>| {
            prepared.outcome() == PreparedRecordOutcome::Stored && prepared.entry().status == entry.status
        };
        if self.draft.prepared.get().is_some_and(stored) {
            return response;
        }
        if entry.auth_strategy == AuthStrategy::None || is_rate_limited(&response) {
            self.draft.trail.refused(entry);
            return response;
        }
        if is_reading(response.request().method()) {
            self.draft.trail.note(entry, self.draft.prepared());
            return response;
        }
        let has_token = entry.auth_strategy == AuthStrategy::SessionToken;
        match self.draft.trail.keep(entry, self.draft.prepared()).await {
            Ok(()) => response,
            // The intent of the call survives the end of the server, and the record follows it.
            Err(StoreError::Unavailable { .. }) if has_token && self.draft.has_intent.get() => response,
            // Nothing was done, for the same reason; the client may retry.
            Err(_) if response.status() == StatusCode::SERVICE_UNAVAILABLE => response,
            Err(error) => {
                let refusal = ApiError::new(Code::Internal, "it may have been done, but could not be recorded");
                let refusal = refusal.caused_by(error);
                tracing::error!(error = refusal.chain(), "an audit record could not be stored in time");
                response.into_response(refusal.error_response())
            }
        }
    }

    /// Writes the record of a request of which only the status is known.
    pub(crate) fn without_request(self, status: u16) {
        self.draft.write(status);
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        self.draft.write(CLIENT_CLOSED);
    }
}

fn to_microseconds(at: OffsetDateTime) -> OffsetDateTime {
    at.replace_nanosecond(at.microsecond() * 1000).unwrap_or(at)
}

/// Truncates a text to at most `max_bytes` at a character boundary.
fn truncate(text: &str, max_bytes: usize) -> String {
    let end = (0..=max_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

/// Returns the client's address, if it is known.
pub(crate) fn caller_ip(peer: Option<SocketAddr>, headers: &HeaderMap, api: &Api) -> Option<IpAddr> {
    peer.and_then(|peer| api.trusted_proxies.client_ip(peer.ip(), headers).ok())
}

/// The proxies whose `X-Forwarded-For` is trusted.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustedProxies {
    networks: Vec<IpNet>,
    /// The source addresses of programs in sandboxes, which may forge headers. They are never trusted.
    sandboxes: Vec<IpAddr>,
}

impl TrustedProxies {
    pub(crate) fn new(networks: Vec<IpNet>, sandboxes: Vec<IpAddr>) -> Self {
        Self { networks, sandboxes }
    }

    /// Returns whether the address is that of a trusted proxy.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        !self.sandboxes.contains(&address) && self.networks.iter().any(|net| net.contains(&address))
    }

    /// Returns the peer, or behind trusted proxies the last hop that is none of them.
    ///
    /// # Errors
    /// `bad_request` if a trusted proxy names a hop that is no address. The address of the proxy would stand for all of
    /// its clients.
    pub(crate) fn client_ip(&self, peer: IpAddr, headers: &HeaderMap) -> Result<IpAddr, ApiError> {
        let mut client = peer.to_canonical();
        let lines: Vec<&[u8]> = headers.get_all("x-forwarded-for").map(|line| line.as_bytes()).collect();
        let mut hops = lines.into_iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
        while self.contains(client) {
            let Some(hop) = hops.find(|hop| !hop.trim_ascii().is_empty()) else { break };
            client = parse_hop(hop).ok_or_else(|| {
                let message = "the trusted proxy sends an entry of X-Forwarded-For that is no IP address";
                ApiError::new(Code::BadRequest, message)
            })?;
        }
        Ok(client)
    }
}

/// Parses the address of a hop: also quoted, in brackets, with a port or with a zone.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text).trim();
    let is_port = |text: &str| (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let without_zone = |text: &str| -> Option<IpAddr> {
        match text.split_once('%') {
            Some((address, zone)) if !zone.is_empty() => address.parse().ok().filter(IpAddr::is_ipv6),
            _ => text.parse().ok(),
        }
    };
    let address = if let Some((inside, after)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        let is_end = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        without_zone(inside).filter(|address| is_end && address.is_ipv6())
    } else {
        without_zone(text).or_else(|| {
            let (address, port) = text.split_once(':')?;
            address.parse().ok().filter(|address: &IpAddr| address.is_ipv4() && is_port(port))
        })
    };
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    fn client_ip(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(HeaderName::from_static("x-forwarded-for"), HeaderValue::from_str(value).expect("a value"));
        }
        let trusted = trusted.iter().map(|net| net.parse().expect("a network")).collect();
        let sandboxes = ["127.0.0.77", "::1"].map(|address| address.parse().expect("an address")).into();
        let client = TrustedProxies::new(trusted, sandboxes).client_ip(peer.parse().expect("an address"), &headers);
        client.map_or_else(|_| "refused".to_owned(), |client| client.to_string())
    }

    #[test]
    fn only_trusted_proxies_may_name_the_client_address() {
        assert_eq!(client_ip("192.0.2.1", &["10.9.9.9"], &[]), "192.0.2.1");
        assert_eq!(client_ip("192.0.2.1", &["10.9.9.9"], &["10.0.0.0/8"]), "192.0.2.1");
        assert_eq!(client_ip("10.0.0.1", &["6.6.6.6, 192.0.2.7"], &["10.0.0.0/8"]), "192.0.2.7");
        assert_eq!(client_ip("10.0.0.1", &["6.6.6.6", "192.0.2.7, 10.0.0.2"], &["10.0.0.0/8"]), "192.0.2.7");
        assert_eq!(client_ip("::ffff:10.0.0.1", &["2001:db8::1"], &["10.0.0.0/8"]), "2001:db8::1");
    }

    #[test]
    fn every_common_form_of_a_hop_is_read_and_others_are_refused() {
        let behind = |hop: &str| client_ip("10.0.0.1", &[hop], &["10.0.0.0/8"]);
        for (hop, client) in [
            ("192.0.2.7:5678", "192.0.2.7"),
            ("\"192.0.2.7:5678\"", "192.0.2.7"),
            (" \t192.0.2.7\t", "192.0.2.7"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("\"[2001:db8::1]:80\"", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25eth0]:80", "fe80::1"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("[::ffff:192.0.2.7]:80", "192.0.2.7"),
            ("nonsense, 192.0.2.7", "192.0.2.7"),
            ("192.0.2.7, 10.0.0.2:443", "192.0.2.7"),
            ("192.0.2.7, ,", "192.0.2.7"),
            ("", "10.0.0.1"),
        ] {
            assert_eq!(behind(hop), client, "{hop}");
        }
        for hop in
            ["unknown", "_hidden", "192.0.2.7, nonsense", "192.0.2.7:x", "[192.0.2.7]", "[::1", "192.0.2.7%a", "1.2.3"]
        {
            assert_eq!(behind(hop), "refused", "{hop}");
        }
        assert_eq!(client_ip("192.0.2.1", &["unknown"], &["10.0.0.0/8"]), "192.0.2.1");
    }

    /// A program in a sandbox may call Casement itself, or a proxy in front of it, which adds the program's address.
    #[test]
    fn a_sandbox_in_a_trusted_network_is_not_trusted() {
        let trusted = ["127.0.0.0/8", "::/0"];
        assert_eq!(client_ip("127.0.0.77", &["203.0.113.9"], &trusted), "127.0.0.77");
        assert_eq!(client_ip("::1", &["203.0.113.9"], &trusted), "::1");
        assert_eq!(client_ip("127.0.0.1", &["203.0.113.9, 127.0.0.77"], &trusted), "127.0.0.77");
        assert_eq!(client_ip("127.0.0.1", &["203.0.113.9, ::1", "127.0.0.1"], &trusted), "::1");
        assert_eq!(
            client_ip("127.0.0.1", &["203.0.113.9"], &trusted),
            "203.0.113.9",
            "other addresses of the network are trusted"
        );
    }

    #[test]
    fn truncated_texts_end_with_a_whole_character() {
        assert_eq!(truncate("aä", 2), "a");
        assert_eq!(truncate("aä", 3), "aä");
    }
}
