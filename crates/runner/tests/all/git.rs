//! Tests of sources in Git repositories, fetched from a real Git server.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use casement_domain::deployment::{BuildFailure, BuildSource, BuildStep, Built, PackagePath};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::support::{Fixture, RecordedLines, entry};

/// The part of the client framework that a program needs to register an app.
const FRAMEWORK: &str = "class Named:\n    def __init__(self, name):\n        self.name = name\n    def get_actions(self):\n        return [Named('act')]\n\n\nclass Registry:\n    apps = []\n    def get_apps(self):\n        return self.apps\n\n\napp_registry = Registry()\n";

/// A Git server on loopback, with one repository `some/where`.
struct Server {
    origin: String,
    repository: TempDir,
    heads: Arc<Mutex<Vec<String>>>,
    _serving: AbortOnDropHandle<()>,
}

impl Server {
    /// Starts a server that requires `token`, if there is one.
    async fn new(token: Option<&'static str>) -> Self {
        let repository = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (root, heads) = (repository.path().to_owned(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&heads);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (root, seen) = (root.clone(), Arc::clone(&seen));
                tokio::spawn(async move { drop(answer(stream, &root, token, &seen).await) });
            }
        });
        let server = Self { origin, repository, heads, _serving: AbortOnDropHandle::new(serving) };
        std::fs::create_dir_all(server.at()).unwrap();
        server.git(&["init", "--quiet", "--initial-branch=main"]);
        server
    }

    fn at(&self) -> std::path::PathBuf {
        self.repository.path().join("some/where")
    }

    fn git(&self, words: &[&str]) -> String {
        let mut command = Command::new("git");
        let me = ["-c", "user.name=x", "-c", "user.email=x@example", "-c", "protocol.file.allow=always"];
        command.args(me).args(words).current_dir(self.at()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let done = command.output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    /// Commits a program in the folder `below` that registers an app of this name.
    fn commit(&self, below: &str, app: &str) -> String {
        let folder = self.at().join(below);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("kernel.py"), FRAMEWORK).unwrap();
        let program = format!("import kernel\nkernel.app_registry.apps.append(kernel.Named('{app}'))\n");
        std::fs::write(folder.join("main.py"), program).unwrap();
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", app]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn source(&self, git_ref: &str, path: Option<&str>, token: Option<&str>) -> BuildSource {
        BuildSource::Git {
            url: format!("{}/some/where", self.origin).parse().unwrap(),
            git_ref: git_ref.to_owned(),
            path: path.map(|path| PackagePath::parse(path).unwrap()),
            entrypoint: entry("main.py"),
            token: token.map(|token| token.to_owned().into()),
        }
    }
}

/// Answers one request through `git http-backend`.
async fn answer(stream: TcpStream, root: &Path, token: Option<&str>, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    seen.lock().push(head.clone());
    let header = |name: &str| {
        let found =
            |line: &str| Some(line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name))?.1.to_owned());
        head.lines().find_map(found).unwrap_or_default()
    };
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path.starts_with("/moved/") {
        let moved = "HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/some/where/info/refs\r\nContent-Length: 0\r\n\r\n";
        return stream.write_all(moved.as_bytes()).await;
    }
    let wanted = token.map(|token| format!("Basic {}", BASE64_STANDARD.encode(format!("x-access-token:{token}"))));
    if wanted.is_some_and(|wanted| header("authorization") != wanted) {
        let refusal = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\n\r\n";
        return stream.write_all(refusal.as_bytes()).await;
    }
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    let mut backend = tokio::process::Command::new("git");
    backend.arg("http-backend").stdin(Stdio::piped()).stdout(Stdio::piped());
    let variables = [
        ("GIT_PROJECT_ROOT", root.to_str().unwrap_or_default()),
        ("GIT_HTTP_EXPORT_ALL", "1"),
        ("REQUEST_METHOD", method),
        ("PATH_INFO", path),
        ("QUERY_STRING", query),
        ("CONTENT_TYPE", &header("content-type")),
        ("HTTP_CONTENT_ENCODING", &header("content-encoding")),
        ("HTTP_GIT_PROTOCOL", &header("git-protocol")),
        ("GIT_PROTOCOL", &header("git-protocol")),
    ];
    let mut running = backend.envs(variables).kill_on_drop(true).spawn()?;
    let (mut input, mut output) = (running.stdin.take().unwrap(), running.stdout.take().unwrap());
    let mut answered = Vec::new();
    let (written, read) = tokio::join!(
        async {
            input.write_all(&body).await.ok();
            drop(input);
        },
        output.read_to_end(&mut answered)
    );
    let ((), _) = (written, read?);
    let status = if answered.starts_with(b"Status: 404") { "404 Not Found" } else { "200 OK" };
    stream.write_all(format!("HTTP/1.1 {status}\r\nConnection: close\r\n").as_bytes()).await?;
    stream.write_all(&answered).await
}

async fn build(fixture: &Fixture, source: BuildSource) -> (Result<Built, BuildFailure>, String) {
    let lines = Arc::new(RecordedLines::default());
    let built = fixture.build_source(source, &lines).await;
    (built, lines.text())
}

fn apps(built: Result<Built, BuildFailure>, output: &str) -> Vec<String> {
    built.unwrap_or_else(|failed| panic!("{failed}: {output}")).apps.into_iter().map(|app| app.name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_a_tag_and_a_commit_can_be_fetched() {
    let (fixture, server) = (Fixture::new(), Server::new(None).await);
    let first = server.commit("", "first");
    server.git(&["tag", "--annotate", "--message", "x", "v1"]);
    let second = server.commit("deep/down", "below");
    server.commit("", "third");
    server.git(&["branch", "feature/x", &second]);
    for (git_ref, path, app) in [
        ("main", None, "third"),
        ("v1", None, "first"),
        ("refs/heads/main", None, "third"),
        (&*first, None, "first"),
        (&first[..8], None, "first"),
        ("feature/x", Some("deep/down"), "below"),
    ] {
        let (built, output) = build(&fixture, server.source(git_ref, path, None)).await;
        assert_eq!(apps(built, &output), [app], "{git_ref}");
        assert!(output.contains("fetched commit"), "{output}");
    }
    let (built, _) = build(&fixture, server.source("main", None, None)).await;
    let (restart, output) = build(&fixture, server.source("refs/heads/main", None, None)).await;
    assert_eq!(built.unwrap().source_checksum, restart.unwrap().source_checksum);
    assert!(output.contains("built before"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_repository_needs_its_token_which_is_never_logged() {
    const TOKEN: &str = "ghp_verysecret";
    let (fixture, server) = (Fixture::new(), Server::new(Some(TOKEN)).await);
    server.commit("", "private");
    let (built, output) = build(&fixture, server.source("main", None, Some(TOKEN))).await;
    assert_eq!(apps(built, &output), ["private"]);
    assert!(!output.contains(TOKEN), "{output}");
    for token in [None, Some("ghp_wrong")] {
        let (failed, output) = build(&fixture, server.source("main", None, token)).await;
        let failed = failed.unwrap_err();
        assert_eq!(failed.step, BuildStep::Fetch, "{failed}");
        assert!(!format!("{failed}{output}").contains("ghp_"), "{failed}: {output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_refs_and_urls_are_refused() {
    let (fixture, server) = (Fixture::new(), Server::new(None).await);
    server.commit("", "plain");
    for (git_ref, why) in [
        ("nowhere", "nowhere"),
        ("main:refs/heads/other", "none that Git knows"),
        ("+main", "none that Git knows"),
        ("--upload-pack=/bin/true", "none that Git knows"),
        ("main..main", "none that Git knows"),
        ("0000000", "no commit"),
    ] {
        let failed = build(&fixture, server.source(git_ref, None, None)).await.0.unwrap_err();
        assert!(failed.step == BuildStep::Fetch && failed.reason.contains(why), "{git_ref}: {failed}");
    }
    let failed = build(&fixture, server.source("main", Some("not/there"), None)).await.0.unwrap_err();
    assert!(failed.reason.contains("no folder not/there"), "{failed}");
    for url in ["file:///etc", "ext::sh -c true", "ssh://127.0.0.1/x", "git://127.0.0.1/x"] {
        let Ok(url) = url.parse() else { continue };
        let mut source = server.source("main", None, None);
        if let BuildSource::Git { url: at, .. } = &mut source {
            *at = url;
        }
        let failed = build(&fixture, source).await.0.unwrap_err();
        assert_eq!(failed.step, BuildStep::Fetch, "{failed}");
    }
    let mut source = server.source("main", None, None);
    if let BuildSource::Git { url, .. } = &mut source {
        *url = format!("{}/moved/where", server.origin).parse().unwrap();
    }
    assert_eq!(build(&fixture, source).await.0.unwrap_err().step, BuildStep::Fetch);
    assert!(
        !fixture.gate.requests().iter().any(|requests| requests.contains("10.0.0.1")),
        "{:?}",
        fixture.gate.requests()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submodules_lfs_pointers_and_hooks_are_not_followed() {
    let (fixture, server) = (Fixture::new(), Server::new(None).await);
    let inner = tempfile::tempdir().unwrap();
    for words in [
        &["init", "--quiet"][..],
        &["-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "--allow-empty", "--message", "x"],
    ] {
        assert!(Command::new("git").args(words).current_dir(inner.path()).status().unwrap().success());
    }
    server.git(&["submodule", "--quiet", "add", inner.path().to_str().unwrap(), "inner"]);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    std::fs::write(server.at().join("large.bin"), pointer).unwrap();
    std::fs::write(server.at().join(".gitattributes"), "*.bin filter=lfs diff=lfs merge=lfs -text\n").unwrap();
    server.commit("", "plain");
    let (built, output) = build(&fixture, server.source("main", None, None)).await;
    assert_eq!(apps(built, &output), ["plain"]);
    let requests: Vec<String> =
        server.heads.lock().iter().map(|head| head.split(' ').nth(1).unwrap().to_owned()).collect();
    assert!(requests.iter().all(|path| path.starts_with("/some/where/")), "{requests:?}");
    std::os::unix::fs::symlink("/etc/passwd", server.at().join("out")).unwrap();
    server.commit("", "with a link out");
    let failed = build(&fixture, server.source("main", None, None)).await.0.unwrap_err();
    assert!(failed.step == BuildStep::Fetch && failed.reason.contains("link"), "{failed}");
}
