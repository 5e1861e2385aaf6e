//! Fakes of ports: clocks that a test sets, identifiers that count up, a sealer that does not encrypt.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use secrecy::SecretSlice;
use time::{Duration, OffsetDateTime};
use ulid::Ulid;

use super::NOON;
use crate::clock::{Clock, Entropy, IdSource, MonotonicClock, MonotonicTime};
use crate::sealing::{KeyId, SealError, Sealer, StreamSealer};
use crate::session_operation::ByteStream;

/// A wall clock and a monotonic clock under control of a test.
#[derive(Debug)]
pub struct FixedClock(Mutex<(OffsetDateTime, MonotonicTime)>);

impl Default for FixedClock {
    fn default() -> Self {
        Self(Mutex::new((NOON, MonotonicTime::default())))
    }
}

impl FixedClock {
    fn both(&self) -> MutexGuard<'_, (OffsetDateTime, MonotonicTime)> {
        self.0.lock()
    }

    /// Advances both clocks.
    pub fn advance(&self, by: Duration) {
        let mut both = self.both();
        *both = (both.0 + by, both.1 + by);
    }

    /// Steps the wall clock forward or back; the monotonic clock does not change.
    pub fn step(&self, by: Duration) {
        self.both().0 += by;
    }

    /// Sets the wall clock; the monotonic clock does not change.
    pub fn set(&self, at: OffsetDateTime) {
        self.both().0 = at;
    }
}

impl Clock for FixedClock {
    fn now(&self) -> OffsetDateTime {
        self.both().0
    }
}

impl MonotonicClock for FixedClock {
    fn monotonic_now(&self) -> MonotonicTime {
        self.both().1
    }
}

/// A source of identifiers that count up from 1, and of predictable secrets.
#[derive(Debug, Default)]
pub struct CountingIds(AtomicU64);

impl IdSource for CountingIds {
    fn next(&self) -> Ulid {
        Ulid::from_parts(0, u128::from(self.0.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

impl Entropy for CountingIds {
    fn secret_bytes(&self) -> [u8; 32] {
        [u8::try_from(self.0.fetch_add(1, Ordering::Relaxed) % 256).unwrap_or(0); 32]
    }
}

/// A sealer with one key that does not encrypt, so that a test can compute what is sealed.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainSealer;

impl PlainSealer {
    /// The identifier of the key.
    pub const KEY: KeyId = KeyId(*b"test-key");
}

impl Sealer for PlainSealer {
    fn seal(&self, place: &str, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let turned: Vec<u8> = plain.iter().map(|byte| !byte).collect();
        Ok([&[KeyId::FORM], Self::KEY.0.as_slice(), place.as_bytes(), b"\0", turned.as_slice()].concat())
    }

    fn open(&self, place: &str, sealed: &[u8]) -> Result<SecretSlice<u8>, SealError> {
        let head = Sealer::seal(self, place, b"")?;
        let turned = sealed.strip_prefix(head.as_slice()).ok_or(SealError::Damaged)?;
        Ok(turned.iter().map(|byte| !byte).collect::<Vec<u8>>().into())
    }

    fn current(&self) -> Result<KeyId, SealError> {
        Ok(Self::KEY)
    }

    fn knows(&self, key: KeyId) -> bool {
        key == Self::KEY
    }
}

impl PlainSealer {
    /// Returns the stored key of a stream.
    #[must_use]
    pub fn stream_key(place: &str) -> Vec<u8> {
        Sealer::seal(&Self, place, b"stream").unwrap_or_default()
    }
}

impl StreamSealer for PlainSealer {
    fn seal(&self, place: &str, content: ByteStream) -> Result<(Vec<u8>, ByteStream), SealError> {
        Ok((Self::stream_key(place), content))
    }

    fn open(&self, place: &str, key: &[u8], content: ByteStream) -> Result<ByteStream, SealError> {
        if key == Self::stream_key(place) { Ok(content) } else { Err(SealError::Damaged) }
    }
}
