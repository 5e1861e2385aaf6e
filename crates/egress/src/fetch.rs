//! Fetches documents for the server itself, under the same rules as a session's requests.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyStream, Empty};
use hyper::{
    body::{Body, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret as _, SecretString};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::{session::Egress, target::Target, upstream::Upstream};

const MAX_REDIRECTS: usize = 5;
/// The timeout of each step: connecting with its handshakes, and the response head.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest pause of a body.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The document could not be fetched.
#[derive(Debug, Error)]
pub enum FetchError {
    /// The URL, or a redirect target, is neither `http` nor `https`, or has no host.
    #[error("not an address that can be fetched")]
    BadAddress,
    /// The rules refuse the host, or it does not answer.
    #[error("the host is not allowed, not known or does not answer")]
    ConnectError,
    /// The certificate or the connection is bad.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// The response has another status than 200.
    #[error("the answer was {0}")]
    Status(StatusCode),
    /// There were too many redirects.
    #[error("too many redirects")]
    Redirects,
    /// A step timed out.
    #[error("no answer in time")]
    Silent,
    /// The response is longer than allowed.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
}

/// A document as a stream.
#[derive(Debug)]
pub struct Fetched {
    body: BodyStream<Incoming>,
    read_timeout: Pin<Box<tokio::time::Sleep>>,
    _driver: AbortOnDropHandle<()>,
}

impl futures_core::Stream for Fetched {
    type Item = Result<Bytes, FetchError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.read_timeout.as_mut().poll(context).is_ready() {
                return Poll::Ready(Some(Err(FetchError::Silent)));
            }
            let next = ready!(Pin::new(&mut self.body).poll_next(context));
            self.read_timeout.as_mut().reset(tokio::time::Instant::now() + READ_TIMEOUT);
            match next {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(connection_error(&error)))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Egress {
    /// Fetches the document at `url` for the server itself, and follows redirects. Every host is resolved, checked and
    /// dialled like a session's.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn fetch(&self, url: &Url) -> Result<Fetched, FetchError> {
        let upstream = self.upstream();
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let answer =
                timeout(STEP_TIMEOUT * 2, fetch_step(&upstream, &url)).await.map_err(|_| FetchError::Silent)??;
            match answer {
                FetchStep::Document(fetched) => return Ok(fetched),
                FetchStep::Redirect(next) => url = next,
            }
        }
        Err(FetchError::Redirects)
    }
}

enum FetchStep {
    Document(Fetched),
    Redirect(Url),
}

async fn fetch_step(upstream: &Upstream, url: &Url) -> Result<FetchStep, FetchError> {
    let (answer, driver) = send(upstream, url, None).await?;
    if answer.status().is_redirection() {
        let location = answer.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
        let next = location.and_then(|location| url.join(location).ok()).ok_or(FetchError::Status(answer.status()))?;
        // A redirect may not downgrade from https to http.
        if url.scheme() == "https" && next.scheme() != "https" {
            return Err(FetchError::BadAddress);
        }
        return Ok(FetchStep::Redirect(next));
    }
    if answer.status() != StatusCode::OK {
        return Err(FetchError::Status(answer.status()));
    }
    let read_timeout = Box::pin(tokio::time::sleep(READ_TIMEOUT));
    Ok(FetchStep::Document(Fetched { body: BodyStream::new(answer.into_body()), read_timeout, _driver: driver }))
}

/// Requests `url` and returns the response head, with the task that drives the connection.
pub(crate) async fn send(
    upstream: &Upstream,
    url: &Url,
    bearer: Option<&SecretString>,
) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), FetchError> {
    send_request(upstream, url, |target| request(url, target, bearer)).await
}

/// Sends the request that `request` builds for the host of `url`, and returns the response head, with the task that
/// drives the connection.
pub(crate) async fn send_request<B>(
    upstream: &Upstream,
    url: &Url,
    request: impl FnOnce(&Target) -> Result<Request<B>, FetchError>,
) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), FetchError>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let secure = match url.scheme() {
        "http" => false,
        "https" => true,
        _ => return Err(FetchError::BadAddress),
    };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err(FetchError::BadAddress);
    };
    let target = Target::parse(host, Some(port)).map_err(|_| FetchError::BadAddress)?;
    let request = request(&target)?;
    let candidates = upstream.candidates(&target).await.map_err(|_| FetchError::ConnectError)?;
    let (stream, _) = upstream.dial(&candidates).await.map_err(|_| FetchError::ConnectError)?;
    if secure {
        let name =
            ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|_| FetchError::BadAddress)?;
        let connector = upstream.trust.connector().map_err(|error| connection_error(&error))?;
        let stream = timeout(STEP_TIMEOUT, connector.connect(name, stream)).await.map_err(|_| FetchError::Silent)?;
        exchange(stream.map_err(|error| connection_error(&error))?, request).await
    } else {
        exchange::<TcpStream, B>(stream, request).await
    }
}

fn request(url: &Url, target: &Target, bearer: Option<&SecretString>) -> Result<Request<Empty<Bytes>>, FetchError> {
    let (host, path) = target.host_and_path(url);
    let mut request = Request::get(path).header(header::HOST, host).header(header::USER_AGENT, "casement");
    if let Some(bearer) = bearer {
        // The error does not contain the token.
        let value = HeaderValue::try_from(format!("Bearer {}", bearer.expose_secret()));
        let mut value = value.map_err(|_| FetchError::Connection("the token cannot be sent".to_owned()))?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value).header(header::ACCEPT, "application/json");
    }
    request.body(Empty::new()).map_err(|error| connection_error(&error))
}

async fn exchange<S, B>(
    stream: S,
    request: Request<B>,
) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (mut sender, driver) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| connection_error(&error))?;
    let driver = AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(%error, "a connection of the server itself failed");
        }
    }));
    let answer = timeout(STEP_TIMEOUT, sender.send_request(request)).await.map_err(|_| FetchError::Silent)?;
    Ok((answer.map_err(|error| connection_error(&error))?, driver))
}

pub(crate) fn connection_error(error: &dyn std::error::Error) -> FetchError {
    FetchError::Connection(error.to_string())
}
