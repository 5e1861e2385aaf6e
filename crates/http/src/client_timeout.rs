//! The time after which a client gives up and repeats its call.

use std::time::Duration;

use actix_web::http::header::HeaderMap;

/// The headers with the client's timeout in seconds: of the Python client, and of the others, which send whole seconds and
/// only a timeout that is set for the one call.
const TIMEOUTS: [&str; 2] = ["x-stainless-read-timeout", "x-stainless-timeout"];
/// The header with the language of the client library.
const LANGUAGE: &str = "x-stainless-lang";
/// The default timeout of the npm client in seconds. The Python client always sends its timeout, unless it has none.
const NPM_TIMEOUT_SECONDS: f64 = 60.0;
/// The timeout in seconds that `0` stands for: less than one second.
const MIN_TIMEOUT_SECONDS: f64 = 0.5;

/// Returns the maximum duration of an operation. It ends shortly before the client's timeout, because a client that times
/// out would repeat the call.
pub(crate) fn client_timeout(headers: &HeaderMap) -> Option<Duration> {
    let announced = TIMEOUTS.iter().find_map(|name| seconds(headers, name));
    let is_npm = headers.get(LANGUAGE).is_some_and(|language| language == "js");
    let seconds = announced.or(is_npm.then_some(NPM_TIMEOUT_SECONDS))?;
    Some(Duration::from_secs_f64((seconds - 2.0).max(seconds / 2.0)))
}

/// Returns the plausible timeout of a header.
fn seconds(headers: &HeaderMap, name: &str) -> Option<f64> {
    let seconds: f64 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
    let is_plausible = seconds.is_finite() && (0.0..=86_400.0).contains(&seconds);
    is_plausible.then(|| seconds.max(MIN_TIMEOUT_SECONDS))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    fn timeout(given: &[(&'static str, &'static str)]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        client_timeout(&headers)
    }

    #[test]
    fn the_operation_ends_before_the_client_times_out() {
        for name in TIMEOUTS {
            assert_eq!(timeout(&[(name, "60")]), Some(Duration::from_secs(58)));
            assert_eq!(timeout(&[(name, "3")]), Some(Duration::from_millis(1500)));
            assert_eq!(timeout(&[(name, "0.5")]), Some(Duration::from_millis(250)));
            assert_eq!(timeout(&[(name, "0")]), Some(Duration::from_millis(250)));
            for nonsense in ["", "-1", "NaN", "inf", "soon", "1e300"] {
                assert_eq!(timeout(&[(name, nonsense)]), None, "{nonsense}");
            }
        }
    }

    #[test]
    fn the_npm_client_has_its_default_unless_it_sends_another_timeout() {
        assert_eq!(timeout(&[(LANGUAGE, "js")]), Some(Duration::from_secs(58)));
        assert_eq!(timeout(&[(LANGUAGE, "js"), (TIMEOUTS[1], "300")]), Some(Duration::from_secs(298)));
        assert_eq!(timeout(&[(LANGUAGE, "python")]), None, "a Python client without a timeout");
        assert_eq!(timeout(&[]), None);
    }
}
