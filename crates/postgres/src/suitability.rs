//! Looks at a database before it is used: what cannot work is refused with its reason, instead of failing later.

use time::OffsetDateTime;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use crate::cluster::MINIMUM_MAJOR;
use crate::connect::{Address, ConnectError, Opened, describe};
use crate::database_config::DatabaseConfig;

/// The only encoding that has every text that pages and callers send.
const ENCODING: &str = "UTF8";
/// The only isolation for which the transactions are written.
const ISOLATION: &str = "read committed";
/// The number of looks at two connections. A pooler with several idle connections need not choose the same one at once.
const LOOKS: u32 = 3;
/// What a connection tells about its process. The first statement is one that each connection begins with: some poolers
/// keep a connection for its client from then on.
const WHO: &str = "SET TIME ZONE 'UTC'; SELECT pg_backend_pid()";
/// What a connection tells about its database. The last value is a setting that every connection asks for.
const WHAT: &str = "SELECT current_setting('server_version_num'), current_setting('server_encoding'), \
    current_setting('default_transaction_isolation'), coalesce(current_setting('casement.options', true), ''), \
    extract(epoch FROM clock_timestamp())::bigint";
/// The difference of clocks that is reported, in seconds. A smaller one may be the time of the answer on a busy machine.
const CLOCK_DIFFERENCE: u64 = 60;

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnsuitableDatabase {
    /// It cannot be reached.
    #[error("the database can't be reached: {0}")]
    Unreachable(ConnectError),
    /// A statement failed.
    #[error("the database does not answer: {}", describe(.0))]
    Silent(tokio_postgres::Error),
    /// Its answer is not that of a PostgreSQL.
    #[error("the database does not answer as PostgreSQL does")]
    Strange,
    /// The server is of a version before the first one that is supported.
    #[error("the database has PostgreSQL {0}: Casement needs {MINIMUM_MAJOR} or later")]
    Version(u32),
    /// The encoding lacks characters.
    #[error(
        "the encoding of the database is {0}, and Casement needs {ENCODING}: create it with \
         CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
    )]
    Encoding(String),
    /// Connections change their server process between transactions.
    #[error(
        "between Casement and the database is a pooler such as PgBouncer that gives a connection to others between \
         transactions, in its mode transaction or statement: let the URL lead to PostgreSQL itself, or set pool_mode=session"
    )]
    Pooled,
    /// A pooler refuses the settings of connections.
    #[error(
        "between Casement and the database is a pooler that refuses the settings of connections ({0}): let the URL lead to \
         PostgreSQL itself, or set pool_mode=session and ignore_startup_parameters=options"
    )]
    RefusesSettings(String),
    /// A pooler drops the settings of the URL.
    #[error(
        "the options of the database URL have no effect, since a pooler ignores them: set them for the role with ALTER ROLE, \
         and leave them out of the URL"
    )]
    IgnoresSettings,
    /// Transactions would mean something else.
    #[error(
        "default_transaction_isolation is {0}, and a pooler ignores what Casement sets: ALTER ROLE … SET \
         default_transaction_isolation = '{ISOLATION}'"
    )]
    Isolation(String),
}

/// Checks that Casement can work on a database. Reports a clock that differs from `now`.
///
/// # Errors
/// [`UnsuitableDatabase`]; its message says what to do.
pub async fn ensure_suitable(config: &DatabaseConfig, now: OffsetDateTime) -> Result<(), UnsuitableDatabase> {
    let address = config.address();
    let [one, other] = [Session::open(address).await?, Session::open(address).await?];
    ensure_not_pooled(&one, &other).await?;
    let [version, encoding, isolation, settings, clock]: [String; 5] =
        one.ask(WHAT).await?.try_into().map_err(|_| UnsuitableDatabase::Strange)?;
    let major = version.parse::<u32>().map_err(|_| UnsuitableDatabase::Strange)? / 10_000;
    if major < MINIMUM_MAJOR {
        return Err(UnsuitableDatabase::Version(major));
    }
    if encoding != ENCODING {
        return Err(UnsuitableDatabase::Encoding(encoding));
    }
    if let Some(seconds) = clock_difference(&clock, now).filter(|seconds| *seconds > CLOCK_DIFFERENCE) {
        tracing::warn!(
            seconds,
            "the clocks of this machine and of the database differ: times of records and the expiry of keys and links are \
             wrong by as much; synchronize both (NTP)"
        );
    }
    let are_ignored = settings.is_empty();
    if are_ignored && config.has_given_options() {
        return Err(UnsuitableDatabase::IgnoresSettings);
    }
    if isolation != ISOLATION {
        return Err(UnsuitableDatabase::Isolation(isolation));
    }
    if are_ignored {
        tracing::warn!("a pooler ignores the timeouts that Casement sets for connections; set them for the role");
    }
    Ok(())
}

/// Returns the difference of a clock in seconds since 1970, as text, from `now`.
fn clock_difference(clock: &str, now: OffsetDateTime) -> Option<u64> {
    clock.parse::<i64>().ok().map(|clock| clock.abs_diff(now.unix_timestamp()))
}

/// Refuses connections that share a server process while both are open, or that change theirs.
async fn ensure_not_pooled(one: &Session, other: &Session) -> Result<(), UnsuitableDatabase> {
    let first = one.ask(WHO).await?;
    for _ in 0..LOOKS {
        let elsewhere = other.ask(WHO).await?;
        if elsewhere == first || one.ask(WHO).await? != first {
            return Err(UnsuitableDatabase::Pooled);
        }
    }
    Ok(())
}

/// A connection for a few questions.
struct Session {
    client: tokio_postgres::Client,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Session {
    async fn open(address: &Address) -> Result<Self, UnsuitableDatabase> {
        match address.connect().await {
            Ok(Opened { client, wire, .. }) => {
                // Every failure is also the result of a statement.
                Ok(Self { client, driver: tokio::spawn(async move { drop(wire.await) }) })
            }
            // PostgreSQL itself knows the settings.
            Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => {
                Err(UnsuitableDatabase::RefusesSettings(error.to_string()))
            }
            Err(error) => Err(UnsuitableDatabase::Unreachable(error)),
        }
    }

    /// Returns the columns of the row with which the statements answer. Sent as plain text, which every pooler knows.
    async fn ask(&self, statements: &str) -> Result<Vec<String>, UnsuitableDatabase> {
        let answer = self.client.simple_query(statements).await.map_err(UnsuitableDatabase::Silent)?;
        let row = answer.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let row = row.ok_or(UnsuitableDatabase::Strange)?;
        Ok((0..row.len()).map(|column| row.get(column).unwrap_or_default().to_owned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_in_both_directions() {
        let now = OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(1000);
        assert_eq!(clock_difference("940", now), Some(60));
        assert_eq!(clock_difference("1061", now), Some(61));
        assert_eq!(clock_difference("soon", now), None);
    }
}
