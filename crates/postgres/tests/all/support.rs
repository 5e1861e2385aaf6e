//! Helpers of several tests.

use std::time::Duration;

use casement_postgres::testing::TestDatabase;
use casement_test_support::try_until_async;
use tokio_postgres::{Client, NoTls};

use crate::world::Fault;

/// The result of a test. Any error fails it with the text of the error.
pub(crate) type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Waits up to two minutes until a condition holds, since a cluster may have to be created on a busy machine.
///
/// # Errors
/// The condition did not hold in time.
pub(crate) async fn until(what: &str, condition: impl AsyncFnMut() -> bool) -> TestResult {
    Ok(try_until_async(what, Duration::from_secs(120), condition).await?)
}

/// A transaction on a connection of its own, which keeps its locks until [`commit`](Self::commit).
pub(crate) struct Held {
    client: Client,
    pid: i32,
    /// A second connection, since a transaction sees `pg_stat_activity` as of its first read.
    beside: Client,
}

impl Held {
    /// Begins the transaction with these statements.
    pub(crate) async fn begin(db: &TestDatabase, statements: &str) -> Result<Self, Fault> {
        let (client, beside) = (connect(db).await?, connect(db).await?);
        let pid = client.query_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
        client.batch_execute(&format!("BEGIN; {statements}")).await?;
        Ok(Self { client, pid, beside })
    }

    /// Waits until another connection waits for a lock of the transaction.
    pub(crate) async fn until_waited_for(&self) -> TestResult {
        let waiting = "SELECT 1 FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
        let is_waited_for =
            async || self.beside.query(waiting, &[&self.pid]).await.is_ok_and(|waiting| !waiting.is_empty());
        until("somebody waits for the lock", is_waited_for).await
    }

    pub(crate) async fn commit(self) -> TestResult {
        Ok(self.client.batch_execute("COMMIT").await?)
    }
}

async fn connect(db: &TestDatabase) -> Result<Client, Fault> {
    let (client, connection) = tokio_postgres::connect(&db.url(), NoTls).await?;
    // The task ends with the client.
    drop(tokio::spawn(connection));
    Ok(client)
}
