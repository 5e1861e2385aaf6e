//! Nodes and their heartbeats.

use async_trait::async_trait;
use casement_domain::node::{Node, NodeRepository};
use casement_domain::{NodeId, StoreError};
use diesel::dsl::{exists, not, now, sql};
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::sql_types::Bool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::convert::{ulid, uuid};
use crate::database::Database;
use crate::schema::{browsers, nodes, pool_waiters, sessions};

#[derive(Debug, Insertable, AsChangeset)]
#[diesel(table_name = nodes)]
struct NodeRow<'a> {
    id: Uuid,
    host: &'a str,
    address: &'a str,
    started_at: OffsetDateTime,
}

/// Whether a node has said of late that it lives. Both are told by the database's clock, which all nodes share.
pub(crate) fn is_alive() -> SqlLiteral<Bool> {
    let seconds = Node::LOST_AFTER.whole_seconds();
    sql(&format!("nodes.heartbeat_at > now() - interval '{seconds} seconds'"))
}

/// Nodes in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgNodes {
    database: Database,
}

impl PgNodes {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl NodeRepository for PgNodes {
    async fn announce(&self, node: &Node) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = NodeRow {
                id: uuid(node.id.ulid()),
                host: &node.host,
                address: &node.address,
                started_at: node.started_at,
            };
            let living = nodes::heartbeat_at.eq(now);
            let inserting = diesel::insert_into(nodes::table).values((&row, living)).on_conflict(nodes::id);
            inserting.do_update().set((&row, living)).execute(connection).await?;
            Ok(())
        };
        self.database.call("node.announce", work).await
    }

    async fn heartbeat(&self, id: NodeId) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = diesel::update(nodes::table.find(uuid(id.ulid())));
            row.set(nodes::heartbeat_at.eq(now)).execute(connection).await?;
            Ok(())
        };
        self.database.call("node.heartbeat", work).await
    }

    async fn with_remains(&self) -> Result<Vec<(NodeId, OffsetDateTime)>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let living =
                sessions::table.filter(sessions::node_id.eq(nodes::id)).filter(not(sessions::state.eq("ended")));
            let running = browsers::table.filter(browsers::node_id.eq(nodes::id));
            let waiting = pool_waiters::table.filter(pool_waiters::node_id.eq(nodes::id));
            let found = nodes::table.filter(exists(living).or(exists(running)).or(exists(waiting))).order(nodes::id);
            let rows: Vec<(Uuid, OffsetDateTime)> =
                found.select((nodes::id, nodes::heartbeat_at)).load(connection).await?;
            Ok(rows.into_iter().map(|(id, received)| (NodeId::from_ulid(ulid(id)), received)).collect())
        };
        self.database.fetch("node.with_remains", work).await
    }
}
