//! Answers that are made while they are sent, and end with the session they come from.

use actix_web::{HttpResponse, HttpResponseBuilder, web::Bytes};
use casement_domain::session_operation::OperationError;
use futures_util::{Stream, StreamExt as _, stream};

use crate::{
    error::ApiError,
    request::{Request, SessionCredential},
};

/// `content` as the body of an answer. It is asked for more only as fast as the caller takes it. What fails in the middle breaks the
/// connection off, and so does the end of the session: a part is never taken for the whole.
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
        let broken = next.is_err();
        let part = next.map_err(|why| actix_web::Error::from(ApiError::internal(why)));
        Some((part, (!broken).then_some((content, ended, open))))
    });
    response.streaming(parts)
}
