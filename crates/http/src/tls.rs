//! The server's certificate, which can be replaced while the server runs.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::RwLock;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _},
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
    },
};

/// The name of HTTP/2 in the negotiation of the protocol.
pub(crate) const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
/// The longest file of a certificate chain or a key, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is no PEM with the expected content.
    #[error("{} has no {expected} in PEM form", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What it should contain.
        expected: &'static str,
    },
    /// The key has a type that is not supported, or belongs to another certificate.
    #[error("the certificate in {} and the key in {} cannot be used together: {reason}", certificate.display(), key.display())]
    Mismatch {
        /// The file of the certificate chain.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason, without any content of the key.
        reason: String,
    },
}

/// The certificate chain and private key of the server, from two PEM files. Clones share the certificate.
#[derive(Clone)]
pub struct ServerCertificate {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}

impl std::fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerCertificate").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl ServerCertificate {
    /// Reads the certificate chain, the server's own first, and its private key.
    ///
    /// # Errors
    /// A file cannot be read or has no such content, or the key belongs to another certificate.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let current = Arc::new(Current(RwLock::new(Arc::new(read(certificate, key)?))));
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| mismatch(certificate, key, &error))?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(current.clone());
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        let config = Arc::new(config);
        Ok(Self { certificate: certificate.to_owned(), key: key.to_owned(), current, config })
    }

    /// Reads both files again. New connections get the certificate; existing ones continue. Returns true if it differs
    /// from the previous one.
    ///
    /// # Errors
    /// As for [`load`](Self::load); the previous certificate stays.
    pub fn reload(&self) -> Result<bool, CertificateError> {
        let read = read(&self.certificate, &self.key)?;
        let mut current = self.current.0.write();
        let differs = current.cert != read.cert;
        *current = Arc::new(read);
        Ok(differs)
    }

    /// Returns the files of the certificate chain and of the key.
    #[must_use]
    pub fn files(&self) -> [&Path; 2] {
        [&self.certificate, &self.key]
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, CertificateError> {
    let chain = CertificateDer::pem_slice_iter(&content(certificate)?)
        .collect::<Result<Vec<_>, pem::Error>>()
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or_else(|| not_pem(certificate, "certificate"))?;
    let private = PrivateKeyDer::from_pem_slice(&content(key)?).map_err(|_| not_pem(key, "private key"))?;
    let signing = ring::sign::any_supported_type(&private).map_err(|error| mismatch(certificate, key, &error))?;
    let certified = CertifiedKey::new(chain, signing);
    certified.keys_match().map_err(|error| mismatch(certificate, key, &error))?;
    Ok(certified)
}

fn content(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let read = || {
        let mut content = Vec::new();
        match File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)? as u64 {
            0..=MAX_FILE_BYTES => Ok(content),
            _ => Err(io::ErrorKind::FileTooLarge.into()),
        }
    };
    read().map_err(|source| CertificateError::Read { path: path.to_owned(), source })
}

fn not_pem(path: &Path, expected: &'static str) -> CertificateError {
    CertificateError::NotPem { path: path.to_owned(), expected }
}

fn mismatch(certificate: &Path, key: &Path, error: &rustls::Error) -> CertificateError {
    CertificateError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned(), reason: error.to_string() }
}
