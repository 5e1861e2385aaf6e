//! The database behind every command: the operator's, or the private one.

use std::path::Path;

use anyhow::Context as _;
use casement_postgres::{Cluster, ClusterConfig, Database, DatabaseConfig, migrate};
use futures_util::future::OptionFuture;
use tracing::{info, warn};

use crate::cluster_supervisor::ClusterSupervisor;
use crate::data_dir::DataDir;
use crate::settings;

/// The private cluster's place in the data directory.
pub(crate) const CLUSTER: &str = "postgres";

/// An open database, and the private cluster under it, if it is that one.
pub(crate) struct Store {
    pub(crate) database: Database,
    pub(crate) config: DatabaseConfig,
    pub(crate) cluster: Option<Cluster>,
}

impl Store {
    /// Opens the database, starting the private cluster where no other is named, and brings its schema up to date.
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
                // Nobody may start it again soon, so that nothing is left running.
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

    /// For a command beside the server: what runs is used as it is; what does not is started for this once.
    pub(crate) async fn open_for(settings: &settings::Store) -> anyhow::Result<StoreConnection> {
        let path = settings.data_dir.path()?;
        let url = settings.database_url.clone();
        let running = url.or_else(|| Cluster::find_running(&path.join(CLUSTER)).map(|cluster| cluster.url()));
        if let Some(url) = running {
            let config = DatabaseConfig::parse(&url).context("the database URL")?;
            let store = Self { database: Database::new(&config), config, cluster: None };
            return Ok(StoreConnection { store, _alone: None });
        }
        // A server that starts meanwhile must not be left without the cluster that ends with this command.
        let alone = DataDir::take(path)?;
        let store = Self::open(alone.path(), None).await?;
        Ok(StoreConnection { store, _alone: Some(alone) })
    }

    /// Keeps the private cluster running from now on, for a server. The result ends it, whoever started it.
    pub(crate) fn watch(&mut self, data_dir: &Path) -> Option<ClusterSupervisor> {
        let config = ClusterConfig::new(data_dir.join(CLUSTER));
        self.cluster.take().map(|cluster| ClusterSupervisor::watch(cluster, config))
    }
}

/// A store for a command beside the server.
pub(crate) struct StoreConnection {
    pub(crate) store: Store,
    _alone: Option<DataDir>,
}

impl StoreConnection {
    /// Closes it; stops the private cluster if it was started for this.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        self.store.database.close();
        match self.store.cluster {
            Some(cluster) => Ok(cluster.stop().await?),
            None => Ok(()),
        }
    }
}
