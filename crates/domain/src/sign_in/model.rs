//! The sign-in.

use time::{Duration, OffsetDateTime};

use crate::ids::ApiKeyId;

/// The SHA-256 hash of a cookie's value, so that neither memory nor store contains usable cookies.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CookieHash(pub [u8; 32]);

impl std::fmt::Debug for CookieHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CookieHash(…)")
    }
}

/// A sign-in with one browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignIn {
    /// The hash of its cookie.
    pub cookie: CookieHash,
    /// The id of the key; the key itself is not stored.
    pub key: ApiKeyId,
    /// The CSRF token, which requests must send in addition to the cookie to change something.
    pub token: String,
    /// The time of the sign-in.
    pub started_at: OffsetDateTime,
    /// The time of the last request, up to [`USE_STEP`](Self::USE_STEP) earlier than it was.
    pub last_used_at: OffsetDateTime,
}

impl SignIn {
    /// The time without requests after which a sign-in ends.
    pub const IDLE_TIMEOUT: Duration = Duration::hours(2);
    /// The maximum duration of a sign-in.
    pub const MAX_DURATION: Duration = Duration::hours(12);
    /// The time after which a further use is stored.
    pub const USE_STEP: Duration = Duration::minutes(1);

    pub(super) fn is_valid(&self, now: OffsetDateTime) -> bool {
        now - self.last_used_at < Self::IDLE_TIMEOUT && now - self.started_at < Self::MAX_DURATION
    }
}
