//! How far the records of all nodes are complete.
//!
//! A node that stores records while nobody waits for it, because it was silent, could store records from before the end
//! of an export. So a node whose own mark is old stores only records after [`audit_records_complete`], which it reads
//! with a lock; the lock also delays those who are about to raise that time. A node with a recent mark needs no lock:
//! its statements end before another node ignores it.

use casement_domain::NodeId;
use casement_domain::node::Node;
use diesel::dsl::{exists, min, now, sql};
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::sql_types::Bool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::column::Column;
use crate::error::CallError;
use crate::heartbeat::is_alive;
use crate::schema::{audit_records_complete as complete, audit_records_marks as marks, nodes};

/// The time for which a mark is recent, in seconds. Statements end within ten seconds, and a node is ignored after
/// [`Node::LOST_AFTER`].
pub(super) const RECENT_SECONDS: i64 = 30;

/// Whether a mark was stored within the last `seconds`, by the database's clock.
fn is_marked_within(seconds: i64) -> SqlLiteral<Bool> {
    sql(&format!("audit_records_marks.marked_at > now() - interval '{seconds} seconds'"))
}

/// Returns `None` if the node has a recent mark, otherwise the time from which on it may store records.
pub(super) async fn fence(
    connection: &mut AsyncPgConnection,
    node: NodeId,
) -> Result<Option<OffsetDateTime>, CallError> {
    let recent = marks::table.find(Column(node)).filter(is_marked_within(RECENT_SECONDS));
    if diesel::select(exists(recent)).get_result(connection).await? {
        return Ok(None);
    }
    Ok(Some(complete::table.select(complete::until).get_result(connection).await?))
}

/// Stores the mark of a node that has a recent one, in one statement. Returns whether it has one.
pub(super) async fn renew(
    connection: &mut AsyncPgConnection,
    node: NodeId,
    whole_until: OffsetDateTime,
) -> Result<bool, CallError> {
    let recent = marks::table.find(Column(node)).filter(is_marked_within(RECENT_SECONDS));
    let renewed = diesel::update(recent).set((marks::whole_until.eq(whole_until), marks::marked_at.eq(now)));
    Ok(renewed.execute(connection).await? > 0)
}

/// Stores the mark of a node, unless the node was silent and others took the records up to a later time to be complete.
pub(super) async fn mark(
    connection: &mut AsyncPgConnection,
    node: NodeId,
    whole_until: OffsetDateTime,
) -> Result<bool, CallError> {
    if fence(connection, node).await?.is_some() {
        // The time cannot be raised until this transaction ends.
        let until: OffsetDateTime = complete::table.select(complete::until).for_share().get_result(connection).await?;
        if until > whole_until {
            return Ok(false);
        }
    }
    let changes = (marks::whole_until.eq(whole_until), marks::marked_at.eq(now));
    let inserting = diesel::insert_into(marks::table).values((marks::node_id.eq(Column(node)), changes));
    inserting.on_conflict(marks::node_id).do_update().set(changes).execute(connection).await?;
    Ok(true)
}

/// Returns the time up to which the records of all nodes are complete, if those of `node` are up to `own`.
pub(super) async fn complete(
    connection: &mut AsyncPgConnection,
    node: NodeId,
    own: OffsetDateTime,
) -> Result<OffsetDateTime, CallError> {
    // Waits for statements of silent nodes, and delays later ones.
    let before: OffsetDateTime = complete::table.select(complete::until).for_update().get_result(connection).await?;
    let others = marks::table.inner_join(nodes::table.on(nodes::id.eq(marks::node_id)));
    let others = others.filter(marks::node_id.ne(Column(node)));
    let others = others.filter(is_alive().or(is_marked_within(Node::LOST_AFTER.whole_seconds())));
    let others: Option<OffsetDateTime> = others.select(min(marks::whole_until)).get_result(connection).await?;
    let whole = others.map_or(own, |others| own.min(others));
    if whole > before {
        diesel::update(complete::table).set(complete::until.eq(whole)).execute(connection).await?;
    }
    Ok(whole)
}
