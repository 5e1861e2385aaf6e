//! The identity of a node towards other nodes: a key that is pinned by its fingerprint.

use std::{fmt, sync::Arc};

use casement_domain::node::Fingerprint;
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::{
        ParsedCertificate,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::TLS13,
};

/// The reason why a key and its certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A text is not PEM with the expected content. It is not repeated here, because it may be a key.
    #[error("not a certificate and a private key in PEM form")]
    NotPem,
    /// TLS refuses them.
    #[error("the key and the certificate cannot be used together: {0}")]
    Tls(#[from] rustls::Error),
}

/// The key of this node, and its self-signed certificate.
#[derive(Clone)]
pub struct NodeIdentity {
    certificate: CertificateDer<'static>,
    key: Arc<PrivateKeyDer<'static>>,
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
    server: Arc<ServerConfig>,
}

impl fmt::Debug for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeIdentity").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

impl NodeIdentity {
    /// Creates the identity of a certificate and its private key, both in PEM form.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let certificate = CertificateDer::from_pem_slice(certificate).map_err(|_| IdentityError::NotPem)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityError::NotPem)?;
        let provider = Arc::new(ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(AnyNode(Arc::clone(&provider))))
            .with_single_cert(vec![certificate.clone()], key.clone_key())?;
        let fingerprint = fingerprint(&certificate)?;
        Ok(Self { certificate, key: Arc::new(key), fingerprint, provider, server: Arc::new(server) })
    }

    /// Returns the fingerprint by which other nodes recognize this one.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the configuration of the cluster listener. Its handshake proves that the client has the key of its
    /// certificate; whether the key is that of a node is checked afterwards.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// Returns the configuration for connections to the node with this key.
    ///
    /// # Errors
    /// [`rustls::Error`]: never.
    pub(crate) fn client(&self, pinned: Fingerprint) -> Result<Arc<ClientConfig>, rustls::Error> {
        let verifier = PinnedNode { pinned, provider: Arc::clone(&self.provider) };
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(vec![self.certificate.clone()], self.key.clone_key())?;
        Ok(Arc::new(config))
    }
}

/// Returns the fingerprint of the public key in a certificate.
///
/// # Errors
/// If it is not a certificate.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> Result<Fingerprint, rustls::Error> {
    let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
    Ok(Fingerprint(Sha256::digest(key.as_ref()).into()))
}

/// Accepts the one certificate with the pinned key. Names and dates of certificates have no meaning between nodes.
#[derive(Debug)]
struct PinnedNode {
    pinned: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedNode {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match fingerprint(end_entity)? == self.pinned {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts every certificate whose key the client has. The store, which a handshake cannot read, knows the keys of nodes.
#[derive(Debug)]
struct AnyNode(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyNode {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        fingerprint(end_entity).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
