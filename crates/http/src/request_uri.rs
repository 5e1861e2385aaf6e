//! Changes of a request's path and query before it is routed.

use actix_web::{dev::ServiceRequest, http::Uri};

/// Replaces the path and the query. Without an effect if `path_and_query` is not valid.
pub(crate) fn replace(request: &mut ServiceRequest, path_and_query: &str) {
    let mut parts = request.uri().clone().into_parts();
    let Ok(replaced) = path_and_query.parse() else { return };
    parts.path_and_query = Some(replaced);
    if let Ok(uri) = Uri::from_parts(parts) {
        request.match_info_mut().get_mut().update(&uri);
        request.head_mut().uri = uri;
    }
}
