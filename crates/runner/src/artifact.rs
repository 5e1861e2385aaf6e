//! What builds leave: packed in the store of bytes, where every node finds it, and unpacked on this one, where sandboxes see it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use casement_domain::blob::{BlobError, BlobStore};
use casement_domain::session_operation::OperationError;
use futures_util::TryStreamExt as _;
use tar::{Archive, EntryType};
use time::OffsetDateTime;
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;

/// How much an artifact may hold.
pub(crate) struct Limits {
    /// Files, directories and links.
    pub(crate) entries: u64,
    /// Bytes unpacked.
    pub(crate) bytes: u64,
    /// Bytes packed.
    pub(crate) packed: u64,
}

/// Bytes of a path, or of where a link leads: what a system takes.
const LONGEST_PATH: u64 = 4096;

pub(crate) const LIMITS: Limits = Limits { entries: 250_000, bytes: 3 << 30, packed: 2 << 30 };

/// How much is read at a time.
const PART: usize = 256 << 10;

/// An artifact could not be kept or had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArtifactError {
    #[error("what was built is not there any more")]
    Gone,
    #[error(transparent)]
    Store(#[from] BlobError),
    #[error("what was built cannot be kept: {0}")]
    Io(#[from] io::Error),
}

/// The artifacts.
pub(crate) struct Artifacts {
    directory: PathBuf,
    blobs: Arc<dyn BlobStore>,
    /// One at a time unpacks an artifact.
    unpacking: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Artifacts {
    /// Below a directory, which is made: sandboxes go through it and cannot list it.
    pub(crate) fn new(directory: PathBuf, blobs: Arc<dyn BlobStore>) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o711))?;
        // What was unpacked by half when a server was killed.
        for entry in fs::read_dir(&directory)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(HALF) {
                remove(&entry.path())?;
            }
        }
        Ok(Self { directory, blobs, unpacking: Mutex::default() })
    }

    /// A file for an artifact on its way.
    pub(crate) fn spool(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.directory)
    }

    /// Keeps a packed artifact.
    pub(crate) async fn keep(&self, name: &str, packed: File) -> Result<(), ArtifactError> {
        let content = ReaderStream::with_capacity(tokio::fs::File::from_std(packed), PART);
        let content =
            content.map_err(|error| OperationError::Failed(format!("what was built cannot be read: {error}")));
        Ok(self.blobs.put(&key(name), Box::pin(content)).await?)
    }

    /// The directory with an artifact, unpacked now if it is not.
    pub(crate) async fn place(&self, name: &str) -> Result<PathBuf, ArtifactError> {
        let place = self.directory.join(name);
        let turn = {
            let mut unpacking = self.unpacking();
            // Whoever has a turn, or waits for it, holds it.
            unpacking.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(unpacking.entry(name.to_owned()).or_default())
        };
        let _turn = turn.lock().await;
        if place.is_dir() {
            return Ok(place);
        }
        let content = self.blobs.get(&key(name)).await?.ok_or(ArtifactError::Gone)?;
        let packed = self.spooled(content).await?;
        let half = self.directory.join(format!("{HALF}{name}"));
        let target = place.clone();
        tokio::task::spawn_blocking(move || {
            remove(&half)?;
            unpack(packed, &half)?;
            fs::rename(&half, &target)
        })
        .await
        .map_err(io::Error::other)??;
        Ok(place)
    }

    /// Whether it is kept, here or in the store.
    pub(crate) async fn is_there(&self, name: &str) -> Result<bool, ArtifactError> {
        Ok(self.directory.join(name).is_dir() || self.blobs.get(&key(name)).await?.is_some())
    }

    /// What is kept, here or in the store, and since when: the earlier of both.
    pub(crate) async fn kept(&self) -> Result<Vec<(String, OffsetDateTime)>, ArtifactError> {
        let directory = self.directory.clone();
        let mut kept = tokio::task::spawn_blocking(move || unpacked(&directory)).await.map_err(io::Error::other)??;
        for (key, since) in self.blobs.list(KEYS).await? {
            let Some(name) = key.strip_prefix(KEYS) else { continue };
            let known = kept.entry(name.to_owned()).or_insert(since);
            *known = since.min(*known);
        }
        Ok(kept.into_iter().collect())
    }

    /// Forgets one, here and in the store.
    pub(crate) async fn discard(&self, name: &str) -> Result<(), ArtifactError> {
        let place = self.directory.join(name);
        tokio::task::spawn_blocking(move || remove(&place)).await.map_err(io::Error::other)??;
        Ok(self.blobs.delete(&key(name)).await?)
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

    fn unpacking(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.unpacking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the name of a directory begins with that is not whole yet.
const HALF: &str = "half-";

/// Below what they lie in the store.
const KEYS: &str = "artifacts/";

fn key(name: &str) -> String {
    format!("{KEYS}{name}")
}

/// What lies unpacked in a directory, and since when.
fn unpacked(directory: &Path) -> io::Result<HashMap<String, OffsetDateTime>> {
    let mut found = HashMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let about = entry.metadata()?;
        if about.is_dir() && !name.starts_with(HALF) {
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

/// Unpacks what a sandbox has packed, which may be anything, into `root`, which is made. Nothing is written through a link: they
/// come last. Where they lead is looked up inside sandboxes only.
fn unpack(packed: impl Read, root: &Path) -> io::Result<()> {
    let mut plain = zstd::Decoder::new(packed)?;
    plain.window_log_max(27)?;
    let mut archive = Archive::new(plain.take(LIMITS.bytes + (LIMITS.entries << 11)));
    let (mut entries, mut links) = (0, Vec::new());
    let mut long = Long::default();
    directory(root)?;
    // As they are: names that stand in entries of their own may be as long as an archive, and the library would read them whole.
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        entries += 1;
        if entries > LIMITS.entries {
            return Err(io::Error::other("too many entries"));
        }
        if long.take(&mut entry)? {
            continue;
        }
        let Long { path, link } = std::mem::take(&mut long);
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
            _ => return Err(io::Error::other("something that is no file, directory or link")),
        }
    }
    links.iter().try_for_each(|(target, path)| symlink(target, path))
}

/// What stands in entries of their own about the next one, because it is long.
#[derive(Default)]
struct Long {
    path: Option<PathBuf>,
    link: Option<PathBuf>,
}

impl Long {
    /// Whether the entry is such a one.
    fn take(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> io::Result<bool> {
        let place = match entry.header().entry_type() {
            EntryType::GNULongName => &mut self.path,
            EntryType::GNULongLink => &mut self.link,
            _ => return Ok(false),
        };
        let mut name = Vec::new();
        entry.take(LONGEST_PATH + 2).read_to_end(&mut name)?;
        if name.last() == Some(&0) {
            name.pop();
        }
        if name.len() as u64 > LONGEST_PATH {
            return Err(io::Error::other("a path that is too long"));
        }
        *place = Some(PathBuf::from(OsString::from_vec(name)));
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
    if plain && path.components().next().is_some() { Ok(path) } else { Err(io::Error::other("a path that leads out")) }
}

#[cfg(test)]
mod tests {
    use casement_domain::session_operation::ByteStream;

    use super::*;

    /// An artifact of these entries: name, kind and content or target.
    fn packed(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o4777);
            // Written as it is: the library itself would refuse what leads out.
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

    /// A store that has nothing.
    struct Nothing;

    #[async_trait::async_trait]
    impl BlobStore for Nothing {
        async fn put(&self, _: &str, _: ByteStream) -> Result<(), BlobError> {
            Ok(())
        }

        async fn get(&self, _: &str) -> Result<Option<ByteStream>, BlobError> {
            Ok(None)
        }

        async fn get_part(&self, _: &str, _: u64, _: u64) -> Result<Option<ByteStream>, BlobError> {
            Ok(None)
        }

        async fn delete(&self, _: &str) -> Result<(), BlobError> {
            Ok(())
        }

        async fn list(&self, _: &str) -> Result<Vec<(String, OffsetDateTime)>, BlobError> {
            Ok(Vec::new())
        }
    }

    #[tokio::test]
    async fn nothing_is_remembered_of_artifacts_that_nobody_unpacks_any_more() {
        let place = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::new(place.path().to_owned(), Arc::new(Nothing)).unwrap();
        for number in 0..10 {
            assert!(matches!(artifacts.place(&number.to_string()).await, Err(ArtifactError::Gone)));
        }
        assert_eq!(artifacts.unpacking().len(), 1);
    }

    #[test]
    fn what_a_sandbox_packs_stays_below_its_place() {
        use EntryType::{Block, Char, Directory, Fifo, Link, Regular, Symlink};
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
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
            let root = place.path().join("bad");
            assert!(unpack(&*packed(entries), &root).is_err(), "{entries:?}");
            remove(&root).unwrap();
        }
        // Names that are entries of their own are taken if a system takes them; whatever else says something about others is refused.
        let deep = "d/".repeat(120) + "file";
        let long = [("././@LongLink", EntryType::GNULongName, deep.as_str()), ("short", Regular, "content")];
        unpack(&*packed(&long), &place.path().join("deep")).unwrap();
        assert_eq!(fs::read_to_string(place.path().join("deep").join(&deep)).unwrap(), "content");
        let (longer, out) = ("n".repeat(5000), "../out");
        for (kind, name) in
            [(EntryType::GNULongName, &*longer), (EntryType::GNULongName, out), (EntryType::XHeader, "8 path=x\n")]
        {
            let bad = [("././@LongLink", kind, name), ("short", Regular, "x")];
            assert!(unpack(&*packed(&bad), &place.path().join("bad")).is_err(), "{kind:?}");
            remove(&place.path().join("bad")).unwrap();
        }
        // A file behind a link is written beside it, and the link is then refused.
        let through = [("link", Symlink, ".."), ("link/out", Regular, "x")];
        assert!(unpack(&*packed(&through), &place.path().join("bad")).is_err());
        assert!(!place.path().join("out").exists());
    }
}
