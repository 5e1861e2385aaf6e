//! Hands the response of another node from the extractor of a request, which has received it, to the middleware.

use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, body::BoxBody, dev::ServiceResponse};

use crate::error::ApiError;

/// The response of the owner of the session.
struct Relayed(HttpResponse);

/// Keeps the response of another node. Returns the error with which an extractor prevents the call of its handler.
pub(crate) fn keep_response(request: &HttpRequest, response: HttpResponse) -> ApiError {
    request.extensions_mut().insert(Relayed(response));
    ApiError::internal("the response of another node was lost")
}

/// Returns the response of another node if there is one, and else the response of this node.
pub(crate) fn relayed_response(response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let relayed = response.request().extensions_mut().remove::<Relayed>();
    match relayed {
        Some(Relayed(relayed)) => response.into_response(relayed),
        None => response,
    }
}
