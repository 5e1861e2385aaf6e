//! Where a request that makes a session is carried out.

use casement_domain::{NodeId, node::Place};

use super::{ProjectKey, Request};
use crate::{
    cluster::{self, Destination, Hop},
    error::{ApiError, Code},
};

impl Request<ProjectKey> {
    /// Has `make` make a session of this number of places: here, or at the given node. If that node is full, it has done
    /// nothing, and the next one is chosen; each is tried at most once.
    ///
    /// # Errors
    /// `limit_exceeded` if all nodes that take sessions are full; `unavailable` if no node takes sessions; those of the
    /// store and of `make`.
    pub(crate) async fn placed<T>(
        &mut self,
        places: u32,
        mut make: impl AsyncFnMut(&mut Self, Option<Destination>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let mut full = Vec::new();
        loop {
            let destination = self.place(places, &full).await?;
            let node = destination.as_ref().map_or(self.services().node, |destination| destination.node);
            let refused = match make(self, destination).await {
                Err(refused) if refused.is_for_full_node() => refused,
                made => return made,
            };
            if Hop::is(&self.http) {
                return Err(cluster::mark_as_full(refused));
            }
            if full.contains(&node) {
                return Err(refused);
            }
            full.push(node);
        }
    }

    /// Returns where the session is made, if that is another node. The nodes in `full` have refused it.
    async fn place(&self, places: u32, full: &[NodeId]) -> Result<Option<Destination>, ApiError> {
        let nowhere =
            || ApiError::new(Code::Unavailable, "no node takes new sessions now: all drain or have no places");
        let takes_sessions = self.services().own.takes_sessions();
        // A relayed request stays: the entrance has chosen this node.
        if Hop::is(&self.http) {
            return if takes_sessions { Ok(None) } else { Err(nowhere()) };
        }
        match self.services().placement.choose(places, full).await? {
            Place::Here if !takes_sessions => Err(nowhere()),
            Place::Here => Ok(None),
            Place::Elsewhere(node) => Ok(Some(Destination {
                node,
                session: None,
                key: Some(self.key()),
                path_and_query: None,
                lifetime: None,
            })),
            Place::Full(exceeded) => Err(exceeded.into()),
            Place::Nowhere => Err(nowhere()),
        }
    }
}
