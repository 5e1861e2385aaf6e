//! The host: the directory of the sandboxes, and their creation, listing and end.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::cgroup::Controllers;
use crate::error::{EndError, HostError, ListError, StartError, Step, StepError};
use crate::own_groups::OwnGroups;
use crate::program;
use crate::record::{MemoryLimit, Record};
use crate::sandbox::Sandbox;
use crate::spec::{Spec, valid_id};

/// The program that starts each sandbox in a separate session, so that signals of the starter's terminal do not reach
/// it.
pub(crate) const SETSID: &str = "/usr/bin/setsid";

/// The program that sets the limits of a sandbox from inside.
pub(crate) const PRLIMIT: &str = "/usr/bin/prlimit";

/// The configuration of a host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The directory of the sandboxes, `root/<id>/` each. Used by one server at a time.
    pub root: PathBuf,
    /// As root: the first of the unprivileged users of this machine for sandboxes. Nothing else may use these users.
    pub uid_base: u32,
    /// As root: the number of these users, which is the maximum number of simultaneous sandboxes.
    pub uid_count: u32,
    /// The path of bubblewrap.
    pub bwrap: PathBuf,
    /// The path of `setpriv` of util-linux, needed as root only.
    pub setpriv: PathBuf,
}

/// Creates, finds and ends the sandboxes below one root directory. Clones share their state.
#[derive(Clone, Debug)]
pub struct Host(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: HostConfig,
    /// True if this process runs as root, so that each sandbox gets a separate user.
    as_root: bool,
    controllers: Controllers,
    own_groups: OwnGroups,
    /// The sandboxes that this process is starting, which a sweep does not end.
    starting: Mutex<HashSet<String>>,
}

impl Host {
    /// Creates the root directory (mode 0711 as root, 0700 as an ordinary user) and checks the requirements of every
    /// start.
    ///
    /// # Errors
    /// If a program is missing, the range of users is invalid, or the sandboxes' users cannot reach the root directory.
    pub fn new(mut config: HostConfig) -> Result<Self, HostError> {
        let as_root = rustix::process::geteuid().is_root();
        present("bubblewrap", &config.bwrap, "install the package bubblewrap")?;
        present("setsid", Path::new(SETSID), "install the package util-linux")?;
        present("prlimit", Path::new(PRLIMIT), "install the package util-linux")?;
        if as_root {
            present("setpriv", &config.setpriv, "install the package util-linux (Debian: setpriv)")?;
            if config.uid_base == 0 || config.uid_count == 0 || config.uid_base.checked_add(config.uid_count).is_none()
            {
                return Err(HostError::NoUids);
            }
        }
        fs::create_dir_all(&config.root).step("make", &config.root)?;
        config.root = fs::canonicalize(&config.root).step("find", &config.root)?;
        set_mode(&config.root, if as_root { 0o711 } else { 0o700 })?;
        let store = program::store(&config.root);
        fs::create_dir_all(&store).step("make", &store)?;
        set_mode(&store, 0o700)?;
        if as_root && let Some(parent) = barrier(&config.root) {
            return Err(HostError::NotTraversable { root: config.root, parent });
        }
        let inner = Inner {
            config,
            as_root,
            controllers: Controllers::find(),
            own_groups: OwnGroups::find(),
            starting: Mutex::default(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Starts a sandbox and returns immediately before its program runs. The sandbox exists until [`Host::end`], even
    /// if this process ends. If the caller stops waiting, the sandbox is ended as soon as it exists.
    ///
    /// # Errors
    /// The reason why the sandbox did not start; nothing of it is left then.
    pub async fn start(&self, spec: Spec) -> Result<Sandbox, StartError> {
        spec.check()?;
        let host = self.clone();
        let (answer, wanted) = tokio::sync::oneshot::channel();
        // A separate task, so that a caller that stops waiting does not leave an unfinished start.
        tokio::spawn(async move {
            let id = spec.id.clone();
            let started = host.start_whole(spec).await;
            if let Err(Ok(_unwanted)) = answer.send(started)
                && let Err(error) = host.end(&id).await
            {
                tracing::warn!(id, %error, "a sandbox whose start was abandoned could not be ended");
            }
        });
        let lost = || Err(std::io::Error::other("the runtime is going down")).step("start", &self.config().root);
        wanted.await.unwrap_or_else(|_| Ok(lost()?))
    }

    /// Returns the kind of memory limit of new sandboxes.
    #[must_use]
    pub fn memory_limit(&self) -> MemoryLimit {
        self.controllers().memory()
    }

    /// Returns every sandbox below the root whose start was completed, also ended ones, in no order.
    ///
    /// # Errors
    /// If the root directory or a sandbox cannot be read, for example because there are no free descriptors.
    pub async fn list(&self) -> Result<Vec<Sandbox>, ListError> {
        let host = self.clone();
        blocking(move || host.list_now()).await
    }

    /// Ends a sandbox and returns when nothing of it is left: no process, mount, socket, control group or directory. A
    /// missing sandbox is no error.
    ///
    /// # Errors
    /// If something of it remains or may remain. The call can be repeated.
    pub async fn end(&self, id: &str) -> Result<(), EndError> {
        if !valid_id(id) {
            return Err(EndError::InvalidId(id.to_owned()));
        }
        let (host, id) = (self.clone(), id.to_owned());
        blocking(move || host.end_now(&id)).await
    }

    /// Ends every sandbox of this root whose id is not in `keep`, and removes the remains of all incomplete starts,
    /// also of ids in `keep`. Does not end sandboxes that this process is starting. Returns the ended ids.
    ///
    /// # Errors
    /// The first failure; the other sandboxes were ended nevertheless.
    pub async fn sweep(&self, keep: &HashSet<String>) -> Result<Vec<String>, ListError> {
        let (host, keep) = (self.clone(), keep.clone());
        blocking(move || host.sweep_now(&keep)).await
    }

    fn list_now(&self) -> Result<Vec<Sandbox>, ListError> {
        let find = |id: String| {
            let dir = self.dir(&id);
            let Some(record) = Record::read(&dir)? else { return Ok(None) };
            Sandbox::of(record, dir.clone(), None).step("look at the processes of", dir)
        };
        Ok(self.ids()?.into_iter().filter_map(|id| find(id).transpose()).collect::<Result<_, StepError>>()?)
    }

    fn sweep_now(&self, keep: &HashSet<String>) -> Result<Vec<String>, ListError> {
        let mut ids: HashSet<String> = self.ids()?.into_iter().collect();
        ids.extend(self.controllers().existing(&self.group_prefix()).into_iter().filter(|id| valid_id(id)));
        let is_whole = |id: &String| Ok(Record::read(&self.dir(id))?.is_some_and(|record| record.processes.is_some()));
        let (mut ended, mut failed) = (Vec::new(), None);
        for id in ids {
            // Checked for each entry separately, because a start registers here before it creates its entry.
            if self.starting().contains(&id) {
                continue;
            }
            let swept = match keep.contains(&id).then(|| is_whole(&id)).transpose() {
                Ok(Some(true)) => continue,
                Ok(_) => self.end_now(&id),
                // The sandbox may be a complete one that is in `keep`.
                Err(error) => Err(error),
            };
            match swept {
                Ok(()) => ended.push(id),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        program::remove_stale(&self.config().root);
        failed.map_or(Ok(ended), |error| Err(error.into()))
    }

    fn ids(&self) -> Result<Vec<String>, StepError> {
        let root = &self.config().root;
        let name = |entry: fs::DirEntry| entry.file_name().into_string().ok().filter(|id| valid_id(id));
        let names = fs::read_dir(root).and_then(|entries| entries.filter_map(|e| e.map(name).transpose()).collect());
        names.step("read", root)
    }

    pub(crate) fn config(&self) -> &HostConfig {
        &self.0.config
    }

    pub(crate) fn as_root(&self) -> bool {
        self.0.as_root
    }

    pub(crate) fn controllers(&self) -> &Controllers {
        &self.0.controllers
    }

    pub(crate) fn own_groups(&self) -> &OwnGroups {
        &self.0.own_groups
    }

    pub(crate) fn starting(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.starting.lock()
    }

    pub(crate) fn dir(&self, id: &str) -> PathBuf {
        self.config().root.join(id)
    }

    /// Returns the prefix of this host's control group names, because the same id may exist below another root of this
    /// machine.
    pub(crate) fn group_prefix(&self) -> String {
        let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let hash = crate::layout::bytes(&self.config().root).iter().fold(0xcbf2_9ce4_8422_2325, fnv);
        format!("{hash:016x}-")
    }
}

/// Runs blocking work outside of the runtime's threads. The work is never cancelled.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), StepError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).step("set the mode of", path)
}

/// Returns the topmost of the directory and its parents that other users cannot traverse.
pub(crate) fn barrier(path: &Path) -> Option<PathBuf> {
    let closed = |dir: &&Path| fs::metadata(dir).is_ok_and(|about| about.mode() & 0o001 == 0);
    path.ancestors().filter(closed).last().map(Path::to_owned)
}

fn present(program: &'static str, path: &Path, remedy: &'static str) -> Result<(), HostError> {
    if path.is_file() { Ok(()) } else { Err(HostError::Missing { program, path: path.to_owned(), remedy }) }
}
