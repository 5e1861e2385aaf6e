//! Opens connections to the database.

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use casement_dial::{ATTEMPT_DELAY, connect_first, interleaved};
use diesel::ConnectionError;
use diesel_async::AsyncPgConnection;
use rustix::net::sockopt;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};
use tokio_util::either::Either;

use crate::access::Access;
use crate::refusals::{Observed, Refusals};
use crate::tls::{Connector, Encrypted, Plain, Tls, TlsError};

/// The timeout for opening a connection.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// The port of hosts without one.
const DEFAULT_PORT: u16 = 5432;

/// The driver's side of a connection, which reads and writes its socket.
pub(crate) type Wire = tokio_postgres::Connection<Observed<Plain>, Encrypted>;

/// An open connection.
pub(crate) struct Opened {
    pub(crate) client: Client,
    pub(crate) wire: Wire,
    /// What the server refuses on this connection.
    pub(crate) refusals: Refusals,
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The connection string names no host.
    #[error("the database URL names no host")]
    NoHost,
    /// A host cannot be reached.
    #[error("{host}: {error}")]
    Socket {
        /// The host, as the connection string names it.
        host: String,
        /// The error of the system.
        error: io::Error,
    },
    /// A host does not answer.
    #[error("{host} did not answer within {} ms", limit.as_millis())]
    TooSlow {
        /// The host, as the connection string names it.
        host: String,
        /// The timeout.
        limit: Duration,
    },
    /// A server only reads, and the connection string does not accept such a one.
    #[error(
        "{0} can only be read: it is a standby, or default_transaction_read_only is on (target_session_attrs of the database \
         URL demands a server that can write)"
    )]
    ReadOnly(String),
    /// The server refused, or what it sent was not understood.
    #[error("{}", describe(.0))]
    Driver(Error),
    /// None of several hosts can be used.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<ConnectError>),
}

impl ConnectError {
    /// Returns the code with which a server refused the connection.
    pub(crate) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Driver(error) => error.code(),
            Self::Several(errors) => errors.iter().find_map(Self::code),
            Self::NoHost | Self::Socket { .. } | Self::TooSlow { .. } | Self::ReadOnly(_) => None,
        }
    }
}

/// Where the database is, how connections to it are protected, and what they must be able to do.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) config: Config,
    pub(crate) tls: Tls,
    pub(crate) access: Access,
}

/// One of the hosts of a connection string.
struct Place {
    /// The name for certificates and messages.
    name: String,
    /// What is connected to: the address, where one is given beside the name.
    target: Host,
    port: u16,
}

impl Address {
    /// Opens one connection, to the first host that can be used.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub(crate) async fn connect(&self) -> Result<Opened, ConnectError> {
        let connector = self.tls.connector().await;
        let places = self.places();
        let limit = self.limit(places.len());
        let mut errors = Vec::new();
        for place in places {
            // Boxed, because the handshake would make every future large that may open a connection.
            let opening = Box::pin(self.open_at(&place, &connector));
            match tokio::time::timeout(limit, opening).await {
                Ok(Ok(opened)) => return Ok(opened),
                Ok(Err(error)) => errors.push(error),
                Err(_elapsed) => errors.push(ConnectError::TooSlow { host: place.name, limit }),
            }
        }
        Err(match errors.len() {
            0 => ConnectError::NoHost,
            1 => errors.remove(0),
            _ => ConnectError::Several(errors),
        })
    }

    /// Opens one connection for Diesel, whose socket is driven by the current runtime.
    pub(crate) async fn open(&self) -> Result<AsyncPgConnection, ConnectionError> {
        let Opened { client, wire, .. } = self.connect().await.map_err(|error| bad_connection(&error))?;
        // Every failure is also the result of a statement.
        tokio::spawn(async move { drop(wire.await) });
        AsyncPgConnection::try_from(client).await
    }

    /// Whether a server that only reads is refused.
    pub(crate) fn must_write(&self) -> bool {
        self.access == Access::ReadWrite
    }

    /// Returns the timeout for one of several hosts. All of them are tried within the timeout of one.
    fn limit(&self, hosts: usize) -> Duration {
        let share = CONNECT_LIMIT / u32::try_from(hosts.max(1)).unwrap_or(u32::MAX);
        self.config.get_connect_timeout().copied().unwrap_or(share)
    }

    /// Returns the hosts in the order in which they are tried.
    fn places(&self) -> Vec<Place> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (hosts, addresses, ports) = (self.config.get_hosts(), self.config.get_hostaddrs(), self.config.get_ports());
        let place = |(at, host): (usize, &Host)| Place {
            name: match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            },
            target: addresses.get(at).map_or_else(|| host.clone(), |address| Host::Tcp(address.to_string())),
            port: ports.get(at).or(ports.first()).copied().unwrap_or(DEFAULT_PORT),
        };
        let mut places: Vec<Place> = hosts.iter().enumerate().map(place).collect();
        if self.config.get_load_balance_hosts() == LoadBalanceHosts::Random && !places.is_empty() {
            let first = NEXT.fetch_add(1, Ordering::Relaxed) % places.len();
            places.rotate_left(first);
        }
        places
    }

    async fn open_at(&self, place: &Place, connector: &Connector) -> Result<Opened, ConnectError> {
        let failed = |error| ConnectError::Socket { host: place.name.clone(), error };
        match &place.target {
            Host::Unix(folder) => {
                let socket = open_socket(folder, place.port).await.map_err(failed)?;
                let opened = self.greet(socket, SslMode::Disable, place, connector).await;
                self.checked(opened.map_err(ConnectError::Driver)?, place).await
            }
            Host::Tcp(name) => {
                let found: Vec<_> = lookup_host((&**name, place.port)).await.map_err(failed)?.collect();
                self.open_first(interleaved(&found), place, connector).await
            }
        }
    }

    /// Opens a connection at the first of these addresses that answers and serves.
    async fn open_first(
        &self,
        mut addresses: Vec<SocketAddr>,
        place: &Place,
        connector: &Connector,
    ) -> Result<Opened, ConnectError> {
        let mut refused = None;
        loop {
            let connecting = connect_first(addresses.clone(), ATTEMPT_DELAY, |address| self.open_stream(address));
            let (socket, address) = match connecting.await {
                Ok(connected) => connected,
                Err(error) => {
                    let failed = || ConnectError::Socket { host: place.name.clone(), error };
                    return Err(refused.unwrap_or_else(failed));
                }
            };
            match self.open_tcp(socket, address, place, connector).await {
                Ok(opened) => return Ok(opened),
                Err(error) => refused = Some(error),
            }
            addresses.retain(|other| *other != address);
        }
    }

    async fn open_tcp(
        &self,
        socket: Plain,
        address: SocketAddr,
        place: &Place,
        connector: &Connector,
    ) -> Result<Opened, ConnectError> {
        let failed = |error| ConnectError::Socket { host: place.name.clone(), error };
        let mode = self.config.get_ssl_mode();
        let opened = match self.greet(socket, mode, place, connector).await {
            // As in libpq, `prefer` is satisfied without TLS if the server offers it and it does not work.
            Err(error) if mode == SslMode::Prefer && is_about_tls(&error) => {
                let socket = self.open_stream(address).await.map_err(failed)?;
                let opened = self.greet(socket, SslMode::Disable, place, connector).await.map_err(|_| error);
                let opened = opened.map_err(ConnectError::Driver)?;
                tracing::warn!("a connection to the database is not encrypted: sslmode=prefer, and TLS did not work");
                opened
            }
            opened => opened.map_err(ConnectError::Driver)?,
        };
        self.checked(opened, place).await
    }

    /// Opens a socket that notices when the other end is gone.
    async fn open_stream(&self, address: SocketAddr) -> io::Result<Plain> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let config = &self.config;
        if let Some(timeout) = config.get_tcp_user_timeout() {
            sockopt::set_tcp_user_timeout(&stream, u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX))?;
        }
        if config.get_keepalives() {
            sockopt::set_socket_keepalive(&stream, true)?;
            sockopt::set_tcp_keepidle(&stream, config.get_keepalives_idle())?;
            if let Some(interval) = config.get_keepalives_interval() {
                sockopt::set_tcp_keepintvl(&stream, interval)?;
            }
            if let Some(retries) = config.get_keepalives_retries() {
                sockopt::set_tcp_keepcnt(&stream, retries)?;
            }
        }
        Ok(Either::Left(stream))
    }

    /// Greets the server, over TLS if the mode says so.
    async fn greet(&self, socket: Plain, mode: SslMode, place: &Place, connector: &Connector) -> Result<Opened, Error> {
        let refusals = Refusals::default();
        // The server answers the question for TLS with one byte that is no message.
        let socket = Observed::new(socket, refusals.clone(), usize::from(mode != SslMode::Disable));
        let mut config = self.config.clone();
        let greeting = config.ssl_mode(mode).connect_raw(socket, connector.handshake(&place.name));
        let (client, wire) = Box::pin(greeting).await?;
        Ok(Opened { client, wire, refusals })
    }

    /// Refuses a server that only reads, unless any is accepted.
    async fn checked(&self, mut opened: Opened, place: &Place) -> Result<Opened, ConnectError> {
        if !self.must_write() {
            return Ok(opened);
        }
        let answer = tokio::select! {
            biased;
            answer = opened.client.simple_query(SHOW_READ_ONLY) => answer.map_err(ConnectError::Driver)?,
            ended = &mut opened.wire => {
                ended.map_err(ConnectError::Driver)?;
                return Err(ConnectError::Socket {
                    host: place.name.clone(),
                    error: io::ErrorKind::UnexpectedEof.into(),
                });
            }
        };
        if only_reads(&answer) { Err(ConnectError::ReadOnly(place.name.clone())) } else { Ok(opened) }
    }
}

/// The statement whose answer [`only_reads`] understands.
pub(crate) const SHOW_READ_ONLY: &str = "SHOW transaction_read_only";

/// Whether the answer to [`SHOW_READ_ONLY`] says that the server or the database only reads.
pub(crate) fn only_reads(answer: &[SimpleQueryMessage]) -> bool {
    answer.iter().any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("on")))
}

/// Opens the socket of a server on this machine.
async fn open_socket(folder: &Path, port: u16) -> io::Result<Plain> {
    UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await.map(Either::Right)
}

/// Whether a handshake failed, or the server refuses connections with TLS.
fn is_about_tls(error: &Error) -> bool {
    error.source().is_some_and(|cause| cause.is::<TlsError>())
        || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

/// Converts an error for Diesel.
pub(crate) fn bad_connection(error: &ConnectError) -> ConnectionError {
    ConnectionError::BadConnection(error.to_string())
}

/// The error with its cause, since the driver's own text names only the kind of error.
pub(crate) fn describe(error: &Error) -> String {
    match error.source() {
        Some(cause) if cause.to_string() == "server does not support TLS" => {
            "the database speaks no TLS, which sslmode of the database URL demands: turn on its setting ssl, or give \
             sslmode=disable if the network is trusted"
                .to_owned()
        }
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
