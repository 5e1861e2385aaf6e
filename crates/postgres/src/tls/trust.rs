//! Which certificates of servers are accepted.

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::time::ASN1Time;

/// The known authorities.
#[derive(Debug)]
pub(crate) struct Authorities {
    anchors: RootCertStore,
    certificates: Vec<CertificateDer<'static>>,
}

impl Authorities {
    /// Returns the authorities of these certificates, or `None` if none of them can be read.
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>) -> Option<Self> {
        let mut anchors = RootCertStore::empty();
        let (added, _unreadable) = anchors.add_parsable_certificates(certificates.iter().cloned());
        (added > 0).then_some(Self { anchors, certificates })
    }

    /// Whether the server's own certificate is one of the trusted ones, as with a self-signed certificate.
    fn contain(&self, certificate: &CertificateDer<'_>) -> bool {
        self.certificates.iter().any(|known| known == certificate)
    }
}

/// Accepts certificates as `sslmode` demands. In any case the server must have the key of its certificate.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// `None` accepts every certificate.
    pub(crate) authorities: Option<Authorities>,
    /// Whether the certificate must be for the name of the host.
    pub(crate) checks_name: bool,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        let parsed = ParsedCertificate::try_from(end_entity)?;
        if authorities.contain(end_entity) {
            check_validity(end_entity, now)?;
        } else {
            let (anchors, algorithms) = (&authorities.anchors, self.algorithms.all);
            verify_server_cert_signed_by_trust_anchor(&parsed, anchors, intermediates, now, algorithms)?;
        }
        if self.checks_name {
            verify_server_name(&parsed, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Checks the dates of a certificate that needs no signature.
fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).ok();
    let now = now.and_then(|now| ASN1Time::from_timestamp(now).ok()).ok_or(CertificateError::BadEncoding)?;
    if parsed.validity().is_valid_at(now) { Ok(()) } else { Err(CertificateError::Expired.into()) }
}
