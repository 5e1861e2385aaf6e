//! Nodes and their heartbeats.

use async_trait::async_trait;
use casement_domain::node::{Node, NodeRepository};
use casement_domain::{NodeId, StoreError};
use diesel::dsl::{exists, not, now, sql};
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::sql_types::Bool;
use time::OffsetDateTime;

use crate::column::Column;
use crate::database::repository;
use crate::schema::{browsers, nodes, pool_waiters, sessions};

#[derive(Debug, Insertable, AsChangeset)]
#[diesel(table_name = nodes)]
struct NodeRow<'a> {
    id: Column<NodeId>,
    host: &'a str,
    address: &'a str,
    started_at: OffsetDateTime,
}

/// Whether a node sent a heartbeat recently. Heartbeats are written and compared with the database's clock, which all
/// nodes share.
pub(crate) fn is_alive() -> SqlLiteral<Bool> {
    let seconds = Node::LOST_AFTER.whole_seconds();
    sql(&format!("nodes.heartbeat_at > now() - interval '{seconds} seconds'"))
}

repository! {
    /// Nodes in PostgreSQL.
    PgNodes
}

#[async_trait]
impl NodeRepository for PgNodes {
    async fn announce(&self, node: &Node) -> Result<(), StoreError> {
        let Node { id, host, address, started_at, .. } = node;
        let row = NodeRow { id: Column(*id), host, address, started_at: *started_at };
        let not_deleted = nodes::heartbeat_at.eq(now);
        let inserting = diesel::insert_into(nodes::table).values((&row, not_deleted)).on_conflict(nodes::id);
        self.database.change("node.announce", inserting.do_update().set((&row, not_deleted))).await
    }

    async fn heartbeat(&self, id: NodeId) -> Result<(), StoreError> {
        let row = diesel::update(nodes::table.find(Column(id)));
        self.database.change("node.heartbeat", row.set(nodes::heartbeat_at.eq(now))).await
    }

    async fn with_remains(&self) -> Result<Vec<(NodeId, OffsetDateTime)>, StoreError> {
        let not_deleted =
            sessions::table.filter(sessions::node_id.eq(nodes::id)).filter(not(sessions::state.eq("ended")));
        let running = browsers::table.filter(browsers::node_id.eq(nodes::id));
        let waiting = pool_waiters::table.filter(pool_waiters::node_id.eq(nodes::id));
        let found = nodes::table.filter(exists(not_deleted).or(exists(running)).or(exists(waiting))).order(nodes::id);
        let rows = found.select((nodes::id, nodes::heartbeat_at));
        self.database.all::<(Column<NodeId>, OffsetDateTime), _>("node.with_remains", rows).await
    }
}
