//! The owners of sessions that this node has seen. The owner of a session never changes.

use std::collections::HashMap;

use casement_domain::{NodeId, ProjectId, SessionId, session::Session};
use parking_lot::RwLock;

/// The number of sessions in one generation. The memory holds at most two.
const GENERATION: usize = 8192;

/// The owners of recent sessions, in bounded memory.
#[derive(Debug, Default)]
pub(crate) struct Owners(RwLock<Generations>);

#[derive(Debug, Default)]
struct Generations {
    recent: HashMap<SessionId, Owner>,
    older: HashMap<SessionId, Owner>,
}

/// The node that runs a session, and the project of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The node.
    pub node: NodeId,
    /// The project.
    pub project: ProjectId,
}

impl Owners {
    /// Notes the owner of a session.
    pub(crate) fn note(&self, session: &Session) {
        let owner = Owner { node: session.node, project: session.project };
        if self.0.read().recent.contains_key(&session.id) {
            return;
        }
        let mut generations = self.0.write();
        if generations.recent.len() >= GENERATION {
            generations.older = std::mem::take(&mut generations.recent);
        }
        generations.recent.insert(session.id, owner);
    }

    /// Returns the owner of a session, if it is known.
    pub(crate) fn find(&self, session: SessionId) -> Option<Owner> {
        let generations = self.0.read();
        generations.recent.get(&session).or_else(|| generations.older.get(&session)).copied()
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::testing;

    use super::*;

    #[test]
    fn the_owners_of_recent_sessions_are_known_in_bounded_memory() {
        let owners = Owners::default();
        let count = u32::try_from(3 * GENERATION).expect("a small number");
        for n in 0..count {
            owners.note(&testing::session(n));
        }
        let session = testing::session(count - 1);
        let owner = Owner { node: session.node, project: session.project };
        assert_eq!(owners.find(session.id), Some(owner));
        assert_eq!(owners.find(testing::session_id(0)), None);
        let generations = owners.0.read();
        assert!(generations.recent.len() + generations.older.len() <= 2 * GENERATION);
    }
}
