//! A document for the server itself, through the same rules as a session's requests.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyStream, Empty};
use hyper::{body::Incoming, client::conn::http1};
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

/// How many times an answer may lead elsewhere.
const REDIRECTS: usize = 5;
/// How long each step may take: connecting with its handshakes, and the beginning of an answer.
const STEP: Duration = Duration::from_secs(20);
/// How long a document may stop coming.
const SILENCE: Duration = Duration::from_secs(30);

/// There is no document.
#[derive(Debug, Error)]
pub enum FetchError {
    /// The address, or one that an answer led to, is neither `http` nor `https`, or has no host.
    #[error("not an address that can be fetched")]
    BadAddress,
    /// The rules, or nobody there.
    #[error("the host is not allowed, not known or does not answer")]
    ConnectError,
    /// Its certificate, or the connection.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// It answered something else than a document.
    #[error("the answer was {0}")]
    Status(StatusCode),
    /// It led on and on.
    #[error("too many redirects")]
    Redirects,
    /// It took too long.
    #[error("no answer in time")]
    Silent,
    /// It answered more than was allowed.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
}

/// A document as it comes.
#[derive(Debug)]
pub struct Fetched {
    body: BodyStream<Incoming>,
    silence: Pin<Box<tokio::time::Sleep>>,
    _driver: AbortOnDropHandle<()>,
}

impl futures_core::Stream for Fetched {
    type Item = Result<Bytes, FetchError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.silence.as_mut().poll(context).is_ready() {
                return Poll::Ready(Some(Err(FetchError::Silent)));
            }
            let next = ready!(Pin::new(&mut self.body).poll_next(context));
            self.silence.as_mut().reset(tokio::time::Instant::now() + SILENCE);
            match next {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(broken(&error)))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Egress {
    /// The document at `url`, for the server itself. Every host on the way to it is looked up, checked and dialled like a session's.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn fetch(&self, url: &Url) -> Result<Fetched, FetchError> {
        let upstream = self.upstream();
        let mut url = url.clone();
        for _ in 0..=REDIRECTS {
            let answer = timeout(STEP * 2, ask(&upstream, &url)).await.map_err(|_| FetchError::Silent)??;
            match answer {
                Asked::Here(fetched) => return Ok(fetched),
                Asked::There(next) => url = next,
            }
        }
        Err(FetchError::Redirects)
    }
}

enum Asked {
    Here(Fetched),
    There(Url),
}

async fn ask(upstream: &Upstream, url: &Url) -> Result<Asked, FetchError> {
    let (answer, driver) = answer_of(upstream, url, None).await?;
    if answer.status().is_redirection() {
        let place = answer.headers().get(header::LOCATION).and_then(|place| place.to_str().ok());
        let next = place.and_then(|place| url.join(place).ok()).ok_or(FetchError::Status(answer.status()))?;
        // What began encrypted does not go on in the open.
        if url.scheme() == "https" && next.scheme() != "https" {
            return Err(FetchError::BadAddress);
        }
        return Ok(Asked::There(next));
    }
    if answer.status() != StatusCode::OK {
        return Err(FetchError::Status(answer.status()));
    }
    let silence = Box::pin(tokio::time::sleep(SILENCE));
    Ok(Asked::Here(Fetched { body: BodyStream::new(answer.into_body()), silence, _driver: driver }))
}

/// The beginning of what is answered at `url`, with the connection that the rest comes over.
pub(crate) async fn answer_of(
    upstream: &Upstream,
    url: &Url,
    bearer: Option<&SecretString>,
) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), FetchError> {
    let secure = match url.scheme() {
        "http" => false,
        "https" => true,
        _ => return Err(FetchError::BadAddress),
    };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err(FetchError::BadAddress);
    };
    let target = Target::parse(host, Some(port)).map_err(|_| FetchError::BadAddress)?;
    let request = request(url, &target, bearer)?;
    let candidates = upstream.candidates(&target).await.map_err(|_| FetchError::ConnectError)?;
    let (stream, _) = upstream.dial(&candidates).await.map_err(|_| FetchError::ConnectError)?;
    if secure {
        let name =
            ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|_| FetchError::BadAddress)?;
        let connector = upstream.trust.connector().map_err(|error| broken(&error))?;
        let stream = timeout(STEP, connector.connect(name, stream)).await.map_err(|_| FetchError::Silent)?;
        exchange(stream.map_err(|error| broken(&error))?, request).await
    } else {
        exchange::<TcpStream>(stream, request).await
    }
}

fn request(url: &Url, target: &Target, bearer: Option<&SecretString>) -> Result<Request<Empty<Bytes>>, FetchError> {
    let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let default_port = url.port().is_none();
    let host = if default_port { target.host.to_string() } else { format!("{}:{}", target.host, target.port) };
    let mut request = Request::get(path).header(header::HOST, host).header(header::USER_AGENT, "casement");
    if let Some(bearer) = bearer {
        // A token that no header can carry is not repeated in the error.
        let value = HeaderValue::try_from(format!("Bearer {}", bearer.expose_secret()));
        let mut value = value.map_err(|_| FetchError::Connection("the token cannot be sent".to_owned()))?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value).header(header::ACCEPT, "application/json");
    }
    request.body(Empty::new()).map_err(|error| broken(&error))
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    request: Request<Empty<Bytes>>,
) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), FetchError> {
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    let driver = AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(%error, "a connection of the server's own broke off");
        }
    }));
    let answer = timeout(STEP, sender.send_request(request)).await.map_err(|_| FetchError::Silent)?;
    Ok((answer.map_err(|error| broken(&error))?, driver))
}

pub(crate) fn broken(error: &dyn std::error::Error) -> FetchError {
    FetchError::Connection(error.to_string())
}
