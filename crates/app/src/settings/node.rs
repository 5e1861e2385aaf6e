//! The settings of a node among others.

use casement_domain::node::MAX_DRAIN_SECONDS;
use casement_domain::session::Tags;
use casement_sandbox::OwnGroups;
use clap::Args;

use super::machine_memory_mib;

/// The memory of an idle session, for the number of sessions for which a node has room.
const SESSION_MIB: u32 = 180;

#[derive(Clone, Debug, Args)]
pub(crate) struct NodeSettings {
    /// A label of this node, as KEY=VALUE; may be given several times
    #[arg(
        long = "node-label",
        value_name = "KEY=VALUE",
        env = "CASEMENT_NODE_LABEL",
        value_delimiter = ',',
        value_parser = super::values::label,
        action = clap::ArgAction::Append
    )]
    node_labels: Vec<(String, String)>,
    /// The most sessions of this node; 0: it takes none [default: no limit, and other nodes assume room for one in 180 MiB of the machine or control group]
    #[arg(long, value_name = "N", env = "CASEMENT_MAX_SESSIONS", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    max_sessions: Option<u32>,
    /// Drain at SIGTERM, and end when the last session has ended; a second SIGTERM stops at once
    #[arg(long, env = "CASEMENT_DRAIN_ON_TERM", value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) drain_on_term: bool,
    /// The seconds that a drain gives sessions, unless it says so itself [default: until they end by themselves]
    #[arg(long, value_name = "SECONDS", env = "CASEMENT_DRAIN_DEADLINE", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_DRAIN_SECONDS)))]
    drain_deadline: Option<u32>,
}

impl NodeSettings {
    /// Returns the labels.
    ///
    /// # Errors
    /// If there are too many.
    pub(crate) fn labels(&self) -> anyhow::Result<Tags> {
        let labels = Tags::parse(self.node_labels.iter().cloned().collect());
        labels.map_err(|invalid| anyhow::anyhow!("--node-label: {}", invalid.message))
    }

    /// Returns the number of sessions beyond which the node refuses sessions without a pool, if the operator limits it.
    pub(crate) fn session_limit(&self) -> Option<u32> {
        self.max_sessions
    }

    /// Returns the number of sessions for which the node has room: the limit, or an estimate.
    pub(crate) fn max_sessions(&self) -> u32 {
        self.max_sessions.unwrap_or_else(|| {
            let of_groups = OwnGroups::find().sessions().map(|sessions| u32::try_from(sessions).unwrap_or(u32::MAX));
            (machine_memory_mib() / SESSION_MIB).min(of_groups.unwrap_or(u32::MAX))
        })
    }

    pub(crate) fn drain_deadline(&self) -> Option<time::Duration> {
        self.drain_deadline.map(|seconds| time::Duration::seconds(seconds.into()))
    }
}
