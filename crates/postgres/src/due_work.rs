//! What the background jobs of a node may have to do, read in one statement, so that an idle node does not read each table for itself.

use std::sync::LazyLock;

use casement_domain::StoreError;
use casement_domain::audit::NodeRun;
use casement_domain::node::Node;
use casement_domain::proxy::Proxies;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::column::Column;
use crate::database::repository;
use crate::node::HAS_REMAINS;

/// The kinds of work of which the database has some. `true` may also mean that another node has it already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
pub struct DueWork {
    /// Deployments that are not built.
    #[diesel(sql_type = Bool)]
    pub builds: bool,
    /// Deployments that run.
    #[diesel(sql_type = Bool)]
    pub deployments: bool,
    /// Invocations that have not ended, or that were canceled and have sessions.
    #[diesel(sql_type = Bool)]
    pub invocations: bool,
    /// Login flows that have not ended.
    #[diesel(sql_type = Bool)]
    pub login_flows: bool,
    /// Auth connections, some of which may be due for a check.
    #[diesel(sql_type = Bool)]
    pub auth_connections: bool,
    /// Proxies that are due for a check.
    #[diesel(sql_type = Bool)]
    pub proxies: bool,
    /// Sessions of the node.
    #[diesel(sql_type = Bool)]
    pub sessions: bool,
    /// Browsers of the node that are to be removed.
    #[diesel(sql_type = Bool)]
    pub ending_browsers: bool,
    /// Tickets of the node.
    #[diesel(sql_type = Bool)]
    pub tickets: bool,
    /// Audit intents that nobody completes.
    #[diesel(sql_type = Bool)]
    pub abandoned_calls: bool,
    /// Other nodes that have run within the last hour, or of which something is left.
    #[diesel(sql_type = Bool)]
    pub other_nodes: bool,
}

static READ: LazyLock<String> = LazyLock::new(|| {
    let (silent, checked) = (Node::LOST_AFTER.whole_seconds(), Proxies::CHECKED_EVERY.whole_seconds());
    format!(
        "WITH node (id, run) AS (VALUES ($1::uuid, $2::uuid))
         SELECT
             EXISTS (SELECT FROM deployments WHERE status IN ('queued', 'in_progress')) AS builds,
             EXISTS (SELECT FROM deployments WHERE status = 'running') AS deployments,
             EXISTS (SELECT FROM invocations WHERE status IN ('queued', 'running'))
                 OR EXISTS (SELECT FROM sessions s JOIN invocations i ON i.id = s.invocation_id
                     WHERE s.state <> 'ended' AND i.status = 'failed' AND i.status_reason = 'canceled') AS invocations,
             EXISTS (SELECT FROM auth_flows WHERE status = 'IN_PROGRESS' OR open) AS login_flows,
             EXISTS (SELECT FROM auth_connections) AS auth_connections,
             EXISTS (SELECT FROM proxies WHERE deleted_at IS NULL AND check_taken_at < now() - interval '{checked} seconds')
                 AS proxies,
             EXISTS (SELECT FROM sessions WHERE node_id = node.id AND state <> 'ended') AS sessions,
             EXISTS (SELECT FROM browsers WHERE node_id = node.id AND state = 'ending') AS ending_browsers,
             EXISTS (SELECT FROM pool_waiters WHERE node_id = node.id) AS tickets,
             EXISTS (SELECT FROM audit_records_pending WHERE (node_id = node.id AND run_id <> node.run)
                 OR node_id IN (SELECT id FROM nodes
                     WHERE nodes.id <> node.id AND heartbeat_at <= now() - interval '{silent} seconds')) AS abandoned_calls,
             EXISTS (SELECT FROM nodes WHERE nodes.id <> node.id
                 AND (heartbeat_at > now() - interval '1 hour' OR {HAS_REMAINS})) AS other_nodes
         FROM node"
    )
});

repository! {
    /// Reads what is to be done in PostgreSQL.
    PgDueWork
}

impl PgDueWork {
    /// Reads what a run of a node may have to do.
    ///
    /// # Errors
    /// Returns the error of the database.
    pub async fn read(&self, run: NodeRun) -> Result<DueWork, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let reading = diesel::sql_query(READ.as_str());
            let reading = reading.bind::<SqlUuid, _>(Column(run.node)).bind::<SqlUuid, _>(Column(run.run));
            Ok(reading.get_result(connection).await?)
        };
        self.database.fetch("due_work.read", work).await
    }
}
