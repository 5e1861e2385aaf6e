//! Which servers are trusted, and what to do about one that is not.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::progress;

/// Which certificates of servers are accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// A file with certificates that are trusted besides those of the system.
    pub(crate) ca: Option<PathBuf>,
    /// True if every certificate is accepted.
    pub(crate) is_insecure: bool,
}

/// Returns the settings of TLS.
///
/// # Errors
/// If the file cannot be read, or has no certificate.
pub(crate) fn config(trust: &Trust) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    if trust.is_insecure {
        progress::say("--insecure: whoever answers gets the API key, whether it is the server or not");
        let verifier = Arc::new(AcceptAll(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    // A system without certificates can still reach servers without TLS, or with --ca.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = &trust.ca {
        let file = File::open(path).with_context(|| format!("--ca: cannot read {}", path.display()))?;
        let found = CertificateDer::pem_reader_iter(BufReader::new(file)).collect::<Result<Vec<_>, _>>();
        let (added, _) = roots.add_parsable_certificates(found.unwrap_or_default());
        ensure!(added > 0, "--ca: {} has no certificate in PEM", path.display());
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Returns what is wrong with the TLS of a server and what to do, if an error is about that.
pub(crate) fn remedy(error: &(dyn Error + 'static)) -> Option<String> {
    Some(match of_tls(error)? {
        rustls::Error::InvalidCertificate(certificate) => about_certificate(certificate),
        rustls::Error::InvalidMessage(_) => "no TLS is spoken there: does the URL begin with http://?".to_owned(),
        rustls::Error::AlertReceived(alert) => format!("the server refuses this TLS connection ({alert:?})"),
        other => format!("TLS failed: {other}"),
    })
}

/// Returns the error of TLS that an error is or contains: one of input or output does not name it as its source.
fn of_tls<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let contained = || of_tls(error.downcast_ref::<std::io::Error>()?.get_ref()?);
    error.downcast_ref().or_else(contained)
}

fn about_certificate(error: &CertificateError) -> String {
    match error {
        // The latter two: another certificate of the issuer's name is trusted.
        CertificateError::UnknownIssuer
        | CertificateError::BadSignature
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its certificate is not trusted here. --ca FILE names the certificate of the authority that issued it".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: is the clock of this machine right?".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name than that of the URL. `openssl req` takes the names with \
             -addext subjectAltName=DNS:HOST,IP:ADDRESS"
                .to_owned()
        }
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is that of an authority, which is none of a server. Make it with `openssl req -x509 -addext \
             basicConstraints=critical,CA:FALSE …`"
                .to_owned()
        }
        other => format!("its certificate is not accepted: {other}"),
    }
}

/// Accepts every certificate; the server must only have its key.
#[derive(Debug)]
struct AcceptAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
