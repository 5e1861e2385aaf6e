//! The order in which callers got browsers, by what triggers of the test noted in the database.

use std::fmt;

use anyhow::Context as _;

use super::Cluster;

/// The statements that make the database note every ticket and lease. The view `queue_log.pairs` compares them.
pub const QUEUE_LOG: &str = include_str!("queue_log.sql");

/// The order of all callers so far.
#[derive(Clone, Debug, Default)]
pub struct QueueOrder {
    /// The number of leases to callers that waited, and of those to callers that did not.
    pub leases: (u64, u64),
    /// The number of pairs of a lease and another caller of the pool, on a living node, that waited then.
    pub compared: u64,
    /// The callers that came earlier and were overtaken, one line each.
    pub overtaken: Vec<String>,
}

impl fmt::Display for QueueOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((waited, at_once), compared, overtaken) = (self.leases, self.compared, self.overtaken.len());
        write!(
            f,
            "{waited} leases after a wait and {at_once} at once, compared with {compared} waits of others: {overtaken} overtaken"
        )
    }
}

impl Cluster {
    /// Notes from now on in which order callers enter the wait queues and get browsers.
    pub fn log_queues(&self) -> anyhow::Result<()> {
        self.sql(QUEUE_LOG).map(drop)
    }

    /// Returns the order of all callers since [`log_queues`](Self::log_queues).
    pub fn queue_order(&self) -> anyhow::Result<QueueOrder> {
        let counts = self.sql(
            "select (select count(position) from queue_log.leases), \
            (select count(*) - count(position) from queue_log.leases), (select count(*) from queue_log.pairs)",
        )?;
        let counts: Vec<u64> = counts.split('|').map(str::parse).collect::<Result<_, _>>()?;
        let [waited, at_once, compared] = counts[..] else { anyhow::bail!("{counts:?}") };
        let overtaken = self.sql("select * from queue_log.pairs where is_overtaken")?;
        let line = |row: &str| {
            let columns: Vec<&str> = row.split('|').collect();
            let [session, position, waiting, at, _] = columns[..] else { return None };
            let position = if position.is_empty() { "no position" } else { position };
            Some(format!("the session {session} with {position} was leased before {waiting}, which waited with {at}"))
        };
        let overtaken =
            overtaken.lines().map(|row| line(row).context("five columns")).collect::<anyhow::Result<_>>()?;
        Ok(QueueOrder { leases: (waited, at_once), compared, overtaken })
    }
}
