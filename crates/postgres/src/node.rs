//! Nodes and their heartbeats.

use async_trait::async_trait;
use casement_domain::node::{Node, NodeRepository};
use casement_domain::{NodeId, StoreError};
use diesel::dsl::{exists, not};
use diesel::prelude::*;
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
    heartbeat_at: OffsetDateTime,
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
                heartbeat_at: node.heartbeat_at,
            };
            let inserting = diesel::insert_into(nodes::table).values(&row).on_conflict(nodes::id);
            inserting.do_update().set(&row).execute(connection).await?;
            Ok(())
        };
        self.database.call("node.announce", work).await
    }

    async fn heartbeat(&self, id: NodeId, at: OffsetDateTime) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = diesel::update(nodes::table.find(uuid(id.ulid())));
            row.set(nodes::heartbeat_at.eq(at)).execute(connection).await?;
            Ok(())
        };
        self.database.call("node.heartbeat", work).await
    }

    async fn silent_since(&self, before: OffsetDateTime) -> Result<Vec<NodeId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let living =
                sessions::table.filter(sessions::node_id.eq(nodes::id)).filter(not(sessions::state.eq("ended")));
            let running = browsers::table.filter(browsers::node_id.eq(nodes::id));
            let waiting = pool_waiters::table.filter(pool_waiters::node_id.eq(nodes::id));
            let silent = nodes::table.filter(nodes::heartbeat_at.lt(before));
            let silent = silent.filter(exists(living).or(exists(running)).or(exists(waiting))).order(nodes::id);
            let ids: Vec<Uuid> = silent.select(nodes::id).load(connection).await?;
            Ok(ids.into_iter().map(|id| NodeId::from_ulid(ulid(id))).collect())
        };
        self.database.fetch("node.silent_since", work).await
    }
}
