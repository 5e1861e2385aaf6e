//! Writes a backup, while a server runs or without one.
//!
//! The database is dumped from one snapshot. A blob is stored before its row and never changed, so a copy of the blobs
//! from before the snapshot, completed after it, has the blobs of all its rows, except for those that were deleted in
//! between. Then a later snapshot is taken, which does not have their rows any more.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use casement_blobs::Blobs;
use casement_domain::blob::BlobStore;
use casement_postgres::{DumpPrograms, PgBlobStore, Snapshot, knows_schema};

use super::folder::Target;
use super::manifest::{Manifest, Part, is_safe};
use super::part::{PartWriter, create_file};
use super::progress::{Progress, print};
use super::secret_files::SecretFiles;
use super::{BLOBS, DUMP, MANIFEST, SECRETS, passphrase, size, until_interrupted};
use crate::blob_store;
use crate::data_dir::{self, MASTER_KEY};
use crate::serve::no_core_dumps;
use crate::settings::{BackupSettings, Store as StoreSettings};
use crate::store::{CLUSTER, Store, ensure_named};

/// The maximum number of snapshots. Each further one needs a blob that was deleted since the one before.
const MAX_SNAPSHOTS: u32 = 5;

/// Runs the command.
pub(crate) async fn run(settings: BackupSettings) -> anyhow::Result<()> {
    no_core_dumps()?;
    let data_dir = settings.store.data_dir.path()?;
    ensure!(data_dir.is_dir(), "there is no data directory {}; --data-dir names another one", data_dir.display());
    data_dir::check_owner(&data_dir)?;
    let target = Target::new(&settings.folder, &data_dir)?;
    let programs = programs(&settings.store, &data_dir)?;
    let passphrase = passphrase::read(settings.passphrase_file.as_deref(), true)?;
    let beside = Store::open_unchanged(&settings.store).await?;
    let written = until_interrupted(async {
        let folder = target.create()?;
        let blobs = blob_store::open(&settings.blobs, &data_dir)?;
        let record = PgBlobStore::new(beside.store.database.clone()).find().await?;
        blob_store::ensure_recorded(&blobs, record.as_ref()).await?;
        let (folder_path, store) = (folder.temporary_path(), &beside.store);
        let backup = Backup { folder: folder_path, data_dir: &data_dir, blobs, store, programs: &programs };
        let (manifest, secrets) = backup.write().await?;
        let text = manifest.text()?;
        create_file(folder.temporary_path(), MANIFEST)?.write_all(&text)?;
        create_file(folder.temporary_path(), SECRETS)?.write_all(&secrets.seal(&passphrase, &text)?)?;
        print("writing everything to the disk");
        Ok((folder.finish()?, manifest))
    })
    .await;
    let closed = beside.close().await;
    let (path, manifest) = written?;
    summarize(&path, &manifest)?;
    closed
}

/// Returns the programs that dump the database, which must exist.
fn programs(store: &StoreSettings, data_dir: &Path) -> anyhow::Result<DumpPrograms> {
    if store.database_url.is_some() {
        return Ok(DumpPrograms::newest()?);
    }
    let cluster = data_dir.join(CLUSTER);
    ensure_named(store)?;
    Ok(DumpPrograms::of_cluster(&cluster)?)
}

struct Backup<'a> {
    folder: &'a Path,
    data_dir: &'a Path,
    blobs: Blobs,
    store: &'a Store,
    programs: &'a DumpPrograms,
}

impl Backup<'_> {
    /// Writes all parts.
    async fn write(&self) -> anyhow::Result<(Manifest, SecretFiles)> {
        let blobs = self.blobs.port();
        let mut progress = Progress::begin("copying blobs");
        let mut parts = Vec::new();
        self.copy_new(&*blobs, &mut parts, &mut progress).await?;
        let (snapshot, secrets) = self.snapshot(&*blobs, &mut parts, &mut progress).await?;
        let schema = snapshot.schema().await?;
        ensure!(knows_schema(&schema), "a later casement has used the database (migration {schema}): use that one");
        let mut progress = Progress::begin("dumping the database");
        let mut dump = PartWriter::create(self.folder, DUMP.to_owned(), &mut progress)?;
        self.programs.dump(&self.store.config, &snapshot, &mut dump).await?;
        parts.push(dump.finish().await?);
        let manifest = Manifest::new(schema, secrets.names(), parts)?;
        Ok((manifest, secrets))
    }

    /// Takes a snapshot of which all blobs are copied, and reads the keys that open it.
    async fn snapshot(
        &self,
        blobs: &dyn BlobStore,
        parts: &mut Vec<Part>,
        progress: &mut Progress,
    ) -> anyhow::Result<(Snapshot, SecretFiles)> {
        let mut missing_before = None;
        for _ in 0..MAX_SNAPSHOTS {
            let taking = async { Ok(Snapshot::take(&self.store.config).await?) };
            let (secrets, snapshot) = SecretFiles::read_after(self.data_dir, taking).await?;
            self.copy_new(blobs, parts, progress).await?;
            let copied: BTreeSet<&str> = parts.iter().filter_map(Part::blob).collect();
            let named = snapshot.blobs().await?.into_iter();
            let missing: BTreeSet<String> = named.filter(|key| !copied.contains(&**key)).collect();
            // What two snapshots miss was not deleted by a running server: it is missing in the installation.
            if missing_before.as_ref().is_some_and(|before| missing.is_subset(before)) || missing.is_empty() {
                for key in &missing {
                    print(&format!(
                        "warning: the blob {key} is missing in {}, and so in the backup",
                        self.blobs.location()
                    ));
                }
                return Ok((snapshot, secrets));
            }
            missing_before = Some(missing);
        }
        bail!("blobs are deleted faster than they can be copied; try again later")
    }

    /// Copies the blobs that are not in `parts` yet.
    async fn copy_new(
        &self,
        blobs: &dyn BlobStore,
        parts: &mut Vec<Part>,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let copied: BTreeSet<String> = parts.iter().filter_map(Part::blob).map(str::to_owned).collect();
        for (key, _) in blobs.list("").await? {
            if copied.contains(&key) {
                continue;
            }
            ensure!(is_safe(&key), "{} has a blob with an impossible name", self.blobs.location());
            // A blob that is deleted by now is either of no row, or found missing later.
            let Some(content) = blobs.get(&key).await? else { continue };
            let writer = PartWriter::create(self.folder, format!("{BLOBS}{key}"), progress)?;
            let part = writer.write_stream(content).await;
            parts.push(part.with_context(|| format!("cannot copy the blob {key}"))?);
        }
        Ok(())
    }
}

fn summarize(path: &Path, manifest: &Manifest) -> anyhow::Result<()> {
    let (count, bytes) = manifest.blobs().fold((0, 0), |(count, bytes), part| (count + 1, bytes + part.size_bytes));
    let mut out = std::io::stdout().lock();
    writeln!(out, "backup: {}", path.display())?;
    writeln!(out, "database: {}, schema {}", size(manifest.dump()?.size_bytes), manifest.schema)?;
    writeln!(out, "blobs: {count}, {}", size(bytes))?;
    writeln!(out, "sealed under the passphrase: {}", manifest.secrets.join(", "))?;
    if !manifest.secrets.iter().any(|name| name == MASTER_KEY) {
        writeln!(out, "not in the backup: the master keys, which CASEMENT_MASTER_KEY gives to the server")?;
    }
    Ok(())
}
