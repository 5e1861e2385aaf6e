//! The repositories.

use std::sync::Arc;

use casement_domain::api_key::ApiKeys;
use casement_domain::audit::AuditRepository;
use casement_domain::audit_destination::AuditDestinationRepository;
use casement_domain::auth_connection::AuthConnectionRepository;
use casement_domain::browser::BrowserRepository;
use casement_domain::credential::CredentialRepository;
use casement_domain::credential_provider::CredentialProviderRepository;
use casement_domain::deleted_resource::DeletedResources;
use casement_domain::extension::ExtensionRepository;
use casement_domain::node::NodeRepository;
use casement_domain::pool::{PoolRepository, WaitQueue};
use casement_domain::profile::ProfileRepository;
use casement_domain::project::ProjectRepository;
use casement_domain::proxy::ProxyRepository;
use casement_domain::replay::ReplayRepository;
use casement_domain::session::SessionRepository;
use casement_domain::sign_in::SignInRepository;
use casement_domain::storage::{StorageBounds, StorageUsage};
use casement_domain::telemetry::TelemetryStore;
use casement_domain::telemetry_destination::TelemetryDestinationRepository;
use casement_postgres::{
    PgApiKeys, PgAudit, PgAuditDestinations, PgAuthConnections, PgBrowsers, PgCredentialProviders, PgCredentials,
    PgDeletedResources, PgDeployments, PgExtensions, PgInvocations, PgLines, PgNodes, PgOrganizations, PgPools,
    PgProfiles, PgProjects, PgProxies, PgReplays, PgSessions, PgSignIns, PgStorageUsage, PgTelemetry,
    PgTelemetryDestinations, PgWaitQueue, RecentKeys,
};

use crate::apps::AppRepositories;
use crate::store::Store;
use crate::system::System;

/// The repositories, as ports.
pub(super) struct Repositories {
    pub(super) organizations: Arc<PgOrganizations>,
    pub(super) projects: Arc<dyn ProjectRepository>,
    pub(super) nodes: Arc<dyn NodeRepository>,
    pub(super) sessions: Arc<dyn SessionRepository>,
    pub(super) browsers: Arc<dyn BrowserRepository>,
    pub(super) pools: Arc<dyn PoolRepository>,
    pub(super) wait_queue: Arc<dyn WaitQueue>,
    pub(super) audit: Arc<dyn AuditRepository>,
    pub(super) audit_destinations: Arc<dyn AuditDestinationRepository>,
    pub(super) telemetry: Arc<dyn TelemetryStore>,
    pub(super) telemetry_destinations: Arc<dyn TelemetryDestinationRepository>,
    pub(super) storage_usage: Arc<dyn StorageUsage>,
    pub(super) extensions: Arc<dyn ExtensionRepository>,
    pub(super) profiles: Arc<dyn ProfileRepository>,
    pub(super) replays: Arc<dyn ReplayRepository>,
    pub(super) credentials: Arc<dyn CredentialRepository>,
    pub(super) apps: AppRepositories,
    pub(super) credential_providers: Arc<dyn CredentialProviderRepository>,
    pub(super) auth_connections: Arc<dyn AuthConnectionRepository>,
    pub(super) proxies: Arc<dyn ProxyRepository>,
    pub(super) sign_ins: Arc<dyn SignInRepository>,
    pub(super) deleted_resources: Arc<dyn DeletedResources>,
    pub(super) keys: ApiKeys,
    pub(super) key_rows: Arc<PgApiKeys>,
    pub(super) recent_keys: RecentKeys,
}

impl Repositories {
    /// Creates the repositories. Data of pages and apps is stored within `bounds`; the node has at most `session_limit`
    /// sessions.
    pub(super) fn new(store: &Store, bounds: &StorageBounds, session_limit: Option<u32>) -> Self {
        let database = || store.database.clone();
        let system = Arc::new(System);
        let recent_keys = RecentKeys::default();
        let key_rows = Arc::new(PgApiKeys::new(database()).with_cache(recent_keys.clone()));
        Self {
            organizations: Arc::new(PgOrganizations::new(database())),
            apps: AppRepositories {
                deployments: Arc::new(PgDeployments::new(database()).clearing_cache(recent_keys.clone())),
                invocations: Arc::new(PgInvocations::new(database())),
                lines: Arc::new(PgLines::new(database(), bounds.clone())),
            },
            projects: Arc::new(PgProjects::new(database()).clearing_cache(recent_keys.clone())),
            nodes: Arc::new(PgNodes::new(database())),
            sessions: Arc::new(PgSessions::new(database()).on_node(bounds.node).limited_to(session_limit)),
            browsers: Arc::new(PgBrowsers::new(database())),
            pools: Arc::new(PgPools::new(database())),
            wait_queue: Arc::new(PgWaitQueue::new(database())),
            audit: Arc::new(PgAudit::new(database()).on_node(bounds.node)),
            audit_destinations: Arc::new(PgAuditDestinations::new(database())),
            telemetry: Arc::new(PgTelemetry::new(database(), bounds.clone())),
            telemetry_destinations: Arc::new(PgTelemetryDestinations::new(database())),
            storage_usage: Arc::new(PgStorageUsage::new(database(), bounds.clone())),
            extensions: Arc::new(PgExtensions::new(database())),
            profiles: Arc::new(PgProfiles::new(database())),
            replays: Arc::new(PgReplays::new(database())),
            credentials: Arc::new(PgCredentials::new(database())),
            credential_providers: Arc::new(PgCredentialProviders::new(database())),
            auth_connections: Arc::new(PgAuthConnections::new(database())),
            proxies: Arc::new(PgProxies::new(database())),
            sign_ins: Arc::new(PgSignIns::new(database())),
            deleted_resources: Arc::new(PgDeletedResources::new(database())),
            keys: ApiKeys::new(key_rows.clone(), system.clone(), system.clone(), system),
            key_rows,
            recent_keys,
        }
    }
}
