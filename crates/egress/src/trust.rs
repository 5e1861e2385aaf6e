//! The trusted certificates for the TLS connections of this side.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use tokio_rustls::{
    TlsConnector,
    rustls::{self, ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer},
};

/// The trusted certificates: those of this machine, loaded on first use, or those of a caller. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Trust(Arc<OnceLock<Result<Arc<ClientConfig>, rustls::Error>>>);

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

impl Trust {
    /// Trusts only these certificates, in DER. Ignores invalid ones; without a valid one, no server is trusted.
    pub(crate) fn only(certificates: Vec<Vec<u8>>) -> Self {
        let config = config(certificates.into_iter().map(CertificateDer::from).collect());
        Self(Arc::new(OnceLock::from(config)))
    }

    /// Returns the TLS connector.
    ///
    /// # Errors
    /// If no TLS version is usable.
    pub(crate) fn connector(&self) -> Result<TlsConnector, rustls::Error> {
        // Certificates that cannot be loaded are skipped; without any, no server is trusted.
        let loaded = || config(rustls_native_certs::load_native_certs().certs);
        self.0.get_or_init(loaded).clone().map(TlsConnector::from)
    }
}

fn config(certificates: Vec<CertificateDer<'static>>) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(Arc::new(config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth()))
}
