//! How often somebody may do something. Counted on each node for itself.

use std::{hash::Hash, time::Duration};

use actix_web::http::header::{self, HeaderValue};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _};

use crate::error::{ApiError, Code};

/// Above this many keys those that have not called lately are forgotten.
const MOST_KEYS: usize = 10_000;

/// A bucket of tokens per key.
pub(crate) struct Rate<K: Hash + Eq + Clone> {
    limiter: Option<DefaultKeyedRateLimiter<K>>,
    /// What who comes too often is told.
    refusal: &'static str,
}

impl<K: Hash + Eq + Clone> Rate<K> {
    /// Without a quota: any number.
    pub(crate) fn new(quota: Option<Quota>, refusal: &'static str) -> Self {
        Self { limiter: quota.map(RateLimiter::keyed), refusal }
    }

    /// Counts once.
    ///
    /// # Errors
    /// `rate_limited`, with the time after which it is worth another try.
    pub(crate) fn admit(&self, key: K) -> Result<(), ApiError> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        if limiter.len() > MOST_KEYS {
            limiter.retain_recent();
        }
        limiter.check_key(&key).map_err(|refused| {
            let wait = refused.wait_time_from(governor::clock::DefaultClock::default().now());
            let seconds = wait.max(Duration::from_millis(1)).as_millis().div_ceil(1000);
            let refusal = ApiError::new(Code::RateLimited, self.refusal);
            match HeaderValue::from_str(&seconds.to_string()) {
                Ok(seconds) => refusal.with_header(header::RETRY_AFTER, seconds),
                Err(_) => refusal,
            }
        })
    }
}
