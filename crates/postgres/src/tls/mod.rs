//! TLS of the connections to the database, as libpq's parameters in the database URL demand it.

mod error;
mod handshake;
mod parameters;
mod trust;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _};

pub use error::{BadTls, TlsError};
pub(crate) use handshake::{Connector, Encrypted, Plain};
pub(crate) use parameters::Parameters;
use parameters::{Mode, Roots};
use trust::{Authorities, Verifier};

/// The longest file of certificates or of a key, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// How connections are protected.
#[derive(Clone)]
pub(crate) struct Tls {
    mode: Mode,
    roots: Option<Roots>,
    identity: Option<Identity>,
    /// The configuration, if it does not come from files of the URL. Those are read again for each connection, so that
    /// renewed ones are used.
    fixed_config: Option<Arc<ClientConfig>>,
}

/// The files with the certificate and the key of this client.
#[derive(Clone)]
struct Identity {
    certificate: PathBuf,
    key: PathBuf,
}

impl Tls {
    /// Returns what the parameters demand for the hosts of `config`. Reads the files.
    ///
    /// # Errors
    /// [`BadTls`].
    pub(crate) fn new(parameters: Parameters, config: &Config) -> Result<Self, BadTls> {
        let identity = match (parameters.certificate.clone(), parameters.key.clone()) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            _ => return Err(BadTls::HalfIdentity),
        };
        let place = Place::of(config);
        let mode = match (parameters.mode, &parameters.roots) {
            (Some(mode), _) => mode,
            (None, Some(Roots::System)) => Mode::VerifyFull,
            (None, _) if place.only_local => Mode::Disable,
            (None, _) => Mode::Prefer,
        };
        // As in libpq: the parameters mean nothing for a socket of this machine.
        if place.only_sockets {
            return Ok(Self { mode: Mode::Disable, roots: None, identity: None, fixed_config: None });
        }
        if place.has_socket && mode >= Mode::Require {
            return Err(BadTls::SomeSockets);
        }
        let (mode, roots) = Self::checked(mode, parameters.roots, identity.is_some(), config)?;
        let mut tls = Self { mode, roots, identity, fixed_config: None };
        if mode > Mode::Disable {
            let config = tls.load()?;
            let has_files = tls.identity.is_some() || matches!(tls.roots, Some(Roots::File(_)));
            tls.fixed_config = (!has_files).then_some(config);
        }
        Ok(tls)
    }

    /// Refuses combinations in which a parameter would have no effect.
    fn checked(
        mode: Mode,
        roots: Option<Roots>,
        has_identity: bool,
        config: &Config,
    ) -> Result<(Mode, Option<Roots>), BadTls> {
        let weak = |parameter, mode: Mode| Err(BadTls::TooWeak { parameter, mode: mode.name() });
        if mode == Mode::Disable && config.get_channel_binding() == ChannelBinding::Require {
            return weak("channel_binding=require", Mode::Require);
        }
        if mode < Mode::Require && has_identity {
            return weak("sslcert", Mode::Require);
        }
        match (mode, roots) {
            (Mode::VerifyFull, None) => Ok((mode, Some(Roots::System))),
            (Mode::VerifyCa, None) => Err(BadTls::NoRoots),
            (Mode::Disable | Mode::Prefer | Mode::Require | Mode::VerifyCa, Some(Roots::System)) => {
                weak("sslrootcert=system", Mode::VerifyFull)
            }
            (Mode::Disable | Mode::Prefer, Some(Roots::File(_))) => weak("sslrootcert", Mode::VerifyFull),
            // As in libpq.
            (Mode::Require, roots @ Some(Roots::File(_))) => Ok((Mode::VerifyCa, roots)),
            (mode, roots) => Ok((mode, roots)),
        }
    }

    /// What the driver has to do.
    pub(crate) fn driver_mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    /// Returns the connector for one connection.
    pub(crate) async fn connector(&self) -> Connector {
        let config = match &self.fixed_config {
            Some(config) => Ok(Arc::clone(config)),
            None if self.mode == Mode::Disable => Err(TlsError::Off),
            None => {
                let tls = self.clone();
                let reading = tokio::task::spawn_blocking(move || tls.load());
                reading.await.unwrap_or_else(|error| Err(TlsError::Setup(error.to_string())))
            }
        };
        let roots = match &self.roots {
            Some(Roots::File(path)) => format!("sslrootcert ({})", path.display()),
            Some(Roots::System) | None => "the certificates of this system (sslrootcert=system)".to_owned(),
        };
        Connector { config, roots }
    }

    fn load(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier {
            authorities: self.roots.as_ref().map(authorities).transpose()?,
            checks_name: self.mode == Mode::VerifyFull,
            algorithms: provider.signature_verification_algorithms,
        };
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| TlsError::Setup(error.to_string()))?;
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let chain = certificates("sslcert", certificate)?;
                let private = PrivateKeyDer::from_pem_slice(&content("sslkey", key)?)
                    .map_err(|_| unusable("sslkey", key, "no private key in PEM form without a password"))?;
                let built = builder.with_client_auth_cert(chain, private);
                built.map_err(|error| TlsError::Identity(error.to_string()))?
            }
        };
        Ok(Arc::new(config))
    }

    /// Returns libpq's variables for the same protection, for programs of any version.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = vec![("PGSSLMODE", self.mode.name().into())];
        match &self.roots {
            Some(Roots::File(path)) => variables.push(("PGSSLROOTCERT", path.into())),
            // Before version 16 libpq does not know `system`, but it can read the file behind it.
            Some(Roots::System) => {
                let file = openssl_probe::probe().cert_file.map_or_else(|| "system".into(), PathBuf::into_os_string);
                variables.push(("PGSSLROOTCERT", file));
            }
            None => {}
        }
        if let Some(Identity { certificate, key }) = &self.identity {
            variables.extend([("PGSSLCERT", certificate.into()), ("PGSSLKEY", key.into())]);
        }
        variables
    }
}

/// Where the hosts of a connection string are.
struct Place {
    has_socket: bool,
    only_sockets: bool,
    /// Sockets and loopback addresses.
    only_local: bool,
}

impl Place {
    fn of(config: &Config) -> Self {
        let is_socket = |host: &Host| matches!(host, Host::Unix(_));
        let is_local = |host: &Host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
        };
        let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
        Self {
            has_socket: hosts.iter().any(is_socket),
            only_sockets: addresses.is_empty() && hosts.iter().all(is_socket),
            // An address takes precedence over its name.
            only_local: match addresses {
                [] => hosts.iter().all(is_local),
                addresses => addresses.iter().all(IpAddr::is_loopback),
            },
        }
    }
}

fn authorities(roots: &Roots) -> Result<Authorities, TlsError> {
    match roots {
        Roots::System => {
            let found = rustls_native_certs::load_native_certs().certs;
            Authorities::new(found).ok_or(TlsError::NoSystemRoots)
        }
        Roots::File(path) => Authorities::new(certificates("sslrootcert", path)?)
            .ok_or_else(|| unusable("sslrootcert", path, "none of its certificates can be read")),
    }
}

fn certificates(parameter: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(&content(parameter, path)?)
        .collect::<Result<Vec<_>, pem::Error>>()
        .ok()
        .filter(|found| !found.is_empty())
        .ok_or_else(|| unusable(parameter, path, "no certificate in PEM form"))
}

fn content(parameter: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = || {
        let mut content = Vec::new();
        match File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)? as u64 {
            0..=MAX_FILE_BYTES => Ok(content),
            _ => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
        }
    };
    read().map_err(|error| unusable(parameter, path, &error.to_string()))
}

fn unusable(parameter: &'static str, path: &Path, reason: &str) -> TlsError {
    TlsError::File { parameter, path: path.to_owned(), reason: reason.to_owned() }
}
