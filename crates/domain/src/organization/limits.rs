//! Limits: the number of resources that may exist at once.

use std::fmt;

/// The limits of a project or the organization; `None`: no limit at this level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// The maximum of sessions on demand plus the sum of the sizes of pools. A browser of more than the default memory
    /// counts as its multiple, here and in all usage.
    pub concurrent_sessions: Option<u32>,
    /// The maximum of the sum of the sizes of pools.
    pub pooled_sessions: Option<u32>,
    /// The maximum of queued and running invocations.
    pub concurrent_invocations: Option<u32>,
}

/// The usage that counts against limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The places of the sessions on demand that are starting or active.
    pub on_demand: u32,
    /// The sum of the sizes of pools.
    pub pooled: u32,
    /// The number of browsers that pools have in excess of their sizes; see [`beyond`].
    pub beyond: u32,
    /// The number of queued and running invocations.
    pub invocations: u32,
}

impl Usage {
    /// Returns the number that counts against the limit of concurrent sessions.
    #[must_use]
    pub const fn sessions(self) -> u32 {
        self.on_demand.saturating_add(self.pooled).saturating_add(self.beyond)
    }
}

/// The usage of an organization, over all its projects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrganizationUsage {
    /// The usage that counts against limits of the organization.
    pub limited: Usage,
    /// The number of auth connections.
    pub auth_connections: u32,
}

/// A request for capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityRequest {
    /// One more session on demand.
    Session {
        /// The number of sessions that it counts as.
        places: u32,
    },
    /// A new pool, or a larger size of a pool.
    Pooled {
        /// The growth of the sum of the sizes.
        sizes: u32,
        /// The number of additional browsers; less than `sizes` if the pool has more browsers than its current size.
        browsers: u32,
    },
    /// One more invocation.
    Invocation,
}

impl CapacityRequest {
    /// Returns the request of a new pool that takes this number of places.
    #[must_use]
    pub const fn new_pool(places: u32) -> Self {
        Self::Pooled { sizes: places, browsers: places }
    }

    /// Returns the request to resize a pool whose browsers hold `held` places.
    #[must_use]
    pub fn resized(current: u32, next: u32, held: u32) -> Self {
        let browsers = next.max(held).saturating_sub(current.max(held));
        Self::Pooled { sizes: next.saturating_sub(current), browsers }
    }
}

/// Returns the number of the `held` browsers of a pool in excess of its size. A pool has such browsers, in use until
/// they end, after it became smaller or was deleted, which makes its size 0.
#[must_use]
pub const fn beyond(size: u32, held: u32) -> u32 {
    held.saturating_sub(size)
}

/// A limit that a request can exceed.
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
    /// The maximum number of pools per project.
    ProjectPools,
    /// The maximum number of extensions per project.
    ProjectExtensions,
    /// The maximum number of proxies per project.
    ProjectProxies,
    /// The maximum number of profiles per project.
    ProjectProfiles,
    /// The maximum number of credentials per project.
    ProjectCredentials,
    /// The maximum number of deployments per project that have not ended.
    ProjectDeployments,
    /// `max_concurrent_invocations` of the project.
    ProjectInvocations,
    /// `max_concurrent_invocations` of the organization.
    OrganizationInvocations,
    /// The maximum number of credential providers per organization.
    OrganizationCredentialProviders,
    /// The maximum number of telemetry destinations per organization.
    OrganizationTelemetryDestinations,
    /// The maximum number of audit destinations per organization.
    OrganizationAuditDestinations,
    /// The maximum number of auth connections per project.
    ProjectAuthConnections,
    /// `max_sessions` of the node on which a session would start.
    NodeSessions,
    /// The sum of `max_sessions` of all nodes on which a session could start.
    AllNodesSessions,
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
            Self::ProjectDeployments => "the number of deployments in a project that have not ended",
            Self::ProjectInvocations => "max_concurrent_invocations of the project",
            Self::OrganizationInvocations => "max_concurrent_invocations of the organization",
            Self::OrganizationCredentialProviders => "the number of credential providers in an organization",
            Self::OrganizationTelemetryDestinations => "the number of telemetry destinations in an organization",
            Self::OrganizationAuditDestinations => "the number of audit export destinations in an organization",
            Self::ProjectAuthConnections => "the number of auth connections in a project",
            Self::NodeSessions => "max_sessions of the node",
            Self::AllNodesSessions => "max_sessions of all nodes together",
        })
    }
}

/// The error of a request that would exceed a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} is {value}, {used} in use, {requested} more requested")]
pub struct LimitExceeded {
    /// The limit.
    pub limit: Limit,
    /// The value of the limit.
    pub value: u32,
    /// The current usage.
    pub used: u32,
    /// The requested increase.
    pub requested: u32,
}

fn check(limit: Limit, cap: Option<u32>, used: u32, requested: u32) -> Result<(), LimitExceeded> {
    match cap {
        Some(value) if used.saturating_add(requested) > value => Err(LimitExceeded { limit, value, used, requested }),
        _ => Ok(()),
    }
}

/// Checks that one more fits a limit of `value`, of which `used` are in use. Must be called while no other call can add
/// one.
///
/// # Errors
/// Returns the limit if it would be exceeded.
pub fn admit_one(limit: Limit, value: u32, used: u32) -> Result<(), LimitExceeded> {
    check(limit, Some(value), used, 1)
}

/// Checks that a session of this number of places fits a node that is limited to `value` places, of which `used` are in
/// use. Must be called while no other call can add a session.
///
/// # Errors
/// Returns the limit if it would be exceeded.
pub fn admit_on_node(value: u32, used: u32, places: u32) -> Result<(), LimitExceeded> {
    check(Limit::NodeSessions, Some(value), used, places)
}

/// Checks that `ask` fits the limits of the project and of its organization, given their usage.
///
/// `project` has the effective limits of the project: its own, else the organization's default for projects. Must be
/// called while no other call can add to the usage of the organization.
///
/// # Errors
/// Returns the first limit that would be exceeded.
pub fn admit(
    (project, project_usage): (&Caps, Usage),
    (organization, organization_usage): (&Caps, Usage),
    ask: CapacityRequest,
) -> Result<(), LimitExceeded> {
    let browsers = match ask {
        CapacityRequest::Invocation => {
            check(Limit::ProjectInvocations, project.concurrent_invocations, project_usage.invocations, 1)?;
            let (cap, used) = (organization.concurrent_invocations, organization_usage.invocations);
            return check(Limit::OrganizationInvocations, cap, used, 1);
        }
        CapacityRequest::Pooled { sizes: 0, .. } => return Ok(()),
        CapacityRequest::Pooled { sizes, browsers } => {
            check(Limit::ProjectPooled, project.pooled_sessions, project_usage.pooled, sizes)?;
            check(Limit::OrganizationPooled, organization.pooled_sessions, organization_usage.pooled, sizes)?;
            browsers
        }
        CapacityRequest::Session { places } => places,
    };
    if browsers == 0 {
        return Ok(());
    }
    check(Limit::ProjectSessions, project.concurrent_sessions, project_usage.sessions(), browsers)?;
    check(Limit::OrganizationSessions, organization.concurrent_sessions, organization_usage.sessions(), browsers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Caps = Caps { concurrent_sessions: None, pooled_sessions: None, concurrent_invocations: None };

    #[test]
    fn sessions_on_demand_and_pool_sizes_share_the_session_limit() {
        let organization = Caps { concurrent_sessions: Some(10), ..NONE };
        let usage = Usage { on_demand: 3, pooled: 6, ..Usage::default() };
        assert_eq!(admit((&NONE, usage), (&organization, usage), CapacityRequest::Session { places: 1 }), Ok(()));
        assert_eq!(
            admit((&NONE, usage), (&organization, usage), CapacityRequest::new_pool(2)),
            Err(LimitExceeded { limit: Limit::OrganizationSessions, value: 10, used: 9, requested: 2 })
        );
    }

    #[test]
    fn the_project_limit_is_checked_before_the_organization_limit() {
        let project = Caps { concurrent_sessions: Some(1), ..NONE };
        let organization = Caps { concurrent_sessions: Some(1), ..NONE };
        let usage = Usage { on_demand: 1, ..Usage::default() };
        let refused =
            admit((&project, usage), (&organization, usage), CapacityRequest::Session { places: 1 }).expect_err("full");
        assert_eq!(refused.limit, Limit::ProjectSessions);
    }

    #[test]
    fn a_pool_that_does_not_grow_is_admitted_even_over_a_lowered_limit() {
        let caps = Caps { concurrent_sessions: Some(1), pooled_sessions: Some(1), ..NONE };
        let usage = Usage { pooled: 5, ..Usage::default() };
        assert_eq!(admit((&caps, usage), (&caps, usage), CapacityRequest::resized(5, 5, 0)), Ok(()));
    }

    #[test]
    fn a_pool_that_shrank_below_what_it_has_leased_grows_again_for_nothing() {
        let caps = Caps { concurrent_sessions: Some(5), ..NONE };
        let usage = Usage { pooled: 2, beyond: beyond(2, 5), ..Usage::default() };
        assert_eq!(admit((&caps, usage), (&NONE, usage), CapacityRequest::resized(2, 5, 5)), Ok(()));
        let refused =
            admit((&caps, usage), (&NONE, usage), CapacityRequest::resized(2, 6, 5)).expect_err("one too many");
        assert_eq!((refused.value, refused.used, refused.requested), (5, 5, 1));
        let refused =
            admit((&caps, usage), (&NONE, usage), CapacityRequest::Session { places: 1 }).expect_err("five are leased");
        assert_eq!((refused.value, refused.used, refused.requested), (5, 5, 1));
    }

    #[test]
    fn one_more_is_admitted_up_to_the_limit() {
        assert_eq!(admit_one(Limit::ProjectPools, 2, 1), Ok(()));
        let refused = LimitExceeded { limit: Limit::ProjectPools, value: 2, used: 2, requested: 1 };
        assert_eq!(admit_one(Limit::ProjectPools, 2, 2), Err(refused));
    }

    #[test]
    fn invocations_are_counted_apart_from_sessions() {
        let caps = Caps { concurrent_sessions: Some(0), concurrent_invocations: Some(2), ..NONE };
        let usage = |invocations| Usage { on_demand: 9, pooled: 9, beyond: 0, invocations };
        assert_eq!(admit((&caps, usage(1)), (&NONE, usage(5)), CapacityRequest::Invocation), Ok(()));
        let refused = admit((&caps, usage(2)), (&NONE, usage(5)), CapacityRequest::Invocation).expect_err("full");
        assert_eq!((refused.limit, refused.value, refused.used), (Limit::ProjectInvocations, 2, 2));
        let refused = admit((&NONE, usage(0)), (&caps, usage(2)), CapacityRequest::Invocation).expect_err("full");
        assert_eq!(refused.limit, Limit::OrganizationInvocations);
    }
}
