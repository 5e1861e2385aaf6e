//! Build artifacts: packed in the blob store, which every node can read, and unpacked on this node, where sandboxes
//! mount them read-only.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use casement_domain::blob::{BlobError, BlobStore};
use casement_domain::deployment::Deployment;
use casement_domain::session_operation::OperationError;
use futures_util::TryStreamExt as _;
use parking_lot::Mutex;
use tar::{Archive, EntryType};
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;

/// The limits of an artifact.
pub(crate) struct Limits {
    /// The maximum number of files, directories and links.
    pub(crate) entries: u64,
    /// The maximum size when unpacked, in bytes.
    pub(crate) bytes: u64,
    /// The maximum size when packed, in bytes.
    pub(crate) packed: u64,
}

/// The longest path or link target in bytes: the limit of the system.
const MAX_PATH_BYTES: u64 = 4096;

pub(crate) const LIMITS: Limits = Limits { entries: 250_000, bytes: 3 << 30, packed: 2 << 30 };

/// The read size, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// An artifact could not be stored or loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArtifactError {
    #[error("the build's artifact does not exist any more")]
    Missing,
    #[error(transparent)]
    Store(#[from] BlobError),
    #[error("the build's artifact cannot be stored: {0}")]
    Io(#[from] io::Error),
}

/// The artifacts of this node.
pub(crate) struct Artifacts {
    directory: PathBuf,
    blobs: Arc<dyn BlobStore>,
    /// One lock per artifact, so that concurrent callers unpack it only once.
    unpacking: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Artifacts {
    /// Creates `directory`, which sandboxes' users can traverse but not list.
    pub(crate) fn new(directory: PathBuf, blobs: Arc<dyn BlobStore>) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o711))?;
        // Removes directories that were not completely unpacked when a server was killed.
        for entry in fs::read_dir(&directory)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PARTIAL_PREFIX) {
                remove(&entry.path())?;
            }
        }
        Ok(Self { directory, blobs, unpacking: Mutex::default() })
    }

    /// Creates an unnamed temporary file for an artifact.
    pub(crate) fn spool(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.directory)
    }

    /// Stores a packed artifact.
    pub(crate) async fn keep(&self, name: &str, packed: File) -> Result<(), ArtifactError> {
        let content = ReaderStream::with_capacity(tokio::fs::File::from_std(packed), CHUNK_BYTES);
        let content =
            content.map_err(|error| OperationError::Failed(format!("the build's artifact cannot be read: {error}")));
        Ok(self.blobs.put(&Deployment::artifact_blob(name), Box::pin(content)).await?)
    }

    /// Returns the directory of an artifact. Unpacks it if needed.
    pub(crate) async fn directory_of(&self, name: &str) -> Result<PathBuf, ArtifactError> {
        let directory_of = self.directory.join(name);
        let unpack_lock = {
            let mut unpacking = self.unpacking();
            // A lock with a single reference has neither a holder nor a waiter.
            unpacking.retain(|_, unpack_lock| Arc::strong_count(unpack_lock) > 1);
            Arc::clone(unpacking.entry(name.to_owned()).or_default())
        };
        let _guard = unpack_lock.lock().await;
        if directory_of.is_dir() {
            return Ok(directory_of);
        }
        let content = self.blobs.get(&Deployment::artifact_blob(name)).await?.ok_or(ArtifactError::Missing)?;
        let packed = self.spooled(content).await?;
        let partial = self.directory.join(format!("{PARTIAL_PREFIX}{name}"));
        let target = directory_of.clone();
        tokio::task::spawn_blocking(move || {
            remove(&partial)?;
            unpack(packed, &partial)?;
            fs::rename(&partial, &target)
        })
        .await
        .map_err(io::Error::other)??;
        Ok(directory_of)
    }

    /// Returns true if the artifact is in the store, from which every node can unpack it.
    pub(crate) async fn exists(&self, name: &str) -> Result<bool, ArtifactError> {
        Ok(self.blobs.find(&Deployment::artifact_blob(name)).await?.is_some())
    }

    /// Returns the artifacts on this node and in the store, with the time of each: the later one of both, because
    /// another node may have built an artifact anew that is still unpacked here.
    pub(crate) async fn list_all(&self) -> Result<Vec<(String, OffsetDateTime)>, ArtifactError> {
        let directory = self.directory.clone();
        let mut list_all =
            tokio::task::spawn_blocking(move || unpacked(&directory)).await.map_err(io::Error::other)??;
        for (key, since) in self.blobs.list(Deployment::ARTIFACT_BLOBS).await? {
            let Some(name) = key.strip_prefix(Deployment::ARTIFACT_BLOBS) else { continue };
            let known = list_all.entry(name.to_owned()).or_insert(since);
            *known = since.max(*known);
        }
        Ok(list_all.into_iter().collect())
    }

    /// Deletes an artifact on this node and in the store.
    pub(crate) async fn discard(&self, name: &str) -> Result<(), ArtifactError> {
        let directory_of = self.directory.join(name);
        tokio::task::spawn_blocking(move || remove(&directory_of)).await.map_err(io::Error::other)??;
        Ok(self.blobs.delete(&Deployment::artifact_blob(name)).await?)
    }

    async fn spooled(
        &self,
        mut content: casement_domain::session_operation::ByteStream,
    ) -> Result<File, ArtifactError> {
        let mut file = tokio::fs::File::from_std(self.spool()?);
        while let Some(part) = content.try_next().await.map_err(BlobError::from)? {
            file.write_all(&part).await?;
        }
        file.flush().await?;
        let mut file = file.into_std().await;
        io::Seek::rewind(&mut file)?;
        Ok(file)
    }

    fn unpacking(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.unpacking.lock()
    }
}

/// The name prefix of a directory that is not completely unpacked.
const PARTIAL_PREFIX: &str = "half-";

/// The key prefix in the blob store.
/// Returns the unpacked artifacts of a directory with their modification times.
fn unpacked(directory: &Path) -> io::Result<HashMap<String, OffsetDateTime>> {
    let mut found = HashMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let about = entry.metadata()?;
        if about.is_dir() && !name.starts_with(PARTIAL_PREFIX) {
            found.insert(name, about.modified()?.into());
        }
    }
    Ok(found)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Unpacks an untrusted archive of a sandbox into `root`, which is created. Links are created last, so that nothing is
/// written through a link. The targets of links are only resolved inside sandboxes.
fn unpack(packed: impl Read, root: &Path) -> io::Result<()> {
    let mut plain = zstd::Decoder::new(packed)?;
    plain.window_log_max(27)?;
    let mut archive = Archive::new(plain.take(LIMITS.bytes + (LIMITS.entries << 11)));
    let (mut entries, mut links) = (0, Vec::new());
    let mut long = LongNames::default();
    directory(root)?;
    // Raw entries: the library would read a long-name entry whole, which may be as long as the archive.
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        entries += 1;
        if entries > LIMITS.entries {
            return Err(io::Error::other("too many entries"));
        }
        if long.take(&mut entry)? {
            continue;
        }
        let LongNames { path, link } = std::mem::take(&mut long);
        let path = root.join(plain_path(&path.map_or_else(|| entry.path().map(Cow::into_owned), Ok)?)?);
        if let Some(parent) = path.parent() {
            directory(parent)?;
        }
        match entry.header().entry_type() {
            EntryType::Directory => directory(&path)?,
            EntryType::Regular => {
                let mode = if entry.header().mode()? & 0o100 != 0 { 0o755 } else { 0o644 };
                let mut file = File::options().write(true).create_new(true).mode(mode).open(&path)?;
                io::copy(&mut entry, &mut file)?;
                file.set_permissions(fs::Permissions::from_mode(mode))?;
                file.set_modified(UNIX_EPOCH + Duration::from_secs(entry.header().mtime()?.min(u64::from(u32::MAX))))?;
            }
            EntryType::Symlink => {
                let target =
                    link.map_or_else(|| entry.link_name().map(|target| target.map(Cow::into_owned)), |it| Ok(Some(it)));
                links.push((target?.ok_or_else(|| io::Error::other("a link without a target"))?, path));
            }
            _ => return Err(io::Error::other("an entry that is no file, directory or link")),
        }
    }
    links.iter().try_for_each(|(target, path)| symlink(target, path))
}

/// Long names that were read from separate entries, for the next entry.
#[derive(Default)]
struct LongNames {
    path: Option<PathBuf>,
    link: Option<PathBuf>,
}

impl LongNames {
    /// Reads the entry if it is a long-name entry. Returns false if it is not.
    fn take(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> io::Result<bool> {
        let directory_of = match entry.header().entry_type() {
            EntryType::GNULongName => &mut self.path,
            EntryType::GNULongLink => &mut self.link,
            _ => return Ok(false),
        };
        let mut name = Vec::new();
        entry.take(MAX_PATH_BYTES + 2).read_to_end(&mut name)?;
        if name.last() == Some(&0) {
            name.pop();
        }
        if name.len() as u64 > MAX_PATH_BYTES {
            return Err(io::Error::other("a path that is too long"));
        }
        *directory_of = Some(PathBuf::from(OsString::from_vec(name)));
        Ok(true)
    }
}

fn directory(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().recursive(true).mode(0o755).create(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o755)),
        failed => failed,
    }
}

fn plain_path(path: &Path) -> io::Result<&Path> {
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if plain && path.components().next().is_some() {
        Ok(path)
    } else {
        Err(io::Error::other("a path that leads out of the artifact"))
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::blob::BlobInfo;
    use casement_domain::session_operation::ByteStream;

    use super::*;

    /// Packs an artifact of these entries: the name, the type, and the content or target of each.
    fn packed(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o4777);
            // Written directly, because the library would refuse a path that leads out.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            if kind.is_symlink() || kind.is_hard_link() {
                header.set_size(0);
                header.set_link_name_literal(content).unwrap();
                header.set_cksum();
                tar.append(&header, io::empty()).unwrap();
            } else {
                header.set_size(content.len() as u64);
                header.set_cksum();
                tar.append(&header, content.as_bytes()).unwrap();
            }
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    /// An empty blob store.
    struct EmptyStore;

    #[async_trait::async_trait]
    impl BlobStore for EmptyStore {
        async fn put(&self, _: &str, _: ByteStream) -> Result<(), BlobError> {
            Ok(())
        }

        async fn get(&self, _: &str) -> Result<Option<ByteStream>, BlobError> {
            Ok(None)
        }

        async fn get_part(&self, _: &str, _: u64, _: u64) -> Result<Option<ByteStream>, BlobError> {
            Ok(None)
        }

        async fn find(&self, _: &str) -> Result<Option<BlobInfo>, BlobError> {
            Ok(None)
        }

        async fn delete(&self, _: &str) -> Result<(), BlobError> {
            Ok(())
        }

        async fn list(&self, _: &str) -> Result<Vec<(String, OffsetDateTime)>, BlobError> {
            Ok(Vec::new())
        }

        async fn clear_unfinished(&self, _: time::Duration) -> Result<usize, BlobError> {
            Ok(0)
        }
    }

    #[tokio::test]
    async fn locks_of_finished_unpacks_are_dropped() {
        let directory_of = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::new(directory_of.path().to_owned(), Arc::new(EmptyStore)).unwrap();
        for number in 0..10 {
            assert!(matches!(artifacts.directory_of(&number.to_string()).await, Err(ArtifactError::Missing)));
        }
        assert_eq!(artifacts.unpacking().len(), 1);
    }

    #[test]
    fn a_packed_artifact_cannot_write_outside_its_directory() {
        use EntryType::{Block, Char, Directory, Fifo, Link, Regular, Symlink};
        let directory_of = tempfile::tempdir().unwrap();
        let root = directory_of.path().join("root");
        let good = [("app", Directory, ""), ("app/link", Symlink, "/etc/passwd"), ("app/file", Regular, "content")];
        unpack(&*packed(&good), &root).unwrap();
        assert_eq!(fs::read_to_string(root.join("app/file")).unwrap(), "content");
        assert_eq!(fs::metadata(root.join("app/file")).unwrap().permissions().mode() & 0o7777, 0o755);
        assert_eq!(fs::read_link(root.join("app/link")).unwrap(), Path::new("/etc/passwd"));
        let bad: [&[(&str, EntryType, &str)]; 8] = [
            &[("../out", Regular, "x")],
            &[("/tmp/casement-out", Regular, "x")],
            &[("a/../../out", Regular, "x")],
            &[("a", Regular, "x"), ("a", Regular, "y")],
            &[("a", Char, "")],
            &[("a", Block, "")],
            &[("a", Fifo, "")],
            &[("a", Link, "/etc/passwd")],
        ];
        for entries in bad {
            let root = directory_of.path().join("bad");
            assert!(unpack(&*packed(entries), &root).is_err(), "{entries:?}");
            remove(&root).unwrap();
        }
        // Long-name entries are accepted up to the system's limit; other metadata entries are refused.
        let deep = "d/".repeat(120) + "file";
        let long = [("././@LongLink", EntryType::GNULongName, deep.as_str()), ("short", Regular, "content")];
        unpack(&*packed(&long), &directory_of.path().join("deep")).unwrap();
        assert_eq!(fs::read_to_string(directory_of.path().join("deep").join(&deep)).unwrap(), "content");
        let (longer, out) = ("n".repeat(5000), "../out");
        for (kind, name) in
            [(EntryType::GNULongName, &*longer), (EntryType::GNULongName, out), (EntryType::XHeader, "8 path=x\n")]
        {
            let bad = [("././@LongLink", kind, name), ("short", Regular, "x")];
            assert!(unpack(&*packed(&bad), &directory_of.path().join("bad")).is_err(), "{kind:?}");
            remove(&directory_of.path().join("bad")).unwrap();
        }
        // A file behind a link is written beside it, and the link is then refused.
        let through = [("link", Symlink, ".."), ("link/out", Regular, "x")];
        assert!(unpack(&*packed(&through), &directory_of.path().join("bad")).is_err());
        assert!(!directory_of.path().join("out").exists());
    }
}
