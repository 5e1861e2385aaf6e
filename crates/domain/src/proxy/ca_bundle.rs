//! The certificates that a proxy's own certificate must be signed with.

use std::fmt;
use std::sync::Arc;

use rustls_pki_types::{CertificateDer, pem::PemObject as _};

use crate::field::{FieldCode, InvalidValue, check_max_bytes};

/// The maximum number of bytes of a bundle.
const MAX_BYTES: usize = 64 * 1024;
/// The maximum number of certificates of a bundle.
const MAX_CERTIFICATES: usize = 50;

/// Certificates of authorities in PEM, 1 to 50.
#[derive(Clone, PartialEq, Eq)]
pub struct CaBundle {
    pem: String,
    certificates: Arc<Vec<Vec<u8>>>,
}

impl fmt::Debug for CaBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaBundle({} certificates)", self.certificates.len())
    }
}

impl CaBundle {
    /// Parses certificates in PEM. Texts between them are ignored.
    ///
    /// # Errors
    /// `too_long`, `too_many`; `not_allowed` for a private key; `invalid_format` if there is no certificate, or one that
    /// cannot be read. The text is not repeated.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        check_max_bytes(text, MAX_BYTES)?;
        let is_key = |line: &str| line.trim_start().starts_with("-----BEGIN ") && line.contains("PRIVATE KEY");
        if text.lines().any(is_key) {
            return Err(InvalidValue::new(FieldCode::NotAllowed, "may not hold a private key"));
        }
        let bad = |why: &str| InvalidValue::new(FieldCode::InvalidFormat, why);
        let certificates = CertificateDer::pem_slice_iter(text.as_bytes())
            .map(|certificate| certificate.ok().map(|der| der.to_vec()).filter(|der| is_whole(der)))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| bad("has a certificate that cannot be read"))?;
        match certificates.len() {
            0 => Err(bad("must hold at least one certificate in PEM")),
            1..=MAX_CERTIFICATES => Ok(Self { pem: text.to_owned(), certificates: Arc::new(certificates) }),
            _ => {
                let message = format!("must have at most {MAX_CERTIFICATES} certificates");
                Err(InvalidValue::new(FieldCode::TooMany, message))
            }
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.pem
    }

    /// Returns the certificates in DER.
    #[must_use]
    pub fn certificates(&self) -> &[Vec<u8>] {
        &self.certificates
    }
}

/// Returns whether the bytes are one sequence of DER, as a certificate is.
fn is_whole(der: &[u8]) -> bool {
    let [0x30, first, rest @ ..] = der else { return false };
    match first {
        0..=0x7f => rest.len() == usize::from(*first),
        0x81..=0x84 => rest.split_at_checked(usize::from(first - 0x80)).is_some_and(|(length, content)| {
            length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) == content.len()
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::*;

    fn pem(label: &str, der: &[u8]) -> String {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
    }

    /// A sequence of DER with this content.
    fn sequence(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).expect("short").to_be_bytes();
        [&[0x30, 0x82], &length[..], content].concat()
    }

    #[test]
    fn a_bundle_holds_certificates_in_any_number_and_texts_between_them() {
        let (one, two) = (sequence(&[1; 300]), sequence(&[2; 300]));
        let text = format!("# first\n{}\nsecond:\n{}", pem("CERTIFICATE", &one), pem("CERTIFICATE", &two));
        let bundle = CaBundle::parse(&text).expect("a bundle");
        assert_eq!((bundle.certificates(), bundle.as_str()), (&[one, two][..], text.as_str()));
    }

    #[test]
    fn a_bundle_without_a_certificate_or_with_a_key_is_refused() {
        let good = pem("CERTIFICATE", &sequence(&[1; 300]));
        for (text, code) in [
            (String::new(), FieldCode::InvalidFormat),
            ("no certificate".to_owned(), FieldCode::InvalidFormat),
            (pem("PUBLIC KEY", &sequence(&[1])), FieldCode::InvalidFormat),
            (pem("CERTIFICATE", b"no sequence"), FieldCode::InvalidFormat),
            (pem("CERTIFICATE", &sequence(&[1; 300])[..200]), FieldCode::InvalidFormat),
            (format!("{good}-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"), FieldCode::InvalidFormat),
            (format!("{good}{}", pem("PRIVATE KEY", b"secret")), FieldCode::NotAllowed),
            (format!("{good}{}", pem("RSA PRIVATE KEY", b"secret")), FieldCode::NotAllowed),
            (format!("{good}{}", pem("ENCRYPTED PRIVATE KEY", b"secret")), FieldCode::NotAllowed),
            (good.repeat(51), FieldCode::TooMany),
            (" ".repeat(MAX_BYTES + 1), FieldCode::TooLong),
        ] {
            let refused = CaBundle::parse(&text).expect_err(&text);
            assert_eq!(refused.code, code, "{text}");
            assert!(!format!("{refused:?}").contains("secret"), "{refused:?}");
        }
    }
}
