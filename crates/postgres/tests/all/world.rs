//! An organization with its default project, a key and two nodes, in a database of its own.

use casement_domain::api_key::{ApiKey, SecretHash};
use casement_domain::browser::{Browser, BrowserState, Shape};
use casement_domain::name::LabelName;
use casement_domain::node::{Node, NodeRepository};
use casement_domain::organization::{FirstStart, Organization, OrganizationRepository, User};
use casement_domain::pool::{
    Generation, LeaderFence, LeaseRequest, Pool, PoolFiller, PoolRepository, PoolStored, QueueEntry,
};
use casement_domain::session::Tags;
use casement_domain::testing::{self, NOON};
use casement_domain::{ApiKeyId, BrowserId, NodeId, PoolId, Replaced, SessionId, TicketId, UserId};
use casement_postgres::testing::TestDatabase;
use casement_postgres::{
    Database, NotificationEvent, Notifications, PgApiKeys, PgBrowsers, PgNodes, PgOrganizations, PgPools, PgProjects,
    PgSessions, PgWaitQueue,
};
use time::{Duration, OffsetDateTime};
use ulid::Ulid;

use crate::support::TestResult;

pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;

pub(crate) struct World {
    pub(crate) db: TestDatabase,
    pub(crate) organizations: PgOrganizations,
    pub(crate) projects: PgProjects,
    pub(crate) keys: PgApiKeys,
    pub(crate) nodes: PgNodes,
    pub(crate) browsers: PgBrowsers,
    pub(crate) sessions: PgSessions,
    pub(crate) pools: PgPools,
    pub(crate) wait_queue: PgWaitQueue,
    /// What the repositories share.
    pub(crate) database: Database,
}

pub(crate) fn other_node() -> NodeId {
    NodeId::from_ulid(Ulid::from_parts(3, 2))
}

pub(crate) fn ticket_id(n: u32) -> TicketId {
    TicketId::from_ulid(Ulid::from_parts(7, u128::from(n)))
}

pub(crate) fn key_id(n: u32) -> ApiKeyId {
    ApiKeyId::from_ulid(Ulid::from_parts(8, u128::from(n)))
}

pub(crate) fn user_id() -> UserId {
    UserId::from_ulid(Ulid::from_parts(9, 1))
}

pub(crate) fn seconds(n: i64) -> OffsetDateTime {
    NOON + Duration::seconds(n)
}

pub(crate) fn label(text: &str) -> Result<LabelName, Fault> {
    LabelName::parse(text).map_err(|bad| format!("{bad:?}").into())
}

pub(crate) fn key(n: u32) -> Result<ApiKey, Fault> {
    Ok(ApiKey {
        id: key_id(n),
        organization: testing::organization_id(),
        project: None,
        name: label("first")?,
        hash: SecretHash([7; 32]),
        last4: "abcd".to_owned(),
        created_by: user_id(),
        created_at: seconds(i64::from(n)),
        expires_at: None,
        deleted_at: None,
        for_deployment: false,
        policy: None,
    })
}

pub(crate) fn first_start(organization: Organization) -> Result<FirstStart, Fault> {
    let owner = User { id: user_id(), organization: organization.id, email: String::new(), name: None };
    Ok(FirstStart { organization, owner, project: testing::project(), key: key(1)? })
}

pub(crate) fn node(id: NodeId) -> Node {
    Node {
        id,
        host: "host".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        cluster: None,
        max_sessions: 10,
        limits_sessions: false,
        memory_mib: 16_384,
        labels: Tags::default(),
        version: "1.2.3".to_owned(),
        started_at: NOON,
    }
}

pub(crate) fn lease(n: u32) -> LeaseRequest {
    LeaseRequest {
        profile: None,
        session: testing::session_id(n),
        node: testing::node_id(),
        avoided: Vec::new(),
        name: None,
        start_url: None,
        tags: Tags::default(),
        telemetry: None,
    }
}

/// The entry of the n-th session in the wait queue.
pub(crate) fn place(n: u32, node: NodeId) -> QueueEntry {
    QueueEntry {
        pool: testing::pool_id(1),
        ticket: ticket_id(n),
        position: None,
        lease: lease(n),
        node,
        lasts: Duration::minutes(10),
    }
}

impl World {
    pub(crate) async fn new() -> Result<Self, Fault> {
        Self::of(testing::organization()).await
    }

    pub(crate) async fn of(organization: Organization) -> Result<Self, Fault> {
        let world = Self::without_anything().await?;
        world.organizations.begin(&first_start(organization)?).await?;
        world.nodes.announce(&node(testing::node_id())).await?;
        world.nodes.announce(&node(other_node())).await?;
        Ok(world)
    }

    pub(crate) async fn without_anything() -> Result<Self, Fault> {
        let db = TestDatabase::fresh().await?;
        let database = db.database();
        Ok(Self {
            organizations: PgOrganizations::new(database.clone()),
            projects: PgProjects::new(database.clone()),
            keys: PgApiKeys::new(database.clone()),
            nodes: PgNodes::new(database.clone()),
            browsers: PgBrowsers::new(database.clone()),
            sessions: PgSessions::new(database.clone()),
            pools: PgPools::new(database.clone()),
            wait_queue: PgWaitQueue::new(database.clone()),
            database: database.clone(),
            db,
        })
    }

    /// Sets the last heartbeat of a node to a minute ago.
    pub(crate) async fn silence(&self, node: NodeId) -> TestResult {
        let node = uuid::Uuid::from_u128(node.ulid().0);
        let statement = format!("UPDATE nodes SET heartbeat_at = now() - interval '1 minute' WHERE id = '{node}'");
        Ok(self.db.execute(&statement).await?)
    }

    /// Stores the first pool and leads it.
    pub(crate) async fn pool(&self, size: u32) -> Result<(Pool, LeaderFence), Fault> {
        let pool = testing::pool(size).build();
        let stored = self.pools.create(testing::organization_id(), &pool, 100).await?;
        if stored != PoolStored::Yes {
            return Err(format!("{stored:?}").into());
        }
        let fence = self.pools.lead(pool.id, testing::node_id(), PoolFiller::LEAD).await?;
        Ok((pool, fence.ok_or("no lead")?))
    }

    /// Changes a pool whose browsers stay.
    pub(crate) async fn replace(&self, current: &Pool, next: &Pool) -> Result<PoolStored, Fault> {
        let (stored, discarded) = self.pools.replace(testing::organization_id(), current, next, false).await?;
        if discarded.is_empty() { Ok(stored) } else { Err(format!("discarded {discarded:?}").into()) }
    }

    /// Stores a warming browser of the first pool.
    pub(crate) async fn warm(&self, n: u32) -> TestResult {
        let warmed = self.pools.warm(&warming(n), Generation::default()).await?;
        if warmed == Replaced::Yes { Ok(()) } else { Err("no room".into()) }
    }

    /// Stores an idle browser of the first pool, or grants it to a waiting ticket.
    pub(crate) async fn ready(&self, n: u32) -> TestResult {
        self.warm(n).await?;
        let ready = self.pools.ready(testing::browser_id(n), NOON).await?;
        if ready == Replaced::Yes { Ok(()) } else { Err("not warming".into()) }
    }

    pub(crate) async fn state_of(&self, browser: BrowserId) -> Result<Option<BrowserState>, Fault> {
        use casement_domain::browser::BrowserRepository;
        Ok(self.browsers.find(browser).await?.map(|browser| browser.state))
    }
}

/// Another node, which listens to a channel.
pub(crate) struct Listener {
    notifications: Notifications,
    channel: &'static str,
}

/// The payload of a notification that the test makes itself.
const UNTIL_HERE: &str = "until here";

impl Listener {
    pub(crate) async fn new(world: &World, channel: &'static str) -> Result<Self, Fault> {
        let notifications = Notifications::listen(world.db.config(), vec![channel.to_owned()]);
        let mut listener = Self { notifications, channel };
        match listener.next_event().await? {
            NotificationEvent::Listening => Ok(listener),
            other => Err(format!("{other:?}").into()),
        }
    }

    async fn next_event(&mut self) -> Result<NotificationEvent, Fault> {
        Ok(tokio::time::timeout(std::time::Duration::from_secs(60), self.notifications.next()).await?)
    }

    /// Returns the payloads of the notifications that were committed since the last call.
    pub(crate) async fn payloads(&mut self, world: &World) -> Result<Vec<String>, Fault> {
        let marker = format!("SELECT pg_notify('{}', '{}')", self.channel, UNTIL_HERE);
        world.db.execute(&marker).await?;
        let mut found = Vec::new();
        while let NotificationEvent::Notification { payload, .. } = self.next_event().await? {
            if payload == UNTIL_HERE {
                break;
            }
            found.push(payload);
        }
        Ok(found)
    }
}

pub(crate) fn warming(n: u32) -> Browser {
    Browser {
        id: testing::browser_id(n),
        node: testing::node_id(),
        pool: Some(PoolId::from_ulid(testing::pool_id(1).ulid())),
        shape: Shape { headless: true, ..Shape::default() },
        state: BrowserState::Warming,
        session: None,
        created_at: seconds(i64::from(n)),
    }
}

pub(crate) fn session_numbers(count: u32) -> Vec<SessionId> {
    (1..=count).map(testing::session_id).collect()
}
