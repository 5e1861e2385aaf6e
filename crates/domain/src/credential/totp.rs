//! One-time codes by RFC 6238.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use time::{Duration, OffsetDateTime};
use totp_rs::{Algorithm, Builder};

use crate::text_enum::text_enum;

text_enum! {
    /// The hash function of one-time codes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum TotpAlgorithm {
        /// SHA-1, which nearly all sites use.
        #[default]
        Sha1 => "SHA1",
        /// SHA-256.
        Sha256 => "SHA256",
        /// SHA-512.
        Sha512 => "SHA512",
    }
}

impl From<TotpAlgorithm> for Algorithm {
    fn from(algorithm: TotpAlgorithm) -> Self {
        match algorithm {
            TotpAlgorithm::Sha1 => Self::SHA1,
            TotpAlgorithm::Sha256 => Self::SHA256,
            TotpAlgorithm::Sha512 => Self::SHA512,
        }
    }
}

/// The parameters of one-time codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TotpParameters {
    /// The hash function.
    pub algorithm: TotpAlgorithm,
    /// The number of digits of a code, 6 to 8.
    pub digits: u16,
    /// The number of seconds for which a code is valid, 1 to 300.
    pub period_seconds: u16,
}

impl Default for TotpParameters {
    /// SHA-1, six digits, thirty seconds.
    fn default() -> Self {
        Self { algorithm: TotpAlgorithm::Sha1, digits: 6, period_seconds: 30 }
    }
}

/// The secret of one-time codes, with their parameters.
#[derive(Clone)]
pub struct TotpSecret {
    bytes: SecretSlice<u8>,
    parameters: TotpParameters,
}

impl fmt::Debug for TotpSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TotpSecret(…)")
    }
}

/// A one-time code with its expiry.
#[derive(Clone)]
pub struct TotpCode {
    /// The code: six to eight digits.
    pub code: SecretString,
    /// The time from which the next code is valid.
    pub expires_at: OffsetDateTime,
}

impl fmt::Debug for TotpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TotpCode").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

impl TotpSecret {
    /// Creates the secret from its bytes.
    #[must_use]
    pub fn new(bytes: SecretSlice<u8>, parameters: TotpParameters) -> Self {
        Self { bytes, parameters }
    }

    /// Returns the bytes, to be sealed.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.expose_secret()
    }

    /// Returns the parameters of the codes.
    #[must_use]
    pub fn parameters(&self) -> TotpParameters {
        self.parameters
    }

    /// Returns the code that is valid at `at`.
    #[must_use]
    pub fn code(&self, at: OffsetDateTime) -> TotpCode {
        let TotpParameters { algorithm, digits, period_seconds } = self.parameters;
        let seconds = at.unix_timestamp().max(0);
        let codes = Builder::new()
            .with_secret(self.bytes())
            .with_algorithm(algorithm.into())
            .with_digits(u8::try_from(digits).unwrap_or(u8::MAX))
            .with_step_duration(u64::from(period_seconds))
            .build_noncompliant();
        let code = codes.generate(seconds.unsigned_abs()).to_string().into();
        let period = i64::from(period_seconds);
        let expires_at = at.replace_nanosecond(0).unwrap_or(at) + Duration::seconds(period - seconds % period);
        TotpCode { code, expires_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(bytes: &[u8], parameters: TotpParameters) -> TotpSecret {
        TotpSecret::new(bytes.to_vec().into(), parameters)
    }

    fn code(secret: &TotpSecret, seconds: i64) -> String {
        let at = OffsetDateTime::from_unix_timestamp(seconds).expect("a moment");
        secret.code(at).code.expose_secret().to_owned()
    }

    /// The vectors of RFC 6238, appendix B: each algorithm with a secret of its own length, eight digits. A code of fewer
    /// digits is the end of the code of eight digits.
    #[test]
    fn the_codes_are_those_of_the_rfc() {
        let digits = b"12345678901234567890".repeat(4);
        for (algorithm, length, codes) in [
            (TotpAlgorithm::Sha1, 20, ["94287082", "07081804", "14050471", "89005924", "69279037", "65353130"]),
            (TotpAlgorithm::Sha256, 32, ["46119246", "68084774", "67062674", "91819424", "90698825", "77737706"]),
            (TotpAlgorithm::Sha512, 64, ["90693936", "25091201", "99943326", "93441116", "38618901", "47863826"]),
        ] {
            let moments = [59, 1_111_111_109, 1_111_111_111, 1_234_567_890, 2_000_000_000, 20_000_000_000];
            for (seconds, expected) in moments.into_iter().zip(codes) {
                for digits_of_code in [6, 7, 8] {
                    let parameters = TotpParameters { algorithm, digits: digits_of_code, ..TotpParameters::default() };
                    let secret = secret(&digits[..length], parameters);
                    let expected = &expected[8 - usize::from(digits_of_code)..];
                    assert_eq!(code(&secret, seconds), expected, "{algorithm:?} at {seconds}");
                }
            }
        }
    }

    #[test]
    fn a_code_holds_until_the_end_of_its_period() {
        let secret_of = |period_seconds| {
            secret(b"12345678901234567890", TotpParameters { period_seconds, ..TotpParameters::default() })
        };
        for (period, seconds, expires) in [(30, 59, 60), (30, 60, 90), (60, 61, 120), (1, 7, 8)] {
            let at = OffsetDateTime::from_unix_timestamp(seconds).expect("a moment") + Duration::nanoseconds(999);
            let code = secret_of(period).code(at);
            assert_eq!((code.expires_at.unix_timestamp(), code.expires_at.nanosecond()), (expires, 0), "{period}");
        }
        assert_ne!(code(&secret_of(30), 59), code(&secret_of(30), 60));
        assert_eq!(code(&secret_of(60), 59), code(&secret_of(60), 0));
    }

    #[test]
    fn neither_is_shown_by_mistake() {
        let secret = secret(b"12345678901234567890", TotpParameters::default());
        let at = OffsetDateTime::from_unix_timestamp(59).expect("a moment");
        assert!(!format!("{:?} {:?}", secret, secret.code(at)).contains("287082"));
    }
}
