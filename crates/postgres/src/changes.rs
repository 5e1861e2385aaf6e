//! Changes of what other nodes hold in memory, and of what they run.

use std::fmt;
use std::str::FromStr;

use casement_domain::{NodeId, PoolId, SessionId};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::error::CallError;
use crate::notify::pg_notify;

/// The channel of [`Change`]s.
pub const CHANGES_CHANNEL: &str = "casement_changes";

/// A change of which every node is notified when its transaction commits. A node that was not connected meanwhile treats
/// everything as changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// API keys or projects: what was read of them may be outdated.
    Keys,
    /// The configuration of a pool, or its idle browsers by a caller.
    Pool(PoolId),
    /// Browsers of a node are marked as ending, by any node.
    EndingBrowsers(NodeId),
    /// A session was ended by another node than its own.
    SessionEnded(SessionId),
    /// The buckets to which audit records are exported.
    AuditDestinations,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys => f.write_str("keys"),
            Self::Pool(id) => write!(f, "pool:{id}"),
            Self::EndingBrowsers(node) => write!(f, "browsers:{node}"),
            Self::SessionEnded(id) => write!(f, "session:{id}"),
            Self::AuditDestinations => f.write_str("audit_destinations"),
        }
    }
}

/// The text is not a change that this version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownChange;

impl FromStr for Change {
    type Err = UnknownChange;

    fn from_str(text: &str) -> Result<Self, UnknownChange> {
        fn id<T: FromStr>(text: &str) -> Result<T, UnknownChange> {
            text.parse().map_err(|_| UnknownChange)
        }
        match text.split_once(':') {
            None if text == "keys" => Ok(Self::Keys),
            None if text == "audit_destinations" => Ok(Self::AuditDestinations),
            Some(("pool", pool)) => id(pool).map(Self::Pool),
            Some(("browsers", node)) => id(node).map(Self::EndingBrowsers),
            Some(("session", session)) => id(session).map(Self::SessionEnded),
            _ => Err(UnknownChange),
        }
    }
}

/// Notifies all nodes of a change when the transaction commits.
pub(crate) async fn report(connection: &mut AsyncPgConnection, change: Change) -> Result<(), CallError> {
    diesel::select(pg_notify(CHANGES_CHANNEL, change.to_string())).execute(connection).await?;
    Ok(())
}

/// Notifies the nodes of browsers that are marked as ending.
pub(crate) async fn report_ending(
    connection: &mut AsyncPgConnection,
    nodes: impl IntoIterator<Item = NodeId>,
) -> Result<(), CallError> {
    let mut nodes: Vec<NodeId> = nodes.into_iter().collect();
    nodes.sort_unstable();
    nodes.dedup();
    for node in nodes {
        report(connection, Change::EndingBrowsers(node)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use casement_domain::testing::{node_id, pool_id, session_id};

    use super::*;

    #[test]
    fn a_change_is_read_as_it_was_written() {
        let changes = [
            Change::Keys,
            Change::Pool(pool_id(1)),
            Change::EndingBrowsers(node_id()),
            Change::SessionEnded(session_id(1)),
            Change::AuditDestinations,
        ];
        for change in changes {
            assert_eq!(change.to_string().parse(), Ok(change));
        }
        for text in ["", "key", "pool", "pool:x", "keys:", "other:01k9zk0000000000000000000a"] {
            assert_eq!(text.parse::<Change>(), Err(UnknownChange), "{text}");
        }
    }
}
