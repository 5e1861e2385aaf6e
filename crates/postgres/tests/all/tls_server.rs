//! A PostgreSQL that listens at a port of this machine, with a certificate.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use casement_postgres::DatabaseConfig;
use casement_postgres::cluster::Cluster;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair, date_time_ymd,
};
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::cluster::Home;
use crate::support::{TestResult, until};
use crate::world::Fault;

/// The host for which the server has a certificate. It is looked up by nobody: `hostaddr` has the address.
const HOST: &str = "db.test";
/// The role that proves itself by a certificate.
pub(crate) const CERTIFIED: &str = "certified";
/// The role that may only connect without TLS.
pub(crate) const PLAIN: &str = "plain";
const PASSWORD: &str = "a-password-that-nobody-may-see";
const ACCESS: &str = "\
local all all trust
hostssl all certified 127.0.0.0/8 cert
hostssl all plain 127.0.0.0/8 reject
hostnossl all plain 127.0.0.0/8 trust
host all casement 127.0.0.0/8 scram-sha-256
";

/// A certificate and its key, in PEM form.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// An authority that signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new([])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for a host or a role, valid until the beginning of a year.
    pub(crate) fn issue(&self, name: &str, until: i32) -> Result<Issued, rcgen::Error> {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate()?;
        Ok(Issued { certificate: params.signed_by(&key, &self.0)?.pem(), key: key.serialize_pem() })
    }
}

/// Makes a self-signed certificate for a host, which may also sign others, as OpenSSL makes them.
pub(crate) fn self_signed(name: &str) -> Result<Issued, rcgen::Error> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    Ok(Issued { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// The server. Ends on drop.
pub(crate) struct TlsServer {
    home: Home,
    cluster: Cluster,
    /// An address of this machine that no other server has. The port is that of all private clusters.
    address: Ipv4Addr,
    pub(crate) authority: Authority,
}

impl TlsServer {
    /// Starts a server with a certificate for [`HOST`].
    pub(crate) async fn start() -> Result<Self, Fault> {
        let home = Home::new()?;
        Cluster::start(home.config()).await?.stop().await?;
        let authority = Authority::new("The test's authority")?;
        let address = free_address()?;
        let settings = format!(
            "listen_addresses = '{address}'\nssl = on\nssl_cert_file = 'server.crt'\nssl_key_file = 'server.key'\n\
             ssl_ca_file = 'ca.crt'\n"
        );
        let data_dir = home.data_dir();
        place(&data_dir, "operator.conf", &settings)?;
        place(&data_dir, "pg_hba.conf", ACCESS)?;
        place(&data_dir, "ca.crt", &authority.pem())?;
        place_certificate(&data_dir, &authority.issue(HOST, 2300)?)?;
        let cluster = Cluster::start(home.config()).await?;
        let server = Self { home, cluster, address, authority };
        server
            .ask(&format!(
                "ALTER ROLE casement PASSWORD '{PASSWORD}'; CREATE ROLE {CERTIFIED} LOGIN; CREATE ROLE {PLAIN} LOGIN"
            ))
            .await?;
        Ok(server)
    }

    /// Replaces the certificate. New connections get it.
    pub(crate) async fn use_certificate(&self, issued: &Issued) -> TestResult {
        place_certificate(&self.home.data_dir(), issued)?;
        // The process that accepts connections reads the file when it gets a signal, some time after this statement.
        let loaded = self.ask("SELECT pg_conf_load_time()").await?;
        self.ask("SELECT pg_reload_conf()").await?;
        until("the settings are read", async || {
            self.ask("SELECT pg_conf_load_time()").await.is_ok_and(|at| at != loaded)
        })
        .await
    }

    /// Turns TLS off for new connections.
    pub(crate) async fn turn_tls_off(&self) -> TestResult {
        self.ask("ALTER SYSTEM SET ssl = off").await?;
        self.ask("SELECT pg_reload_conf()").await?;
        until("TLS is off", async || self.ask("SHOW ssl").await.is_ok_and(|value| value == "off")).await
    }

    /// The URL for connections with these parameters.
    pub(crate) fn url(&self, parameters: &str) -> String {
        self.url_of(HOST, parameters)
    }

    /// The URL with another name for the same server.
    pub(crate) fn url_of(&self, host: &str, parameters: &str) -> String {
        format!("postgresql://casement:{PASSWORD}@{host}/casement?hostaddr={}&{parameters}", self.address)
    }

    /// The URL of a role without a password.
    pub(crate) fn url_of_role(&self, role: &str, parameters: &str) -> String {
        format!("postgresql://{role}@{HOST}/casement?hostaddr={}&{parameters}", self.address)
    }

    pub(crate) fn config(&self, parameters: &str) -> Result<DatabaseConfig, Fault> {
        Ok(DatabaseConfig::parse(&self.url(parameters))?)
    }

    /// Writes a file beside the data directory, and returns its path.
    pub(crate) fn file(&self, name: &str, content: &str) -> Result<String, Fault> {
        let path = self.home.data_dir().with_file_name(name);
        place(&self.home.data_dir().join(".."), name, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(path.to_str().ok_or("a path of ASCII")?.to_owned())
    }

    /// Writes the certificate of the server's authority to a file, and returns its path.
    pub(crate) fn root_file(&self) -> Result<String, Fault> {
        self.file("root.crt", &self.authority.pem())
    }

    /// Runs statements over the unix socket. Returns the first column of the first row.
    pub(crate) async fn ask(&self, statements: &str) -> Result<String, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.cluster.url(), NoTls).await?;
        let driving = tokio::spawn(connection);
        let answer = client.simple_query(statements).await?;
        driving.abort();
        let first = answer.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(first.unwrap_or_default())
    }

    /// How many connections of Casement are encrypted, and how many are not: `2 and 0`.
    pub(crate) async fn encrypted(&self) -> Result<String, tokio_postgres::Error> {
        self.ask(
            "SELECT count(*) FILTER (WHERE ssl) || ' and ' || count(*) FILTER (WHERE NOT ssl) \
             FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'casement'",
        )
        .await
    }
}

/// Finds a loopback address with a free port 5432: the number of a free port makes it differ from that of other tests.
fn free_address() -> std::io::Result<Ipv4Addr> {
    loop {
        let [high, low] = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_be_bytes();
        let address = Ipv4Addr::new(127, 54, high, low);
        if TcpListener::bind((address, 5432)).is_ok() {
            return Ok(address);
        }
    }
}

/// Whether a text shows the password of the server's URLs.
pub(crate) fn shows_the_password(text: &str) -> bool {
    text.contains(PASSWORD)
}

/// Writes a file for the account of the server.
fn place(dir: &Path, name: &str, content: &str) -> std::io::Result<PathBuf> {
    let path = dir.join(name);
    fs::write(&path, content)?;
    let owner = fs::metadata(dir)?;
    chown(&path, Some(owner.uid()), Some(owner.gid()))?;
    Ok(path)
}

fn place_certificate(data_dir: &Path, issued: &Issued) -> std::io::Result<()> {
    place(data_dir, "server.crt", &issued.certificate)?;
    let key = place(data_dir, "server.key", &issued.key)?;
    fs::set_permissions(key, fs::Permissions::from_mode(0o600))
}
