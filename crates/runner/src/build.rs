//! Building: a source becomes an artifact, and what its entrypoint registers is learnt.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::File;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use casement_archive::package;
use casement_domain::blob::BlobStore;
use casement_domain::clock::{Clock, IdSource};
use casement_domain::deployment::{
    Build, BuildFailure, BuildSource, BuildStep, Builder, Built, BuiltApp, Entrypoint, Environment, Line, Lines,
    PackagePath, Runtime,
};
use casement_domain::ids::ProjectId;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use tokio::sync::Semaphore;

use crate::artifact::{Artifacts, LIMITS};
use crate::config::{AppRunnerConfig, AppRunnerSetupError};
use crate::egress::{AppEgressPort, EgressPolicy};
use crate::failure;
use crate::git;
use crate::host::{AppSandbox, AppSandboxError, AppSandboxes, SandboxParams, authority};
use crate::link::{self, LineSink};
use crate::package::{hex, spool_to_file};
use crate::protocol::{APP, Answer, App, Command, Exit, NODE, Outcome, OutputLine, Request, VENV};

/// Builds that run at a time.
const AT_ONCE: usize = 2;
/// For how long an artifact is not discarded after a build has used it: longer than a build takes to its end.
const SPARED: time::Duration = time::Duration::hours(1);
/// How long an archive may take to be unpacked or packed.
const PACKING: Duration = Duration::from_secs(300);
/// Processes and threads of one build.
const PROCESSES: u32 = 1024;
/// Changes when artifacts are made in another way, so that older ones are not taken for such.
const MANNER: &str = "1";
/// What an interpreter is asked: for what things are compiled for it.
const ASK_PYTHON: [&str; 4] = ["-I", "-S", "-c", "import sysconfig; print(sysconfig.get_config_var('SOABI'))"];
const ASK_NODE: [&str; 2] = ["-p", "[process.platform, process.arch, process.versions.modules].join()"];
/// How long it may take to answer.
const ASKING: Duration = Duration::from_secs(30);

/// Where the steps of an installation are told apart from what their programs say.
const INSTALL_PYTHON: &str = include_str!("loaders/install_python.sh");
const INSTALL_NODE: &str = include_str!("loaders/install_node.sh");

/// Builds programs.
pub struct AppBuilder {
    rooms: Arc<AppSandboxes>,
    artifacts: Arc<Artifacts>,
    blobs: Arc<dyn BlobStore>,
    clock: Arc<dyn Clock>,
    turns: Semaphore,
    /// One at a time builds an artifact, or discards it; and when a build last used it.
    building: Mutex<HashMap<String, Turn>>,
}

/// Whose turn it is with an artifact. Holds when a build of this life last used it.
type Turn = Arc<tokio::sync::Mutex<Option<OffsetDateTime>>>;

/// Whether an artifact is not discarded at this time, because a build has just used it.
fn is_spared(used: Option<OffsetDateTime>, now: OffsetDateTime) -> bool {
    used.is_some_and(|used| now < used + SPARED)
}

/// A source that was fetched.
struct Package {
    archive: File,
    checksum: String,
    /// What of the archive is the program.
    top: Option<String>,
    entrypoint: Entrypoint,
}

impl AppBuilder {
    /// Makes its directories. Must be called inside the runtime that its sandboxes' ways out are served in.
    ///
    /// # Errors
    /// If there can be no sandboxes, or a directory cannot be made.
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
        let rooms = Arc::new(AppSandboxes::new(config, "builds", egress, ids)?);
        Ok(Self { rooms, artifacts, blobs, clock, turns: Semaphore::new(AT_ONCE), building: Mutex::default() })
    }

    /// Ends what is left of an earlier life's builds. To be called before the first build.
    pub async fn sweep(&self) {
        if let Err(error) = self.rooms.host.sweep(&Default::default()).await {
            tracing::warn!(%error, "what is left of earlier builds could not be ended");
        }
    }

    /// Where artifacts lie.
    pub(crate) fn artifacts(&self) -> &Arc<Artifacts> {
        &self.artifacts
    }

    async fn built(&self, build: Build, journal: &Journal) -> Result<Built, BuildFailure> {
        let package = self.fetch(&build.source, journal).await?;
        let (checksum, entrypoint) = (package.checksum.clone(), package.entrypoint.clone());
        let interpreter = self.interpreter(entrypoint.runtime()).await?;
        let artifact = name(build.project, &package, &interpreter);
        {
            let turn = self.turn(&artifact);
            let mut used = turn.lock().await;
            *used = Some(self.clock.now());
            if self.artifacts.is_there(&artifact).await.map_err(ours)? {
                journal.say("this source was built before: what it left is used again").await;
            } else {
                self.install(&artifact, package, journal).await?;
            }
        }
        let apps = self.load(&artifact, &entrypoint, &build.environment, journal).await?;
        Ok(Built { source_checksum: checksum, apps, artifact })
    }

    /// Has the source at hand as an archive that may be unpacked.
    async fn fetch(&self, source: &BuildSource, journal: &Journal) -> Result<Package, BuildFailure> {
        match source {
            BuildSource::Archive { blob, checksum, entrypoint } => {
                let content = self.blobs.get(blob).await.map_err(ours)?;
                let content = content.ok_or_else(|| ours("the uploaded archive is not there any more"))?;
                let spool = self.artifacts.spool().map_err(ours)?;
                let (archive, ..) = spool_to_file(spool, content, package::MAX_BYTES).await.map_err(ours)?;
                Ok(Package { archive, checksum: checksum.clone(), top: None, entrypoint: entrypoint.clone() })
            }
            BuildSource::Git { url, git_ref, path, entrypoint, token } => {
                journal.say(&format!("fetching {git_ref} of {url}")).await;
                let archive = self.fetch_git(url, git_ref, path.as_ref(), token.as_ref(), journal).await?;
                let top = path.as_ref().map(|path| path.as_str().to_owned());
                let wanted =
                    top.iter().map(String::as_str).chain([entrypoint.path().as_str()]).collect::<Vec<_>>().join("/");
                let looking = tokio::task::spawn_blocking(move || looked_through(archive, &wanted));
                let (archive, checksum) = looking.await.map_err(ours)??;
                Ok(Package { archive, checksum, top, entrypoint: entrypoint.clone() })
            }
        }
    }

    /// Fetches in a sandbox that reaches the origin and nothing else, and in which nothing of a caller's runs.
    async fn fetch_git(
        &self,
        url: &url::Url,
        git_ref: &str,
        path: Option<&PackagePath>,
        token: Option<&SecretString>,
        journal: &Journal,
    ) -> Result<File, BuildFailure> {
        let room = self.room(EgressPolicy::Only(authority(url.as_str()).into_iter().collect())).await?;
        let seconds = self.rooms.config.build_seconds;
        let command = git::command(url, git_ref, path, token, self.rooms.environment(None), seconds);
        run(&room, command, BuildStep::Fetch, "fetching the source", journal, token).await?;
        let request = Request::Read { path: git::ARCHIVE.to_owned(), most: package::MAX_BYTES };
        let archive = self.taken(&room, &request, package::MAX_BYTES, BuildStep::Fetch).await?;
        room.end().await;
        Ok(archive)
    }

    /// Unpacks a source and installs what it needs; keeps what comes of it.
    async fn install(&self, artifact: &str, package: Package, journal: &Journal) -> Result<(), BuildFailure> {
        let runtime = package.entrypoint.runtime();
        let script = self.script(runtime)?;
        let config = &self.rooms.config;
        let room = self.room(EgressPolicy::Only(config.registries.clone())).await?;
        let mut stream = room.ask(&Request::Unpack { top: package.top }).await.map_err(ours)?;
        let unpacked = link::unpack(&mut stream, package.archive, PACKING).await.map_err(ours)?;
        unpacked.map_err(|reason| {
            failure::build(BuildStep::Fetch, format_args!("the package was not unpacked: {reason}"))
        })?;
        let mut env = self.rooms.environment(None);
        env.extend(self.install_environment());
        let argv = ["/bin/sh", "-c", script, "install"].map(str::to_owned).to_vec();
        let command = Command { argv, env, cwd: APP.to_owned(), seconds: config.build_seconds };
        run(&room, command, BuildStep::Install, "installing dependencies", journal, None).await?;
        let packed = self.taken(&room, &Request::Pack, LIMITS.packed, BuildStep::Install).await?;
        room.end().await;
        self.artifacts.keep(artifact, packed).await.map_err(ours)
    }

    /// What tells an interpreter from another one that cannot run what was installed for it: after the system was upgraded, say.
    async fn interpreter(&self, runtime: Runtime) -> Result<String, BuildFailure> {
        self.script(runtime)?;
        let config = &self.rooms.config;
        let (program, words) = match runtime {
            Runtime::Python => (config.python.clone(), &ASK_PYTHON[..]),
            Runtime::Node => (config.node.clone().unwrap_or_default().join("bin/node"), &ASK_NODE[..]),
        };
        let mut asking = tokio::process::Command::new(&program);
        asking.args(words).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        let answer = tokio::time::timeout(ASKING, asking.output()).await;
        let answer = answer.map_err(ours)?.map_err(ours)?;
        if !answer.status.success() || answer.stdout.is_empty() {
            return Err(ours(format_args!("{} does not say which one it is", program.display())));
        }
        Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
    }

    fn script(&self, runtime: Runtime) -> Result<&'static str, BuildFailure> {
        let config = &self.rooms.config;
        match runtime {
            Runtime::Python if config.python.is_file() => Ok(INSTALL_PYTHON),
            Runtime::Python => Err(ours("this installation has no Python: the operator can install it")),
            Runtime::Node if config.node.is_some() && config.npm.is_some() => Ok(INSTALL_NODE),
            Runtime::Node => Err(ours("this installation has no Node with npm: the operator can install them")),
        }
    }

    fn install_environment(&self) -> Vec<(String, String)> {
        let config = &self.rooms.config;
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

    /// Loads the entrypoint as a call would, to learn what it registers.
    async fn load(
        &self,
        artifact: &str,
        entrypoint: &Entrypoint,
        environment: &Environment,
        journal: &Journal,
    ) -> Result<Vec<BuiltApp>, BuildFailure> {
        journal.say(&format!("loading {}", entrypoint.path())).await;
        let place = self.artifacts.place(artifact).await.map_err(ours)?;
        let (limits, seconds) = (self.rooms.config.call_limits, self.rooms.config.load_seconds);
        let wanted = SandboxParams {
            kind: 'b',
            memory_bytes: limits.memory_bytes,
            disk_bytes: limits.disk_bytes,
            processes: limits.processes,
            reach: EgressPolicy::Web(authority(&environment.base_url).into_iter().collect()),
            artifact: Some(&place),
            base_url: Some(&environment.base_url),
        };
        let room = self.rooms.open(wanted).await.map_err(no_room)?;
        let mut stream = room
            .ask(&Request::Load(load_command(&self.rooms, entrypoint, environment, seconds)))
            .await
            .map_err(ours)?;
        let patience = Duration::from_secs(seconds + 30);
        let answer = tokio::time::timeout(patience, link::words(&mut stream, &mut Relay::new(journal, None))).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            _ => Answer::Refused { reason: "its process broke off".to_owned() },
        };
        let failed =
            |reason: String| Err(failure::build(BuildStep::Load, format_args!("{}: {reason}", entrypoint.path())));
        let loaded = match answer {
            Answer::Loaded { apps } => Ok(apps.into_iter().map(built_app).collect()),
            Answer::Ended(outcome) => failed(load_failure(outcome, &room)),
            Answer::Refused { reason } => failed(reason),
            _ => failed("its process said something else than was asked".to_owned()),
        };
        room.end().await;
        loaded
    }

    async fn room(&self, reach: EgressPolicy) -> Result<AppSandbox, BuildFailure> {
        let config = &self.rooms.config;
        let wanted = SandboxParams {
            kind: 'b',
            memory_bytes: config.build_memory_bytes,
            disk_bytes: config.build_disk_bytes,
            processes: PROCESSES,
            reach,
            artifact: None,
            base_url: None,
        };
        self.rooms.open(wanted).await.map_err(no_room)
    }

    async fn taken(
        &self,
        room: &AppSandbox,
        request: &Request,
        most: u64,
        step: BuildStep,
    ) -> Result<File, BuildFailure> {
        let mut stream = room.ask(request).await.map_err(ours)?;
        let spool = self.artifacts.spool().map_err(ours)?;
        let taken = link::take(&mut stream, spool, most, PACKING).await.map_err(ours)?;
        taken.map_err(|reason| failure::build(step, reason))
    }

    fn turn(&self, artifact: &str) -> Turn {
        let mut building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        building
            .retain(|_, turn| Arc::strong_count(turn) > 1 || turn.try_lock().is_ok_and(|used| is_spared(*used, now)));
        Arc::clone(building.entry(artifact.to_owned()).or_default())
    }
}

#[async_trait]
impl Builder for AppBuilder {
    async fn build(&self, build: Build, lines: Arc<dyn Lines>) -> Result<Built, BuildFailure> {
        let journal = Journal::new(lines, Arc::clone(&self.clock)).await;
        let _turn = self.turns.acquire().await;
        self.built(build, &journal).await
    }

    async fn kept(&self) -> Vec<(String, OffsetDateTime)> {
        self.artifacts.kept().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "what builds have left cannot be listed");
            Vec::new()
        })
    }

    async fn discard(&self, artifact: &str) {
        let turn = self.turn(artifact);
        let used = turn.lock().await;
        // Its deployment may not have named it yet.
        if is_spared(*used, self.clock.now()) {
            return;
        }
        if let Err(error) = self.artifacts.discard(artifact).await {
            tracing::warn!(artifact, %error, "what a build left could not be discarded");
        }
    }
}

/// The command that loads an entrypoint.
pub(crate) fn load_command(
    rooms: &AppSandboxes,
    entrypoint: &Entrypoint,
    environment: &Environment,
    seconds: u64,
) -> Command {
    use secrecy::ExposeSecret as _;
    let mut env = rooms.environment(Some(&environment.base_url));
    let own = environment.variables();
    env.extend(own.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())));
    Command { argv: rooms.loader(entrypoint), env, cwd: APP.to_owned(), seconds }
}

/// Why an entrypoint was not loaded that took more memory than there is for it.
pub(crate) const OUT_OF_MEMORY: &str = "it used more memory than it may have";

/// Why an entrypoint was not loaded.
pub(crate) fn load_failure(outcome: Outcome, room: &AppSandbox) -> String {
    if room.sandbox().is_ok_and(casement_sandbox::Sandbox::oom_killed) {
        return OUT_OF_MEMORY.to_owned();
    }
    match outcome {
        Outcome::Raised { reason } | Outcome::Unfit { reason } => reason,
        Outcome::Returned { .. } | Outcome::Lost => "its process ended".to_owned(),
        Outcome::Died { exit } => format!("its process {}", failure::ended(&exit)),
    }
}

/// Runs a command in a sandbox, with what it says in the journal.
async fn run(
    room: &AppSandbox,
    command: Command,
    step: BuildStep,
    what: &str,
    journal: &Journal,
    secret: Option<&SecretString>,
) -> Result<(), BuildFailure> {
    let mut relay = Relay::new(journal, secret);
    let sandbox = room.sandbox().map_err(ours)?;
    let exit = link::command(sandbox, command, &mut relay).await;
    let last = relay.last;
    match exit {
        Ok(Exit::Code(0)) => Ok(()),
        _ if sandbox.oom_killed() => {
            Err(failure::build(step, format_args!("{what} used more memory than it may have")))
        }
        Ok(exit) if last.is_empty() => Err(failure::build(step, format_args!("{what} {}", failure::ended(&exit)))),
        Ok(exit) => Err(failure::build(step, format_args!("{what} {}: {last}", failure::ended(&exit)))),
        Err(error) => Err(ours(format_args!("{what} broke off: {error}"))),
    }
}

/// Hands on to the journal what a program says, without the secret that it was given.
struct Relay<'a> {
    journal: &'a Journal,
    secret: Option<&'a SecretString>,
    /// The last line that is not empty.
    last: String,
}

impl<'a> Relay<'a> {
    fn new(journal: &'a Journal, secret: Option<&'a SecretString>) -> Self {
        Self { journal, secret, last: String::new() }
    }
}

#[async_trait]
impl LineSink for Relay<'_> {
    async fn hear(&mut self, mut lines: Vec<OutputLine>) {
        for line in &mut lines {
            line.text = git::without(&line.text, self.secret);
        }
        if let Some(line) = lines.iter().rev().find(|line| !line.text.trim().is_empty()) {
            line.text.trim().clone_into(&mut self.last);
        }
        self.journal.relay(lines).await;
    }
}

/// Whether a fetched archive may be unpacked and holds the entrypoint; its checksum.
fn looked_through(mut archive: File, wanted: &str) -> Result<(File, String), BuildFailure> {
    use std::io::Seek as _;
    let bad = |reason: &dyn Display| failure::build(BuildStep::Fetch, reason);
    let found = package::inspect(archive.try_clone().map_err(ours)?, wanted).map_err(|error| bad(&error))?;
    if !found {
        return Err(bad(&format_args!("there is no file {wanted} in the repository")));
    }
    let mut checksum = Sha256::new();
    archive.rewind().map_err(ours)?;
    std::io::copy(&mut archive, &mut Digesting(&mut checksum)).map_err(ours)?;
    archive.rewind().map_err(ours)?;
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

/// The name of what a source becomes: the same for the same source, and another one for every project and every interpreter.
fn name(project: ProjectId, package: &Package, interpreter: &str) -> String {
    let mut name = Sha256::new();
    let runtime = match package.entrypoint.runtime() {
        Runtime::Python => "python",
        Runtime::Node => "node",
    };
    let top = package.top.as_deref().unwrap_or_default();
    for part in [MANNER, &project.to_string(), &package.checksum, runtime, interpreter, top] {
        name.update(part.len().to_le_bytes());
        name.update(part);
    }
    hex(name)
}

fn built_app(app: App) -> BuiltApp {
    BuiltApp { name: app.name, actions: app.actions }
}

fn ours(error: impl Display) -> BuildFailure {
    failure::build(BuildStep::Host, error)
}

fn no_room(error: AppSandboxError) -> BuildFailure {
    ours(error)
}

/// Numbers the lines of one build.
struct Journal {
    lines: Arc<dyn Lines>,
    clock: Arc<dyn Clock>,
    next: tokio::sync::Mutex<u64>,
}

impl Journal {
    async fn new(lines: Arc<dyn Lines>, clock: Arc<dyn Clock>) -> Self {
        let next = tokio::sync::Mutex::new(lines.taken().await);
        Self { lines, clock, next }
    }

    /// Says something of ours.
    async fn say(&self, text: &str) {
        let at = self.clock.now();
        self.push(vec![(at, text.to_owned())]).await;
    }

    /// Hands on what a program said.
    async fn relay(&self, lines: Vec<OutputLine>) {
        let now = self.clock.now();
        self.push(lines.into_iter().map(|line| (moment(line.at, now), line.text)).collect()).await;
    }

    async fn push(&self, texts: Vec<(OffsetDateTime, String)>) {
        let mut next = self.next.lock().await;
        let lines: Vec<Line> =
            (*next..).zip(texts).map(|(number, (at, text))| Line { number, at, text: fitting(text) }).collect();
        *next += lines.len() as u64;
        if !lines.is_empty() {
            self.lines.push(lines).await;
        }
    }
}

/// A line as long as lines may be, without what no database keeps.
pub(crate) fn fitting(text: String) -> String {
    let mut text = if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text };
    let end = (0..=Line::MAX_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.truncate(end);
    text
}

/// A moment that an inside has told, which may be anything.
pub(crate) fn moment(milliseconds: i64, now: OffsetDateTime) -> OffsetDateTime {
    let told = OffsetDateTime::from_unix_timestamp_nanos(i128::from(milliseconds) * 1_000_000);
    told.ok().filter(|told| (*told - now).abs() < time::Duration::days(2)).unwrap_or(now)
}
