//! Nodes and their heartbeats.

mod rooms;

use async_trait::async_trait;
use casement_domain::node::{
    ClusterEndpoint, Epoch, Fingerprint, Heartbeat, Node, NodeCondition, NodeFilter, NodeRepository, NodeState,
    NodeStatus, SilentNode, StateChange, StoredNode,
};
use casement_domain::page::{Listed, Page};
use casement_domain::session::{Session, SessionEvent, Tags};
use casement_domain::{NodeId, Replaced, StoreError};
use diesel::dsl::{Eq, Filter, Find, not, now, sql};
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::sql_types::{self, BigInt, Bool, Double, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::{Duration, OffsetDateTime};

use crate::column::{Column, Stored, row};
use crate::database::repository;
use crate::error::{BadRow, CallError};
use crate::heartbeat::is_alive;
use crate::notify::pg_notify;
use crate::query::{all, count, counted};
use crate::schema::{browsers, nodes, sessions};
use crate::session::{self, SessionRow};

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = nodes, check_for_backend(diesel::pg::Pg), treat_none_as_null = true)]
    struct NodeRow {
        id: Column<NodeId>,
        host: String,
        address: String,
        cluster_address: Option<String>,
        fingerprint: Option<Column<[u8; 32]>>,
        max_sessions: Option<Column<u32>>,
        limits_sessions: bool,
        memory_mib: Option<Column<u64>>,
        labels: Column<Tags>,
        version: String,
        started_at: OffsetDateTime,
    }
}

impl NodeRow {
    fn of(node: &Node) -> Self {
        let node = node.clone();
        let Node { id, host, address, cluster, max_sessions, limits_sessions, .. } = node;
        let Node { memory_mib, labels, version, started_at, .. } = node;
        let (cluster_address, fingerprint) =
            cluster.map(|cluster| (cluster.address, Column(cluster.fingerprint.0))).unzip();
        Self {
            id: Column(id),
            host,
            address,
            cluster_address,
            fingerprint,
            max_sessions: Some(Column(max_sessions)),
            limits_sessions,
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
            limits_sessions: self.limits_sessions,
            memory_mib: self.memory_mib.map_or(0, |memory_mib| memory_mib.0),
            labels: self.labels.0,
            version: self.version,
            started_at: self.started_at,
        }
    }
}

row! {
    #[derive(Debug, Queryable, Selectable)]
    /// A node with its condition and its load.
    #[diesel(table_name = nodes, check_for_backend(diesel::pg::Pg))]
    struct StatusRow {
        #[diesel(embed)]
        stored: StoredRow,
        drain_ends_at: Option<OffsetDateTime>,
        #[diesel(select_expression = is_silent(), select_expression_type = SqlLiteral<Bool>)]
        is_silent: bool,
        #[diesel(select_expression = sql::<BigInt>(SESSIONS), select_expression_type = SqlLiteral<BigInt>)]
        sessions: i64,
        #[diesel(select_expression = sql::<BigInt>(IDLE_BROWSERS), select_expression_type = SqlLiteral<BigInt>)]
        idle_browsers: i64,
    }
}

const SESSIONS: &str = "(SELECT count(*) FROM sessions s WHERE s.node_id = nodes.id AND s.state <> 'ended')";
const IDLE_BROWSERS: &str = "(SELECT count(*) FROM browsers b WHERE b.node_id = nodes.id AND b.state = 'idle')";

impl Stored<NodeStatus> for StatusRow {
    fn of(_: &NodeStatus) -> Self {
        unreachable!("the condition of a node is never stored")
    }

    fn value(self) -> Result<NodeStatus, BadRow> {
        Ok(NodeStatus {
            stored: self.stored.value()?,
            drain_ends_at: self.drain_ends_at,
            is_silent: self.is_silent,
            sessions: count(self.sessions),
            idle_browsers: count(self.idle_browsers),
        })
    }
}

row! {
    #[derive(Debug, Queryable, Selectable)]
    /// A node with what the store adds.
    #[diesel(table_name = nodes, check_for_backend(diesel::pg::Pg))]
    struct StoredRow {
        #[diesel(embed)]
        node: NodeRow,
        epoch: i64,
        state: Column<NodeState>,
        heartbeat_at: OffsetDateTime,
    }
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

/// The channel on which all nodes are notified when one begins a run, changes its state or is lost. The payload is its id.
pub const NODES_CHANNEL: &str = "casement_nodes";

async fn report(connection: &mut AsyncPgConnection, id: NodeId) -> Result<(), CallError> {
    diesel::select(pg_notify(NODES_CHANNEL, id.to_string())).execute(connection).await?;
    Ok(())
}

fn is_silent() -> SqlLiteral<Bool> {
    let seconds = Node::LOST_AFTER.whole_seconds();
    sql(&format!("nodes.heartbeat_at <= now() - interval '{seconds} seconds'"))
}

/// Whether something of the node is left for which another one is responsible when it is lost.
pub(crate) const HAS_REMAINS: &str = "(
    EXISTS (SELECT FROM sessions s WHERE s.node_id = nodes.id AND s.state <> 'ended')
    OR EXISTS (SELECT FROM browsers b WHERE b.node_id = nodes.id)
    OR EXISTS (SELECT FROM invocations i WHERE i.node_id = nodes.id AND i.status = 'running')
    OR EXISTS (SELECT FROM pool_waiters w WHERE w.node_id = nodes.id))";

repository! {
    /// Nodes in PostgreSQL.
    PgNodes
}

/// The row of a run.
fn run(id: NodeId, epoch: Epoch) -> Filter<Find<nodes::table, Column<NodeId>>, Eq<nodes::epoch, i64>> {
    nodes::table.find(Column(id)).filter(nodes::epoch.eq(epoch.0))
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
        let no_drain = nodes::drain_ends_at.eq(None::<OffsetDateTime>);
        let run = (nodes::heartbeat_at.eq(now), nodes::state.eq(NodeState::Serving.as_str()), no_drain);
        let announced = diesel::insert_into(nodes::table)
            .values((&row, run, nodes::epoch.eq(1)))
            .on_conflict(nodes::id)
            .do_update()
            .set((&row, run, nodes::epoch.eq(nodes::epoch + 1)))
            .returning(nodes::epoch);
        let work = async move |connection: &mut AsyncPgConnection| {
            let epoch = announced.get_result(connection).await?;
            report(connection, node.id).await?;
            Ok(Epoch(epoch))
        };
        self.database.transaction("node.announce", work).await
    }

    async fn find(&self, id: NodeId) -> Result<Option<StoredNode>, StoreError> {
        let row = nodes::table.find(Column(id)).select(StoredRow::as_select());
        self.database.find::<StoredRow, _>("node.find", row).await
    }

    async fn find_by_key(&self, fingerprint: Fingerprint) -> Result<Option<StoredNode>, StoreError> {
        let row = nodes::table.filter(nodes::fingerprint.eq(Column(fingerprint.0))).select(StoredRow::as_select());
        self.database.find::<StoredRow, _>("node.find_by_key", row.limit(1)).await
    }

    async fn status(&self, id: NodeId) -> Result<Option<NodeStatus>, StoreError> {
        let row = nodes::table.find(Column(id)).select(StatusRow::as_select());
        self.database.find::<StatusRow, _>("node.status", row).await
    }

    async fn list(&self, filter: &NodeFilter, page: Page) -> Result<Listed<NodeStatus>, StoreError> {
        let days = Node::LISTED_FOR.whole_days();
        let is_listed = sql::<Bool>(&format!("nodes.heartbeat_at > now() - interval '{days} days'"));
        let mut rows = nodes::table.filter(is_listed).into_boxed();
        rows = match filter.condition {
            None => rows,
            Some(NodeCondition::Serving) => rows.filter(nodes::state.eq("serving")).filter(is_alive()),
            Some(NodeCondition::Draining) => rows.filter(nodes::state.eq("draining")).filter(is_alive()),
            Some(NodeCondition::Drained) => rows.filter(nodes::state.eq("drained")),
            Some(NodeCondition::Lost) => rows.filter(nodes::state.ne("drained")).filter(is_silent()),
        };
        if !filter.labels.is_empty() {
            // No node has invalid labels.
            let Ok(wanted) = Tags::parse(filter.labels.clone()) else { return Ok(page.cut(Vec::new())) };
            rows = rows.filter(nodes::labels.contains(Column(wanted)));
        }
        let rows = rows.order((nodes::host, nodes::id)).select(StatusRow::as_select());
        self.database.page::<StatusRow, _>("node.list", page, rows).await
    }

    async fn heartbeat(&self, id: NodeId, epoch: Epoch) -> Result<Option<Heartbeat>, StoreError> {
        let left = sql::<Nullable<Double>>("extract(epoch FROM nodes.drain_ends_at - now())::float8");
        let beat = diesel::update(run(id, epoch)).set(nodes::heartbeat_at.eq(now)).returning((nodes::state, left));
        let work = async move |connection: &mut AsyncPgConnection| {
            let stored: Option<(Column<NodeState>, Option<f64>)> = beat.get_result(connection).await.optional()?;
            Ok(stored.map(|(state, left)| Heartbeat {
                state: state.0,
                drain_left: left.map(|left| Duration::seconds_f64(left.max(0.0))),
            }))
        };
        self.database.call("node.heartbeat", work).await
    }

    async fn change_state(&self, id: NodeId, change: StateChange) -> Result<Replaced, StoreError> {
        let StateChange { epoch, from, to, drain } = change;
        let work = async |connection: &mut AsyncPgConnection| {
            // `least` ignores nulls.
            let end = "UPDATE nodes SET state = $1, drain_ends_at = CASE WHEN $1 = 'serving' THEN NULL
                     ELSE least(drain_ends_at, now() + make_interval(secs => $2)) END
                 WHERE id = $3 AND epoch = $4 AND state = $5";
            let changed = diesel::sql_query(end)
                .bind::<Text, _>(to.as_str())
                .bind::<Nullable<Double>, _>(drain.map(Duration::as_seconds_f64))
                .bind::<sql_types::Uuid, _>(Column(id))
                .bind::<BigInt, _>(epoch.0)
                .bind::<Text, _>(from.as_str());
            if changed.execute(connection).await? == 0 {
                return Ok(Replaced::LostRace);
            }
            report(connection, id).await?;
            Ok(Replaced::Yes)
        };
        self.database.transaction("node.change_state", work).await
    }

    async fn finish_drain(&self, id: NodeId, epoch: Epoch) -> Result<bool, StoreError> {
        let empty = run(id, epoch).filter(nodes::state.eq("draining")).filter(not(sql::<Bool>(HAS_REMAINS)));
        self.database.changed("node.finish_drain", diesel::update(empty).set(nodes::state.eq("drained"))).await
    }

    async fn with_remains(&self) -> Result<Vec<(NodeId, OffsetDateTime)>, StoreError> {
        let found = nodes::table.filter(sql::<Bool>(HAS_REMAINS)).order(nodes::id);
        let rows = found.select((nodes::id, nodes::heartbeat_at));
        self.database.all::<(Column<NodeId>, OffsetDateTime), _>("node.with_remains", rows).await
    }

    async fn lose(&self, node: SilentNode, at: OffsetDateTime) -> Result<Option<Vec<Session>>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let silent = nodes::table.find(Column(node.id)).filter(nodes::heartbeat_at.eq(node.heartbeat_at));
            let next_epoch = diesel::update(silent).set(nodes::epoch.eq(nodes::epoch + 1));
            if next_epoch.execute(connection).await? == 0 {
                return Ok(None);
            }
            let living = sessions::table.filter(sessions::node_id.eq(Column(node.id)));
            let living = living.filter(not(sessions::state.eq("ended"))).order(sessions::id);
            let living = living.select(SessionRow::as_select()).for_update();
            let living: Vec<Session> = all::<_, SessionRow, _>(connection, living).await?;
            let (mut ended, mut all_decided) = (Vec::with_capacity(living.len()), Vec::new());
            for session in living {
                let next = session.on(SessionEvent::NodeLost, at);
                let next = next.unwrap_or_else(|_| unreachable!("a session that has not ended can be lost"));
                let (replaced, decided) = session::store_end(connection, session.state, &next, &[]).await?;
                all_decided.extend(decided);
                if replaced == Replaced::Yes {
                    ended.push(next);
                }
            }
            let browsers = browsers::table.filter(browsers::node_id.eq(Column(node.id)));
            diesel::delete(browsers).execute(connection).await?;
            report(connection, node.id).await?;
            Ok(Some((ended, all_decided)))
        };
        let Some((ended, decided)) = self.database.transaction("node.lose", work).await? else { return Ok(None) };
        self.database.report(decided).await;
        Ok(Some(ended))
    }
}
