//! The order in which callers got browsers, by what triggers of the test noted in the database.

use std::fmt;

use anyhow::Context as _;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use super::{Cluster, uuid};
use crate::program::Server;

/// The log line of a node that another node did not answer, and the time for which its callers are passed over then, with a
/// second for leases that are under way.
const UNANSWERED: &str = "a node did not answer";
const PASSED_OVER: Duration = Duration::seconds(16);

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
        let rows = self.sql(
            "select session_id, position, waiting_session_id, waiting_position, waiting_node_id, \
            round(extract(epoch from leased_at) * 1000)::bigint from queue_log.pairs where is_overtaken",
        )?;
        let unanswered = self.unanswered_calls()?;
        let mut overtaken = Vec::new();
        for row in rows.lines() {
            let columns: Vec<&str> = row.split('|').collect();
            let [session, position, waiting, place, node, at] = columns[..] else { anyhow::bail!("{row}") };
            let at = OffsetDateTime::UNIX_EPOCH + Duration::milliseconds(at.parse()?);
            let is_passed_over = |since: OffsetDateTime| (Duration::ZERO..PASSED_OVER).contains(&(at - since));
            if unanswered.iter().any(|(silent, since)| silent == node && is_passed_over(*since)) {
                continue;
            }
            let position = if position.is_empty() { "no position" } else { position };
            overtaken.push(format!(
                "the session {session} with {position} was leased before {waiting}, which waited with {place}"
            ));
        }
        Ok(QueueOrder { leases: (waited, at_once), compared, overtaken })
    }

    /// Returns the nodes that did not answer a call of another node, each with the time.
    fn unanswered_calls(&self) -> anyhow::Result<Vec<(String, OffsetDateTime)>> {
        let logs: Vec<String> = self.nodes.iter().chain(&self.former).map(Server::log).collect();
        let lines = logs.iter().flat_map(|log| log.lines()).filter(|line| line.contains(UNANSWERED));
        let call = |line: &str| -> anyhow::Result<_> {
            let (at, _) = line.split_once(' ').context("a time")?;
            let (_, node) = line.split_once("node=").context("a node")?;
            let node = node.split_whitespace().next().context("an id")?;
            Ok((uuid(node)?, OffsetDateTime::parse(at, &Rfc3339)?))
        };
        lines.map(|line| call(line).with_context(|| line.to_owned())).collect()
    }
}
