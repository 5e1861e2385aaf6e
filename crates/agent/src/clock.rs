//! The system clock. A sandbox has no other clock, and tests do not replace it.

use std::time::{SystemTime, UNIX_EPOCH};

#[expect(clippy::disallowed_methods, reason = "a sandbox has no clock but the system's, and no test chooses it")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    milliseconds(now())
}

/// Returns the current time in microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    u64::try_from(now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}

/// Converts a time to milliseconds since 1970.
pub(crate) fn milliseconds(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
