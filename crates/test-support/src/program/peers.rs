//! The switch with which the tests of one server run over several.
//!
//! With `CASEMENT_TEST_NODES=3`, each server with a database of its own is an entrance: it has room for no session, and
//! two servers behind it, on the same database, have all of them. So every call of a test reaches a node that does not
//! own what the call is about. No test knows of it.

use std::net::Ipv4Addr;

use super::cluster::Host;
use super::options::{Options, Place, StoreConnection, master_key};
use super::server::Server;

const NODES: &str = "CASEMENT_TEST_NODES";
const MASTER_KEY: &str = "CASEMENT_MASTER_KEY";
const CLUSTER_LISTEN: &str = "CASEMENT_CLUSTER_LISTEN";
const MAX_SESSIONS: &str = "CASEMENT_MAX_SESSIONS";

/// Returns the number of servers behind one with these options.
pub(super) fn count(options: &Options) -> usize {
    let nodes = std::env::var(NODES).ok().and_then(|nodes| nodes.parse::<usize>().ok()).unwrap_or(1);
    let is_alone = options.place.is_none() && options.has_private_cluster() && options.data_dir.is_none();
    if is_alone { nodes.saturating_sub(1) } else { 0 }
}

/// Returns the options of the entrance.
pub(super) fn entrance(mut options: Options) -> anyhow::Result<Options> {
    let of_nodes = [(CLUSTER_LISTEN, "127.0.0.1:0"), (MAX_SESSIONS, "0")];
    options.variables.extend(of_nodes.map(|(name, value)| (name.to_owned(), value.to_owned())));
    if !options.variables.iter().any(|(name, _)| name == MASTER_KEY) {
        options.variables.push((MASTER_KEY.to_owned(), master_key()?));
    }
    Ok(options)
}

/// Returns the options of a server behind the entrance.
pub(super) fn behind(entrance: &Server) -> anyhow::Result<Options> {
    let mut options = entrance.options().clone();
    options.variables.retain(|(name, _)| name != MAX_SESSIONS);
    if !options.flags.iter().any(|flag| flag == "--public-url") {
        options.flags.extend(["--public-url".to_owned(), entrance.url()]);
    }
    let (key, blobs) = (Some(entrance.key().to_owned()), Some(entrance.data_dir().join("blobs")));
    Ok(Options {
        first_start: false,
        beside: Some(StoreConnection { database: entrance.database_url()?, key, blobs, master_key: None }),
        place: Some(Place { host: Host::at(Ipv4Addr::LOCALHOST), ports: (0, 0), root: entrance.root().to_owned() }),
        ..options
    })
}

impl Server {
    /// Returns the metrics of the server and of those behind it.
    pub fn metrics(&self) -> anyhow::Result<String> {
        let own = self.get("/metrics")?.expect(200)?.text();
        self.peers.iter().try_fold(own, |all, peer| Ok(all + &peer.metrics()?))
    }
}
