//! How long a caller waits for an answer.

use std::time::Duration;

use actix_web::http::header::HeaderMap;

/// The caller's own read timeout, in seconds.
const READ_TIMEOUT: &str = "x-stainless-read-timeout";

/// How long an operation may take. A caller that gave up first would call again, so the answer comes a little earlier.
pub(crate) fn client_timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(READ_TIMEOUT)?.to_str().ok()?.trim().parse().ok()?;
    let sensible = seconds.is_finite() && (0.0..=86_400.0).contains(&seconds);
    sensible.then(|| Duration::from_secs_f64((seconds - 2.0).max(seconds / 2.0)))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn the_wait_ends_before_the_caller_gives_up() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(READ_TIMEOUT), HeaderValue::from_static(text));
            client_timeout(&headers)
        };
        assert_eq!(of("60"), Some(Duration::from_secs(58)));
        assert_eq!(of("3"), Some(Duration::from_millis(1500)));
        assert_eq!(of("0.5"), Some(Duration::from_millis(250)));
        for nonsense in ["", "-1", "NaN", "inf", "soon", "1e300"] {
            assert_eq!(of(nonsense), None, "{nonsense}");
        }
    }
}
