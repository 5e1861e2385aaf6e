//! Responses with a streamed body, which end when their session ends.

use actix_web::{HttpResponse, HttpResponseBuilder, web::Bytes};
use casement_domain::session_operation::OperationError;
use futures_util::{Stream, StreamExt as _, stream};

use crate::{
    error::ApiError,
    request::{Request, SessionCredential},
};

/// Streams `content` as the body of a response, only as fast as the client reads. A failure or the end of the session
/// aborts the connection, so that a client cannot mistake a part for the whole content.
pub(crate) fn answer<C: SessionCredential>(
    mut response: HttpResponseBuilder,
    request: Request<C>,
    content: impl Stream<Item = Result<Bytes, OperationError>> + 'static,
) -> HttpResponse {
    let (end, open) = request.into_open();
    let ended = Box::pin(async move { end.ended().await });
    let parts = stream::unfold(Some((Box::pin(content), ended, open)), |state| async move {
        let (mut content, mut ended, open) = state?;
        let next = tokio::select! {
            biased;
            next = content.next() => next?.map_err(|error| error.to_string()),
            reason = &mut ended => Err(reason.as_str().to_owned()),
        };
        let failed = next.is_err();
        let part = next.map_err(|error| actix_web::Error::from(ApiError::internal(error)));
        Some((part, (!failed).then_some((content, ended, open))))
    });
    response.streaming(parts)
}
