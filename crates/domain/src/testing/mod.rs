//! Fixtures for the tests of all crates: fixed time and identifiers, and builders of resources.

mod fakes;

use std::collections::BTreeSet;

use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use ulid::Ulid;
use url::Url;

use crate::access::Scope;
use crate::audit::{AuditEntry, AuditService, AuthStrategy, Position};
use crate::audit_destination::{AuditDestination, AuditExportStatus, BucketTarget, ExportHealth};
use crate::auth_connection::{AuthConnection, ConnectionStatus, Flow, FlowKind, Settings};
use crate::browser::Shape;
use crate::deployment::{
    AppVersion, Deployment, DeploymentSource, DeploymentStatus, Deployments, Entrypoint, PackagePath,
};
use crate::ids::{
    ApiKeyId, AppVersionId, AuditDestinationId, AuditRecordId, AuthConnectionId, AuthFlowId, BrowserId, DeploymentId,
    InvocationId, NodeId, OrganizationId, PoolId, ProfileId, ProjectId, ProxyId, SessionId, TelemetryDestinationId,
};
use crate::invocation::{Invocation, InvocationStatus};
use crate::name::{LabelName, SlugName};
use crate::node::{Epoch, Node, NodeState, NodeStatus, StoredNode};
use crate::organization::{Caps, Organization};
use crate::permission::Permissions;
use crate::pool::{Generation, Growth, Pool, PoolConfig};
use crate::profile::Profile;
use crate::project::{Project, ProjectStatus};
use crate::proxy::{OwnProxy, Proxy, ProxyConfig, ProxyProtocol, ProxyStatus, ProxyType};
use crate::sealing::Sealer as _;
use crate::session::{PoolRef, Session, SessionState, Tags};
use crate::telemetry_destination::{DeliveryHealth, TelemetryDestination};

pub use fakes::{CountingIds, FixedClock, PlainSealer};

/// The time at which all resources are created.
pub const NOON: OffsetDateTime = datetime!(2026-12-01 12:00 UTC);

/// Returns the id of the organization of all resources here.
#[must_use]
pub fn organization_id() -> OrganizationId {
    OrganizationId::from_ulid(Ulid::from_parts(1, 1))
}

/// Returns the id of the project of all resources here.
#[must_use]
pub fn project_id() -> ProjectId {
    ProjectId::from_ulid(Ulid::from_parts(2, 1))
}

/// Returns the id of the node of all resources here.
#[must_use]
pub fn node_id() -> NodeId {
    NodeId::from_ulid(Ulid::from_parts(3, 1))
}

/// Returns the id of the n-th browser.
#[must_use]
pub fn browser_id(n: u32) -> BrowserId {
    BrowserId::from_ulid(Ulid::from_parts(4, u128::from(n)))
}

/// Returns the id of the n-th session.
#[must_use]
pub fn session_id(n: u32) -> SessionId {
    SessionId::from_ulid(Ulid::from_parts(5, u128::from(n)))
}

/// Returns the id of the n-th pool.
#[must_use]
pub fn pool_id(n: u32) -> PoolId {
    PoolId::from_ulid(Ulid::from_parts(6, u128::from(n)))
}

fn label(text: &str) -> LabelName {
    LabelName::parse(text).unwrap_or_else(|bad| unreachable!("{bad}"))
}

/// Returns an organization with the default limits.
#[must_use]
pub fn organization() -> Organization {
    Organization {
        id: organization_id(),
        name: label("Test"),
        caps: Organization::DEFAULT_CAPS,
        default_project_max_concurrent_sessions: None,
        created_at: NOON,
    }
}

/// Returns the default project of [`organization`].
#[must_use]
pub fn project() -> Project {
    Project {
        id: project_id(),
        organization: organization_id(),
        name: label(Project::DEFAULT_NAME),
        is_default: true,
        status: ProjectStatus::Active,
        caps: Caps::default(),
        created_at: NOON,
        updated_at: NOON,
    }
}

/// Returns the scope of an unscoped request in [`project`] with a key of the whole organization.
#[must_use]
pub fn scope() -> Scope {
    Scope { project: project(), unscoped: true, organization_wide: true, permissions: Permissions::ALL }
}

/// Returns the n-th session: active, on demand, on the n-th browser.
#[must_use]
pub fn session(n: u32) -> Session {
    Session {
        id: session_id(n),
        project: project_id(),
        node: node_id(),
        browser: Some(browser_id(n)),
        pool: None,
        shape: Shape::default(),
        name: None,
        timeout_seconds: 60,
        start_url: None,
        tags: Tags::default(),
        telemetry: None,
        invocation: None,
        for_login: false,
        state: SessionState::Active,
        created_at: NOON,
        last_active_at: NOON,
        ended_at: None,
    }
}

/// Returns the n-th deployment: a Python program of version `v1`, uploaded n seconds after [`NOON`].
#[must_use]
pub fn deployment(n: u32) -> Deployment {
    let path = PackagePath::parse("main.py").unwrap_or_else(|bad| unreachable!("{bad}"));
    Deployment {
        id: DeploymentId::from_ulid(Ulid::from_parts(20, u128::from(n))),
        project: project_id(),
        status: DeploymentStatus::Queued,
        status_reason: None,
        region: Deployments::DEFAULT_REGION.to_owned(),
        version: "v1".to_owned(),
        force: false,
        entrypoint: Entrypoint::at(path).unwrap_or_else(|none| unreachable!("{none}")),
        source: DeploymentSource::File,
        source_checksum: Some("ab".repeat(32)),
        env_names: BTreeSet::from(["GREETING".to_owned()]),
        api_key: ApiKeyId::from_ulid(Ulid::from_parts(21, u128::from(n))),
        artifact: None,
        lease: None,
        begun_at: None,
        created_at: NOON + Duration::seconds(i64::from(n)),
        updated_at: NOON + Duration::seconds(i64::from(n)),
    }
}

/// Returns the app `shop` of the n-th deployment, with the actions `buy` and `look`.
#[must_use]
pub fn app_version(n: u32) -> AppVersion {
    let label = |text| LabelName::parse(text).unwrap_or_else(|bad| unreachable!("{bad}"));
    let deployment = deployment(n);
    AppVersion {
        id: AppVersionId::from_ulid(Ulid::from_parts(22, u128::from(n))),
        project: deployment.project,
        deployment: deployment.id,
        name: label("shop"),
        version: deployment.version,
        region: deployment.region,
        actions: vec![label("buy"), label("look")],
        created_at: deployment.created_at,
    }
}

/// Returns the n-th invocation: `buy` of the first deployment's app, accepted n seconds after [`NOON`], for 900 s.
#[must_use]
pub fn invocation(n: u32) -> Invocation {
    let app = app_version(1);
    Invocation {
        id: InvocationId::from_ulid(Ulid::from_parts(23, u128::from(n))),
        project: app.project,
        deployment: app.deployment,
        action: app.actions[0].clone(),
        app: app.name,
        version: app.version,
        payload: None,
        output: None,
        status: InvocationStatus::Queued,
        status_reason: None,
        node: None,
        timeout_seconds: 900,
        started_at: NOON + Duration::seconds(i64::from(n)),
        finished_at: None,
    }
}

/// Returns the n-th session as leased from the first pool.
#[must_use]
pub fn leased_session(n: u32) -> Session {
    Session { pool: Some(PoolRef { id: pool_id(1), name: None }), ..session(n) }
}

/// Returns the audit record of the n-th call, n milliseconds after [`NOON`]: a read of a session without an API key.
#[must_use]
pub fn audit_entry(n: u32) -> AuditEntry {
    AuditEntry {
        id: AuditRecordId::from_ulid(Ulid::from_parts(5, u128::from(n))),
        at: NOON + Duration::milliseconds(i64::from(n)),
        auth_strategy: AuthStrategy::ApiKey,
        service: AuditService::Api,
        api_key: None,
        project: Some(project_id()),
        client_ip: "192.0.2.7".to_owned(),
        domain: "casement.test".to_owned(),
        method: "GET".to_owned(),
        path: format!("/browsers/{n}"),
        route: "/browsers/{id_or_name}".to_owned(),
        status: 200,
        duration_ms: 3,
        user_agent: "curl\n\"8\"".to_owned(),
        request_id: format!("request-{n}"),
        count: 1,
    }
}

/// Returns an active audit destination that has exported everything before noon.
#[must_use]
pub fn audit_destination() -> AuditDestination {
    AuditDestination {
        id: AuditDestinationId::from_ulid(Ulid::from_parts(16, 1)),
        organization: organization_id(),
        target: BucketTarget {
            bucket: "records".to_owned(),
            prefix: "trail".to_owned(),
            region: "eu-central-1".to_owned(),
            kms_key_id: None,
        },
        status: AuditExportStatus::Active,
        created_at: NOON,
        updated_at: NOON,
        exported: Some(Position { at: NOON, id: AuditRecordId::from_ulid(Ulid(0)) }),
        planned: None,
        health: ExportHealth::default(),
    }
}

/// Returns a serving node in its fourth run.
#[must_use]
pub fn node_status() -> NodeStatus {
    let node = Node {
        id: node_id(),
        host: "host".to_owned(),
        address: "127.0.0.1:8080".to_owned(),
        cluster: None,
        max_sessions: 10,
        limits_sessions: false,
        memory_mib: 16_384,
        labels: Tags::default(),
        version: "1.2.3".to_owned(),
        started_at: NOON,
    };
    NodeStatus {
        stored: StoredNode { node, epoch: Epoch(4), state: NodeState::Serving, heartbeat_at: NOON },
        drain_ends_at: None,
        is_silent: false,
        sessions: 2,
        idle_browsers: 1,
    }
}

/// Returns a telemetry destination with the header `X-Key`.
#[must_use]
pub fn telemetry_destination() -> TelemetryDestination {
    let id = TelemetryDestinationId::from_ulid(Ulid::from_parts(15, 1));
    let headers = PlainSealer.seal(&TelemetryDestination::place(id), br#"{"X-Key":"swordfish"}"#);
    TelemetryDestination {
        id,
        organization: organization_id(),
        name: label("grafana"),
        description: None,
        endpoint: Url::parse("https://otel.test/otlp").unwrap_or_else(|bad| unreachable!("{bad}")),
        header_names: vec!["X-Key".to_owned()],
        headers: headers.unwrap_or_else(|bad| unreachable!("{bad}")),
        created_at: NOON,
        updated_at: NOON,
        health: DeliveryHealth::default(),
    }
}

/// Returns a builder of the first pool.
#[must_use]
pub fn pool(size: u32) -> PoolBuilder {
    PoolBuilder(Pool {
        id: pool_id(1),
        project: project_id(),
        name: None,
        config: PoolConfig {
            refresh_on_profile_update: false,
            size,
            fill_rate_per_minute: 25,
            timeout_seconds: 600,
            shape: Shape { headless: true, ..Shape::default() },
            start_url: None,
            telemetry: None,
        },
        growth: Growth { allowance: size, since: NOON },
        generation: Generation::default(),
        blocked_reason: None,
        created_at: NOON,
        updated_at: NOON,
    })
}

/// A builder of a pool.
#[derive(Clone, Debug)]
pub struct PoolBuilder(Pool);

impl PoolBuilder {
    /// Sets the name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.0.name = Some(SlugName::parse(name).unwrap_or_else(|bad| unreachable!("{bad}")));
        self
    }

    /// Sets the id.
    #[must_use]
    pub fn id(mut self, id: PoolId) -> Self {
        self.0.id = id;
        self
    }

    /// Sets the number of browsers that the pool may have, and the time since when.
    #[must_use]
    pub fn growth(mut self, allowance: u32, since: OffsetDateTime) -> Self {
        self.0.growth = Growth { allowance, since };
        self
    }

    /// Returns the pool.
    #[must_use]
    pub fn build(self) -> Pool {
        self.0
    }
}

/// Returns a profile of the project without a saved version.
#[must_use]
pub fn profile(id: ProfileId, name: &str) -> Profile {
    Profile {
        id,
        organization: organization_id(),
        project: Some(project_id()),
        name: SlugName::parse(name).ok(),
        version: None,
        created_at: NOON,
        updated_at: NOON,
        last_used_at: None,
    }
}

/// Returns a proxy of the project, without a password.
#[must_use]
pub fn proxy(id: ProxyId, name: &str) -> Proxy {
    Proxy {
        id,
        project: project_id(),
        name: LabelName::parse(name).ok(),
        kind: ProxyType::Custom,
        protocol: ProxyProtocol::Http,
        config: own_proxy("proxy.example", None),
        bypass: Vec::new(),
        status: ProxyStatus::Available,
        failure: None,
        last_checked: Some(NOON),
        ip_address: None,
        created_at: NOON,
    }
}

/// Returns the configuration of a caller's own proxy, with the user `me` if there is a sealed password.
#[must_use]
pub fn own_proxy(host: &str, password: Option<Vec<u8>>) -> ProxyConfig {
    let username = password.is_some().then(|| "me".to_owned());
    ProxyConfig::Own(OwnProxy { host: host.to_owned(), port: 3128, username, password, ca_bundle: None })
}

/// Returns the id of the n-th auth connection.
#[must_use]
pub fn auth_connection_id(n: u32) -> AuthConnectionId {
    AuthConnectionId::from_ulid(Ulid::from_parts(21, u128::from(n)))
}

/// Returns the id of the n-th flow.
#[must_use]
pub fn auth_flow_id(n: u32) -> AuthFlowId {
    AuthFlowId::from_ulid(Ulid::from_parts(22, u128::from(n)))
}

/// Returns the n-th auth connection as at its creation, of the profile to `d<n>.example`.
#[must_use]
pub fn auth_connection(n: u32, profile: ProfileId) -> AuthConnection {
    AuthConnection {
        id: auth_connection_id(n),
        project: project_id(),
        organization: organization_id(),
        domain: format!("d{n}.example"),
        profile,
        profile_name: "ann".to_owned(),
        status: ConnectionStatus::NeedsAuth,
        settings: Settings::default(),
        needs: None,
        last_check_at: None,
        created_at: NOON,
        updated_at: NOON,
        credential: None,
        flow: None,
    }
}

/// Returns the n-th login flow as at its begin, of the connection, in the n-th session.
#[must_use]
pub fn auth_flow(n: u32, connection: AuthConnectionId) -> Flow {
    Flow::new(auth_flow_id(n), connection, FlowKind::Login, session_id(n), NOON)
}
