//! One-time codes by RFC 6238: SHA-1, six digits, thirty seconds.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use time::{Duration, OffsetDateTime};
use totp_rs::{Builder, Secret};

use crate::field::{FieldCode, InvalidValue, check_max_length};

const STEP: i64 = 30;
/// The maximum number of characters of the text of a secret, including blanks.
pub const MAX_BYTES: usize = 1024;

/// The secret of one-time codes.
#[derive(Clone)]
pub struct TotpSecret(SecretSlice<u8>);

impl fmt::Debug for TotpSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TotpSecret(…)")
    }
}

/// A one-time code with its expiry.
#[derive(Clone)]
pub struct TotpCode {
    /// The code: six digits, or up to eight for a secret of a credential provider.
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
    /// Parses a secret as sites show it: base 32 in either case. Blanks, hyphens and the padding at the end are
    /// ignored.
    ///
    /// # Errors
    /// Returns the rule that the text breaks; the text is not repeated.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        check_max_length(text, MAX_BYTES)?;
        let plain: SecretString = text
            .chars()
            .filter(|c| !c.is_whitespace() && *c != '-')
            .map(|c| c.to_ascii_uppercase())
            .collect::<String>()
            .trim_end_matches('=')
            .into();
        let bytes = Secret::try_from_base32(plain.expose_secret()).map_err(|_| {
            InvalidValue::new(FieldCode::InvalidFormat, "must be base 32: the letters A to Z and the digits 2 to 7")
        })?;
        if bytes.as_bytes().is_empty() {
            return Err(InvalidValue::new(FieldCode::TooShort, "must not be empty"));
        }
        Ok(Self::from_bytes(bytes.as_bytes().to_vec().into()))
    }

    /// Creates the secret from its bytes.
    #[must_use]
    pub fn from_bytes(bytes: SecretSlice<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, to be sealed.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.expose_secret()
    }

    /// Returns the code that is valid at `at`.
    #[must_use]
    pub fn code(&self, at: OffsetDateTime) -> TotpCode {
        let seconds = at.unix_timestamp().max(0);
        let codes = Builder::new().with_secret(self.bytes()).build_noncompliant();
        let code = codes.generate(seconds.unsigned_abs()).to_string().into();
        let left = STEP - seconds % STEP;
        let expires_at = at.replace_nanosecond(0).unwrap_or(at) + Duration::seconds(left);
        TotpCode { code, expires_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(secret: &TotpSecret, seconds: i64) -> String {
        let at = OffsetDateTime::from_unix_timestamp(seconds).expect("a moment");
        secret.code(at).code.expose_secret().to_owned()
    }

    /// The vectors of RFC 6238, appendix B, for SHA-1. A code of six digits is the end of the code of eight digits.
    #[test]
    fn the_codes_are_those_of_the_rfc() {
        let secret = TotpSecret::from_bytes(b"12345678901234567890".to_vec().into());
        for (seconds, expected) in [
            (59, "94287082"),
            (1_111_111_109, "07081804"),
            (1_111_111_111, "14050471"),
            (1_234_567_890, "89005924"),
            (2_000_000_000, "69279037"),
            (20_000_000_000, "65353130"),
        ] {
            assert_eq!(code(&secret, seconds), expected[2..], "at {seconds}");
        }
    }

    #[test]
    fn a_secret_is_read_as_sites_show_it() {
        let plain = TotpSecret::parse("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ").expect("a secret");
        assert_eq!(plain.bytes(), b"12345678901234567890");
        for shown in ["gezd gnbv gy3t qojq gezd gnbv gy3t qojq", " GEZDGNBV-GY3TQOJQ-GEZDGNBV-GY3TQOJQ== "] {
            assert_eq!(TotpSecret::parse(shown).expect(shown).bytes(), plain.bytes());
        }
        for (text, code) in [
            ("", FieldCode::TooShort),
            (" = ", FieldCode::TooShort),
            ("0189", FieldCode::InvalidFormat),
            ("GEZD!", FieldCode::InvalidFormat),
            (&*"A".repeat(1025), FieldCode::TooLong),
        ] {
            assert_eq!(TotpSecret::parse(text).expect_err(text).code, code, "{text}");
        }
    }

    #[test]
    fn a_code_holds_until_the_next_full_half_minute() {
        let secret = TotpSecret::parse("GEZDGNBV").expect("a secret");
        let at = OffsetDateTime::from_unix_timestamp_nanos(59_999_999_999).expect("a moment");
        assert_eq!(secret.code(at).expires_at.unix_timestamp(), 60);
        assert_eq!(secret.code(at).expires_at.nanosecond(), 0);
        let at = OffsetDateTime::from_unix_timestamp(60).expect("a moment");
        assert_eq!(secret.code(at).expires_at.unix_timestamp(), 90);
        assert_ne!(code(&secret, 59), code(&secret, 60));
    }

    #[test]
    fn neither_is_shown_by_mistake() {
        let secret = TotpSecret::parse("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ").expect("a secret");
        let at = OffsetDateTime::from_unix_timestamp(59).expect("a moment");
        assert!(!format!("{:?} {:?}", secret, secret.code(at)).contains("287082"));
    }
}
