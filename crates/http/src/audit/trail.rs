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
    audit::{AuditEntry, AuditService, AuditTrail, AuthStrategy, EarlyFate, EarlyRecord},
};
use ipnet::IpNet;
use time::OffsetDateTime;

use crate::{
    error::{ApiError, Code},
    state::Api,
    ui::THUMBNAIL,
};

/// More of a path, a host or a method is not kept, in bytes.
const LONGEST_PATH: usize = 4096;
const LONGEST_HOST: usize = 255;
const LONGEST_METHOD: usize = 32;
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
    clock: Arc<dyn Clock>,
    began: Instant,
    identity: Cell<Option<Identity>>,
    /// Whether it comes from a program of a deployment.
    deployed: Cell<bool>,
    /// Everything that is known beforehand; gone when the record is made.
    entry: RefCell<Option<AuditEntry>>,
    early: OnceCell<Arc<EarlyRecord>>,
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
        if let Some(early) = self.early.get()
            && early.fate() != EarlyFate::Declined
        {
            // There is one, or may be at any moment.
            entry.at = early.entry().at;
        }
        Some(entry)
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
pub(crate) fn early_record(request: &HttpRequest, status: StatusCode) -> Option<Arc<EarlyRecord>> {
    let draft = Slot::of(request)?;
    let entry = draft.entry.borrow().clone()?;
    let route = request.match_pattern().unwrap_or_default();
    let early = Arc::new(EarlyRecord::new(draft.filled(entry, &route, status.as_u16())?));
    draft.early.set(Arc::clone(&early)).ok().map(|()| early)
}

/// A request that gets its record: with its answer, or when it is dropped because its caller has gone.
pub(crate) struct Audited {
    trail: Arc<dyn AuditTrail>,
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
            domain: cut(&host, LONGEST_HOST),
            method: cut(request.method().as_str(), LONGEST_METHOD),
            path: cut(path, LONGEST_PATH),
            route: String::new(),
            status: CLIENT_CLOSED,
            duration_ms: 0,
            user_agent: AuditEntry::user_agent(&text(header::USER_AGENT).unwrap_or_default()),
            request_id: request_id.to_owned(),
        };
        let draft = Rc::new(Draft {
            clock: Arc::clone(&api.services.clock),
            began: Instant::now(),
            identity: Cell::default(),
            deployed: Cell::default(),
            entry: RefCell::new(Some(entry)),
            early: OnceCell::new(),
        });
        request.extensions_mut().insert(Slot(Rc::clone(&draft)));
        Self { trail: Arc::clone(&api.services.trail), draft }
    }

    /// The answer may go out: its record is durable, or its request changed nothing. Else there is another answer.
    pub(crate) async fn complete(self, response: ServiceResponse<BoxBody>, route: &str) -> ServiceResponse<BoxBody> {
        let Some(entry) = self.draft.finish(route, response.status().as_u16()) else { return response };
        let stored =
            |early: &Arc<EarlyRecord>| early.fate() == EarlyFate::Stored && early.entry().status == entry.status;
        if self.draft.early.get().is_some_and(stored) {
            return response;
        }
        if matches!(*response.request().method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            self.trail.note(entry);
            return response;
        }
        match self.trail.keep(entry).await {
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
        if let Some(entry) = self.draft.finish("", status) {
            self.trail.note(entry);
        }
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        if let Some(entry) = self.draft.finish("", CLIENT_CLOSED) {
            self.trail.note(entry);
        }
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
    peer.map(|peer| client_ip(peer.ip(), headers, &api.trusted_proxies))
}

/// Where a call came from: the peer, or behind proxies that are trusted the last hop that is none of them.
fn client_ip(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.contains(&address));
    let peer = peer.to_canonical();
    if !is_trusted(peer) {
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
        if !is_trusted(found) {
            break;
        }
    }
    found
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
        let trusted: Vec<IpNet> = trusted.iter().map(|net| net.parse().expect("a network")).collect();
        client_ip(peer.parse().expect("an address"), &headers, &trusted).to_string()
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

    #[test]
    fn long_texts_end_with_a_whole_character() {
        assert_eq!(cut("aä", 2), "a");
        assert_eq!(cut("aä", 3), "aä");
    }
}
