//! Whether nodes live.

use casement_domain::node::Node;
use diesel::dsl::sql;
use diesel::expression::SqlLiteral;
use diesel::sql_types::Bool;

/// Whether a node sent a heartbeat recently. Heartbeats are written and compared with the database's clock, which all
/// nodes share.
pub(crate) fn is_alive() -> SqlLiteral<Bool> {
    let seconds = Node::LOST_AFTER.whole_seconds();
    sql(&format!("nodes.heartbeat_at > now() - interval '{seconds} seconds'"))
}
