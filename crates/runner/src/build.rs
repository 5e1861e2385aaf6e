//! Builds: converts a source into an artifact and determines the apps that its entrypoint registers.

mod log;

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::File;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_archive::package;
use casement_domain::blob::BlobStore;
use casement_domain::clock::{Clock, IdSource};
use casement_domain::deployment::{
    Build, BuildFailure, BuildSource, BuildStep, Builder, Built, BuiltApp, Entrypoint, Environment, Lines, PackagePath,
    Runtime,
};
use casement_domain::ids::ProjectId;
use parking_lot::Mutex;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use tokio::sync::Semaphore;

use self::log::{BuildLog, LogRelay};
pub(crate) use self::log::{clamped_time, truncated_line};
use crate::artifact::{Artifacts, LIMITS};
use crate::config::{AppRunnerConfig, AppRunnerSetupError};
use crate::egress::{AppEgressPort, EgressPolicy};
use crate::failure;
use crate::git;
use crate::host::{AppSandbox, AppSandboxError, AppSandboxes, SandboxParams, authority};
use crate::link::{self};
use crate::package::{hex, spool_to_file};
use crate::protocol::{APP, Answer, App, Command, Exit, NODE, Outcome, Request, VENV};

/// The maximum number of simultaneous builds.
const MAX_BUILDS: usize = 2;
/// The time for which an artifact is not deleted after a build used it: longer than the rest of any build takes.
const MIN_UNUSED_AGE: time::Duration = time::Duration::hours(1);
/// The timeout of unpacking or packing an archive.
const ARCHIVE_TIMEOUT: Duration = Duration::from_secs(300);
/// The maximum number of processes and threads of one build.
const MAX_PROCESSES: u32 = 1024;
/// A part of every artifact's name. Must change when builds make different artifacts from the same source.
const FORMAT_VERSION: &str = "1";
/// The arguments with which an interpreter prints its ABI.
const PYTHON_ABI_COMMAND: [&str; 4] = ["-I", "-S", "-c", "import sysconfig; print(sysconfig.get_config_var('SOABI'))"];
const NODE_ABI_COMMAND: [&str; 2] = ["-p", "[process.platform, process.arch, process.versions.modules].join()"];
const INTERPRETER_TIMEOUT: Duration = Duration::from_secs(30);

/// The installation scripts. They print a marker before each step.
const INSTALL_PYTHON: &str = include_str!("loaders/install_python.sh");
const INSTALL_NODE: &str = include_str!("loaders/install_node.sh");

/// Builds deployments.
pub struct AppBuilder {
    sandboxes: Arc<AppSandboxes>,
    artifacts: Arc<Artifacts>,
    blobs: Arc<dyn BlobStore>,
    clock: Arc<dyn Clock>,
    build_slots: Semaphore,
    /// One lock per artifact, for building and discarding.
    locks: Mutex<HashMap<String, ArtifactLock>>,
}

/// The lock of an artifact. Contains the time at which a build of this process last used the artifact.
type ArtifactLock = Arc<tokio::sync::Mutex<Option<OffsetDateTime>>>;

/// Returns true if an artifact must not be deleted because a build has just used it.
fn was_just_used(used: Option<OffsetDateTime>, now: OffsetDateTime) -> bool {
    used.is_some_and(|used| now < used + MIN_UNUSED_AGE)
}

/// A fetched source.
struct FetchedSource {
    archive: File,
    checksum: String,
    /// The folder of the program in the archive, if it is not the archive's root.
    top: Option<String>,
    entrypoint: Entrypoint,
}

impl AppBuilder {
    /// Creates a builder with its directories. Must be called within the runtime that serves the sandboxes' egress.
    ///
    /// # Errors
    /// If the host cannot run sandboxes, or a directory cannot be created.
    pub fn new(
        config: AppRunnerConfig,
        blobs: Arc<dyn BlobStore>,
        egress: Arc<dyn AppEgressPort>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, AppRunnerSetupError> {
        let path = config.data_dir.join("artifacts");
        let artifacts = Artifacts::new(path.clone(), Arc::clone(&blobs));
        let artifacts = Arc::new(artifacts.map_err(|source| AppRunnerSetupError::Directory { path, source })?);
        let sandboxes = Arc::new(AppSandboxes::new(config, "builds", egress, ids)?);
        Ok(Self {
            sandboxes,
            artifacts,
            blobs,
            clock,
            build_slots: Semaphore::new(MAX_BUILDS),
            locks: Mutex::default(),
        })
    }

    /// Ends the remaining sandboxes of a previous server process. Must be called before the first build.
    pub async fn sweep(&self) {
        if let Err(error) = self.sandboxes.host.sweep(&Default::default()).await {
            tracing::warn!(%error, "cannot end the remaining sandboxes of earlier builds");
        }
    }

    pub(crate) fn artifacts(&self) -> &Arc<Artifacts> {
        &self.artifacts
    }

    async fn run_build(&self, build: Build, build_log: &BuildLog) -> Result<Built, BuildFailure> {
        let package = self.fetch(&build.source, build_log).await?;
        let (checksum, entrypoint) = (package.checksum.clone(), package.entrypoint.clone());
        let interpreter = self.interpreter(entrypoint.runtime()).await?;
        let artifact = name(build.project, &package, &interpreter);
        {
            let lock = self.lock(&artifact);
            let mut used = lock.lock().await;
            *used = Some(self.clock.now());
            if self.artifacts.exists(&artifact).await.map_err(internal_error)? {
                build_log.write("this source was built before; the earlier result is used again").await;
            } else {
                self.install(&artifact, package, build_log).await?;
            }
        }
        let apps = self.load(&artifact, &entrypoint, &build.environment, build_log).await?;
        // Another node deletes an artifact that no deployment has named for long, and does not know of this build.
        if !self.artifacts.exists(&artifact).await.map_err(internal_error)? {
            return Err(internal_error("the result of an earlier build was deleted; deploy again"));
        }
        Ok(Built { source_checksum: checksum, apps, artifact })
    }

    /// Fetches the source as an archive that can be unpacked.
    async fn fetch(&self, source: &BuildSource, build_log: &BuildLog) -> Result<FetchedSource, BuildFailure> {
        match source {
            BuildSource::Archive { blob, checksum, entrypoint } => {
                let content = self.blobs.get(blob).await.map_err(internal_error)?;
                let content = content.ok_or_else(|| internal_error("the uploaded archive no longer exists"))?;
                let spool = self.artifacts.spool().map_err(internal_error)?;
                let (archive, ..) = spool_to_file(spool, content, package::MAX_BYTES).await.map_err(internal_error)?;
                Ok(FetchedSource { archive, checksum: checksum.clone(), top: None, entrypoint: entrypoint.clone() })
            }
            BuildSource::Git { url, git_ref, path, entrypoint, token } => {
                build_log.write(&format!("fetching {git_ref} of {url}")).await;
                let archive = self.fetch_git(url, git_ref, path.as_ref(), token.as_ref(), build_log).await?;
                let top = path.as_ref().map(|path| path.as_str().to_owned());
                let wanted =
                    top.iter().map(String::as_str).chain([entrypoint.path().as_str()]).collect::<Vec<_>>().join("/");
                let check = tokio::task::spawn_blocking(move || check_archive(archive, &wanted));
                let (archive, checksum) = check.await.map_err(internal_error)??;
                Ok(FetchedSource { archive, checksum, top, entrypoint: entrypoint.clone() })
            }
        }
    }

    /// Fetches a Git source in a sandbox that reaches only the repository's origin and runs no code of the caller.
    async fn fetch_git(
        &self,
        url: &url::Url,
        git_ref: &str,
        path: Option<&PackagePath>,
        token: Option<&SecretString>,
        build_log: &BuildLog,
    ) -> Result<File, BuildFailure> {
        let app_sandbox = self.app_sandbox(EgressPolicy::Only(authority(url.as_str()).into_iter().collect())).await?;
        let seconds = self.sandboxes.config.build_seconds;
        let command = git::command(url, git_ref, path, token, self.sandboxes.environment(), seconds);
        run(&app_sandbox, command, BuildStep::Fetch, "fetching the source", build_log, token).await?;
        let request = Request::Read { path: git::ARCHIVE.to_owned(), max: package::MAX_BYTES };
        let archive = self.read_to_file(&app_sandbox, &request, package::MAX_BYTES, BuildStep::Fetch).await?;
        app_sandbox.end().await;
        Ok(archive)
    }

    /// Unpacks a source, installs its dependencies and stores the result.
    async fn install(&self, artifact: &str, package: FetchedSource, build_log: &BuildLog) -> Result<(), BuildFailure> {
        let runtime = package.entrypoint.runtime();
        let script = self.script(runtime)?;
        let config = &self.sandboxes.config;
        let app_sandbox = self.app_sandbox(EgressPolicy::Only(config.registries.clone())).await?;
        let mut stream = app_sandbox.ask(&Request::Unpack { top: package.top }).await.map_err(internal_error)?;
        let unpacked = link::unpack(&mut stream, package.archive, ARCHIVE_TIMEOUT).await.map_err(internal_error)?;
        unpacked.map_err(|reason| {
            failure::build(BuildStep::Fetch, format_args!("the package was not unpacked: {reason}"))
        })?;
        let mut env = self.sandboxes.environment();
        env.extend(self.install_environment());
        env.push(("ENTRYPOINT".to_owned(), package.entrypoint.path().to_string()));
        let argv = ["/bin/sh", "-c", script, "install"].map(str::to_owned).to_vec();
        let command = Command { argv, env, cwd: APP.to_owned(), seconds: config.build_seconds };
        run(&app_sandbox, command, BuildStep::Install, "installing dependencies", build_log, None).await?;
        let packed = self.read_to_file(&app_sandbox, &Request::Pack, LIMITS.packed, BuildStep::Install).await?;
        app_sandbox.end().await;
        self.artifacts.keep(artifact, packed).await.map_err(internal_error)
    }

    /// Returns the interpreter's ABI, so that an artifact is not used with another interpreter, for example after a
    /// system upgrade.
    async fn interpreter(&self, runtime: Runtime) -> Result<String, BuildFailure> {
        self.script(runtime)?;
        let config = &self.sandboxes.config;
        let (program, words) = match runtime {
            Runtime::Python => (config.python.clone(), &PYTHON_ABI_COMMAND[..]),
            Runtime::Node => (config.node.clone().unwrap_or_default().join("bin/node"), &NODE_ABI_COMMAND[..]),
        };
        let mut command = tokio::process::Command::new(&program);
        command.args(words).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        let answer = tokio::time::timeout(INTERPRETER_TIMEOUT, command.output()).await;
        let answer = answer.map_err(internal_error)?.map_err(internal_error)?;
        if !answer.status.success() || answer.stdout.is_empty() {
            return Err(internal_error(format_args!("{} does not say which one it is", program.display())));
        }
        Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
    }

    fn script(&self, runtime: Runtime) -> Result<&'static str, BuildFailure> {
        let config = &self.sandboxes.config;
        match runtime {
            Runtime::Python if config.python.is_file() => Ok(INSTALL_PYTHON),
            Runtime::Python => Err(internal_error("this installation has no Python: the operator can install it")),
            Runtime::Node if config.node.is_some() && config.npm.is_some() => Ok(INSTALL_NODE),
            Runtime::Node => {
                Err(internal_error("this installation has no Node with npm: the operator can install them"))
            }
        }
    }

    fn install_environment(&self) -> Vec<(String, String)> {
        let config = &self.sandboxes.config;
        let npm = config.npm.as_deref().and_then(|npm| npm.to_str()).unwrap_or_default();
        let mut env = vec![
            ("VENV", VENV.to_owned()),
            ("PYTHON", config.python.to_string_lossy().into_owned()),
            ("NODE", format!("{NODE}/bin/node")),
            ("NPM", npm.to_owned()),
            ("npm_config_cache", "/tmp/npm".to_owned()),
            ("npm_config_update_notifier", "false".to_owned()),
            ("PIP_NO_INPUT", "1".to_owned()),
            ("PIP_DISABLE_PIP_VERSION_CHECK", "1".to_owned()),
            ("PIP_NO_CACHE_DIR", "1".to_owned()),
            ("PIP_PROGRESS_BAR", "off".to_owned()),
            ("PIP_ROOT_USER_ACTION", "ignore".to_owned()),
        ];
        env.extend(config.pip_index.clone().map(|index| ("PIP_INDEX_URL", index)));
        env.extend(config.npm_registry.clone().map(|registry| ("npm_config_registry", registry)));
        env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Loads the entrypoint in the same way as for a call, and returns the apps that it registers.
    async fn load(
        &self,
        artifact: &str,
        entrypoint: &Entrypoint,
        environment: &Environment,
        build_log: &BuildLog,
    ) -> Result<Vec<BuiltApp>, BuildFailure> {
        build_log.write(&format!("loading {}", entrypoint.path())).await;
        let artifact_dir = self.artifacts.directory_of(artifact).await.map_err(internal_error)?;
        let (limits, seconds) = (self.sandboxes.config.call_limits, self.sandboxes.config.load_seconds);
        let params = SandboxParams {
            kind: 'b',
            memory_bytes: limits.memory_bytes,
            disk_bytes: limits.disk_bytes,
            processes: limits.processes,
            policy: EgressPolicy::Web(authority(&environment.base_url).into_iter().collect()),
            artifact: Some(&artifact_dir),
            base_url: Some(&environment.base_url),
        };
        let app_sandbox = self.sandboxes.open(params).await.map_err(no_sandbox)?;
        let mut stream = app_sandbox
            .ask(&Request::Load(load_command(&self.sandboxes, entrypoint, environment, seconds)))
            .await
            .map_err(internal_error)?;
        let timeout = Duration::from_secs(seconds + 30);
        let answer =
            tokio::time::timeout(timeout, link::next_answer(&mut stream, &mut LogRelay::new(build_log, None))).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            _ => Answer::Refused { reason: "its process ended unexpectedly".to_owned() },
        };
        let failed =
            |reason: String| Err(failure::build(BuildStep::Load, format_args!("{}: {reason}", entrypoint.path())));
        let loaded = match answer {
            Answer::Loaded { apps } => Ok(apps.into_iter().map(built_app).collect()),
            Answer::Ended(outcome) => failed(load_failure(outcome, &app_sandbox)),
            Answer::Refused { reason } => failed(reason),
            _ => failed("its process sent an unexpected answer".to_owned()),
        };
        app_sandbox.end().await;
        loaded
    }

    async fn app_sandbox(&self, policy: EgressPolicy) -> Result<AppSandbox, BuildFailure> {
        let config = &self.sandboxes.config;
        let params = SandboxParams {
            kind: 'b',
            memory_bytes: config.build_memory_bytes,
            disk_bytes: config.build_disk_bytes,
            processes: MAX_PROCESSES,
            policy,
            artifact: None,
            base_url: None,
        };
        self.sandboxes.open(params).await.map_err(no_sandbox)
    }

    async fn read_to_file(
        &self,
        app_sandbox: &AppSandbox,
        request: &Request,
        max: u64,
        step: BuildStep,
    ) -> Result<File, BuildFailure> {
        let mut stream = app_sandbox.ask(request).await.map_err(internal_error)?;
        let spool = self.artifacts.spool().map_err(internal_error)?;
        let read_to_file = link::take(&mut stream, spool, max, ARCHIVE_TIMEOUT).await.map_err(internal_error)?;
        read_to_file.map_err(|reason| failure::build(step, reason))
    }

    fn lock(&self, artifact: &str) -> ArtifactLock {
        let mut locks = self.locks.lock();
        let now = self.clock.now();
        locks.retain(|_, lock| {
            Arc::strong_count(lock) > 1 || lock.try_lock().is_ok_and(|used| was_just_used(*used, now))
        });
        Arc::clone(locks.entry(artifact.to_owned()).or_default())
    }
}

#[async_trait]
impl Builder for AppBuilder {
    async fn build(&self, build: Build, lines: Arc<dyn Lines>) -> Result<Built, BuildFailure> {
        let build_log = BuildLog::new(lines, Arc::clone(&self.clock)).await;
        let _turn = self.build_slots.acquire().await;
        self.run_build(build, &build_log).await
    }

    async fn stored(&self) -> Vec<(String, OffsetDateTime)> {
        self.artifacts.list_all().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot list build artifacts");
            Vec::new()
        })
    }

    async fn discard(&self, artifact: &str) {
        let lock = self.lock(artifact);
        let used = lock.lock().await;
        // The deployment of that build may not refer to the artifact yet.
        if was_just_used(*used, self.clock.now()) {
            return;
        }
        if let Err(error) = self.artifacts.discard(artifact).await {
            tracing::warn!(artifact, %error, "cannot delete a build artifact");
        }
    }
}

/// Returns the command that loads an entrypoint.
pub(crate) fn load_command(
    sandboxes: &AppSandboxes,
    entrypoint: &Entrypoint,
    environment: &Environment,
    seconds: u64,
) -> Command {
    use secrecy::ExposeSecret as _;
    let mut env = sandboxes.app_environment(entrypoint.runtime(), &environment.base_url);
    let variables = environment.variables();
    env.extend(variables.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())));
    Command { argv: sandboxes.loader(entrypoint), env, cwd: APP.to_owned(), seconds }
}

/// The failure reason of an entrypoint that exceeded its memory limit while it was loaded.
pub(crate) const OUT_OF_MEMORY: &str = "it used more memory than it may have";

/// Returns the reason why an entrypoint was not loaded.
pub(crate) fn load_failure(outcome: Outcome, app_sandbox: &AppSandbox) -> String {
    if app_sandbox.sandbox().is_ok_and(casement_sandbox::Sandbox::oom_killed) {
        return OUT_OF_MEMORY.to_owned();
    }
    match outcome {
        Outcome::Raised { reason } | Outcome::Unfit { reason } => reason,
        Outcome::Returned { .. } | Outcome::Lost => "its process ended".to_owned(),
        Outcome::Died { exit } => format!("its process {}", failure::ended(&exit)),
    }
}

/// Runs a command in a sandbox and writes its output to the build log.
async fn run(
    app_sandbox: &AppSandbox,
    command: Command,
    step: BuildStep,
    what: &str,
    build_log: &BuildLog,
    secret: Option<&SecretString>,
) -> Result<(), BuildFailure> {
    let mut relay = LogRelay::new(build_log, secret);
    let sandbox = app_sandbox.sandbox().map_err(internal_error)?;
    let exit = link::command(sandbox, command, &mut relay).await;
    let last = relay.reason();
    match exit {
        Ok(Exit::Code(0)) => Ok(()),
        _ if sandbox.oom_killed() => {
            Err(failure::build(step, format_args!("{what} used more memory than it may have")))
        }
        Ok(exit) if last.is_empty() => Err(failure::build(step, format_args!("{what} {}", failure::ended(&exit)))),
        Ok(exit) => Err(failure::build(step, format_args!("{what} {}: {last}", failure::ended(&exit)))),
        Err(error) => Err(internal_error(format_args!("{what} was interrupted: {error}"))),
    }
}

/// Checks that a fetched archive can be unpacked and contains the entrypoint. Returns the archive and its checksum.
fn check_archive(mut archive: File, wanted: &str) -> Result<(File, String), BuildFailure> {
    use std::io::Seek as _;
    let bad = |reason: &dyn Display| failure::build(BuildStep::Fetch, reason);
    let found = package::inspect(archive.try_clone().map_err(internal_error)?, wanted).map_err(|error| bad(&error))?;
    if !found {
        return Err(bad(&format_args!("there is no file {wanted} in the repository")));
    }
    let mut checksum = Sha256::new();
    archive.rewind().map_err(internal_error)?;
    std::io::copy(&mut archive, &mut Digesting(&mut checksum)).map_err(internal_error)?;
    archive.rewind().map_err(internal_error)?;
    Ok((archive, hex(checksum)))
}

struct Digesting<'a>(&'a mut Sha256);

impl std::io::Write for Digesting<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the artifact name of a source: the same for the same source, different for each project and each
/// interpreter.
fn name(project: ProjectId, package: &FetchedSource, interpreter: &str) -> String {
    let mut name = Sha256::new();
    let runtime = match package.entrypoint.runtime() {
        Runtime::Python => "python",
        Runtime::Node => "node",
    };
    let top = package.top.as_deref().unwrap_or_default();
    let entrypoint = package.entrypoint.path().to_string();
    // Dependencies may be listed in the folder of the entrypoint.
    let folder = entrypoint.rsplit_once('/').map_or("", |(folder, _)| folder);
    for part in [FORMAT_VERSION, &project.to_string(), &package.checksum, runtime, interpreter, top, folder] {
        name.update(part.len().to_le_bytes());
        name.update(part);
    }
    hex(name)
}

fn built_app(app: App) -> BuiltApp {
    BuiltApp { name: app.name, actions: app.actions }
}

fn internal_error(error: impl Display) -> BuildFailure {
    failure::build(BuildStep::Host, error)
}

fn no_sandbox(error: AppSandboxError) -> BuildFailure {
    internal_error(error)
}
