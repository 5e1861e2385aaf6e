//! The number of attempts to sign in.

use std::{net::IpAddr, num::NonZeroU32};

use governor::Quota;

use crate::{error::ApiError, rate::AddressRate};

/// The maximum number of sign-in attempts per address in a minute, and in a burst, on this node.
const MAX_ATTEMPTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);

/// Counts the attempts to sign in.
pub(crate) struct SignInAttempts(AddressRate);

impl SignInAttempts {
    pub(crate) fn new() -> Self {
        Self(AddressRate::new(Quota::per_minute(MAX_ATTEMPTS), "too many tries to sign in from this address"))
    }

    /// Counts an attempt to sign in.
    ///
    /// # Errors
    /// `rate_limited`.
    pub(super) fn admit(&self, from: Option<IpAddr>) -> Result<(), ApiError> {
        self.0.admit(from)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn attempts_are_bounded_per_address_and_its_network_shares_them() {
        let attempts = SignInAttempts::new();
        let same_network = |n: u128| Some(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | n)));
        let refused = (0..1000).any(|n| attempts.admit(same_network(n)).is_err());
        assert!(refused, "a thousand tries take less than fifty minutes");
        assert!(attempts.admit(Some("192.0.2.1".parse().expect("an address"))).is_ok());
    }
}
