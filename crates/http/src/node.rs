//! The routes `/nodes`: the servers of the installation, and their drains.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use casement_domain::{
    field::{InvalidInput, one_of},
    node::{DrainRequest, NodeCondition, NodeFilter, NodeStatus, Nodes},
};
use serde::{Deserialize, Serialize};

use crate::{
    answer::{self, Answer, Moment},
    error::ApiError,
    from_fields::from_fields,
    operation::{Operations, Refusal},
    request::{OrganizationKey, Request},
    schema::{IntoParams, ToSchema},
};

/// The refusal of a change of a lost node.
const LOST: Refusal = ("409", "The node is lost");

/// A server of the installation.
#[derive(Serialize, ToSchema)]
#[schema(as = Node)]
pub(crate) struct NodeBody {
    id: String,
    /// The name of the host.
    host: String,
    /// `serving`: it takes new sessions. `draining`: it takes none, and its sessions live on. `drained`: it takes none and
    /// has none. `lost`: it has sent no heartbeat for 45 seconds, and its sessions have ended.
    state: &'static str,
    /// The time at which a drain ends the sessions that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    drain_ends_at: Option<Moment>,
    /// The version of the program.
    version: String,
    /// The address of the API, as `host:port`.
    address: String,
    /// The address for other nodes, as `host:port`; absent if other nodes do not reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_address: Option<String>,
    /// The number of the present run. It rises with each start, and when the node is lost.
    epoch: i64,
    /// The labels that the operator gave it.
    labels: BTreeMap<String, String>,
    /// The number of sessions for which it has room.
    max_sessions: u32,
    /// The memory of the machine, in MiB.
    memory_mib: u64,
    /// The number of sessions, including those that are starting.
    sessions: u32,
    /// The number of idle browsers of pools.
    idle_browsers: u32,
    /// The beginning of the present run.
    #[schema(value_type = String, format = DateTime)]
    started_at: Moment,
    /// The last heartbeat, by the clock of the database. There is one every 5 seconds.
    #[schema(value_type = String, format = DateTime)]
    heartbeat_at: Moment,
}

impl From<NodeStatus> for NodeBody {
    fn from(status: NodeStatus) -> Self {
        let state = status.condition().as_str();
        let NodeStatus { stored, drain_ends_at, sessions, idle_browsers, .. } = status;
        let node = stored.node;
        Self {
            id: node.id.to_string(),
            host: node.host,
            state,
            drain_ends_at: drain_ends_at.map(Moment),
            version: node.version,
            address: node.address,
            cluster_address: node.cluster.map(|cluster| cluster.address),
            epoch: stored.epoch.0,
            labels: node.labels.as_map().clone(),
            max_sessions: node.max_sessions,
            memory_mib: node.memory_mib,
            sessions,
            idle_browsers,
            started_at: Moment(node.started_at),
            heartbeat_at: Moment(stored.heartbeat_at),
        }
    }
}

/// The nodes to list.
#[derive(Deserialize, IntoParams)]
struct NodeParams {
    /// The state: `serving`, `draining`, `drained` or `lost`. Default: all.
    state: Option<String>,
    /// `labels[key]=value`: nodes with all of these labels.
    #[param(style = DeepObject, explode, required = false)]
    labels: BTreeMap<String, String>,
}

impl NodeParams {
    fn filter(self) -> Result<NodeFilter, ApiError> {
        let condition = self.state.map(|state| one_of(&state, &NodeCondition::ALL, NodeCondition::as_str));
        let condition = condition.transpose().map_err(|bad| InvalidInput::of("state", bad))?;
        Ok(NodeFilter { condition, labels: self.labels })
    }
}

/// How a node is drained.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = DrainNode)]
pub(crate) struct DrainInput {
    /// The time in seconds after which the sessions end that are left, with the reason `node_drained`; 0 to 259200.
    /// Default: `--drain-deadline` of the node, else they live until they end by themselves.
    deadline_seconds: Option<i64>,
}

from_fields!(DrainInput => DrainRequest { deadline_seconds });

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Nodes", "The node does not exist");
    api.get("/nodes", "list_nodes", list_nodes)
        .summary("Lists the nodes of the installation, by host.")
        .description("A node that has been silent for 7 days is not listed any more.")
        .query::<NodeParams>()
        .returns_page::<NodeBody>();
    api.get("/nodes/{id}", "get_node", get_node).summary("Returns a node with its load.").returns::<NodeBody>();
    api.post("/nodes/{id}/drain", "drain_node", drain_node)
        .summary("Drains a node: it takes no new sessions, and its sessions live until they end or the deadline is over.")
        .description(
            "Idle browsers of pools end, and other nodes replace them. Callers that wait at the node go on waiting. A repeated call changes \
             only the deadline, if the new one is earlier. The node serves again after a restart, or after `POST /nodes/{id}/resume`.",
        )
        .body::<DrainInput>()
        .returns::<NodeBody>()
        .refuses([LOST]);
    api.post("/nodes/{id}/resume", "resume_node", resume_node)
        .summary("Lets a draining or drained node take new sessions again.")
        .returns::<NodeBody>()
        .refuses([LOST]);
}

fn use_cases(request: &Request<OrganizationKey>) -> &Nodes {
    &request.services().nodes
}

pub(crate) async fn list_nodes(request: Request<OrganizationKey>) -> Answer {
    let filter = request.query::<NodeParams>()?.filter()?;
    let found = use_cases(&request).list(&filter, request.page()?).await?;
    Ok(answer::list(&found.map(NodeBody::from)))
}

async fn get_node(request: Request<OrganizationKey>) -> Answer {
    let found = use_cases(&request).get(&request.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &NodeBody::from(found)))
}

pub(crate) async fn drain_node(mut request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id")?;
    let input = request.json::<DrainInput>().await?.into();
    let drained = use_cases(&request).drain(&id, input).await?;
    Ok(answer::record(StatusCode::OK, &NodeBody::from(drained)))
}

pub(crate) async fn resume_node(request: Request<OrganizationKey>) -> Answer {
    let resumed = use_cases(&request).resume(&request.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &NodeBody::from(resumed)))
}
