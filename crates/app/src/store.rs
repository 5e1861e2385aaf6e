//! The database of every command: the one that the operator names, or the private cluster.

use std::path::Path;

use anyhow::{Context as _, ensure};
use casement_domain::Clock as _;
use casement_postgres::{Cluster, ClusterConfig, Database, DatabaseConfig, ensure_suitable, migrate};
use futures_util::future::OptionFuture;
use tracing::{info, warn};

use crate::cluster_supervisor::ClusterSupervisor;
use crate::data_dir::{self, DataDir};
use crate::settings;
use crate::system::System;

/// The private cluster's folder in the data directory.
pub(crate) const CLUSTER: &str = "postgres";

/// An open database, and the private cluster if it runs there.
pub(crate) struct Store {
    pub(crate) database: Database,
    pub(crate) config: DatabaseConfig,
    pub(crate) cluster: Option<Cluster>,
}

impl Store {
    /// Opens the database, starts the private cluster if no other is named, and migrates the schema.
    pub(crate) async fn open(data_dir: &Path, url: Option<&str>) -> anyhow::Result<Self> {
        let store = Self::connect(data_dir, url).await?;
        if url.is_some() {
            ensure_suitable(&store.config, System.now()).await?;
        }
        if let Err(error) = migrate(&store.config).await {
            // Leaves nothing running, because there may be no other start for a long time.
            if let Some(Err(also)) = OptionFuture::from(store.cluster.map(Cluster::stop)).await {
                warn!(error = %also, "the private PostgreSQL was not stopped");
            }
            return Err(error).context("cannot bring the database schema up to date");
        }
        Ok(store)
    }

    /// Opens the database, and starts the private cluster if no other is named.
    async fn connect(data_dir: &Path, url: Option<&str>) -> anyhow::Result<Self> {
        let cluster = match url {
            Some(_) => None,
            None => {
                info!("starting the private PostgreSQL cluster");
                Some(Cluster::start(ClusterConfig::new(data_dir.join(CLUSTER))).await?)
            }
        };
        let url = url.map_or_else(|| cluster.as_ref().map(Cluster::url).unwrap_or_default(), str::to_owned);
        let config = DatabaseConfig::parse(&url).context("the database URL")?;
        Ok(Self { database: Database::new(&config), config, cluster })
    }

    /// Opens the database for a command beside the server: uses a running cluster, or starts it for the duration of the
    /// command. Creates none.
    pub(crate) async fn open_for(settings: &settings::Store) -> anyhow::Result<StoreConnection> {
        match Self::open_running(settings)? {
            Some(running) => Ok(running),
            // The lock prevents a concurrent server start, which would use the cluster that ends with this command.
            None => {
                ensure_named(settings)?;
                let alone = DataDir::take(settings.data_dir.path()?)?;
                let store = Self::open(alone.path(), None).await?;
                Ok(StoreConnection { store, _alone: Some(alone) })
            }
        }
    }

    /// Like [`open_for`](Self::open_for), but leaves the schema as it is.
    pub(crate) async fn open_unchanged(settings: &settings::Store) -> anyhow::Result<StoreConnection> {
        match Self::open_running(settings)? {
            Some(running) => Ok(running),
            None => {
                ensure_named(settings)?;
                let alone = DataDir::take(settings.data_dir.path()?)?;
                let store = Self::connect(alone.path(), None).await?;
                Ok(StoreConnection { store, _alone: Some(alone) })
            }
        }
    }

    /// Opens the database that the settings name, or the private cluster if it runs.
    fn open_running(settings: &settings::Store) -> anyhow::Result<Option<StoreConnection>> {
        let path = settings.data_dir.path()?;
        let url = settings.database_url.clone();
        data_dir::ensure_restored(&path)?;
        let running = url.or_else(|| Cluster::find_running(&path.join(CLUSTER)).map(|cluster| cluster.url()));
        let Some(url) = running else { return Ok(None) };
        let config = DatabaseConfig::parse(&url).context("the database URL")?;
        let store = Self { database: Database::new(&config), config, cluster: None };
        Ok(Some(StoreConnection { store, _alone: None }))
    }

    /// Supervises the private cluster from now on. The returned supervisor stops it, whichever process started it.
    pub(crate) fn watch(&mut self, data_dir: &Path) -> Option<ClusterSupervisor> {
        let config = ClusterConfig::new(data_dir.join(CLUSTER));
        self.cluster.take().map(|cluster| ClusterSupervisor::watch(cluster, config))
    }
}

/// Refuses settings that name no database, in a data directory without a private one: only a server creates it.
pub(crate) fn ensure_named(settings: &settings::Store) -> anyhow::Result<()> {
    let dir = settings.data_dir.path()?;
    ensure!(
        settings.database_url.is_some() || dir.join(CLUSTER).is_dir(),
        "{} has no database: name the one of the server with --database-url, or its directory with --data-dir",
        dir.display()
    );
    Ok(())
}

/// The store of a command beside the server.
pub(crate) struct StoreConnection {
    pub(crate) store: Store,
    _alone: Option<DataDir>,
}

impl StoreConnection {
    /// Closes the store; stops the private cluster if it was started for the command.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        self.store.database.close();
        match self.store.cluster {
            Some(cluster) => Ok(cluster.stop().await?),
            None => Ok(()),
        }
    }
}
