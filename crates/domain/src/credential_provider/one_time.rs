//! The secrets of one-time codes in the formats of password managers.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use time::{Duration, OffsetDateTime};
use totp_rs::{Algorithm, Builder};
use url::Url;

use crate::credential::{TotpCode, TotpSecret};

/// A secret with its parameters: `otpauth://totp/…?secret=…&algorithm=…&digits=…&period=…`, or the secret alone.
#[derive(Clone)]
pub struct OneTimeSecret {
    secret: TotpSecret,
    algorithm: Algorithm,
    digits: u8,
    period_seconds: u32,
}

impl fmt::Debug for OneTimeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneTimeSecret(…)")
    }
}

impl OneTimeSecret {
    /// Parses either form; returns `None` for other texts and for unsupported parameters.
    #[must_use]
    pub fn parse(text: &SecretString) -> Option<Self> {
        let text = text.expose_secret().trim();
        let mut read = Self {
            secret: TotpSecret::from_bytes(Vec::new().into()),
            algorithm: Algorithm::SHA1,
            digits: 6,
            period_seconds: 30,
        };
        let Some(rest) = text.get(..10).filter(|start| start.eq_ignore_ascii_case("otpauth://")).map(|_| &text[10..])
        else {
            read.secret = TotpSecret::parse(text).ok()?;
            return Some(read);
        };
        if !rest.get(..4).is_some_and(|kind| kind.eq_ignore_ascii_case("totp")) {
            return None;
        }
        let url = Url::parse(text).ok()?;
        for (key, value) in url.query_pairs() {
            match &*key.to_ascii_lowercase() {
                "secret" => read.secret = TotpSecret::parse(&value).ok()?,
                "digits" => read.digits = value.parse().ok().filter(|n| (6..=8).contains(n))?,
                "period" => read.period_seconds = value.parse().ok().filter(|n| (1..=300).contains(n))?,
                "algorithm" => {
                    read.algorithm = match &*value.to_ascii_uppercase().replace('-', "") {
                        "SHA1" => Algorithm::SHA1,
                        "SHA256" => Algorithm::SHA256,
                        "SHA512" => Algorithm::SHA512,
                        _ => return None,
                    }
                }
                // Steam codes have another format.
                "encoder" => return None,
                _ => {}
            }
        }
        (!read.secret.bytes().is_empty()).then_some(read)
    }

    /// Returns the secret alone if the parameters are the standard ones: SHA-1, six digits, thirty seconds.
    #[must_use]
    pub fn ordinary(&self) -> Option<TotpSecret> {
        let usual = self.algorithm == Algorithm::SHA1 && (self.digits, self.period_seconds) == (6, 30);
        usual.then(|| self.secret.clone())
    }

    /// Returns the code that is valid at `at`.
    #[must_use]
    pub fn code(&self, at: OffsetDateTime) -> TotpCode {
        let seconds = at.unix_timestamp().max(0);
        let codes = Builder::new()
            .with_secret(self.secret.bytes())
            .with_algorithm(self.algorithm)
            .with_digits(self.digits)
            .with_step_duration(u64::from(self.period_seconds))
            .build_noncompliant();
        let code = codes.generate(seconds.unsigned_abs()).to_string().into();
        let period = i64::from(self.period_seconds);
        let expires_at = at.replace_nanosecond(0).unwrap_or(at) + Duration::seconds(period - seconds % period);
        TotpCode { code, expires_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<OneTimeSecret> {
        OneTimeSecret::parse(&text.to_owned().into())
    }

    fn code(text: &str, seconds: i64) -> String {
        let at = OffsetDateTime::from_unix_timestamp(seconds).expect("a moment");
        read(text).expect(text).code(at).code.expose_secret().to_owned()
    }

    /// The vectors of RFC 6238, appendix B: each algorithm with a secret of its own length, eight digits.
    #[test]
    fn parameters_of_the_address_are_applied() {
        let sha1 = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
        let sha256 = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZA";
        let sha512 =
            "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNA";
        for (secret, algorithm, codes) in [
            (sha1, "SHA1", ["94287082", "07081804", "89005924"]),
            (sha256, "SHA256", ["46119246", "68084774", "91819424"]),
            (sha512, "sha-512", ["90693936", "25091201", "93441116"]),
        ] {
            for (seconds, expected) in [59, 1_111_111_109, 1_234_567_890].into_iter().zip(codes) {
                let address =
                    format!("otpauth://totp/Shop:me?secret={secret}&digits=8&algorithm={algorithm}&issuer=Shop");
                assert_eq!(code(&address, seconds), expected, "{algorithm} at {seconds}");
            }
        }
        assert_eq!(code(sha1, 59), "287082");
        assert_eq!(code(&format!("otpauth://totp/?secret={sha1}"), 59), "287082");
        let minute = read(&format!("otpauth://totp/?secret={sha1}&period=60")).expect("read");
        let at = OffsetDateTime::from_unix_timestamp(61).expect("a moment");
        assert_eq!(minute.code(at).expires_at.unix_timestamp(), 120);
    }

    #[test]
    fn what_makes_other_codes_is_not_taken_for_one() {
        let good = "GEZDGNBVGY3TQOJQ";
        for text in [
            "",
            "otpauth://",
            "otpauth://totp/",
            "otpauth://totp/x?secret=",
            "otpauth://totp/x?secret=0189",
            &format!("otpauth://hotp/x?secret={good}&counter=1"),
            &format!("otpauth://totp/x?secret={good}&digits=40"),
            &format!("otpauth://totp/x?secret={good}&period=0"),
            &format!("otpauth://totp/x?secret={good}&algorithm=MD5"),
            &format!("otpauth://totp/x?secret={good}&encoder=steam"),
            "https://example.com/?secret=GEZDGNBVGY3TQOJQ",
        ] {
            assert!(read(text).is_none(), "{text}");
        }
        assert!(!format!("{:?}", read(good)).contains("GEZ"));
    }
}
