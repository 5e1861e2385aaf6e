//! The system's clocks and randomness, as implementations of the domain's ports.

use std::sync::LazyLock;
use std::time::Instant;

use casement_domain::{Clock, Entropy, IdSource, MonotonicClock, MonotonicTime};
use time::{Duration, OffsetDateTime};
use ulid::Ulid;

/// The clocks and the random number generator of the system.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct System;

impl System {
    /// Returns random bytes of the kernel. Panics if that fails, because a guessable secret would be worse.
    fn random<const N: usize>() -> [u8; N] {
        let mut bytes = [0; N];
        #[expect(clippy::expect_used, reason = "no secret is better than a guessable one")]
        getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
        bytes
    }
}

impl Clock for System {
    #[expect(clippy::disallowed_methods, reason = "the one place where the system's clock is read")]
    fn now(&self) -> OffsetDateTime {
        // Truncated to the store's precision, so that written and read values are equal.
        let now = OffsetDateTime::now_utc();
        now.replace_nanosecond(now.nanosecond() / 1000 * 1000).unwrap_or(now)
    }
}

/// The origin of this process's monotonic clock.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl MonotonicClock for System {
    fn monotonic_now(&self) -> MonotonicTime {
        MonotonicTime::after_origin(Duration::try_from(ORIGIN.elapsed()).unwrap_or(Duration::MAX))
    }
}

impl IdSource for System {
    fn next(&self) -> Ulid {
        let milliseconds = self.now().unix_timestamp_nanos() / 1_000_000;
        let random = u128::from_le_bytes(Self::random());
        Ulid::from_parts(u64::try_from(milliseconds).unwrap_or(0), random)
    }
}

impl Entropy for System {
    fn secret_bytes(&self) -> [u8; 32] {
        Self::random()
    }
}
