//! The bodies of relayed requests and responses.

use std::{
    error::Error,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use actix_web::{
    body::{BodySize, MessageBody},
    error::PayloadError,
    web::{Bytes, Payload},
};
use futures_util::StreamExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::{
    Cluster,
    connections::{Connected, NodeConnections},
};

/// The body of a request: what a client sends, or bytes in memory.
pub(crate) enum RequestBody {
    Client { payload: Payload, length: Option<u64> },
    Bytes(Bytes),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = PayloadError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, PayloadError>>> {
        match &mut *self {
            Self::Client { payload, .. } => {
                payload.poll_next_unpin(cx).map(|next| next.map(|part| part.map(Frame::data)))
            }
            Self::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Client { length, .. } => *length == Some(0),
            Self::Bytes(bytes) => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Client { length: Some(length), .. } => SizeHint::with_exact(*length),
            Self::Client { length: None, .. } => SizeHint::default(),
            Self::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

/// The body of a response. Its connection serves the next request once the body has ended; a body that is dropped before
/// ends the connection.
pub(super) struct ResponseBody {
    body: Incoming,
    size: BodySize,
    connected: Option<(Connected, Rc<NodeConnections>)>,
    /// Ends when the run of the node that sends the body is over.
    over: Pin<Box<dyn Future<Output = ()>>>,
}

impl ResponseBody {
    pub(super) fn new(
        body: Incoming,
        length: Option<u64>,
        connected: Connected,
        pool: Rc<NodeConnections>,
        cluster: Cluster,
    ) -> Self {
        let size = length.map_or(BodySize::Stream, BodySize::Sized);
        let over = Box::pin(cluster.until_over(connected.node, connected.epoch));
        let mut response = Self { body, size, connected: Some((connected, pool)), over };
        if response.body.is_end_stream() {
            response.release();
        }
        response
    }

    fn release(&mut self) {
        if let Some((connected, pool)) = self.connected.take() {
            pool.give_back(connected);
        }
    }
}

impl MessageBody for ResponseBody {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        loop {
            let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(cx) else {
                ready!(self.over.as_mut().poll(cx));
                return Poll::Ready(Some(Err("the node was lost before the end of its response".into())));
            };
            let Some(frame) = next else {
                self.release();
                return Poll::Ready(None);
            };
            // Trailers have no meaning for a client of HTTP/1.1.
            if let Ok(data) = frame?.into_data() {
                return Poll::Ready(Some(Ok(data)));
            }
        }
    }
}
