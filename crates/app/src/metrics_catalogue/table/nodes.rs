//! The metrics of nodes.

use super::{Kind, Metric, label, metric};

pub(super) const NODES: &[Metric] = &[
    metric(
        Kind::Gauge,
        "casement_node_state",
        "1",
        &[label(
            "state",
            "the state; `lost`: without contact to the database for so long that it does not answer for its sessions",
            &["serving", "draining", "drained", "lost"],
        )],
        "Is 1 for the state of this node, and 0 for all others.",
    ),
    metric(
        Kind::Gauge,
        "casement_node_max_sessions",
        "sessions",
        &[],
        "Shows the number of sessions for which this node has room.",
    ),
    metric(
        Kind::Counter,
        "casement_nodes_lost_total",
        "nodes",
        &[],
        "Counts the other nodes whose sessions this node has ended because they were lost.",
    ),
    metric(
        Kind::Counter,
        "casement_node_requests_total",
        "requests",
        &[label("direction", "whether this node sent it to another node or received it", &["sent", "received"])],
        "Counts the requests between this node and the others.",
    ),
    metric(
        Kind::Counter,
        "casement_node_requests_failed_total",
        "requests",
        &[],
        "Counts the requests to other nodes that got no response.",
    ),
    metric(
        Kind::Counter,
        "casement_node_connections_refused_total",
        "connections",
        &[],
        "Counts connections to the cluster listener that did not prove to be another node of the database.",
    ),
];
