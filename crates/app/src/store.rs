//! The database behind every command: the operator's, or the private one.

use std::path::Path;

use anyhow::Context as _;
use casement_postgres::cluster::Origin;
use casement_postgres::{Cluster, ClusterConfig, Database, DatabaseConfig, migrate};
use tracing::info;

use crate::postmaster::Postmaster;
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
        let applied = migrate(&config).await.context("cannot bring the database schema up to date")?;
        if !applied.is_empty() {
            info!(migrations = applied.len(), "the database schema is up to date");
        }
        Ok(Self { database: Database::new(&config), config, cluster })
    }

    /// For a command beside the server.
    pub(crate) async fn open_for(settings: &settings::Store) -> anyhow::Result<Self> {
        Self::open(&settings.data_dir.path()?, settings.database_url.as_deref()).await
    }

    /// Keeps the private cluster running from now on, for a server. The result ends it, whoever started it.
    pub(crate) fn watch(&mut self, data_dir: &Path) -> Option<Postmaster> {
        let config = ClusterConfig::new(data_dir.join(CLUSTER));
        self.cluster.take().map(|cluster| Postmaster::watch(cluster, config))
    }

    /// Closes it; stops the private cluster if this process started it.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        self.database.close();
        match self.cluster {
            Some(cluster) if cluster.origin() != Origin::Adopted => Ok(cluster.stop().await?),
            _ => Ok(()),
        }
    }
}
