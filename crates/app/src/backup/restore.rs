//! Restores a backup into a new data directory.
//!
//! Everything is checked before anything is written. While it is written, a file marks the data directory as
//! incomplete: no other command uses such a directory, and the next restore into it begins anew.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use casement_blobs::Blobs;
use casement_domain::{Clock as _, DatabaseId};
use casement_postgres::{
    Cluster, ClusterConfig, Database as Connections, DatabaseConfig, DumpPrograms, PgBlobStore, database_is_empty,
    ensure_suitable, migrate,
};

use super::manifest::Manifest;
use super::part::{checked_copy, content, open_file, verify};
use super::progress::{Progress, print};
use super::secret_files::{MAX_SEALED_BYTES, SecretFiles};
use super::{SECRETS, passphrase, size, until_interrupted};
use crate::blob_store;
use crate::data_dir::{self, DataDir, MASTER_KEY};
use crate::serve::no_core_dumps;
use crate::settings::{BlobSettings, RestoreSettings};
use crate::store::CLUSTER;
use crate::system::System;

/// Runs the command.
pub(crate) async fn run(settings: RestoreSettings) -> anyhow::Result<()> {
    no_core_dumps()?;
    let (folder, path) = (settings.folder, settings.store.data_dir.path()?);
    let (manifest, text) = Manifest::read(&folder)?;
    data_dir::check_restorable(&path)?;
    let elsewhere = match &settings.store.database_url {
        Some(url) => Some(Database::elsewhere(url).await?),
        None => None,
    };
    let passphrase = passphrase::read(settings.passphrase_file.as_deref(), false)?;
    let secrets = SecretFiles::open(&passphrase, &text, &sealed(&folder)?)?;
    let (s3, blob_settings) = (settings.blobs.blob_url.is_some(), settings.blobs);
    if s3 {
        // A directory is new, as the data directory is.
        ensure_unused(&blob_store::open(&blob_settings, &path)?).await?;
    }
    let backup = Backup { folder, manifest, secrets, blob_settings };
    until_interrupted(backup.verify()).await?;

    let data_dir = DataDir::take_for_restore(path)?;
    clear(&data_dir).await?;
    match Box::pin(backup.restore(&data_dir, elsewhere)).await {
        Ok(migrations) => {
            data_dir.finish_restore()?;
            backup.summarize(data_dir.path(), migrations)
        }
        Err(error) => {
            if let Err(also) = discard(data_dir).await {
                print(&format!("warning: cannot remove what was restored: {also:#}"));
            }
            Err(error)
        }
    }
}

/// Ends the private cluster of a restore, and removes what it has written.
async fn clear(data_dir: &DataDir) -> anyhow::Result<()> {
    if let Some(cluster) = Cluster::find_running(&data_dir.path().join(CLUSTER)) {
        cluster.stop().await?;
    }
    data_dir.clear_restore()
}

/// Leaves nothing behind. What cannot be removed stays marked as incomplete.
async fn discard(data_dir: DataDir) -> anyhow::Result<()> {
    clear(&data_dir).await?;
    data_dir.discard_restore()
}

fn sealed(folder: &Path) -> anyhow::Result<Vec<u8>> {
    let mut sealed = Vec::new();
    open_file(folder, SECRETS)?.take(MAX_SEALED_BYTES + 1).read_to_end(&mut sealed)?;
    ensure!(sealed.len() as u64 <= MAX_SEALED_BYTES, "the backup's {SECRETS} is longer than {MAX_SEALED_BYTES} bytes");
    Ok(sealed)
}

/// The database to restore into.
struct Database {
    config: DatabaseConfig,
    programs: DumpPrograms,
    private: Option<Cluster>,
}

impl Database {
    /// Returns the database of this URL, which must be empty.
    async fn elsewhere(url: &str) -> anyhow::Result<Self> {
        let config = DatabaseConfig::parse(url).context("the database URL")?;
        ensure_suitable(&config, System.now()).await?;
        ensure!(database_is_empty(&config).await?, "the database has tables already: a backup needs an empty one");
        Ok(Self { config, programs: DumpPrograms::newest()?, private: None })
    }

    /// Creates and starts a private cluster.
    async fn private(data_dir: &Path) -> anyhow::Result<Self> {
        let path = data_dir.join(CLUSTER);
        let cluster = Cluster::start(ClusterConfig::new(&path)).await?;
        let config = DatabaseConfig::parse(&cluster.url()).context("the database URL")?;
        Ok(Self { config, programs: DumpPrograms::of_cluster(&path)?, private: Some(cluster) })
    }
}

/// Refuses a store that has the blobs of a database.
async fn ensure_unused(blobs: &Blobs) -> anyhow::Result<()> {
    let mark = blob_store::read_mark(blobs).await?;
    let location = blobs.location();
    ensure!(mark.is_none(), "{location} has the stored files of a database: a backup is restored into another store");
    Ok(())
}

/// Marks the store for the restored database, and records it there.
async fn record(blobs: &Blobs, config: &DatabaseConfig) -> anyhow::Result<()> {
    let connections = Connections::new(config);
    let rows = PgBlobStore::new(connections.clone());
    let record = rows.read(DatabaseId::mint(&System)).await?;
    let mark = blob_store::new_mark(blobs, record.database).await?.context("the store has lost what was written")?;
    let (heartbeat, location) = (rows.last_heartbeat().await?, blobs.location());
    let is_recorded = rows.replace(record.store, (mark.store, &location), heartbeat).await?;
    connections.close();
    ensure!(
        is_recorded && mark.database == record.database,
        "a server used {location} or the database during the restore"
    );
    Ok(())
}

struct Backup {
    folder: PathBuf,
    manifest: Manifest,
    secrets: SecretFiles,
    blob_settings: BlobSettings,
}

impl Backup {
    async fn verify(&self) -> anyhow::Result<()> {
        let mut progress = Progress::begin("checking the backup");
        for part in &self.manifest.parts {
            verify(&self.folder, part, &mut progress).await?;
        }
        Ok(())
    }

    /// Writes everything; returns the number of migrations that the database needed.
    async fn restore(&self, data_dir: &DataDir, elsewhere: Option<Database>) -> anyhow::Result<usize> {
        let database = match elsewhere {
            Some(database) => database,
            None => Database::private(data_dir.path()).await?,
        };
        let migrations = until_interrupted(Box::pin(async {
            self.secrets.write(data_dir.path())?;
            let blobs = blob_store::open(&self.blob_settings, data_dir.path())?;
            self.restore_blobs(&blobs).await?;
            print("restoring the database");
            // A dump is a program: it is copied before it is run, because others may write to the backup's folder.
            let dump = checked_copy(&self.folder, self.manifest.dump()?, data_dir.path()).await?;
            database.programs.restore(&database.config, dump).await?;
            let migrations = migrate(&database.config).await.context("cannot bring the database schema up to date")?;
            record(&blobs, &database.config).await?;
            Ok(migrations)
        }))
        .await?;
        if let Some(cluster) = database.private {
            cluster.stop().await?;
        }
        Ok(migrations.len())
    }

    async fn restore_blobs(&self, blobs: &Blobs) -> anyhow::Result<()> {
        let blobs = blobs.port();
        print("restoring blobs");
        for part in self.manifest.blobs() {
            let key = part.blob().context("a part is no blob")?;
            blobs
                .put(key, content(&self.folder, part)?)
                .await
                .with_context(|| format!("cannot restore {}", part.name))?;
        }
        Ok(())
    }

    fn summarize(&self, data_dir: &Path, migrations: usize) -> anyhow::Result<()> {
        let manifest = &self.manifest;
        let mut out = std::io::stdout().lock();
        writeln!(out, "restored: {}, as of {}", data_dir.display(), manifest.created_at)?;
        writeln!(out, "database: {}, {migrations} migrations applied", size(manifest.dump()?.size_bytes))?;
        let bytes = manifest.blobs().map(|part| part.size_bytes).sum();
        writeln!(out, "blobs: {}, {}", manifest.blobs().count(), size(bytes))?;
        if !manifest.secrets.iter().any(|name| name == MASTER_KEY) {
            writeln!(out, "start the server with CASEMENT_MASTER_KEY: the backup has no master keys")?;
        }
        writeln!(out, "the next `casement serve` ends the sessions that ran at that time")?;
        Ok(())
    }
}
