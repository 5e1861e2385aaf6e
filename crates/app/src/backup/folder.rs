//! The folder of a new backup, which has its name only when it is complete.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use rustix::fs::{FlockOperation, Mode, OFlags};

/// The end of the name of an incomplete backup.
const UNFINISHED: &str = ".unfinished";

/// The folder to create.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    unfinished: PathBuf,
}

impl Target {
    /// Checks that a backup can be written there. Changes nothing.
    ///
    /// # Errors
    /// If the folder has files, lies in the data directory, or its parent does not exist.
    pub(super) fn new(path: &Path, data_dir: &Path) -> anyhow::Result<Self> {
        let path = std::path::absolute(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            bail!("{} cannot be created", path.display());
        };
        let parent = fs::canonicalize(parent).with_context(|| format!("{} must exist", parent.display()))?;
        let path = parent.join(name);
        let data_dir = fs::canonicalize(data_dir)?;
        let resolved = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if resolved.starts_with(&data_dir) {
            bail!("a backup in the data directory {} would be lost with it: name another folder", data_dir.display());
        }
        ensure_empty(&path)?;
        let mut unfinished = path.clone().into_os_string();
        unfinished.push(UNFINISHED);
        Ok(Self { path, unfinished: unfinished.into() })
    }

    /// Creates the folder under its temporary name. Removes what a killed command left there.
    pub(super) fn create(self) -> anyhow::Result<NewFolder> {
        let path = &self.unfinished;
        let cannot = || format!("cannot create {}", path.display());
        if path.symlink_metadata().is_ok() {
            let left = open_folder(path).with_context(cannot)?;
            let locked = rustix::fs::flock(&left, FlockOperation::NonBlockingLockExclusive);
            ensure!(locked.is_ok(), "another command writes a backup to {}", path.display());
            fs::remove_dir_all(path).with_context(cannot)?;
        }
        DirBuilder::new().mode(0o700).create(path).with_context(cannot)?;
        let lock = open_folder(path).with_context(cannot)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).with_context(cannot)?;
        Ok(NewFolder { target: self, lock, complete: false })
    }
}

/// Opens a folder, without following a link. Others may write to its parent, so anything may be there: opening a pipe
/// would not return.
fn open_folder(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn ensure_empty(path: &Path) -> anyhow::Result<()> {
    match fs::read_dir(path) {
        Ok(mut entries) => {
            ensure!(entries.next().is_none(), "{} is not empty: a backup needs a new folder", path.display());
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot write to {}", path.display())),
    }
}

/// An incomplete backup. Dropping it removes it.
pub(super) struct NewFolder {
    target: Target,
    /// Excludes another command, and ends with this process.
    lock: File,
    complete: bool,
}

impl NewFolder {
    pub(super) fn temporary_path(&self) -> &Path {
        &self.target.unfinished
    }

    /// Writes everything to the disk, then gives the folder its name. Returns its path.
    pub(super) fn finish(mut self) -> anyhow::Result<PathBuf> {
        let (unfinished, path) = (&self.target.unfinished, &self.target.path);
        rustix::fs::syncfs(&self.lock).with_context(|| format!("cannot write {} to the disk", unfinished.display()))?;
        // Replaces an empty folder, and fails if it has files by now.
        fs::rename(unfinished, path).with_context(|| format!("cannot create {}", path.display()))?;
        self.complete = true;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        Ok(path.clone())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if !self.complete {
            let _ = fs::remove_dir_all(&self.target.unfinished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        root: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let root = tempfile::tempdir().expect("a folder");
            fs::create_dir(root.path().join("data")).expect("a data directory");
            Self { root }
        }

        fn target(&self, name: &str) -> anyhow::Result<Target> {
            Target::new(&self.root.path().join(name), &self.root.path().join("data"))
        }
    }

    #[test]
    fn a_backup_has_its_name_only_when_it_is_complete() -> anyhow::Result<()> {
        let place = Place::new();
        let path = place.root.path().join("backup");
        fs::create_dir(&path)?;
        let folder = place.target("backup")?.create()?;
        fs::write(folder.temporary_path().join("a"), "a")?;
        assert!(place.target("backup")?.create().is_err(), "another command writes it");
        drop(folder);
        assert_eq!(fs::read_dir(place.root.path())?.count(), 2, "an abandoned one is removed");

        // The remains of a killed command.
        fs::create_dir(place.root.path().join("backup.unfinished"))?;
        fs::write(place.root.path().join("backup.unfinished/b"), "b")?;
        let folder = place.target("backup")?.create()?;
        fs::write(folder.temporary_path().join("a"), "a")?;
        let finished = folder.finish()?;
        assert_eq!(fs::read_dir(finished)?.count(), 1);
        assert_eq!(fs::read_dir(place.root.path())?.count(), 2);
        Ok(())
    }

    #[test]
    fn what_is_no_folder_and_in_the_way_is_refused_and_stays() -> anyhow::Result<()> {
        let place = Place::new();
        let [way, elsewhere] = ["backup.unfinished", "elsewhere"].map(|name| place.root.path().join(name));
        rustix::fs::mknodat(rustix::fs::CWD, &way, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        assert!(place.target("backup")?.create().is_err(), "a pipe");
        fs::remove_file(&way)?;
        fs::create_dir(&elsewhere)?;
        std::os::unix::fs::symlink(&elsewhere, &way)?;
        assert!(place.target("backup")?.create().is_err(), "a link");
        fs::remove_file(&way)?;
        fs::write(&way, "")?;
        assert!(place.target("backup")?.create().is_err(), "a file");
        assert!(way.is_file() && elsewhere.is_dir());
        Ok(())
    }

    #[test]
    fn a_folder_with_files_or_in_the_data_directory_is_refused() -> anyhow::Result<()> {
        let place = Place::new();
        let refused = |name: &str| place.target(name).expect_err("refused").to_string();
        fs::create_dir(place.root.path().join("full"))?;
        fs::write(place.root.path().join("full/file"), "")?;
        assert!(refused("full").contains("is not empty"));
        assert!(refused("data/backup").contains("in the data directory"));
        assert!(refused("data/../data/backup").contains("in the data directory"));
        assert!(refused("data").contains("in the data directory"));
        std::os::unix::fs::symlink(place.root.path().join("data"), place.root.path().join("link"))?;
        assert!(refused("link/backup").contains("in the data directory"));
        assert!(refused("missing/backup").contains("must exist"));
        Ok(())
    }
}
