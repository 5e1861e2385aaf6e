//! The sign-ins of the web interface. They are held in memory only; after a restart people sign in again.

use std::{collections::HashMap, net::IpAddr, num::NonZeroU32};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use casement_domain::{ApiKeyId, Entropy, MonotonicTime};
use governor::Quota;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

use crate::{error::ApiError, rate::AddressRate};

/// The time without requests after which a sign-in ends, and the maximum duration of a sign-in.
const IDLE_TIMEOUT: Duration = Duration::hours(2);
pub(super) const MAX_DURATION: Duration = Duration::hours(12);
/// The maximum number of sign-ins with one key, and in total. A further one replaces the one that has been idle
/// longest.
const MAX_PER_KEY: usize = 20;
const MAX_TOTAL: usize = 1000;
/// The maximum number of sign-in attempts per address in a minute, and in a burst.
const MAX_ATTEMPTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);

/// The hash of a cookie's value, so that the memory of the server contains no usable cookies.
type CookieHash = [u8; 32];

/// All sign-ins on this node.
pub(crate) struct SignIns {
    open: Mutex<HashMap<CookieHash, SignIn>>,
    attempts: AddressRate,
}

/// A sign-in with one browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignIn {
    /// The id of the key; the key itself is not stored.
    pub(crate) key: ApiKeyId,
    /// The CSRF token, which requests must send in addition to the cookie to change something.
    pub(crate) token: String,
    pub(crate) started_at: OffsetDateTime,
    started: MonotonicTime,
    last_used: MonotonicTime,
}

impl SignIn {
    fn is_valid(&self, now: MonotonicTime) -> bool {
        now - self.last_used < IDLE_TIMEOUT && now - self.started < MAX_DURATION
    }
}

impl SignIns {
    pub(crate) fn new() -> Self {
        let attempts = AddressRate::new(Quota::per_minute(MAX_ATTEMPTS), "too many tries to sign in from this address");
        Self { open: Mutex::default(), attempts }
    }

    /// Counts an attempt to sign in.
    ///
    /// # Errors
    /// `rate_limited`.
    pub(super) fn admit(&self, from: Option<IpAddr>) -> Result<(), ApiError> {
        self.attempts.admit(from)
    }

    /// Signs in. Returns the value of the cookie, which cannot be derived from the stored sign-in.
    pub(super) fn begin(
        &self,
        key: ApiKeyId,
        entropy: &dyn Entropy,
        started_at: OffsetDateTime,
        now: MonotonicTime,
    ) -> (String, SignIn) {
        let secret = || URL_SAFE_NO_PAD.encode(entropy.secret_bytes());
        let (cookie, token) = (secret(), secret());
        let sign_in = SignIn { key, token, started_at, started: now, last_used: now };
        let mut open = self.open.lock();
        open.retain(|_, other| other.is_valid(now));
        make_room(&mut open, MAX_PER_KEY, |other| other.key == key);
        make_room(&mut open, MAX_TOTAL, |_| true);
        open.insert(hash(&cookie), sign_in.clone());
        (cookie, sign_in)
    }

    /// Returns the sign-in of a cookie and marks it as used.
    pub(super) fn find(&self, cookie: &str, now: MonotonicTime) -> Option<SignIn> {
        let mut open = self.open.lock();
        let hash = hash(cookie);
        let sign_in = open.get_mut(&hash)?;
        if !sign_in.is_valid(now) {
            open.remove(&hash);
            return None;
        }
        sign_in.last_used = now;
        Some(sign_in.clone())
    }

    /// Ends the sign-in of a cookie.
    pub(super) fn end(&self, cookie: &str) {
        self.open.lock().remove(&hash(cookie));
    }

    /// Ends all sign-ins with this key.
    pub(super) fn end_all_with_key(&self, key: ApiKeyId) {
        self.open.lock().retain(|_, sign_in| sign_in.key != key);
    }
}

fn hash(cookie: &str) -> CookieHash {
    Sha256::digest(cookie).into()
}

/// Removes matching sign-ins, longest idle first, until there is room for one more.
fn make_room(open: &mut HashMap<CookieHash, SignIn>, max: usize, matches: impl Fn(&SignIn) -> bool) {
    while open.values().filter(|sign_in| matches(sign_in)).count() >= max {
        let longest_idle =
            open.iter().filter(|(_, sign_in)| matches(sign_in)).min_by_key(|(_, sign_in)| sign_in.last_used);
        let Some(hash) = longest_idle.map(|(hash, _)| *hash) else { return };
        open.remove(&hash);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv6Addr,
        sync::atomic::{AtomicU8, Ordering},
    };

    use casement_domain::testing::NOON;

    use super::*;

    const START: MonotonicTime = MonotonicTime::after_origin(Duration::ZERO);

    struct Counting(AtomicU8, AtomicU8);

    impl Entropy for Counting {
        fn secret_bytes(&self) -> [u8; 32] {
            let low = self.0.fetch_add(1, Ordering::Relaxed);
            let high = if low == 255 { self.1.fetch_add(1, Ordering::Relaxed) } else { self.1.load(Ordering::Relaxed) };
            let mut bytes = [0; 32];
            (bytes[0], bytes[1]) = (low, high);
            bytes
        }
    }

    fn entropy() -> Counting {
        Counting(AtomicU8::new(0), AtomicU8::new(0))
    }

    fn key(number: u128) -> ApiKeyId {
        ApiKeyId::from_ulid(ulid::Ulid::from_parts(9, number))
    }

    #[test]
    fn a_sign_in_lasts_while_it_is_used_but_not_forever() {
        let (sign_ins, entropy) = (SignIns::new(), entropy());
        let (cookie, _) = sign_ins.begin(key(1), &entropy, NOON, START);
        for hours in 1..12 {
            assert!(sign_ins.find(&cookie, START + Duration::hours(hours)).is_some(), "{hours}");
        }
        assert_eq!(sign_ins.find(&cookie, START + MAX_DURATION), None);
        let (cookie, _) = sign_ins.begin(key(1), &entropy, NOON, START);
        assert_eq!(sign_ins.find(&cookie, START + IDLE_TIMEOUT), None, "nobody asked for so long");
        assert_eq!(sign_ins.find(&cookie, START), None, "and it is not kept");
    }

    #[test]
    fn cookies_and_tokens_differ_and_neither_replaces_the_other() {
        let sign_ins = SignIns::new();
        let (cookie, sign_in) = sign_ins.begin(key(1), &entropy(), NOON, START);
        assert_ne!(cookie, sign_in.token);
        assert_eq!(sign_ins.find(&sign_in.token, START), None);
        assert_eq!(sign_ins.find("", START), None);
        sign_ins.end(&cookie);
        assert_eq!(sign_ins.find(&cookie, START), None);
    }

    #[test]
    fn sign_ins_are_bounded_per_key_and_in_total() {
        let (sign_ins, entropy) = (SignIns::new(), entropy());
        let (other, _) = sign_ins.begin(key(2), &entropy, NOON, START);
        let (first, _) = sign_ins.begin(key(1), &entropy, NOON, START);
        let (second, _) = sign_ins.begin(key(1), &entropy, NOON, START);
        assert!(sign_ins.find(&first, START + Duration::seconds(1)).is_some(), "it is used");
        for _ in 2..=MAX_PER_KEY {
            sign_ins.begin(key(1), &entropy, NOON, START + Duration::seconds(2));
        }
        assert_eq!(sign_ins.find(&second, START + Duration::seconds(3)), None, "the quietest of that key made room");
        assert!(sign_ins.find(&first, START + Duration::seconds(3)).is_some());
        assert!(sign_ins.find(&other, START + Duration::seconds(3)).is_some());
        for number in 10..2000 {
            sign_ins.begin(key(number), &entropy, NOON, START + Duration::seconds(4));
        }
        assert_eq!(sign_ins.open.lock().len(), MAX_TOTAL);
    }

    #[test]
    fn attempts_are_bounded_per_address_and_its_network_shares_them() {
        let sign_ins = SignIns::new();
        let same_network = |n: u128| Some(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | n)));
        let refused = (0..1000).any(|n| sign_ins.admit(same_network(n)).is_err());
        assert!(refused, "a thousand tries take less than fifty minutes");
        assert!(sign_ins.admit(Some("192.0.2.1".parse().expect("an address"))).is_ok());
    }
}
