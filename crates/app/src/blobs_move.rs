//! `casement blobs move`: moves the blobs of a database to another store, while no server runs.
//!
//! The database names the previous store until the new one has all blobs, so a move can be broken off at any time. A
//! server reads which store the database names after it was announced; the change is refused if one was announced
//! meanwhile.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use casement_blobs::Blobs;
use casement_domain::blob::{BlobStore, RecordedStore, StoreMark};
use casement_domain::node::Node;
use casement_domain::{Clock as _, DatabaseId};
use casement_postgres::{DatabaseConfig, PgBlobStore, Snapshot};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use crate::backup::progress::{Progress, print};
use crate::backup::{size, until_interrupted};
use crate::blob_store;
use crate::serve::no_core_dumps;
use crate::settings::{MoveSettings, local_place};
use crate::store::Store;
use crate::system::System;

/// The time after which a running server has certainly given another sign of life.
const HEARTBEAT_WAIT: Duration = Duration::from_secs(12);
/// The age from which a sign of life is not waited for: the clocks of the machines may differ.
const LONG_SILENT: time::Duration = time::Duration::minutes(10);
/// The number of blobs that are copied at a time.
const PARALLEL: usize = 4;

/// Runs the command.
pub(crate) async fn run(settings: MoveSettings) -> anyhow::Result<()> {
    no_core_dumps()?;
    let data_dir = settings.store.data_dir.path()?;
    let from = match &settings.from {
        Some(store) => store.place(&settings.s3)?,
        None => local_place(&data_dir),
    };
    let (from, to) = (Blobs::open(&from)?, Blobs::open(&settings.to.place(&settings.s3)?)?);
    ensure!(from.location() != to.location(), "--to names the present store");
    let beside = Store::open_for(&settings.store).await?;
    let rows = PgBlobStore::new(beside.store.database.clone());
    let relocation = Relocation { rows, database: beside.store.config.clone(), from, to };
    let moved = until_interrupted(relocation.run(settings.delete_source)).await;
    let closed = beside.close().await;
    moved?;
    closed
}

struct Relocation {
    rows: PgBlobStore,
    database: DatabaseConfig,
    from: Blobs,
    to: Blobs,
}

/// The numbers of blobs and bytes of a move.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    blobs: usize,
    copied: usize,
    bytes: u64,
}

impl Relocation {
    async fn run(&self, delete_source: bool) -> anyhow::Result<()> {
        let heartbeat = self.ensure_no_server().await?;
        let record = self.rows.read(DatabaseId::mint(&System)).await?;
        let before = blob_store::read_mark(&self.to).await?;
        let is_same = before.is_some() && before == blob_store::read_mark(&self.from).await?;
        ensure!(!is_same, "{} and {} are the same store", self.from.location(), self.to.location());
        if before.is_none_or(|mark| record.store != Some(mark.store)) {
            let target = self.target(&record, before).await?;
            let count = self.copy().await?;
            self.ensure_whole(&count).await?;
            self.switch(&record, target, heartbeat).await?;
            let mut out = std::io::stdout().lock();
            writeln!(out, "moved: {} blobs, {}, {} of them copied now", count.blobs, size(count.bytes), count.copied)?;
        }
        if delete_source {
            self.delete_source().await?;
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "the stored files of the database are in {}", self.to.location())?;
        match &self.to {
            Blobs::S3(_) => writeln!(out, "start every server with --blob-url {}", self.to.location())?,
            Blobs::Local(_) => {
                writeln!(
                    out,
                    "start the server without --blob-url; the directory `blobs` of its data directory is used"
                )?;
            }
        }
        if !delete_source {
            writeln!(
                out,
                "the copies in {} are not used any more; --delete-source deletes them",
                self.from.location()
            )?;
        }
        Ok(())
    }

    /// Returns the last sign of life of any node, after no server has given one for a while.
    async fn ensure_no_server(&self) -> anyhow::Result<Option<OffsetDateTime>> {
        let last = self.rows.last_heartbeat().await.context("cannot read the database; was a server ever started?")?;
        let Some(at) = last.filter(|at| System.now() - *at < Node::LOST_AFTER.max(LONG_SILENT)) else {
            return Ok(last);
        };
        print("waiting for signs of life of servers");
        tokio::time::sleep(HEARTBEAT_WAIT).await;
        let now = self.rows.last_heartbeat().await?;
        ensure!(now == Some(at), "a server runs on this database: stop every one with `casement stop` first");
        Ok(now)
    }

    /// Checks both stores; returns the mark of the new one.
    async fn target(&self, record: &RecordedStore, before: Option<StoreMark>) -> anyhow::Result<StoreMark> {
        let (from, to) = (self.from.location(), self.to.location());
        if record.store.is_some() {
            blob_store::ensure_recorded(&self.from, Some(record)).await.context("--from")?;
        }
        let mark = match before {
            Some(mark) => mark,
            None => blob_store::new_mark(&self.to, record.database).await?.context("the new store lost its mark")?,
        };
        ensure!(mark.database == record.database, "{to} has the stored files of another database");
        print(&format!("moving from {from} to {to}"));
        Ok(mark)
    }

    async fn copy(&self) -> anyhow::Result<Count> {
        let (from, to) = (self.from.port(), self.to.port());
        let keys = from.list("").await?;
        let (mut progress, mut count) = (Progress::begin("copying"), Count::default());
        let copies = keys.into_iter().map(|(key, _)| copy_one(from.clone(), to.clone(), key));
        let mut copies = stream::iter(copies).buffer_unordered(PARALLEL);
        while let Some((bytes, is_copied)) = copies.try_next().await? {
            count.blobs += 1;
            count.bytes += bytes;
            count.copied += usize::from(is_copied);
            progress.add(usize::try_from(bytes)?);
        }
        Ok(count)
    }

    /// Checks that the new store has what the database refers to, except for what the present store has lost.
    async fn ensure_whole(&self, count: &Count) -> anyhow::Result<()> {
        let there: BTreeSet<String> = self.to.port().list("").await?.into_iter().map(|(key, _)| key).collect();
        let mut missing = Snapshot::take(&self.database).await?.blobs().await?;
        missing.retain(|key| !there.contains(key));
        let (from, lost) = (self.from.location(), missing.len());
        ensure!(
            count.blobs > 0 || lost == 0,
            "{from} has none of the {lost} files of the database: --from names its store"
        );
        for key in &missing {
            print(&format!("warning: the blob {key} is missing in {from}"));
        }
        Ok(())
    }

    /// Records the new store in the database.
    async fn switch(
        &self,
        record: &RecordedStore,
        target: StoreMark,
        heartbeat: Option<OffsetDateTime>,
    ) -> anyhow::Result<()> {
        let location = self.to.location();
        if !self.rows.replace(record.store, (target.store, &location), heartbeat).await? {
            bail!("a server was started during the move, so nothing was changed: stop it and repeat the command");
        }
        Ok(())
    }

    async fn delete_source(&self) -> anyhow::Result<()> {
        let from = self.from.port();
        for (key, _) in from.list("").await? {
            from.delete(&key).await?;
        }
        self.from.remove_mark().await?;
        Ok(())
    }
}

/// Copies a blob unless it is there. Returns its size, and whether it was copied.
async fn copy_one(from: Arc<dyn BlobStore>, to: Arc<dyn BlobStore>, key: String) -> anyhow::Result<(u64, bool)> {
    let cannot = || format!("cannot copy the blob {key}");
    let size_bytes = from.find(&key).await.with_context(cannot)?.with_context(cannot)?.size_bytes;
    if to.find(&key).await.with_context(cannot)?.is_some_and(|there| there.size_bytes == size_bytes) {
        let (here, there) = (digest(&*from, &key).await, digest(&*to, &key).await);
        if here.with_context(cannot)? == there.with_context(cannot)? {
            return Ok((size_bytes, false));
        }
    }
    let content = from.get(&key).await.with_context(cannot)?.with_context(cannot)?;
    to.put(&key, content).await.with_context(cannot)?;
    let there = to.find(&key).await.with_context(cannot)?.map(|there| there.size_bytes);
    ensure!(there == Some(size_bytes), "the blob {key} is not whole in the new store");
    Ok((size_bytes, true))
}

/// Returns the SHA-256 of a blob; `None` if it does not exist.
async fn digest(blobs: &dyn BlobStore, key: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(mut content) = blobs.get(key).await? else { return Ok(None) };
    let mut digest = Sha256::new();
    while let Some(bytes) = content.try_next().await? {
        digest.update(&bytes);
    }
    Ok(Some(digest.finalize().to_vec()))
}
