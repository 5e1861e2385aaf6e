//! `/org/entitlements`: the features and limits of the installation.

use actix_web::http::StatusCode;
use casement_domain::{auth_connection::Settings, organization::Organization};
use serde::Serialize;

use crate::{
    answer::{self, Answer},
    operation::Operations,
    request::{OrganizationKey, Request},
    schema::ToSchema,
    state::Services,
};

/// The value of a limit that is not set, because clients require a number.
const NO_LIMIT: u32 = 2_147_483_647;

/// The features and limits of the organization.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OrganizationEntitlements)]
pub(crate) struct EntitlementsBody {
    features: Features,
    limits: Limits,
    plan: Plan,
}

/// What the installation can do.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EntitlementFeatures)]
struct Features {
    browser_extensions: ExtensionsFeature,
    browser_pools: Feature,
    browser_replays: ReplaysFeature,
    credential_providers: Feature,
    credentials: Feature,
    custom_proxies: Feature,
    file_io: Feature,
    gpu: Feature,
    managed_auth: AuthFeature,
    /// Proxies that the operator of the server rents.
    managed_proxies: Feature,
    profiles: Feature,
    proxy_bypass_hosts: Feature,
    search: Feature,
    vaults: Feature,
}

/// Whether the installation has a feature.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EntitlementFeature)]
struct Feature {
    enabled: bool,
}

/// Extensions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EntitlementExtensions)]
struct ExtensionsFeature {
    enabled: bool,
    /// Null: no limit of the organization; each project has one.
    max_stored_per_org: Option<u32>,
}

/// Recordings of sessions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EntitlementReplays)]
struct ReplaysFeature {
    enabled: bool,
    /// The days for which a recording stays stored after the end of its session.
    retention_days: i64,
}

/// Auth connections.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EntitlementAuthConnections)]
struct AuthFeature {
    enabled: bool,
    health_check_interval_default_seconds: u32,
    health_check_interval_max_seconds: u32,
    health_check_interval_min_seconds: u32,
    /// Null: no limit of the organization; each project has one.
    max_connections: Option<u32>,
}

/// The limits of the organization; 2147483647: no limit.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EntitlementLimits)]
struct Limits {
    /// As `max_concurrent_invocations`: apps have no limit of their own.
    default_max_concurrent_invocations_per_app: u32,
    max_concurrent_browsers: u32,
    max_concurrent_invocations: u32,
    /// 0: there are no vaults.
    max_vaults: u32,
}

/// The plan: an installation has all that it can do.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EntitlementPlan)]
struct Plan {
    /// `ENTERPRISE`.
    id: &'static str,
    /// `ENTERPRISE`.
    effective_id: &'static str,
    /// False.
    is_trialing: bool,
    /// Null: nothing is billed.
    status: Option<&'static str>,
    /// Null: there is no trial.
    trial_ends_at: Option<&'static str>,
}

impl Features {
    fn of(services: &Services) -> Self {
        let (yes, no) = (|| Feature { enabled: true }, || Feature { enabled: false });
        Self {
            browser_extensions: ExtensionsFeature { enabled: true, max_stored_per_org: None },
            browser_pools: yes(),
            browser_replays: ReplaysFeature {
                enabled: true,
                retention_days: services.replays.retention().whole_days(),
            },
            credential_providers: yes(),
            credentials: yes(),
            custom_proxies: yes(),
            file_io: yes(),
            gpu: no(),
            managed_auth: AuthFeature {
                enabled: true,
                health_check_interval_default_seconds: Settings::DEFAULT_INTERVAL,
                health_check_interval_max_seconds: Settings::MAX_INTERVAL,
                health_check_interval_min_seconds: Settings::MIN_INTERVAL,
                max_connections: None,
            },
            managed_proxies: Feature { enabled: services.proxies.has_rented() },
            profiles: yes(),
            proxy_bypass_hosts: yes(),
            search: no(),
            vaults: no(),
        }
    }
}

impl From<&Organization> for Limits {
    fn from(organization: &Organization) -> Self {
        let invocations = organization.caps.concurrent_invocations.unwrap_or(NO_LIMIT);
        Self {
            default_max_concurrent_invocations_per_app: invocations,
            max_concurrent_browsers: organization.caps.concurrent_sessions.unwrap_or(NO_LIMIT),
            max_concurrent_invocations: invocations,
            max_vaults: 0,
        }
    }
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Projects", "");
    api.get("/org/entitlements", "get_entitlements", get_entitlements)
        .summary("Returns the features of the installation and the limits of the organization.")
        .returns::<EntitlementsBody>();
}

async fn get_entitlements(request: Request<OrganizationKey>) -> Answer {
    let organization = request.services().projects.organization(request.organization()).await?;
    let plan =
        Plan { id: "ENTERPRISE", effective_id: "ENTERPRISE", is_trialing: false, status: None, trial_ends_at: None };
    let body =
        EntitlementsBody { features: Features::of(request.services()), limits: Limits::from(&organization), plan };
    Ok(answer::record(StatusCode::OK, &body))
}
