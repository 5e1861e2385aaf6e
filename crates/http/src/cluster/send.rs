//! Sends a request to a node.

use casement_domain::NodeId;
use hyper::{Request, Response, StatusCode, body::Incoming, header::HeaderValue};

use super::{
    Cluster,
    connections::{Connected, DialError, IdleConnections, RelayedBody},
    headers::{TARGET, target},
};

/// The reason why a request got no response of the node.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// The node cannot be reached. Nothing was sent.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The connection ended before anything was sent.
    #[error("nothing was sent: {0}")]
    Unsent(#[source] hyper::Error),
    /// The connection broke off. The node may have done what was requested.
    #[error("the connection was lost: {0}")]
    Broken(#[source] hyper::Error),
    /// The node was lost, or has started again, before it answered. It may have done what was requested.
    #[error("the node was lost before it answered")]
    Lost,
    /// The node has another run than the store said. It has done nothing.
    #[error("the node has another run")]
    Misdirected,
}

/// Sends a request over an idle connection or a new one. It is sent once more only if nothing of it was sent.
///
/// # Errors
/// See [`SendError`].
pub(super) async fn send<B: RelayedBody>(
    cluster: &Cluster,
    idle: &IdleConnections<B>,
    node: NodeId,
    message: Request<B>,
) -> Result<(Response<Incoming>, Connected<B>), SendError> {
    metrics::counter!("casement_node_requests_total", "direction" => "sent").increment(1);
    let sent = send_counted(cluster, idle, node, message).await;
    if let Err(SendError::Unsent(_) | SendError::Broken(_) | SendError::Lost) = &sent {
        metrics::counter!("casement_node_requests_failed_total").increment(1);
    }
    sent
}

async fn send_counted<B: RelayedBody>(
    cluster: &Cluster,
    idle: &IdleConnections<B>,
    node: NodeId,
    mut message: Request<B>,
) -> Result<(Response<Incoming>, Connected<B>), SendError> {
    loop {
        let idle = idle.take(node).await;
        let is_new = idle.is_none();
        let mut connected = match idle {
            Some(connected) => connected,
            None => cluster.dial(node).await?,
        };
        let named = HeaderValue::try_from(target(node, connected.epoch))
            .unwrap_or_else(|_| unreachable!("an id and a number are ASCII"));
        message.headers_mut().insert(TARGET, named);
        let sent = tokio::select! {
            biased;
            sent = connected.sender.try_send_request(message) => sent,
            () = cluster.clone().until_over(node, connected.epoch) => return Err(SendError::Lost),
        };
        match sent {
            Ok(response) if response.status() == StatusCode::MISDIRECTED_REQUEST => return Err(SendError::Misdirected),
            Ok(response) => return Ok((response, connected)),
            Err(mut failed) => match failed.take_message() {
                Some(unsent) if !is_new => message = unsent,
                Some(_) => return Err(SendError::Unsent(failed.into_error())),
                None => return Err(SendError::Broken(failed.into_error())),
            },
        }
    }
}
