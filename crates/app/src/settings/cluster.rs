//! The settings of a node that shares its database with others.

use std::net::SocketAddr;

use clap::Args;

use super::values::{listen_address, peer_address};

#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterSettings {
    /// The address to listen on for other nodes of the same database; port 0 selects a free one [default: this node
    /// is alone]
    #[arg(long, value_name = "ADDR", env = "CASEMENT_CLUSTER_LISTEN", value_parser = listen_address)]
    pub(crate) cluster_listen: Option<SocketAddr>,
    /// The address by which other nodes reach that listener [default: the address that it listens on]
    #[arg(long, value_name = "HOST:PORT", env = "CASEMENT_CLUSTER_ADDRESS", value_parser = peer_address)]
    pub(crate) cluster_address: Option<String>,
}
