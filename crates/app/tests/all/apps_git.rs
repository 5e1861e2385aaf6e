//! Tests of deployments from Git repositories, which the server fetches from a real Git server.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use casement_test_support::program::{Clients, Options, Server};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::host::dump;
use super::programs::{Place, lines, python, write_files};

const TOKEN: &str = "a-token-that-stands-nowhere-else";

const MAIN: &str = "
import kernel

app = kernel.App('shop')

@app.action('echo')
def echo(context, payload):
    return payload
";

/// A script that leaves a file and a log line if it runs.
const HOOK: &str = "#!/bin/sh\necho the hook ran >&2\ntouch /tmp/the-hook-ran the-hook-ran\n";

/// A Git server on loopback. Repositories below `private` need the token.
struct GitServer {
    origin: String,
    root: TempDir,
}

impl GitServer {
    fn start() -> anyhow::Result<Self> {
        let root = tempfile::tempdir()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let origin = format!("http://{}", listener.local_addr()?);
        let path = root.path().to_owned();
        // The thread ends with the test program.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let path = path.clone();
                thread::spawn(move || serve(stream, &path).ok());
            }
        });
        Ok(Self { origin, root })
    }

    /// Creates a repository with the app, hooks and other executable files. Returns the commit.
    fn repository(&self, name: &str) -> anyhow::Result<String> {
        let folder = self.root.path().join(name);
        fs::create_dir_all(&folder)?;
        let git = |words: &[&str]| git(&folder, words);
        git(&["init", "--quiet", "--initial-branch=main"])?;
        write_files(&folder, &python(MAIN))?;
        let hooks = ["post-checkout", "post-merge", "reference-transaction"];
        for hook in hooks {
            write_files(&folder, &[(&format!("hooks/{hook}"), HOOK), (&format!(".git/hooks/{hook}"), HOOK)])?;
            executable(&folder.join("hooks").join(hook))?;
        }
        write_files(&folder, &[(".gitattributes", "*.py filter=hook\n")])?;
        git(&["add", "--all"])?;
        git(&["commit", "--quiet", "--message", "all"])?;
        for hook in hooks {
            executable(&folder.join(".git/hooks").join(hook))?;
        }
        git(&["rev-parse", "HEAD"])
    }

    fn source(&self, repository: &str, token: Option<&str>) -> Value {
        let url = format!("{}/{repository}", self.origin);
        let mut source = json!({ "type": "github", "url": url, "ref": "main", "entrypoint": "main.py" });
        if let Some(token) = token {
            source["auth"] = json!({ "method": "github_token", "token": token });
        }
        source
    }
}

fn executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

fn git(folder: &Path, words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=x", "-c", "user.email=x@example"]).args(words).current_dir(folder);
    let done = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output()?;
    ensure!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?.trim().to_owned())
}

/// Responds to one request with `git http-backend`.
fn serve(stream: TcpStream, root: &Path) -> anyhow::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(stream.read_line(&mut head)? > 0, "it broke off");
    }
    let header = |name: &str| {
        let value =
            |line: &str| Some(line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name))?.1.to_owned());
        head.lines().find_map(value).unwrap_or_default()
    };
    let mut words = head.split(' ');
    let (method, target) = (words.next().context("no method")?, words.next().context("no target")?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let wanted = format!("Basic {}", BASE64_STANDARD.encode(format!("x-access-token:{TOKEN}")));
    if path.starts_with("/private/") && header("authorization") != wanted {
        let refusal = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\n\r\n";
        return Ok(stream.get_mut().write_all(refusal.as_bytes())?);
    }
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body)?;
    let variables = [
        ("GIT_PROJECT_ROOT", root.to_str().context("a path")?),
        ("GIT_HTTP_EXPORT_ALL", "1"),
        ("REQUEST_METHOD", method),
        ("PATH_INFO", path),
        ("QUERY_STRING", query),
        ("CONTENT_TYPE", &header("content-type")),
        ("HTTP_CONTENT_ENCODING", &header("content-encoding")),
        ("GIT_PROTOCOL", &header("git-protocol")),
    ];
    let mut backend = Command::new("git");
    backend.arg("http-backend").envs(variables).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = backend.spawn()?;
    let mut input = running.stdin.take().context("no input")?;
    // The backend may end without reading the whole input, so errors are ignored.
    let writing = thread::spawn(move || input.write_all(&body).ok());
    let answered = running.wait_with_output()?.stdout;
    writing.join().ok();
    let status = if answered.starts_with(b"Status: 404") { "404 Not Found" } else { "200 OK" };
    stream.get_mut().write_all(format!("HTTP/1.1 {status}\r\nConnection: close\r\n").as_bytes())?;
    Ok(stream.get_mut().write_all(&answered)?)
}

#[test]
fn public_and_private_git_sources_run_and_the_token_is_stored_nowhere() -> anyhow::Result<()> {
    let git = GitServer::start()?;
    git.repository("public/shop")?;
    git.repository("private/shop")?;
    let flags = ["--git-origin", &git.origin].map(str::to_owned).to_vec();
    let server = Server::start(Options { flags, ..Options::default() })?;
    let place = Place::new(&server, "apps from Git")?;

    let mut checksums = Vec::new();
    for (version, repository, token) in
        [("public", "public/shop", None), ("again", "public/shop", None), ("private", "private/shop", Some(TOKEN))]
    {
        let source = git.source(repository, token);
        let parts = [("source", source.to_string()), ("version", version.to_owned())];
        let parts = parts.each_ref().map(|(name, text)| (*name, text.as_bytes()));
        let made = place.form(&parts).send(server.address())?.expect(201)?.json()?;
        let about = (&made["source_type"], &made["source_ref"], &made["source_url"], &made["entrypoint_rel_path"]);
        assert_eq!(about, (&json!("github"), &json!("main"), &source["url"], &json!("main.py")));
        let id = made["id"].as_str().context("no id")?;
        place.until_running(id)?;
        let running = place.get(&format!("/deployments/{id}"))?;
        let checksum = running["source_checksum"].as_str().context("no checksum")?.to_owned();
        assert!(checksum.len() == 64 && checksum.bytes().all(|byte| byte.is_ascii_hexdigit()), "{checksum}");
        checksums.push(checksum);
        let log_lines = lines(&server, id)?.join("\n");
        assert!(
            log_lines.contains("fetched commit") && !log_lines.contains("the hook ran") && !log_lines.contains(TOKEN),
            "{log_lines}"
        );
        let echoed = place.invoke(version, "echo", &json!({ "payload": "[1]" }))?.expect(200)?.json()?;
        assert_eq!(echoed["output"], "[1]", "{echoed}");
    }
    assert_eq!(checksums[0], checksums[1], "the same commit is the same archive");

    // Without the token or with another one, the private repository is not found.
    for token in [None, Some("another-token")] {
        let source = git.source("private/shop", token).to_string();
        let parts = [("source", source.as_bytes()), ("version", b"refused".as_slice())];
        let made = place.form(&parts).send(server.address())?.expect(201)?.json()?;
        let path = format!("/deployments/{}", made["id"].as_str().context("no id")?);
        let failed = place.until_status(&path, &["running", "failed"])?;
        assert_eq!(failed["status"], "failed", "{failed}");
        assert!(!failed.to_string().contains("another-token"), "{failed}");
    }

    // The public client sends the source in another form.
    let script = r#"
import json, os, sys
import kernel

client = kernel.Kernel(api_key=os.environ["CASEMENT_KEY"], base_url=os.environ["CASEMENT_URL"], max_retries=0)
source = json.loads(sys.argv[1])
made = client.deployments.create(source=source, version="client", env_vars={"A": "b"})
states = []
with client.deployments.follow(made.id) as events:
    for event in events:
        if event.event == "deployment_state":
            states.append(event.deployment.status)
            if states[-1] in ("running", "failed", "stopped"):
                break
found = client.deployments.retrieve(made.id)
print(json.dumps([states[-1], found.source_type, found.source_ref, len(found.source_checksum or "")]))
"#;
    let source = git.source("private/shop", Some(TOKEN)).to_string();
    let run = Clients::find()?.run_text(&server, "from_git.py", script, &[&source])?;
    assert_eq!(run.json()?, json!(["running", "github", "main", 64]));

    let words = [TOKEN.to_owned(), BASE64_STANDARD.encode(format!("x-access-token:{TOKEN}"))];
    for (what, text) in [("database", dump(&server)?), ("log", server.log())] {
        assert!(!words.iter().any(|word| text.contains(word)), "the token stands in the {what}");
    }
    for word in &words {
        let found = Command::new("grep").args(["-rlF", word]).arg(server.data_dir()).output()?;
        ensure!(found.stdout.is_empty(), "the token lies in {}", String::from_utf8_lossy(&found.stdout));
    }
    assert!(!Path::new("/tmp/the-hook-ran").exists());
    Ok(())
}
