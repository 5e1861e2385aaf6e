//! Measures several nodes over one database: a wait queue whose callers are at three nodes, and the leases per second
//! that the database bears, of nodes that start nothing.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_domain::api_key::{ApiKey, SecretHash};
use casement_domain::browser::{Browser, BrowserState, Shape};
use casement_domain::name::LabelName;
use casement_domain::node::{Node, NodeRepository as _};
use casement_domain::organization::{FirstStart, OrganizationRepository as _, User};
use casement_domain::pool::{
    Generation, ImmediateLease, LeaseRequest, PoolRepository as _, PoolStored, WaitQueue as _,
};
use casement_domain::session::Tags;
use casement_domain::testing::{self, NOON};
use casement_domain::{ApiKeyId, NodeId, SessionId, UserId};
use casement_postgres::cluster::Binaries;
use casement_postgres::{
    Cluster, ClusterConfig, Database, DatabaseConfig, PgNodes, PgOrganizations, PgPools, PgWaitQueue, migrate,
};
use casement_test_support::program::Server;
use futures_util::future::try_join_all;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use ulid::Ulid;

use crate::commits::Commits;
use crate::hop::node;
use crate::machine::quiet;
use crate::table::{Row, Table};
use crate::waiters::{self, Callers, POOL};

/// The nodes over which callers wait, and the most nodes that lease at the same time.
const NODES: usize = 3;
/// The leases of one run, each of a browser that was idle before.
const LEASES: usize = 12_000;
/// The callers of each node.
const CALLERS: usize = 16;

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    line(table)?;
    (1..=NODES).try_for_each(|nodes| leases(nodes, table))
}

/// Measures callers in line at three nodes.
fn line(table: &mut Table) -> anyhow::Result<()> {
    let first = Server::start(node())?;
    let others = (1..NODES).map(|_| first.another(node())).collect::<anyhow::Result<Vec<_>>>()?;
    let database = Commits::beside(&first)?;
    first.post("/browser_pools", &json!({ "name": POOL, "size": 1, "headless": true }))?.expect(201)?;
    first.until_available(POOL, 1)?;
    let leased = vec![first.acquire(POOL)?];
    let nodes: Vec<&Server> = std::iter::once(&first).chain(&others).collect();
    let mut callers = Callers::new(&nodes)?;
    let entering = callers.enter_all(&database)?;
    let what = format!("callers that enter the line, {} of them at {NODES} nodes", callers.count());
    table.add(Row::new(what, format!("{entering:.0}/s")));
    waiters::hand_overs(&first, &callers, leased, table)?;
    waiters::everybody(&first, &callers, table)
}

/// A database with a pool of idle browsers of several nodes.
struct Stock {
    cluster: Cluster,
    nodes: Vec<NodeId>,
    programs: std::path::PathBuf,
}

/// Measures how many browsers nodes lease in a second. No browser exists, and nothing is handed out.
fn leases(nodes: usize, table: &mut Table) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("casement-bench-").tempdir_in("/tmp")?;
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let stock = runtime.block_on(Stock::fill(&folder.path().join("postgres"), nodes))?;
    quiet();
    let counted = "select xact_commit from pg_stat_database where datname = 'casement'";
    let written = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint";
    let (commits_before, bytes_before) = (stock.number(counted)?, stock.number(written)?);
    let began = Instant::now();
    thread::scope(|scope| {
        let lease = |node: usize| {
            let (stock, count) = (&stock, LEASES / nodes);
            scope.spawn(move || lease_all(stock, node, count))
        };
        let all: Vec<_> = (0..nodes).map(lease).collect();
        all.into_iter().try_for_each(|node| node.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let rate = LEASES as f64 / began.elapsed().as_secs_f64();
    // The statistics of a connection are written a second after its last statement at the latest.
    thread::sleep(Duration::from_secs(2));
    let commits = (stock.number(counted)? - commits_before) as f64 / LEASES as f64;
    let bytes = (stock.number(written)? - bytes_before) as f64 / LEASES as f64;
    runtime.block_on(stock.cluster.stop())?;
    let what = format!("leases of idle browsers, {nodes} nodes with {CALLERS} callers each and no engine");
    table.add(
        Row::new(what, format!("{rate:.0}/s"))
            .beside(format!("{commits:.2} transactions and {bytes:.0} bytes of the write-ahead log each")),
    );
    Ok(())
}

/// Leases browsers as one node, with a runtime and connections of its own.
fn lease_all(stock: &Stock, node: usize, count: usize) -> anyhow::Result<()> {
    let runtime: Runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let queue = PgWaitQueue::new(Database::new(&DatabaseConfig::parse(&stock.cluster.url())?));
        let callers = (0..CALLERS).map(async |caller| {
            for number in (caller..count).step_by(CALLERS) {
                let id = u128::try_from(node * LEASES + number)?;
                let lease = request(SessionId::from_ulid(Ulid::from_parts(1, id)), stock.nodes[node]);
                let leased = queue.take_now(testing::pool_id(1), &lease, NOON).await?;
                ensure!(matches!(leased, ImmediateLease::Leased(_)), "no browser is idle: {leased:?}");
            }
            anyhow::Ok(())
        });
        try_join_all(callers).await.map(drop)
    })
}

fn request(session: SessionId, node: NodeId) -> LeaseRequest {
    LeaseRequest {
        session,
        node,
        avoided: Vec::new(),
        name: None,
        start_url: None,
        tags: Tags::default(),
        telemetry: None,
        profile: None,
    }
}

impl Stock {
    async fn fill(folder: &std::path::Path, nodes: usize) -> anyhow::Result<Self> {
        let cluster = Cluster::start(ClusterConfig::new(folder)).await?;
        let config = DatabaseConfig::parse(&cluster.url())?;
        migrate(&config).await?;
        let database = Database::new(&config);
        PgOrganizations::new(database.clone()).begin(&first_start()?).await?;
        let ids: Vec<NodeId> = (0..nodes).map(|n| NodeId::from_ulid(Ulid::from_parts(3, n as u128))).collect();
        for id in &ids {
            PgNodes::new(database.clone()).announce(&announced(*id)).await?;
        }
        let (pools, pool) = (PgPools::new(database.clone()), testing::pool(1).build());
        let stored = pools.create(testing::organization_id(), &pool, 100).await?;
        ensure!(stored == PoolStored::Yes, "{stored:?}");
        let browser = Browser {
            id: testing::browser_id(1),
            node: ids[0],
            pool: Some(pool.id),
            shape: Shape { headless: true, ..Shape::default() },
            state: BrowserState::Warming,
            session: None,
            created_at: NOON,
        };
        let _warmed = pools.warm(&browser, Generation::default()).await?;
        let _ready = pools.ready(browser.id, NOON).await?;
        database.close();
        let stock = Self { cluster, nodes: ids, programs: Binaries::newest()?.dir };
        // Each browser is a copy of the first one, on the next node.
        stock.run(&format!(
            "INSERT INTO browsers SELECT (jsonb_populate_record(b, jsonb_build_object('id', gen_random_uuid(), 'node_id', \
             (SELECT id FROM nodes ORDER BY id OFFSET n % {nodes} LIMIT 1)))).* FROM browsers b, generate_series(1, {}) n",
            LEASES + CALLERS * nodes
        ))?;
        stock.run("VACUUM ANALYZE")?;
        Ok(stock)
    }

    /// Runs a statement, and returns its result as text.
    fn run(&self, statement: &str) -> anyhow::Result<String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement]).arg(self.cluster.url());
        let done = psql.output().context("cannot start psql")?;
        ensure!(done.status.success(), "psql: {}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8(done.stdout)?.trim().to_owned())
    }

    fn number(&self, statement: &str) -> anyhow::Result<i64> {
        Ok(self.run(statement)?.parse()?)
    }
}

fn announced(id: NodeId) -> Node {
    Node {
        id,
        host: "host".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        cluster: None,
        max_sessions: u32::try_from(LEASES).unwrap_or(u32::MAX),
        limits_sessions: false,
        memory_mib: 16_384,
        labels: Tags::default(),
        version: "1.2.3".to_owned(),
        started_at: NOON,
    }
}

fn first_start() -> anyhow::Result<FirstStart> {
    let organization = testing::organization();
    let user = UserId::from_ulid(Ulid::from_parts(9, 1));
    let key = ApiKey {
        id: ApiKeyId::from_ulid(Ulid::from_parts(8, 1)),
        organization: organization.id,
        project: None,
        name: LabelName::parse("first")?,
        hash: SecretHash([7; 32]),
        last4: "abcd".to_owned(),
        created_by: user,
        created_at: NOON,
        expires_at: None,
        deleted_at: None,
        for_deployment: false,
        policy: None,
    };
    let owner = User { id: user, organization: organization.id, email: String::new(), name: None };
    Ok(FirstStart { organization, owner, project: testing::project(), key })
}
