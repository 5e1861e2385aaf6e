//! The read timeout that a client announces.

use std::time::Duration;

use actix_web::http::header::HeaderMap;

/// The header with the client's read timeout in seconds.
const READ_TIMEOUT: &str = "x-stainless-read-timeout";

/// Returns the maximum duration of an operation. It ends shortly before the client's timeout, because a client that times
/// out would retry.
pub(crate) fn client_timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(READ_TIMEOUT)?.to_str().ok()?.trim().parse().ok()?;
    let is_plausible = seconds.is_finite() && (0.0..=86_400.0).contains(&seconds);
    is_plausible.then(|| Duration::from_secs_f64((seconds - 2.0).max(seconds / 2.0)))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn the_operation_ends_before_the_client_times_out() {
        let timeout = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(READ_TIMEOUT), HeaderValue::from_static(text));
            client_timeout(&headers)
        };
        assert_eq!(timeout("60"), Some(Duration::from_secs(58)));
        assert_eq!(timeout("3"), Some(Duration::from_millis(1500)));
        assert_eq!(timeout("0.5"), Some(Duration::from_millis(250)));
        for nonsense in ["", "-1", "NaN", "inf", "soon", "1e300"] {
            assert_eq!(timeout(nonsense), None, "{nonsense}");
        }
    }
}
