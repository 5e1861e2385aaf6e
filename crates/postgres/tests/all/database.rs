//! Connections: the behaviour with a lost or overloaded database.

use std::time::Duration;

use casement_domain::project::ProjectRepository;
use casement_domain::{StoreError, testing};
use casement_postgres::testing::TestDatabase;
use casement_postgres::{Database, DatabaseConfig, PgProjects};
use tokio::time::Instant;

use crate::support::{Held, TestResult, until};
use crate::world::Fault;

#[tokio::test]
async fn a_cut_database_is_unavailable_at_once_and_comes_back_by_itself() -> TestResult {
    let db = TestDatabase::fresh().await?;
    db.database().ping().await?;
    db.interrupt().await?;
    let refused = db.database().ping().await.err().ok_or("it answered")?;
    assert!(matches!(refused, StoreError::Unavailable { operation: "database.ping", .. }), "{refused:?}");
    // Neither the wait for a connection nor the work on one took its whole time.
    let text = format!("{refused:?}");
    assert!(!text.contains("NoneFree") && !text.contains("TooSlow"), "{text}");
    db.restore().await?;
    until("the database answers", async || db.database().ping().await.is_ok()).await
}

#[tokio::test]
async fn connections_that_were_cut_are_not_handed_out_again() -> TestResult {
    let db = TestDatabase::fresh().await?;
    let pings = (0..8).map(|_| db.database().ping());
    futures_util::future::try_join_all(pings).await?;
    db.cut().await?;
    until("the cut was seen", async || db.database().ping().await.is_ok()).await?;
    for _ in 0..16 {
        db.database().ping().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_there_is_unavailable_within_five_seconds() -> TestResult {
    let config = DatabaseConfig::parse("postgresql://nobody@127.0.0.1:1/none")?;
    let started = Instant::now();
    let refused = Database::new(&config).ping().await.err().ok_or("it answered")?;
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
    assert!(started.elapsed() < Duration::from_secs(5));
    Ok(())
}

/// A socket that accepts connections and then sends nothing, like a hanging server.
#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_unavailable_within_five_seconds() -> TestResult {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let config = DatabaseConfig::parse(&format!("postgresql://x@{}/none", silent.local_addr()?))?;
    let started = Instant::now();
    let refused = Database::new(&config).ping().await.err().ok_or("it answered")?;
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
    assert!(started.elapsed() < Duration::from_millis(5500), "{:?}", started.elapsed());
    Ok(())
}

/// Far more callers than connections: all succeed, although together they exceed the timeout of a single call.
#[tokio::test]
async fn a_busy_database_is_waited_for() -> TestResult {
    let db = TestDatabase::fresh().await?;
    let database = Database::new(&db.config().clone().with_connections(1));
    futures_util::future::try_join_all((0..5000).map(|_| database.ping())).await?;
    Ok(())
}

/// A web worker has a runtime of its own, which may end before the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_outlives_the_runtime_that_requested_for_it() -> TestResult {
    let db = TestDatabase::fresh().await?;
    let database = Database::new(&db.config().clone().with_connections(1));
    let worker = database.clone();
    let on_a_worker = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(worker.ping()).map_err(std::io::Error::other)
    };
    tokio::task::spawn_blocking(on_a_worker).await??;
    database.ping().await?;
    Ok(())
}

fn projects_over_one(db: &TestDatabase) -> PgProjects {
    PgProjects::new(Database::new(&db.config().clone().with_connections(1)))
}

async fn read(projects: &PgProjects) -> Result<(), StoreError> {
    projects.find(testing::organization_id(), testing::project_id()).await.map(drop)
}

async fn connections(db: &TestDatabase) -> Result<String, Fault> {
    let ours =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'casement'";
    Ok(db.rows(ours).await?.concat().concat())
}

/// On a single-threaded runtime, like in a web worker.
#[tokio::test]
async fn short_reads_of_one_thread_share_a_connection_and_another_one_when_it_is_lost() -> TestResult {
    let db = TestDatabase::fresh().await?;
    let projects = projects_over_one(&db);
    futures_util::future::try_join_all((0..100).map(|_| read(&projects))).await?;
    assert_eq!(connections(&db).await?, "1");
    db.cut().await?;
    until("the cut was seen", async || read(&projects).await.is_ok()).await?;
    futures_util::future::try_join_all((0..100).map(|_| read(&projects))).await?;
    assert_eq!(connections(&db).await?, "1");
    Ok(())
}

#[tokio::test]
async fn a_hanging_shared_connection_is_abandoned_and_the_next_reader_opens_another() -> TestResult {
    let db = TestDatabase::fresh().await?;
    let projects = projects_over_one(&db);
    read(&projects).await?;
    let locked = Held::begin(&db, "LOCK TABLE projects").await?;
    let answers = futures_util::future::join_all((0..10).map(|_| read(&projects))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(StoreError::Unavailable { .. }))), "{answers:?}");
    // The server itself would cancel the statements after ten seconds.
    assert!(format!("{answers:?}").contains("TooSlow(3.5s)"), "{answers:?}");
    locked.commit().await?;
    Ok(read(&projects).await?)
}
