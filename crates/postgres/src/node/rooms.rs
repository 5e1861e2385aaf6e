//! The rooms of nodes for new sessions.

use async_trait::async_trait;
use casement_domain::node::{Node, NodeRoom, NodeRooms};
use casement_domain::{NodeId, StoreError};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use uuid::Uuid;

use super::PgNodes;
use crate::column::Column;
use crate::query::count;
use crate::usage::USED_OF_NODE;

#[derive(QueryableByName)]
struct RoomRow {
    #[diesel(sql_type = SqlUuid)]
    node: Uuid,
    #[diesel(sql_type = Bool)]
    is_serving: bool,
    #[diesel(sql_type = Bool)]
    is_reachable: bool,
    #[diesel(sql_type = Nullable<Integer>)]
    places: Option<i32>,
    #[diesel(sql_type = Bool)]
    limits_sessions: bool,
    #[diesel(sql_type = BigInt)]
    used: i64,
}

#[async_trait]
impl NodeRooms for PgNodes {
    async fn rooms(&self, own: NodeId) -> Result<Vec<NodeRoom>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let query = diesel::sql_query(format!(
                "SELECT id AS node, state = 'serving' AS is_serving, cluster_address IS NOT NULL AS is_reachable,
                    max_sessions AS places, limits_sessions, {USED_OF_NODE} AS used
                 FROM nodes WHERE id = $1 OR heartbeat_at > now() - make_interval(secs => $2) ORDER BY id"
            ));
            let rows: Vec<RoomRow> = query
                .bind::<SqlUuid, _>(Column(own))
                .bind::<Double, _>(Node::LEASED_WITHIN.as_seconds_f64())
                .get_results(connection)
                .await?;
            Ok(rows.into_iter().map(RoomRow::into_room).collect())
        };
        self.database.fetch("node.rooms", work).await
    }
}

impl RoomRow {
    fn into_room(self) -> NodeRoom {
        NodeRoom {
            node: NodeId::from_ulid(self.node.as_u128().into()),
            is_serving: self.is_serving,
            is_reachable: self.is_reachable,
            places: self.places.map(|places| count(places.into())),
            limits_sessions: self.limits_sessions,
            used: count(self.used),
        }
    }
}
