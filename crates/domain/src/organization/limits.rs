//! How many sessions and pooled browsers there may be at once.

use std::fmt;

/// Upper bounds; `None` means no cap at this level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Sessions on demand plus the sum of the sizes of pools.
    pub concurrent_sessions: Option<u32>,
    /// The sum of the sizes of pools.
    pub pooled_sessions: Option<u32>,
    /// Invocations queued or running.
    pub concurrent_invocations: Option<u32>,
}

/// What is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Sessions on demand that are starting or active.
    pub on_demand: u32,
    /// The sum of the sizes of pools.
    pub pooled: u32,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// One more session on demand.
    Session,
    /// So many more pooled browsers: the size of a new pool, or what an old one grows by.
    Pooled(u32),
}

/// Which limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `max_concurrent_sessions` of the project.
    ProjectSessions,
    /// `max_pooled_sessions` of the project.
    ProjectPooled,
    /// `max_concurrent_sessions` of the organization.
    OrganizationSessions,
    /// `max_pooled_sessions` of the organization.
    OrganizationPooled,
    /// How many pools a project may have.
    ProjectPools,
    /// How many extensions a project may have.
    ProjectExtensions,
    /// How many proxies a project may have.
    ProjectProxies,
    /// How many profiles a project may have.
    ProjectProfiles,
    /// How many credentials a project may have.
    ProjectCredentials,
    /// How many credential providers an organization may have.
    OrganizationCredentialProviders,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProjectSessions => "max_concurrent_sessions of the project",
            Self::ProjectPooled => "max_pooled_sessions of the project",
            Self::OrganizationSessions => "max_concurrent_sessions of the organization",
            Self::OrganizationPooled => "max_pooled_sessions of the organization",
            Self::ProjectPools => "the number of pools in a project",
            Self::ProjectExtensions => "the number of extensions in a project",
            Self::ProjectProxies => "the number of proxies in a project",
            Self::ProjectProfiles => "the number of profiles in a project",
            Self::ProjectCredentials => "the number of credentials in a project",
            Self::OrganizationCredentialProviders => "the number of credential providers in an organization",
        })
    }
}

/// Granting what is asked would go over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} is {value}, {used} in use, {asked} more asked")]
pub struct LimitExceeded {
    /// Which one.
    pub limit: Limit,
    /// Its value.
    pub value: u32,
    /// What is in use now.
    pub used: u32,
    /// How many more were asked for.
    pub asked: u32,
}

/// Whether `ask` fits beside what is in use, in the project and in its organization.
///
/// `project` holds the caps in force for the project (its own, else the organization's default for projects). Must be
/// called while nobody else can add to the same organization.
///
/// # Errors
/// The first limit that would be exceeded.
pub fn admit(
    (project, project_usage): (&Caps, Usage),
    (organization, organization_usage): (&Caps, Usage),
    ask: Ask,
) -> Result<(), LimitExceeded> {
    let check = |limit, cap: Option<u32>, used: u32, asked: u32| match cap {
        Some(value) if used.saturating_add(asked) > value => Err(LimitExceeded { limit, value, used, asked }),
        _ => Ok(()),
    };
    let asked = match ask {
        Ask::Session => 1,
        Ask::Pooled(more) => more,
    };
    if asked == 0 {
        return Ok(());
    }
    if let Ask::Pooled(_) = ask {
        check(Limit::ProjectPooled, project.pooled_sessions, project_usage.pooled, asked)?;
        check(Limit::OrganizationPooled, organization.pooled_sessions, organization_usage.pooled, asked)?;
    }
    let total = |usage: Usage| usage.on_demand.saturating_add(usage.pooled);
    check(Limit::ProjectSessions, project.concurrent_sessions, total(project_usage), asked)?;
    check(Limit::OrganizationSessions, organization.concurrent_sessions, total(organization_usage), asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Caps = Caps { concurrent_sessions: None, pooled_sessions: None, concurrent_invocations: None };

    #[test]
    fn sessions_on_demand_and_pool_sizes_share_the_session_limit() {
        let organization = Caps { concurrent_sessions: Some(10), ..NONE };
        let usage = Usage { on_demand: 3, pooled: 6 };
        assert_eq!(admit((&NONE, usage), (&organization, usage), Ask::Session), Ok(()));
        assert_eq!(
            admit((&NONE, usage), (&organization, usage), Ask::Pooled(2)),
            Err(LimitExceeded { limit: Limit::OrganizationSessions, value: 10, used: 9, asked: 2 })
        );
    }

    #[test]
    fn the_project_is_asked_before_the_organization() {
        let project = Caps { concurrent_sessions: Some(1), ..NONE };
        let organization = Caps { concurrent_sessions: Some(1), ..NONE };
        let usage = Usage { on_demand: 1, pooled: 0 };
        let refused = admit((&project, usage), (&organization, usage), Ask::Session).expect_err("full");
        assert_eq!(refused.limit, Limit::ProjectSessions);
    }

    #[test]
    fn a_pool_that_does_not_grow_is_admitted_even_over_a_lowered_limit() {
        let caps = Caps { concurrent_sessions: Some(1), pooled_sessions: Some(1), ..NONE };
        let usage = Usage { on_demand: 0, pooled: 5 };
        assert_eq!(admit((&caps, usage), (&caps, usage), Ask::Pooled(0)), Ok(()));
    }
}
