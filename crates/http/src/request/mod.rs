//! Requests of authenticated callers. A handler reaches the use cases only through [`Request`], whose type names the
//! [`Credential`] that is required, so every handler checks a credential.

mod key;
mod placed;
mod session;

use std::sync::Arc;

use actix_web::{
    FromRequest, HttpRequest, dev,
    http::header::HeaderMap,
    web::{Bytes, Data, Payload},
};
use casement_domain::{page::Page, session_operation::ByteStream};
use futures_util::{FutureExt as _, future::LocalBoxFuture};
use serde::de::DeserializeOwned;

pub(crate) use self::{
    key::{AnyKey, DeferredAudit, OrganizationKey, ProjectKey},
    session::{
        ActiveSession, HubClient, LiveOperator, LiveViewer, RecordingViewer, SessionCredential, StoredSession,
        WebDriverClient,
    },
};
use crate::{
    audit, body,
    cluster::{self, Destination},
    error::ApiError,
    multipart::Form,
    operation::Requirement,
    query::{PageParams, Query, decoded},
    state::{Api, Services},
};

/// The credential that a handler requires.
pub(crate) trait Credential: 'static {
    /// The access that a valid credential grants.
    type Access: 'static;

    /// The credential in the documentation.
    const REQUIREMENT: Requirement;

    /// Checks the credential, counts the call and, unless the handler does it later, stores the audit intent. A request for
    /// a session of another node is admitted there.
    ///
    /// # Errors
    /// `unauthorized`, `forbidden`, `insufficient_scope`, `rate_limited`, and the errors of finding the project or the session.
    async fn admit(api: &Api, request: &HttpRequest) -> Result<Admitted<Self::Access>, ApiError>;
}

/// Where an admitted request is answered.
pub(crate) enum Admitted<A> {
    /// By this node.
    Here(A),
    /// By the node that runs its session.
    Elsewhere(Destination),
}

/// No credential.
pub(crate) struct Public;

impl Credential for Public {
    type Access = ();

    const REQUIREMENT: Requirement = Requirement::None;

    async fn admit(_: &Api, _: &HttpRequest) -> Result<Admitted<()>, ApiError> {
        Ok(Admitted::Here(()))
    }
}

/// A request of a caller with the credential `C`. The body is not read yet.
pub(crate) struct Request<C: Credential> {
    api: Data<Api>,
    http: HttpRequest,
    payload: Payload,
    access: C::Access,
}

impl<C: Credential> FromRequest for Request<C> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let http = request.clone();
        let payload = extracted(request, payload);
        Box::pin(async move {
            let api = http.app_data::<Data<Api>>().cloned();
            let api = api.ok_or_else(|| ApiError::internal("the server was assembled without its state"))?;
            let payload = payload?;
            match C::admit(&api, &http).await? {
                Admitted::Here(access) => Ok(Self { api, http, payload, access }),
                Admitted::Elsewhere(owner) => {
                    let response = cluster::forward(&api, &http, payload, owner).await?;
                    Err(cluster::keep_response(&http, response))
                }
            }
        })
    }
}

/// Returns the body, which was not read yet.
fn extracted(request: &HttpRequest, payload: &mut dev::Payload) -> Result<Payload, ApiError> {
    let payload = Payload::from_request(request, payload).now_or_never().and_then(Result::ok);
    payload.ok_or_else(|| ApiError::internal("the body was taken before"))
}

impl<C: Credential> Request<C> {
    pub(crate) fn services(&self) -> &Services {
        &self.api.services
    }

    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// Returns the state of the server, for work that outlives the request.
    pub(crate) fn shared_api(&self) -> Data<Api> {
        self.api.clone()
    }

    /// Returns the HTTP request.
    pub(crate) fn http(&self) -> &HttpRequest {
        &self.http
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.http.headers()
    }

    /// Returns the id of the request, as in the log.
    pub(crate) fn request_id(&self) -> String {
        audit::request_id(&self.http)
    }

    /// Returns a segment of the path, decoded.
    ///
    /// # Errors
    /// `bad_request`.
    pub(crate) fn path(&self, name: &str) -> Result<String, ApiError> {
        segment(&self.http, name)
    }

    /// Reads the query parameters that `T` declares. Unknown ones are ignored.
    ///
    /// # Errors
    /// See [`Query::read`].
    pub(crate) fn query<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let query = self.raw_query()?;
        query.read()
    }

    /// Returns all query parameters as they were sent.
    ///
    /// # Errors
    /// `bad_request`.
    pub(crate) fn raw_query(&self) -> Result<Query, ApiError> {
        Query::parse(self.http.query_string())
    }

    /// Reads the requested page of a list.
    ///
    /// # Errors
    /// `invalid_input`.
    pub(crate) fn page(&self) -> Result<Page, ApiError> {
        let PageParams { limit, offset } = self.query()?;
        Ok(Page::parse(limit, offset)?)
    }

    /// Reads the JSON body.
    ///
    /// # Errors
    /// See [`body::json()`] and [`body::object`].
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        let body = body::json(&self.http, &mut self.payload).await?;
        body::object(&self.http, &body)
    }

    /// Reads the JSON body, and also returns its bytes.
    ///
    /// # Errors
    /// See [`body::json()`] and [`body::object`].
    pub(crate) async fn json_with_bytes<T: DeserializeOwned>(&mut self) -> Result<(T, Bytes), ApiError> {
        let body = body::json(&self.http, &mut self.payload).await?;
        Ok((body::object(&self.http, &body)?, body))
    }

    /// Reads a JSON body of at most `max_bytes` bytes.
    ///
    /// # Errors
    /// See [`body::json()`] and [`body::object`].
    pub(crate) async fn json_within<T: DeserializeOwned>(&mut self, max_bytes: usize) -> Result<T, ApiError> {
        let body = body::json_within(max_bytes, &self.http, &mut self.payload).await?;
        body::object(&self.http, &body)
    }

    /// Reads the texts of a form. Its files are streamed.
    ///
    /// # Errors
    /// See [`Form::read`].
    pub(crate) async fn form(&mut self, max_bytes: u64, files: &[&str]) -> Result<Form, ApiError> {
        let payload = self.take_payload()?;
        Form::read(&self.http, payload, max_bytes, files).await
    }

    /// Returns the body as a stream.
    ///
    /// # Errors
    /// `payload_too_large` if the announced length exceeds `max_bytes`.
    pub(crate) fn body(&mut self, max_bytes: u64) -> Result<(ByteStream, body::BodyEnd), ApiError> {
        let payload = self.take_payload()?;
        body::stream(&self.http, payload, max_bytes)
    }

    /// Takes the body out of the request and leaves an empty one.
    ///
    /// # Errors
    /// `internal`: never.
    pub(crate) fn take_payload(&mut self) -> Result<Payload, ApiError> {
        let empty = extracted(&self.http, &mut dev::Payload::None)?;
        Ok(std::mem::replace(&mut self.payload, empty))
    }

    /// Returns a shared reference to the use cases, for work that outlives the request.
    fn shared_services(&self) -> Arc<Services> {
        Arc::clone(&self.api.services)
    }
}

/// Returns a segment of the path, decoded.
pub(crate) fn segment(request: &HttpRequest, name: &str) -> Result<String, ApiError> {
    // The router has decoded most of the path already, and has replaced bytes that are not UTF-8.
    decoded(request.uri().path())?;
    let text = decoded(request.match_info().get(name).unwrap_or_default())?;
    // PostgreSQL refuses NUL. No name and no identifier contains the substitute character, so the lookup finds nothing,
    // as for any unknown name.
    Ok(text.replace('\0', "\u{1a}"))
}
