//! Nodes and their heartbeats.

mod rooms;

use async_trait::async_trait;
use casement_domain::node::{ClusterEndpoint, Epoch, Fingerprint, Node, NodeRepository, NodeState, StoredNode};
use casement_domain::session::Tags;
use casement_domain::{NodeId, StoreError};
use diesel::dsl::{exists, not, now, sql};
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::sql_types::Bool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::column::{Column, Stored};
use crate::database::repository;
use crate::error::BadRow;
use crate::query::counted;
use crate::schema::{browsers, nodes, pool_waiters, sessions};

#[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
#[diesel(table_name = nodes, check_for_backend(diesel::pg::Pg), treat_none_as_null = true)]
struct NodeRow {
    id: Column<NodeId>,
    host: String,
    address: String,
    cluster_address: Option<String>,
    fingerprint: Option<Column<[u8; 32]>>,
    max_sessions: Option<Column<u32>>,
    memory_mib: Option<Column<u64>>,
    labels: Column<Tags>,
    version: String,
    started_at: OffsetDateTime,
}

impl NodeRow {
    fn of(node: &Node) -> Self {
        let Node { id, host, address, cluster, max_sessions, memory_mib, labels, version, started_at } = node.clone();
        let (cluster_address, fingerprint) =
            cluster.map(|cluster| (cluster.address, Column(cluster.fingerprint.0))).unzip();
        Self {
            id: Column(id),
            host,
            address,
            cluster_address,
            fingerprint,
            max_sessions: Some(Column(max_sessions)),
            memory_mib: Some(Column(memory_mib)),
            labels: Column(labels),
            version,
            started_at,
        }
    }

    fn into_node(self) -> Node {
        let cluster = self.cluster_address.zip(self.fingerprint);
        Node {
            id: self.id.0,
            host: self.host,
            address: self.address,
            cluster: cluster
                .map(|(address, fingerprint)| ClusterEndpoint { address, fingerprint: Fingerprint(fingerprint.0) }),
            // A node of the version before did not say it.
            max_sessions: self.max_sessions.map_or(0, |max_sessions| max_sessions.0),
            memory_mib: self.memory_mib.map_or(0, |memory_mib| memory_mib.0),
            labels: self.labels.0,
            version: self.version,
            started_at: self.started_at,
        }
    }
}

/// A node with what the store adds.
#[derive(Debug, Queryable, Selectable)]
#[diesel(table_name = nodes, check_for_backend(diesel::pg::Pg))]
struct StoredRow {
    #[diesel(embed)]
    node: NodeRow,
    epoch: i64,
    state: Column<NodeState>,
    heartbeat_at: OffsetDateTime,
}

impl Stored<StoredNode> for StoredRow {
    fn of(value: &StoredNode) -> Self {
        let StoredNode { node, epoch, state, heartbeat_at } = value;
        Self { node: NodeRow::of(node), epoch: epoch.0, state: Column(*state), heartbeat_at: *heartbeat_at }
    }

    fn value(self) -> Result<StoredNode, BadRow> {
        let Self { node, epoch, state, heartbeat_at } = self;
        Ok(StoredNode { node: node.into_node(), epoch: Epoch(epoch), state: state.0, heartbeat_at })
    }
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

impl PgNodes {
    /// Returns the number of living nodes besides `own`.
    ///
    /// # Errors
    /// Returns the error of the database.
    pub async fn others_alive(&self, own: Option<NodeId>) -> Result<u32, StoreError> {
        let own = own.map(Column);
        let work = async move |connection: &mut AsyncPgConnection| {
            let others = nodes::table.filter(is_alive()).filter(nodes::id.nullable().is_distinct_from(own));
            counted(connection, others.count()).await
        };
        self.database.fetch("node.others_alive", work).await
    }
}

#[async_trait]
impl NodeRepository for PgNodes {
    async fn announce(&self, node: &Node) -> Result<Epoch, StoreError> {
        let row = NodeRow::of(node);
        let run = (nodes::heartbeat_at.eq(now), nodes::state.eq(NodeState::Serving.as_str()));
        let announced = diesel::insert_into(nodes::table)
            .values((&row, run, nodes::epoch.eq(1)))
            .on_conflict(nodes::id)
            .do_update()
            .set((&row, run, nodes::epoch.eq(nodes::epoch + 1)))
            .returning(nodes::epoch);
        let work = async move |connection: &mut AsyncPgConnection| Ok(announced.get_result(connection).await?);
        Ok(Epoch(self.database.call("node.announce", work).await?))
    }

    async fn find(&self, id: NodeId) -> Result<Option<StoredNode>, StoreError> {
        let row = nodes::table.find(Column(id)).select(StoredRow::as_select());
        self.database.find::<StoredRow, _>("node.find", row).await
    }

    async fn find_by_key(&self, fingerprint: Fingerprint) -> Result<Option<StoredNode>, StoreError> {
        let row = nodes::table.filter(nodes::fingerprint.eq(Column(fingerprint.0))).select(StoredRow::as_select());
        self.database.find::<StoredRow, _>("node.find_by_key", row.limit(1)).await
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
