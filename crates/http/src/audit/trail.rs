//! From a request to its audit record: who it was, and what came of it.

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
    ApiKeyId, AuditRecordId, Clock, ProjectId,
    api_key::KeySecret,
    audit::{AuditEntry, AuditService, AuditTrail, AuthStrategy, PreparedRecord, PreparedRecordOutcome},
};
use ipnet::IpNet;
use time::OffsetDateTime;

use crate::{
    error::{ApiError, Code},
    state::Api,
    ui::THUMBNAIL,
};

/// More of a path, a host or a method is not kept, in bytes.
const MAX_PATH: usize = 1024;
const MAX_HOST: usize = 255;
const MAX_METHOD: usize = 32;
/// The status of a call whose caller did not wait for its answer; what proxies log for the same.
const CLIENT_CLOSED: u16 = 499;

/// Who a request turned out to come from.
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
    began: Instant,
    identity: Cell<Option<Identity>>,
    /// Whether it comes from a program of a deployment.
    deployed: Cell<bool>,
    /// Whether it is stored that the call begins.
    begun: Cell<bool>,
    /// Everything that is known beforehand; gone when the record is made.
    entry: RefCell<Option<AuditEntry>>,
    early: OnceCell<Arc<PreparedRecord>>,
}

/// Where a handler finds it.
#[derive(Clone)]
struct Slot(Rc<Draft>);

impl Slot {
    fn of(request: &HttpRequest) -> Option<Rc<Draft>> {
        request.extensions().get::<Self>().map(|slot| Rc::clone(&slot.0))
    }
}

impl Draft {
    /// Its record, once; nothing for a caller that showed nothing, nor for a page.
    fn finish(&self, route: &str, status: u16) -> Option<AuditEntry> {
        let entry = self.entry.take()?;
        let mut entry = self.filled(entry, route, status)?;
        if let Some(early) = self.early() {
            // There is one, or may be at any moment.
            entry.at = early.entry().at;
        }
        Some(entry)
    }

    /// Leaves the record of a request of which nothing better is known than its status.
    fn leave(&self, status: u16) {
        let Some(entry) = self.finish("", status) else { return };
        match entry.auth_strategy {
            AuthStrategy::None => self.trail.refused(entry),
            _ => self.trail.note(entry, self.early()),
        }
    }

    /// What may have stored the record already.
    fn early(&self) -> Option<Arc<PreparedRecord>> {
        self.early.get().filter(|early| early.outcome() != PreparedRecordOutcome::Declined).cloned()
    }

    fn filled(&self, entry: AuditEntry, route: &str, status: u16) -> Option<AuditEntry> {
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
                AuditService::Api if self.deployed.get() => AuditService::Apps,
                service => service,
            },
            route: route.to_owned(),
            status,
            duration_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            ..entry
        })
    }
}

impl Identity {
    /// A good key, in this project as far as that is known.
    pub(crate) fn key(request: &HttpRequest, key: ApiKeyId, project: Option<ProjectId>) {
        Self { strategy: AuthStrategy::ApiKey, api_key: Some(key), project }.leave(request);
    }

    /// A good token of a session of this project, or a good cookie of the page of a login of this project.
    pub(crate) fn token(request: &HttpRequest, project: ProjectId) {
        Self { strategy: AuthStrategy::SessionToken, api_key: None, project: Some(project) }.leave(request);
    }

    /// A credential that was refused; it matters if it names a key.
    pub(crate) fn refused(request: &HttpRequest, credential: &str) {
        if let Some((key, _)) = KeySecret::parse_key(credential) {
            Self { strategy: AuthStrategy::None, api_key: Some(key), project: None }.leave(request);
        }
    }

    /// It comes from a program of a deployment.
    pub(crate) fn deployed(request: &HttpRequest) {
        if let Some(draft) = Slot::of(request) {
            draft.deployed.set(true);
        }
    }

    fn leave(self, request: &HttpRequest) {
        if let Some(draft) = Slot::of(request) {
            draft.identity.set(Some(self));
        }
    }
}

/// How the request is called in the log.
pub(crate) fn request_id(request: &HttpRequest) -> String {
    let draft = Slot::of(request);
    draft.and_then(|draft| draft.entry.borrow().as_ref().map(|entry| entry.request_id.clone())).unwrap_or_default()
}

/// The record of this request if it is answered with `status` right now, for whoever can store it with what the call does. To be made
/// once, when its caller is known.
pub(crate) fn early_record(request: &HttpRequest, status: StatusCode) -> Option<Arc<PreparedRecord>> {
    let draft = Slot::of(request)?;
    let entry = draft.entry.borrow().clone()?;
    let route = request.match_pattern().unwrap_or_default();
    let early = Arc::new(PreparedRecord::new(draft.filled(entry, &route, status.as_u16())?, Arc::clone(&draft.trail)));
    draft.early.set(Arc::clone(&early)).ok().map(|()| early)
}

/// Stores that the call begins, if it may change something: for when its caller is known and before anything is done. A call whose handler
/// has an [`early_record`] needs it only where that is declined.
///
/// # Errors
/// `unavailable`; nothing was done.
pub(crate) async fn begin(request: &HttpRequest) -> Result<(), ApiError> {
    let draft = Slot::of(request).filter(|draft| !draft.begun.get() && may_change(request));
    let Some(draft) = draft else { return Ok(()) };
    let known = draft.entry.borrow().clone();
    let route = request.match_pattern().unwrap_or_default();
    let arrived = known.as_ref().map(|entry| entry.at);
    let filled = known.and_then(|entry| draft.filled(entry, &route, AuditEntry::UNKNOWN));
    let Some((entry, at)) = filled.zip(arrived) else { return Ok(()) };
    let begun = draft.trail.begin(AuditEntry { at, ..entry }).await;
    begun.map_err(|error| {
        ApiError::new(Code::Unavailable, "the call cannot be recorded now; nothing was done").caused_by(error)
    })?;
    draft.begun.set(true);
    Ok(())
}

/// Whether a call may change something: by its method, or because it opens a socket into a session or sends a request out of one.
fn may_change(request: &HttpRequest) -> bool {
    !is_reading(request.method())
        || request.headers().contains_key(header::UPGRADE)
        || request.match_pattern().is_some_and(|route| route.ends_with("/curl/raw"))
}

/// Whether it was not even looked at what was asked for, because its caller asks too often.
fn is_rate_limited(response: &ServiceResponse<BoxBody>) -> bool {
    response.status() == StatusCode::TOO_MANY_REQUESTS && response.headers().contains_key(header::RETRY_AFTER)
}

fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// A request that gets its record: with its answer, or when it is dropped because its caller has gone.
pub(crate) struct Audited {
    draft: Rc<Draft>,
}

impl Audited {
    pub(crate) fn begin(api: &Api, request: &ServiceRequest, request_id: &str) -> Self {
        let headers = request.headers();
        let text = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
        // Not what `Forwarded` says, which anybody can write: the name that is looked at before the request goes on.
        let host = text(header::HOST).unwrap_or_default();
        let path = request.path();
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
            domain: cut(&host, MAX_HOST),
            method: cut(request.method().as_str(), MAX_METHOD),
            path: cut(path, MAX_PATH),
            route: String::new(),
            status: CLIENT_CLOSED,
            duration_ms: 0,
            user_agent: AuditEntry::user_agent(&text(header::USER_AGENT).unwrap_or_default()),
            request_id: request_id.to_owned(),
            count: 1,
        };
        let draft = Rc::new(Draft {
            trail: Arc::clone(&api.services.trail),
            clock: Arc::clone(&api.services.clock),
            began: Instant::now(),
            identity: Cell::default(),
            deployed: Cell::default(),
            begun: Cell::default(),
            entry: RefCell::new(Some(entry)),
            early: OnceCell::new(),
        });
        request.extensions_mut().insert(Slot(Rc::clone(&draft)));
        Self { draft }
    }

    /// The answer may go out: its record is durable, or its request changed nothing. Else there is another answer.
    pub(crate) async fn complete(self, response: ServiceResponse<BoxBody>, route: &str) -> ServiceResponse<BoxBody> {
        let Some(entry) = self.draft.finish(route, response.status().as_u16()) else { return response };
        let stored = |early: &Arc<PreparedRecord>| {
            early.outcome() == PreparedRecordOutcome::Stored && early.entry().status == entry.status
        };
        if self.draft.early.get().is_some_and(stored) {
            return response;
        }
        if entry.auth_strategy == AuthStrategy::None || is_rate_limited(&response) {
            self.draft.trail.refused(entry);
            return response;
        }
        if is_reading(response.request().method()) {
            self.draft.trail.note(entry, self.draft.early());
            return response;
        }
        match self.draft.trail.keep(entry, self.draft.early()).await {
            Ok(()) => response,
            // Nothing was done, for the same reason: to be asked again.
            Err(_) if response.status() == StatusCode::SERVICE_UNAVAILABLE => response,
            Err(error) => {
                let refusal = ApiError::new(Code::Internal, "it may have been done, but could not be recorded");
                let refusal = refusal.caused_by(error);
                tracing::error!(error = refusal.chain(), "an audit record is late");
                response.into_response(refusal.error_response())
            }
        }
    }

    /// The record of a request of which nothing better is known than its status.
    pub(crate) fn lost(self, status: u16) {
        self.draft.leave(status);
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        self.draft.leave(CLIENT_CLOSED);
    }
}

fn to_microseconds(at: OffsetDateTime) -> OffsetDateTime {
    at.replace_nanosecond(at.microsecond() * 1000).unwrap_or(at)
}

/// As much as is kept, up to the end of a character.
fn cut(text: &str, longest: usize) -> String {
    let end = (0..=longest.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

/// Where a call came from, as far as anybody knows.
pub(crate) fn caller_ip(peer: Option<SocketAddr>, headers: &HeaderMap, api: &Api) -> Option<IpAddr> {
    peer.map(|peer| api.trusted_proxies.client_ip(peer.ip(), headers))
}

/// Whose word on where a call came from is believed.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustedProxies {
    networks: Vec<IpNet>,
    /// What runs inside of sandboxes comes from these, also to a proxy that is trusted, and writes what it likes into its headers.
    sandboxes: Vec<IpAddr>,
}

impl TrustedProxies {
    pub(crate) fn new(networks: Vec<IpNet>, sandboxes: Vec<IpAddr>) -> Self {
        Self { networks, sandboxes }
    }

    /// Whether the address is a proxy's whose word is believed.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        !self.sandboxes.contains(&address) && self.networks.iter().any(|net| net.contains(&address))
    }

    /// The peer, or behind proxies that are trusted the last hop that is none of them.
    fn client_ip(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.has(peer) {
            return peer;
        }
        let hops: Vec<&str> = headers
            .get_all("x-forwarded-for")
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .collect();
        let mut found = peer;
        for hop in hops.into_iter().rev() {
            // What is no address was written by nobody we trust.
            let Ok(address) = hop.parse::<IpAddr>() else { break };
            found = address.to_canonical();
            if !self.has(found) {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    fn seen(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(HeaderName::from_static("x-forwarded-for"), HeaderValue::from_str(value).expect("a value"));
        }
        let trusted = trusted.iter().map(|net| net.parse().expect("a network")).collect();
        let sandboxes = ["127.0.0.77", "::1"].map(|address| address.parse().expect("an address")).into();
        TrustedProxies::new(trusted, sandboxes).client_ip(peer.parse().expect("an address"), &headers).to_string()
    }

    #[test]
    fn nobody_is_believed_about_where_a_call_came_from_but_trusted_proxies() {
        assert_eq!(seen("192.0.2.1", &["10.9.9.9"], &[]), "192.0.2.1");
        assert_eq!(seen("192.0.2.1", &["10.9.9.9"], &["10.0.0.0/8"]), "192.0.2.1");
        assert_eq!(seen("10.0.0.1", &["6.6.6.6, 192.0.2.7"], &["10.0.0.0/8"]), "192.0.2.7");
        assert_eq!(seen("10.0.0.1", &["6.6.6.6", "192.0.2.7, 10.0.0.2"], &["10.0.0.0/8"]), "192.0.2.7");
        assert_eq!(seen("10.0.0.1", &["192.0.2.7, nonsense"], &["10.0.0.0/8"]), "10.0.0.1");
        assert_eq!(seen("::ffff:10.0.0.1", &["2001:db8::1"], &["10.0.0.0/8"]), "2001:db8::1");
    }

    /// A program in a sandbox asks Casement itself, or a proxy in front of it, which notes the address that it was asked from.
    #[test]
    fn what_runs_in_a_sandbox_is_believed_nothing_though_its_address_lies_in_a_trusted_network() {
        let trusted = ["127.0.0.0/8", "::/0"];
        assert_eq!(seen("127.0.0.77", &["203.0.113.9"], &trusted), "127.0.0.77");
        assert_eq!(seen("::1", &["203.0.113.9"], &trusted), "::1");
        assert_eq!(seen("127.0.0.1", &["203.0.113.9, 127.0.0.77"], &trusted), "127.0.0.77");
        assert_eq!(seen("127.0.0.1", &["203.0.113.9, ::1", "127.0.0.1"], &trusted), "::1");
        assert_eq!(seen("127.0.0.1", &["203.0.113.9"], &trusted), "203.0.113.9", "its neighbours are");
    }

    #[test]
    fn long_texts_end_with_a_whole_character() {
        assert_eq!(cut("aä", 2), "a");
        assert_eq!(cut("aä", 3), "aä");
    }
}
