//! The texts of secrets of one-time codes: base 32, or `otpauth://totp/…?secret=…&algorithm=…&digits=…&period=…`.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use totp_rs::Secret;
use url::Url;

use super::{TotpAlgorithm, TotpParameters, TotpSecret};
use crate::field::{FieldCode, InvalidValue, check_max_length, one_of, within};

/// The maximum number of characters of a text.
pub const MAX_TEXT: usize = 4096;
/// The minimum number of digits of a code.
pub const MIN_DIGITS: u16 = 6;
/// The maximum number of digits of a code.
pub const MAX_DIGITS: u16 = 8;
/// The longest time for which a code is valid, in seconds.
pub const MAX_PERIOD_SECONDS: u16 = 300;

/// Parameters of one-time codes, as far as they are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotpOptions {
    /// The hash function.
    pub algorithm: Option<TotpAlgorithm>,
    /// The number of digits of a code, 6 to 8.
    pub digits: Option<u16>,
    /// The number of seconds for which a code is valid, 1 to 300.
    pub period_seconds: Option<u16>,
}

impl TotpOptions {
    /// Returns these options, and those of `other` that are not given here.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            algorithm: self.algorithm.or(other.algorithm),
            digits: self.digits.or(other.digits),
            period_seconds: self.period_seconds.or(other.period_seconds),
        }
    }

    /// Returns the parameters, with those of `base` that are not given here.
    #[must_use]
    pub fn over(self, base: TotpParameters) -> TotpParameters {
        TotpParameters {
            algorithm: self.algorithm.unwrap_or(base.algorithm),
            digits: self.digits.unwrap_or(base.digits),
            period_seconds: self.period_seconds.unwrap_or(base.period_seconds),
        }
    }
}

/// A secret of one-time codes as it was given.
#[derive(Clone)]
pub struct TotpText {
    bytes: SecretSlice<u8>,
    /// The number of characters of the secret in base 32.
    pub(super) length: usize,
    /// The parameters of a URI.
    pub(super) options: TotpOptions,
    /// Whether the text is a URI.
    pub(super) is_uri: bool,
}

impl fmt::Debug for TotpText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TotpText(…)")
    }
}

impl TotpText {
    /// Parses either form. Base 32 may have either case; blanks, hyphens and the padding at the end are ignored.
    ///
    /// # Errors
    /// Returns the rule that the text breaks; the text is not repeated.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        check_max_length(text, MAX_TEXT)?;
        let text = text.trim();
        let is_uri = text.get(..10).is_some_and(|start| start.eq_ignore_ascii_case("otpauth://"));
        if is_uri { parse_uri(text) } else { parse_base32(text) }
    }

    /// Returns the secret. `base` has the parameters that the text does not have.
    #[must_use]
    pub fn secret(self, base: TotpParameters) -> TotpSecret {
        TotpSecret::new(self.bytes, self.options.over(base))
    }
}

impl TotpSecret {
    /// Parses a secret of a password manager, with the standard parameters where the text has none.
    ///
    /// # Errors
    /// As [`TotpText::parse`].
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        Ok(TotpText::parse(text)?.secret(TotpParameters::default()))
    }
}

fn parse_base32(text: &str) -> Result<TotpText, InvalidValue> {
    let plain: SecretString = text
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '-')
        .map(|c| c.to_ascii_uppercase())
        .collect::<String>()
        .trim_end_matches('=')
        .into();
    let plain = plain.expose_secret();
    let bytes = Secret::try_from_base32(plain).map_err(|_| {
        InvalidValue::new(FieldCode::InvalidFormat, "must be base 32: the letters A to Z and the digits 2 to 7")
    })?;
    if bytes.as_bytes().is_empty() {
        return Err(InvalidValue::new(FieldCode::TooShort, "must not be empty"));
    }
    let bytes = bytes.as_bytes().to_vec().into();
    Ok(TotpText { bytes, length: plain.len(), options: TotpOptions::default(), is_uri: false })
}

fn parse_uri(text: &str) -> Result<TotpText, InvalidValue> {
    let bad = |why: &str| InvalidValue::new(FieldCode::InvalidFormat, format!("the URI {why}"));
    let url = Url::parse(text).map_err(|_| bad("cannot be read"))?;
    if !url.host_str().is_some_and(|kind| kind.eq_ignore_ascii_case("totp")) {
        return Err(bad("must begin with otpauth://totp/"));
    }
    let (mut secret, mut options) = (None, TotpOptions::default());
    for (name, value) in url.query_pairs() {
        let number = || value.parse::<i64>().map_err(|_| bad(&format!("must have a number as {name}")));
        match &*name.to_ascii_lowercase() {
            "secret" => secret = Some(parse_base32(&value)?),
            "digits" => options.digits = Some(digits(number()?).map_err(|_| bad("must have 6 to 8 digits"))?),
            "period" => {
                options.period_seconds = Some(period(number()?).map_err(|_| bad("must have a period of 1 to 300 s"))?);
            }
            "algorithm" => {
                let text = value.to_ascii_uppercase().replace('-', "");
                options.algorithm = Some(algorithm(&text).map_err(|_| bad("must have SHA1, SHA256 or SHA512"))?);
            }
            // Codes of Steam have another format.
            "encoder" => return Err(bad("may not have an encoder")),
            _ => {}
        }
    }
    let secret = secret.ok_or_else(|| bad("must have a secret"))?;
    Ok(TotpText { options, is_uri: true, ..secret })
}

/// Parses the name of a hash function.
pub(super) fn algorithm(text: &str) -> Result<TotpAlgorithm, InvalidValue> {
    one_of(text, &TotpAlgorithm::ALL, TotpAlgorithm::as_str)
}

/// Checks the number of digits of a code.
pub(super) fn digits(number: i64) -> Result<u16, InvalidValue> {
    narrow(number, MIN_DIGITS, MAX_DIGITS)
}

/// Checks the number of seconds for which a code is valid.
pub(super) fn period(number: i64) -> Result<u16, InvalidValue> {
    narrow(number, 1, MAX_PERIOD_SECONDS)
}

fn narrow(number: i64, min: u16, max: u16) -> Result<u16, InvalidValue> {
    let number = within(number, min.into(), max.into())?;
    Ok(u16::try_from(number).unwrap_or(max))
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    const RFC: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

    #[test]
    fn a_secret_is_read_as_sites_show_it() {
        let plain = TotpSecret::parse(RFC).expect("a secret");
        assert_eq!(plain.bytes(), b"12345678901234567890");
        assert_eq!(plain.parameters(), TotpParameters::default());
        for shown in ["gezd gnbv gy3t qojq gezd gnbv gy3t qojq", " GEZDGNBV-GY3TQOJQ-GEZDGNBV-GY3TQOJQ== "] {
            assert_eq!(TotpSecret::parse(shown).expect(shown).bytes(), plain.bytes());
        }
        for (text, code) in [
            ("", FieldCode::TooShort),
            (" = ", FieldCode::TooShort),
            ("0189", FieldCode::InvalidFormat),
            ("GEZD!", FieldCode::InvalidFormat),
            (&*"A".repeat(4097), FieldCode::TooLong),
        ] {
            assert_eq!(TotpSecret::parse(text).expect_err(text).code, code, "{text}");
        }
    }

    /// The vectors of RFC 6238, appendix B, with the secrets in base 32.
    #[test]
    fn parameters_of_a_uri_are_applied() {
        let sha256 = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZA";
        let sha512 =
            "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNA";
        let code = |text: &str, seconds| {
            let at = OffsetDateTime::from_unix_timestamp(seconds).expect("a moment");
            TotpSecret::parse(text).expect(text).code(at).code.expose_secret().to_owned()
        };
        for (secret, algorithm, expected) in
            [(RFC, "SHA1", "94287082"), (sha256, "SHA256", "46119246"), (sha512, "sha-512", "90693936")]
        {
            let uri = format!("otpauth://totp/Shop:me?secret={secret}&digits=8&algorithm={algorithm}&issuer=Shop");
            assert_eq!(code(&uri, 59), expected, "{algorithm}");
        }
        assert_eq!(code(&format!("OTPAUTH://TOTP/?secret={RFC}"), 59), "287082");
        let text = TotpText::parse(&format!("otpauth://totp/?secret={RFC}&period=60")).expect("read");
        assert_eq!(text.options, TotpOptions { period_seconds: Some(60), ..TotpOptions::default() });
    }

    #[test]
    fn what_makes_other_codes_is_not_taken_for_one() {
        let good = "GEZDGNBVGY3TQOJQ";
        for text in [
            "otpauth://",
            "otpauth://totp/",
            "otpauth://totp/x?secret=",
            "otpauth://totp/x?secret=0189",
            &format!("otpauth://hotp/x?secret={good}&counter=1"),
            &format!("otpauth://totp/x?secret={good}&digits=40"),
            &format!("otpauth://totp/x?secret={good}&digits=x"),
            &format!("otpauth://totp/x?secret={good}&period=0"),
            &format!("otpauth://totp/x?secret={good}&algorithm=MD5"),
            &format!("otpauth://totp/x?secret={good}&encoder=steam"),
            "https://example.com/?secret=GEZDGNBVGY3TQOJQ",
        ] {
            let refused = TotpSecret::parse(text).expect_err(text);
            assert!(!format!("{refused:?}").contains("GEZ"), "{refused:?}");
        }
        assert!(!format!("{:?}", TotpText::parse(good)).contains("GEZ"));
    }
}
