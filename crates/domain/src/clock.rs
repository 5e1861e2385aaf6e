//! Time, identifiers and chance, as ports: the domain never asks the system.

use time::OffsetDateTime;
use ulid::Ulid;

/// What time it is.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait Clock: Send + Sync {
    /// Now, in UTC. Need not be monotonic.
    fn now(&self) -> OffsetDateTime;
}

/// Where new identifiers come from.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait IdSource: Send + Sync {
    /// An identifier that was never given before. Later ones sort behind earlier ones of the same source.
    fn next(&self) -> Ulid;
}

/// Where secrets come from.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait Entropy: Send + Sync {
    /// 32 bytes that nobody can guess.
    fn secret_bytes(&self) -> [u8; 32];
}
