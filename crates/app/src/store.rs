//! The database of every command: the one that the operator names, or the private cluster.

use std::path::Path;

use anyhow::Context as _;
use casement_postgres::{Cluster, ClusterConfig, Database, DatabaseConfig, migrate};
use futures_util::future::OptionFuture;
use tracing::{info, warn};

use crate::cluster_supervisor::ClusterSupervisor;
use crate::data_dir::DataDir;
use crate::settings;

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
        let cluster = match url {
            Some(_) => None,
            None => {
                info!("starting the private PostgreSQL cluster");
                Some(Cluster::start(ClusterConfig::new(data_dir.join(CLUSTER))).await?)
            }
        };
        let url = url.map_or_else(|| cluster.as_ref().map(Cluster::url).unwrap_or_default(), str::to_owned);
        let config = DatabaseConfig::parse(&url).context("the database URL")?;
        let applied = match migrate(&config).await {
            Ok(applied) => applied,
            Err(error) => {
                // Leaves nothing running, because there may be no other start for a long time.
                if let Some(Err(also)) = OptionFuture::from(cluster.map(Cluster::stop)).await {
                    warn!(error = %also, "the private PostgreSQL was not stopped");
                }
                return Err(error).context("cannot bring the database schema up to date");
            }
        };
        if !applied.is_empty() {
            info!(migrations = applied.len(), "the database schema is up to date");
        }
        Ok(Self { database: Database::new(&config), config, cluster })
    }

    /// Opens the database for a command beside the server: uses a running cluster, or starts it for the duration of the
    /// command.
    pub(crate) async fn open_for(settings: &settings::Store) -> anyhow::Result<StoreConnection> {
        let path = settings.data_dir.path()?;
        let url = settings.database_url.clone();
        let running = url.or_else(|| Cluster::find_running(&path.join(CLUSTER)).map(|cluster| cluster.url()));
        if let Some(url) = running {
            let config = DatabaseConfig::parse(&url).context("the database URL")?;
            let store = Self { database: Database::new(&config), config, cluster: None };
            return Ok(StoreConnection { store, _alone: None });
        }
        // The lock prevents a concurrent server start, which would use the cluster that ends with this command.
        let alone = DataDir::take(path)?;
        let store = Self::open(alone.path(), None).await?;
        Ok(StoreConnection { store, _alone: Some(alone) })
    }

    /// Supervises the private cluster from now on. The returned supervisor stops it, whichever process started it.
    pub(crate) fn watch(&mut self, data_dir: &Path) -> Option<ClusterSupervisor> {
        let config = ClusterConfig::new(data_dir.join(CLUSTER));
        self.cluster.take().map(|cluster| ClusterSupervisor::watch(cluster, config))
    }
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
