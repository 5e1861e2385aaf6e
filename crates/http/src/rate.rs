//! How often one key may call; unlimited unless configured. Counted on each node for itself.

use std::{num::NonZeroU32, time::Duration};

use actix_web::http::header::{self, HeaderValue};
use casement_domain::ApiKeyId;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _};

use crate::error::{ApiError, Code};

/// Above this many keys those that have not called lately are forgotten.
const MOST_KEYS: usize = 10_000;

/// A bucket of tokens per key.
pub(crate) struct Rate(Option<DefaultKeyedRateLimiter<ApiKeyId>>);

impl Rate {
    /// `per_second`: how many calls a second, and how many at once.
    pub(crate) fn new(per_second: Option<NonZeroU32>) -> Self {
        Self(per_second.map(|calls| RateLimiter::keyed(Quota::per_second(calls))))
    }

    /// Counts a call.
    ///
    /// # Errors
    /// `rate_limited`, with the time after which it is worth another try.
    pub(crate) fn admit(&self, key: ApiKeyId) -> Result<(), ApiError> {
        let Some(limiter) = &self.0 else { return Ok(()) };
        if limiter.len() > MOST_KEYS {
            limiter.retain_recent();
        }
        limiter.check_key(&key).map_err(|refused| {
            let wait = refused.wait_time_from(governor::clock::DefaultClock::default().now());
            let seconds = wait.max(Duration::from_millis(1)).as_millis().div_ceil(1000);
            let refusal = ApiError::new(Code::RateLimited, "this key calls too often");
            match HeaderValue::from_str(&seconds.to_string()) {
                Ok(seconds) => refusal.with_header(header::RETRY_AFTER, seconds),
                Err(_) => refusal,
            }
        })
    }
}
