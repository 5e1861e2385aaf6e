//! The hosts that a session may reach, and their revisions.

use url::Host;

use super::Destination;
use crate::field::InvalidValue;

/// The hosts that a session may reach. Each change makes a new revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowlist {
    /// The hosts, at least one; `None`: the list was removed, and all hosts are allowed.
    pub hosts: Option<Vec<Destination>>,
    /// The revision, from 1.
    pub revision: u64,
    /// The revision before the last change, if that was conditional.
    pub base_revision: Option<u64>,
    /// The caller's id of the last change, if that was conditional.
    pub mutation_id: Option<String>,
}

/// A change of the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowlistChange {
    /// The new hosts; `None` removes the list.
    pub hosts: Option<Vec<Destination>>,
    /// The condition of the change.
    pub condition: Option<Condition>,
}

/// The condition of a change, which makes it safe to repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The revision that the list must have.
    pub revision: String,
    /// The caller's id of the change.
    pub mutation_id: String,
}

/// The error of a change that was made for another state than the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the network configuration has changed; read it again")]
pub struct StaleNetwork;

/// The error of a change of the hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowlistError {
    /// The session never had a list, or the list was removed.
    #[error("can be changed only if the session was created with it and it was not removed")]
    NoAllowlist,
    /// The list has another revision than expected.
    #[error(transparent)]
    Stale(#[from] StaleNetwork),
    /// A host is not allowed in this session.
    #[error(transparent)]
    Invalid(InvalidValue),
}

impl Allowlist {
    /// Creates the first revision.
    #[must_use]
    pub fn new(hosts: Vec<Destination>) -> Self {
        Self { hosts: Some(hosts), revision: 1, base_revision: None, mutation_id: None }
    }

    /// Returns whether the list has not been removed.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.hosts.is_some()
    }

    /// Returns whether the list allows the host of a request.
    #[must_use]
    pub fn allows(&self, host: &Host<&str>) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.iter().any(|allowed| allowed.matches(host)))
    }

    /// Returns the list after a change. A repeated conditional change returns the list as it is.
    ///
    /// # Errors
    /// See [`AllowlistError`].
    pub fn changed(&self, change: &AllowlistChange) -> Result<Self, AllowlistError> {
        if let Some(condition) = &change.condition {
            if self.mutation_id.as_ref() == Some(&condition.mutation_id) {
                let is_repeated = self.base_revision.is_some_and(|base| base.to_string() == condition.revision)
                    && self.hosts == change.hosts;
                return if is_repeated { Ok(self.clone()) } else { Err(StaleNetwork.into()) };
            }
            if self.revision.to_string() != condition.revision {
                return Err(StaleNetwork.into());
            }
        }
        if self.hosts.is_none() {
            return Err(AllowlistError::NoAllowlist);
        }
        Ok(Self {
            hosts: change.hosts.clone(),
            revision: self.revision + 1,
            base_revision: change.condition.as_ref().map(|_| self.revision),
            mutation_id: change.condition.as_ref().map(|condition| condition.mutation_id.clone()),
        })
    }
}
