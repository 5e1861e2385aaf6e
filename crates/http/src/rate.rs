//! How often somebody may do something. Counted on each node for itself.

use std::{
    hash::{BuildHasher as _, Hash, RandomState},
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use actix_web::http::header::{self, HeaderValue};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _};

use crate::error::{ApiError, Code};

/// Above this many keys those that have not called lately are forgotten, which looks at all of them: addresses, which anybody may
/// bring in any number, share just as many buckets and never get there.
const MAX_KEYS: usize = 1 << 16;

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

/// A bucket of tokens per address. Whoever has one IPv6 address usually has 2^64 of them, which share one.
pub(crate) struct AddressRate {
    /// So many buckets and no more, however many addresses there are: several may share one, and nobody can choose which.
    rate: Rate<u16>,
    chance: RandomState,
}

impl AddressRate {
    pub(crate) fn new(quota: Quota, refusal: &'static str) -> Self {
        Self { rate: Rate::new(Some(quota), refusal), chance: RandomState::new() }
    }

    /// Counts once. Those whose address is not known share a bucket.
    ///
    /// # Errors
    /// See [`Rate::admit`].
    pub(crate) fn admit(&self, from: Option<IpAddr>) -> Result<(), ApiError> {
        let from = from.map(neighbourhood);
        let [high, low, ..] = self.chance.hash_one(from).to_be_bytes();
        self.rate.admit(u16::from_be_bytes([high, low]))
    }
}

/// Whoever has one IPv6 address usually has all of its network of 64 bits.
pub(crate) fn neighbourhood(address: IpAddr) -> IpAddr {
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
    fn no_number_of_addresses_takes_more_memory() {
        let rate = AddressRate::new(Quota::per_hour(NonZeroU32::MIN), "too often");
        for n in 0..200_000_u128 {
            rate.admit(Some(IpAddr::V6(Ipv6Addr::from_bits(n << 64)))).ok();
        }
        assert!(rate.rate.limiter.as_ref().is_some_and(|limiter| limiter.len() <= MAX_KEYS));
    }
}
