//! Who is signed in. Kept in memory: it can be lost, then people sign in again.

use std::{collections::HashMap, net::IpAddr, num::NonZeroU32};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use casement_domain::{ApiKeyId, Entropy, MonotonicTime};
use governor::Quota;
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

use crate::{error::ApiError, rate::AddressRate};

/// Somebody who asks for nothing for so long is signed out, and everybody is in the end.
const IDLE: Duration = Duration::hours(2);
pub(super) const LONGEST: Duration = Duration::hours(12);
/// How many may be signed in at a time, with one key and in all; one more takes the place of who was quiet for longest.
const MAX_OF_KEY: usize = 20;
const MAX_COUNT: usize = 1000;
/// How many tries to sign in an address has at once; it earns a new one as often in a minute.
const MAX_ATTEMPTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);

/// What the cookie holds, hashed: who reads the memory cannot act as somebody else.
type Name = [u8; 32];

/// Everybody who is signed in on this node.
pub(crate) struct SignIns {
    open: Mutex<HashMap<Name, SignIn>>,
    tries: AddressRate,
}

/// One browser of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignIn {
    /// With which key; the key itself is not kept.
    pub(crate) key: ApiKeyId,
    /// What a changing request of its pages shows besides the cookie.
    pub(crate) token: String,
    pub(crate) began: OffsetDateTime,
    since: MonotonicTime,
    used: MonotonicTime,
}

impl SignIn {
    fn lasts(&self, now: MonotonicTime) -> bool {
        now - self.used < IDLE && now - self.since < LONGEST
    }
}

impl SignIns {
    pub(crate) fn new() -> Self {
        let tries = AddressRate::new(Quota::per_minute(MAX_ATTEMPTS), "too many tries to sign in from this address");
        Self { open: Mutex::default(), tries }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Name, SignIn>> {
        self.open.lock()
    }

    /// Counts a try to sign in.
    ///
    /// # Errors
    /// `rate_limited`.
    pub(super) fn admit(&self, from: Option<IpAddr>) -> Result<(), ApiError> {
        self.tries.admit(from)
    }

    /// Signs in. Returns what the cookie is to hold; nobody can tell it from what is kept.
    pub(super) fn begin(
        &self,
        key: ApiKeyId,
        entropy: &dyn Entropy,
        began: OffsetDateTime,
        now: MonotonicTime,
    ) -> (String, SignIn) {
        let secret = || URL_SAFE_NO_PAD.encode(entropy.secret_bytes());
        let (cookie, token) = (secret(), secret());
        let sign_in = SignIn { key, token, began, since: now, used: now };
        let mut open = self.open();
        open.retain(|_, other| other.lasts(now));
        make_room(&mut open, MAX_OF_KEY, |other| other.key == key);
        make_room(&mut open, MAX_COUNT, |_| true);
        open.insert(name(&cookie), sign_in.clone());
        (cookie, sign_in)
    }

    /// Whose cookie it is. Counts as use.
    pub(super) fn of(&self, cookie: &str, now: MonotonicTime) -> Option<SignIn> {
        let mut open = self.open();
        let name = name(cookie);
        let sign_in = open.get_mut(&name)?;
        if !sign_in.lasts(now) {
            open.remove(&name);
            return None;
        }
        sign_in.used = now;
        Some(sign_in.clone())
    }

    /// Signs out.
    pub(super) fn end(&self, cookie: &str) {
        self.open().remove(&name(cookie));
    }

    /// Signs out everybody who came with this key.
    pub(super) fn end_all_of(&self, key: ApiKeyId) {
        self.open().retain(|_, sign_in| sign_in.key != key);
    }
}

fn name(cookie: &str) -> Name {
    Sha256::digest(cookie).into()
}

/// Leaves room for one more of those.
fn make_room(open: &mut HashMap<Name, SignIn>, most: usize, of: impl Fn(&SignIn) -> bool) {
    while open.values().filter(|sign_in| of(sign_in)).count() >= most {
        let quietest = open.iter().filter(|(_, sign_in)| of(sign_in)).min_by_key(|(_, sign_in)| sign_in.used);
        let Some(name) = quietest.map(|(name, _)| *name) else { return };
        open.remove(&name);
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

    fn chance() -> Counting {
        Counting(AtomicU8::new(0), AtomicU8::new(0))
    }

    fn key(number: u128) -> ApiKeyId {
        ApiKeyId::from_ulid(ulid::Ulid::from_parts(9, number))
    }

    #[test]
    fn a_sign_in_lasts_while_it_is_used_but_not_for_ever() {
        let (sign_ins, chance) = (SignIns::new(), chance());
        let (cookie, _) = sign_ins.begin(key(1), &chance, NOON, START);
        for hours in 1..12 {
            assert!(sign_ins.of(&cookie, START + Duration::hours(hours)).is_some(), "{hours}");
        }
        assert_eq!(sign_ins.of(&cookie, START + LONGEST), None);
        let (cookie, _) = sign_ins.begin(key(1), &chance, NOON, START);
        assert_eq!(sign_ins.of(&cookie, START + IDLE), None, "nobody asked for so long");
        assert_eq!(sign_ins.of(&cookie, START), None, "and it is not kept");
    }

    #[test]
    fn cookies_and_tokens_differ_and_neither_opens_for_the_other() {
        let sign_ins = SignIns::new();
        let (cookie, sign_in) = sign_ins.begin(key(1), &chance(), NOON, START);
        assert_ne!(cookie, sign_in.token);
        assert_eq!(sign_ins.of(&sign_in.token, START), None);
        assert_eq!(sign_ins.of("", START), None);
        sign_ins.end(&cookie);
        assert_eq!(sign_ins.of(&cookie, START), None);
    }

    #[test]
    fn a_key_has_so_many_sign_ins_and_all_keys_together_so_many() {
        let (sign_ins, chance) = (SignIns::new(), chance());
        let (other, _) = sign_ins.begin(key(2), &chance, NOON, START);
        let (first, _) = sign_ins.begin(key(1), &chance, NOON, START);
        let (second, _) = sign_ins.begin(key(1), &chance, NOON, START);
        assert!(sign_ins.of(&first, START + Duration::seconds(1)).is_some(), "it is used");
        for _ in 2..=MAX_OF_KEY {
            sign_ins.begin(key(1), &chance, NOON, START + Duration::seconds(2));
        }
        assert_eq!(sign_ins.of(&second, START + Duration::seconds(3)), None, "the quietest of that key made room");
        assert!(sign_ins.of(&first, START + Duration::seconds(3)).is_some());
        assert!(sign_ins.of(&other, START + Duration::seconds(3)).is_some());
        for number in 10..2000 {
            sign_ins.begin(key(number), &chance, NOON, START + Duration::seconds(4));
        }
        assert_eq!(sign_ins.open().len(), MAX_COUNT);
    }

    #[test]
    fn an_address_has_so_many_tries_and_its_neighbours_share_them() {
        let sign_ins = SignIns::new();
        let near = |n: u128| Some(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | n)));
        let refused = (0..1000).any(|n| sign_ins.admit(near(n)).is_err());
        assert!(refused, "a thousand tries take less than fifty minutes");
        assert!(sign_ins.admit(Some("192.0.2.1".parse().expect("an address"))).is_ok());
    }
}
