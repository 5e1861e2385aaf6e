//! Opens connections to the database.

use std::error::Error as _;
use std::time::Duration;

use diesel::ConnectionError;
use diesel_async::AsyncPgConnection;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, Socket};

use crate::tls::{Encrypted, Tls, TlsError};

/// The timeout for opening a connection.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// The driver's side of a connection, which reads and writes its socket.
pub(crate) type Wire = tokio_postgres::Connection<Socket, Encrypted>;

/// Where the database is, and how connections to it are protected.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) config: Config,
    pub(crate) tls: Tls,
}

impl Address {
    /// Opens one connection.
    ///
    /// # Errors
    /// Any error of the driver; [`describe`] has its text.
    pub(crate) async fn connect(&self) -> Result<(Client, Wire), Error> {
        let connector = self.tls.connector().await;
        // Boxed, because the handshake would make every future large that may open a connection.
        match Box::pin(self.config.connect(connector.clone())).await {
            // As in libpq, `prefer` is satisfied without TLS if the server offers it and it does not work.
            Err(error) if self.config.get_ssl_mode() == SslMode::Prefer && is_about_tls(&error) => {
                let mut plain = self.config.clone();
                let opened = Box::pin(plain.ssl_mode(SslMode::Disable).connect(connector)).await.map_err(|_| error)?;
                tracing::warn!("a connection to the database is not encrypted: sslmode=prefer, and TLS did not work");
                Ok(opened)
            }
            opened => opened,
        }
    }

    /// Opens one connection for Diesel, whose socket is driven by the current runtime.
    pub(crate) async fn open(&self) -> Result<AsyncPgConnection, ConnectionError> {
        let (client, wire) = self.connect().await.map_err(|error| bad_connection(&error))?;
        AsyncPgConnection::try_from_client_and_connection(client, wire).await
    }
}

/// Whether a handshake failed, or the server refuses connections with TLS.
fn is_about_tls(error: &Error) -> bool {
    error.source().is_some_and(|cause| cause.is::<TlsError>())
        || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

/// Converts an error of the driver for Diesel.
pub(crate) fn bad_connection(error: &Error) -> ConnectionError {
    ConnectionError::BadConnection(describe(error))
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
