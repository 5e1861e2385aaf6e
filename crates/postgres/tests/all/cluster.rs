//! The private cluster: first start, adoption, recovery, refusals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use casement_postgres::cluster::{Cluster, ClusterConfig, ClusterError, Origin};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::support::{TestResult, until};

const STARTER: &str = "CASEMENT_TEST_STARTS_A_CLUSTER_IN";

/// A data directory that the unprivileged account can enter, and whose PostgreSQL is killed on drop.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> std::io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("casement-cluster-").tempdir_in("/tmp")?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        Ok(Self(dir))
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.0.path().join("postgres")
    }

    pub(crate) fn config(&self) -> ClusterConfig {
        ClusterConfig::new(self.data_dir())
    }

    fn postgres_server(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.data_dir().join("postmaster.pid")).ok()?;
        Pid::from_raw(text.lines().next()?.parse().ok()?)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(pid) = self.postgres_server() {
            let _gone = kill_process(pid, Signal::QUIT);
        }
    }
}

async fn ask(cluster: &Cluster, statement: &str) -> Result<Option<String>, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&cluster.url(), NoTls).await?;
    let driving = tokio::spawn(connection);
    let answer = client.simple_query(statement).await?;
    driving.abort();
    Ok(answer.into_iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}

async fn remember(cluster: &Cluster) -> TestResult {
    ask(cluster, "CREATE TABLE kept (word text); INSERT INTO kept VALUES ('kept')").await?;
    Ok(())
}

async fn remembered(cluster: &Cluster) -> Result<Option<String>, tokio_postgres::Error> {
    ask(cluster, "SELECT word FROM kept").await
}

#[tokio::test]
async fn the_first_start_makes_a_private_and_durable_cluster() -> TestResult {
    let home = Home::new()?;
    let cluster = Cluster::start(home.config()).await?;
    assert_eq!(cluster.origin(), Origin::Made);
    for (setting, value) in [
        ("server_encoding", "UTF8"),
        ("listen_addresses", ""),
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("jit", "off"),
    ] {
        assert_eq!(ask(&cluster, &format!("SHOW {setting}")).await?.as_deref(), Some(value), "{setting}");
    }
    let icu = ask(&cluster, "SELECT count(*) > 0 FROM pg_collation WHERE collprovider = 'i'").await?;
    assert_eq!(icu.as_deref(), Some("t"), "ICU is at hand");

    let status = fs::read_to_string(format!("/proc/{}/status", cluster.pid()))?;
    let uid = status.lines().find(|line| line.starts_with("Uid:")).unwrap_or_default().to_owned();
    assert!(!uid.contains("\t0"), "the postmaster is not root: {uid}");
    assert_eq!(fs::metadata(cluster.socket_dir())?.permissions().mode() & 0o777, 0o700);
    assert!(cluster.socket_dir().as_os_str().len() < 60, "{:?}", cluster.socket_dir());

    let socket_dir = cluster.socket_dir().to_owned();
    cluster.stop().await?;
    assert!(home.postgres_server().is_none() && !socket_dir.exists(), "nothing is left of it");
    Ok(())
}

#[tokio::test]
async fn what_was_stored_is_there_after_a_stop_and_a_start() -> TestResult {
    let home = Home::new()?;
    let cluster = Cluster::start(home.config()).await?;
    remember(&cluster).await?;
    cluster.stop().await?;
    let cluster = Cluster::start(home.config()).await?;
    assert_eq!(cluster.origin(), Origin::Started);
    assert_eq!(remembered(&cluster).await?.as_deref(), Some("kept"));
    cluster.stop().await?;
    Ok(())
}

/// Not a test by itself: the process that the next test starts and kills.
#[tokio::test]
async fn a_process_of_its_own_starts_a_cluster_and_waits_for_its_end() -> TestResult {
    let Some(data_dir) = std::env::var_os(STARTER) else { return Ok(()) };
    let cluster = Cluster::start(ClusterConfig::new(data_dir)).await?;
    remember(&cluster).await?;
    std::future::pending().await
}

#[tokio::test]
async fn a_postgres_server_whose_server_was_killed_is_adopted() -> TestResult {
    let home = Home::new()?;
    let starter = "cluster::a_process_of_its_own_starts_a_cluster_and_waits_for_its_end";
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", starter]).env(STARTER, home.data_dir()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = command.spawn()?;
    let stored = async || match Cluster::find_running(&home.data_dir()) {
        Some(cluster) => remembered(&cluster).await.ok().flatten().is_some(),
        None => false,
    };
    let stored = until("the other process has stored something", stored).await;
    server.kill()?;
    server.wait()?;
    stored?;
    let before = home.postgres_server();

    let cluster = Cluster::start(home.config()).await?;
    assert_eq!(cluster.origin(), Origin::Adopted);
    assert_eq!(Pid::from_raw(cluster.pid()), before, "it is the same postmaster");
    assert_eq!(remembered(&cluster).await?.as_deref(), Some("kept"));
    cluster.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_killed_postgres_server_is_recovered() -> TestResult {
    let home = Home::new()?;
    let cluster = Cluster::start(home.config()).await?;
    remember(&cluster).await?;
    let killed = home.postgres_server().ok_or("no postmaster")?;
    kill_process(killed, Signal::KILL)?;

    let cluster = Cluster::start(home.config()).await?;
    assert_eq!(cluster.origin(), Origin::Started);
    assert_ne!(Pid::from_raw(cluster.pid()), Some(killed));
    assert_eq!(remembered(&cluster).await?.as_deref(), Some("kept"));
    cluster.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_postgres_server_whose_socket_was_swept_away_is_replaced() -> TestResult {
    let home = Home::new()?;
    let cluster = Cluster::start(home.config()).await?;
    remember(&cluster).await?;
    fs::remove_dir_all(cluster.socket_dir())?;
    let cluster = Cluster::start(home.config()).await?;
    assert_eq!(cluster.origin(), Origin::Started);
    assert_eq!(remembered(&cluster).await?.as_deref(), Some("kept"));
    cluster.stop().await?;
    Ok(())
}

/// After a reboot, the id in the pid file may belong to any process.
#[tokio::test]
async fn a_pid_file_that_names_a_stranger_is_no_obstacle() -> TestResult {
    let home = Home::new()?;
    Cluster::start(home.config()).await?.stop().await?;
    let stranger = std::process::id();
    let text = format!("{stranger}\n{}\n1\n5432\n/nowhere\n\n1 1\nready\n", home.data_dir().display());
    fs::write(home.data_dir().join("postmaster.pid"), text)?;
    assert!(Cluster::find_running(&home.data_dir()).is_none());
    let cluster = Cluster::start(home.config()).await?;
    assert_eq!(cluster.origin(), Origin::Started);
    cluster.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_start_that_was_killed_during_initdb_is_repaired() -> TestResult {
    let home = Home::new()?;
    let unfinished = home.0.path().join("postgres.unfinished");
    fs::create_dir_all(unfinished.join("base"))?;
    fs::write(unfinished.join("PG_VERSION"), "15\n")?;
    let cluster = Cluster::start(home.config()).await?;
    assert_eq!(cluster.origin(), Origin::Made);
    assert!(!unfinished.exists());
    cluster.stop().await?;
    Ok(())
}

#[tokio::test]
async fn two_starts_at_once_share_one_postgres_server() -> TestResult {
    let home = Home::new()?;
    let (one, other) = tokio::join!(Cluster::start(home.config()), Cluster::start(home.config()));
    let (one, other) = (one?, other?);
    assert_eq!(one.pid(), other.pid());
    let origins = [one.origin(), other.origin()];
    assert!(origins.contains(&Origin::Made) && origins.contains(&Origin::Adopted), "{origins:?}");
    one.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_data_directory_of_another_major_version_is_refused_with_the_remedy() -> TestResult {
    let home = Home::new()?;
    fs::create_dir(home.data_dir())?;
    fs::write(home.data_dir().join("PG_VERSION"), "9\n")?;
    let refused = Cluster::start(home.config()).await.err().ok_or("it was accepted")?;
    assert!(matches!(&refused, ClusterError::OtherMajor { found, .. } if found == "9"), "{refused}");
    assert!(refused.to_string().contains("pg_upgrade"), "{refused}");
    assert_eq!(fs::read_dir(home.data_dir())?.count(), 1, "nothing was touched");
    Ok(())
}

#[tokio::test]
async fn a_directory_with_something_else_in_it_is_refused() -> TestResult {
    let home = Home::new()?;
    fs::create_dir(home.data_dir())?;
    fs::write(home.data_dir().join("thesis.txt"), "do not lose")?;
    let refused = Cluster::start(home.config()).await.err().ok_or("it was accepted")?;
    assert!(matches!(refused, ClusterError::NotACluster(_)), "{refused}");
    assert!(home.data_dir().join("thesis.txt").exists());
    Ok(())
}

/// Only root switches to another account, so only then the start is refused.
#[tokio::test]
async fn a_closed_directory_on_the_way_is_named() -> TestResult {
    let home = Home::new()?;
    fs::set_permissions(home.0.path(), fs::Permissions::from_mode(0o700))?;
    let started = Cluster::start(home.config()).await;
    if rustix::process::geteuid().is_root() {
        let refused = started.err().ok_or("it was accepted")?;
        let named = |blocked: &Path| blocked == home.0.path();
        assert!(matches!(&refused, ClusterError::NotTraversable { blocked, .. } if named(blocked)), "{refused}");
        assert!(refused.to_string().contains("chmod o+x"), "{refused}");
    } else {
        started?.stop().await?;
    }
    Ok(())
}
