//! Rate limits by key or address. Each node counts for itself.

use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use actix_web::http::header::{self, HeaderValue};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _};

use crate::error::{ApiError, Code};

/// The number of keys above which idle ones are removed, by a scan of all. Addresses, of which a client may use any
/// number, share as many buckets and never exceed this.
const MAX_KEYS: usize = 1 << 16;

/// A rate limit with a bucket of tokens per key.
pub(crate) struct Rate<K: Hash + Eq + Clone> {
    limiter: Option<DefaultKeyedRateLimiter<K>>,
    /// The message of the refusal.
    refusal: &'static str,
}

impl<K: Hash + Eq + Clone> Rate<K> {
    /// Creates a limit; without a quota nothing is limited.
    pub(crate) fn new(quota: Option<Quota>, refusal: &'static str) -> Self {
        Self { limiter: quota.map(RateLimiter::keyed), refusal }
    }

    /// Counts one use.
    ///
    /// # Errors
    /// `rate_limited`, with the time to wait in `Retry-After`.
    pub(crate) fn admit(&self, key: K) -> Result<(), ApiError> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        if limiter.len() > MAX_KEYS {
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

/// A rate limit with a bucket of tokens per address. All addresses of one IPv6 /64 network share a bucket.
pub(crate) struct AddressRate {
    /// A fixed number of buckets for all addresses. Several addresses may share a bucket; clients cannot choose which.
    rate: Rate<u16>,
    hasher: RandomState,
}

impl AddressRate {
    pub(crate) fn new(quota: Quota, refusal: &'static str) -> Self {
        Self { rate: Rate::new(Some(quota), refusal), hasher: RandomState::new() }
    }

    /// Counts one use. Unknown addresses share a bucket.
    ///
    /// # Errors
    /// See [`Rate::admit`].
    pub(crate) fn admit(&self, from: Option<IpAddr>) -> Result<(), ApiError> {
        let from = from.map(network);
        let [high, low, ..] = self.hasher.hash_one(from).to_be_bytes();
        self.rate.admit(u16::from_be_bytes([high, low]))
    }
}

/// Returns the /64 network of an IPv6 address, because one client usually has all of it; an IPv4 address unchanged.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn memory_is_bounded_for_any_number_of_addresses() {
        let rate = AddressRate::new(Quota::per_hour(NonZeroU32::MIN), "too often");
        for n in 0..200_000_u128 {
            rate.admit(Some(IpAddr::V6(Ipv6Addr::from_bits(n << 64)))).ok();
        }
        assert!(rate.rate.limiter.as_ref().is_some_and(|limiter| limiter.len() <= MAX_KEYS));
    }
}
