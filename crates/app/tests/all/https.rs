//! Tests of HTTPS: of the server itself, and of the reverse proxies that `docs/reverse-proxy.md` configures.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Clients, Options, Server, repository, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::host::{count, until_count};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Runs a page over CDP and echoes a megabyte.
const DRIVE: &str = r#"
NODE_EXTRA_CA_CERTS=$1 exec node --input-type=module -e '
import { chromium } from "playwright-core";
const browser = await chromium.connectOverCDP(process.argv[1]);
const page = browser.contexts()[0].pages()[0];
console.log(await page.evaluate(text => text.length * 2, "x".repeat(1 << 20)));
await browser.close();
' "$2"
"#;

/// A directory with the certificate of `localhost` and 127.0.0.1.
struct Certificate(TempDir);

impl Certificate {
    fn new() -> anyhow::Result<Self> {
        let certificate = Self(tempfile::Builder::new().prefix("casement-https-").tempdir_in("/tmp")?);
        certificate.renew("first")?;
        Ok(certificate)
    }

    /// Replaces the certificate as a tool that renews certificates does.
    fn renew(&self, name: &str) -> anyhow::Result<()> {
        self.make(name, &[])
    }

    fn make(&self, name: &str, extensions: &[&str]) -> anyhow::Result<()> {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        openssl.args(["-days", "2", "-subj", &format!("/CN={name}")]);
        openssl.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]).args(extensions);
        openssl.args(["-keyout", "new-key.pem", "-out", "new.pem"]).current_dir(self.0.path()).stderr(Stdio::null());
        ensure!(openssl.status()?.success(), "openssl made no certificate");
        fs::rename(self.0.path().join("new-key.pem"), self.key())?;
        Ok(fs::rename(self.0.path().join("new.pem"), self.chain())?)
    }

    fn chain(&self) -> PathBuf {
        self.0.path().join("fullchain.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("privkey.pem")
    }
}

/// A client that trusts the certificate and comes from 127.0.0.2.
struct Curl<'a> {
    url: &'a str,
    key: &'a str,
    certificate: &'a Certificate,
}

impl Curl<'_> {
    fn command(&self, path: &str, arguments: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--interface", "127.0.0.2", "--cacert"]).arg(self.certificate.chain());
        curl.args(["--header", &format!("Authorization: Bearer {}", self.key)]);
        curl.args(arguments).arg(format!("{}{path}", self.url));
        curl
    }

    /// Sends a request, which must succeed, and returns the body.
    fn send(&self, path: &str, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
        let output = self.command(path, &[&["--fail-with-body"], arguments].concat()).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "{path}: {} {}", text(&output.stderr), text(&output.stdout));
        Ok(output.stdout)
    }

    fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (header, body) = ("Content-Type: application/json", body.to_string());
        Ok(serde_json::from_slice(&self.send(path, &["--header", header, "--data", &body])?)?)
    }

    fn version(&self) -> anyhow::Result<String> {
        let output = self.send("/healthz", &["--output", "/dev/null", "--write-out", "%{http_version}"])?;
        Ok(String::from_utf8(output)?)
    }
}

/// Checks everything that is more than a request and a response: WebSockets, streams, uploads, cancelled calls.
fn check_all(server: &Server, curl: &Curl<'_>) -> anyhow::Result<()> {
    assert_eq!(curl.version()?, "2");
    let session = curl.post("/browsers", &json!({ "headless": true, "timeout_seconds": 600 }))?;
    let id = session["session_id"].as_str().context("an id")?;
    let cdp = session["cdp_ws_url"].as_str().context("an address")?;
    ensure!(cdp.starts_with(&curl.url.replace("https://", "wss://")), "{cdp}");

    let certificate = curl.certificate.chain();
    let arguments = [certificate.to_str().context("a path")?, cdp];
    let driven = Clients::find()?.run_text(server, "drive.sh", DRIVE, &arguments)?;
    assert_eq!(driven.json()?, json!(2 << 20));

    let content = vec![b'x'; 8 << 20];
    let file = curl.certificate.0.path().join("upload");
    fs::write(&file, &content)?;
    let upload = format!("@{}", file.display());
    curl.send(&format!("/browsers/{id}/fs/write_file?path=/tmp/f"), &["--request", "PUT", "--data-binary", &upload])?;
    ensure!(curl.send(&format!("/browsers/{id}/fs/read_file?path=/tmp/f"), &[])? == content, "another file came back");

    check_stream(curl, id)?;
    check_cancelled_wait(server, curl)?;
    let own_address = "select count(*) from audit_records where client_ip = '127.0.0.2' and path = '/browsers'";
    ensure!(count(server, own_address)? > 0, "the address of the client is lost");
    curl.send(&format!("/browsers/{id}"), &["--request", "DELETE"]).map(drop)
}

/// Checks that output arrives while its program still runs.
fn check_stream(curl: &Curl<'_>, session: &str) -> anyhow::Result<()> {
    let path = format!("/browsers/{session}/process");
    let spawned = curl.post(
        &format!("{path}/spawn"),
        &json!({ "command": "sh", "args": ["-c", "echo early; sleep 600"], "timeout_sec": 600 }),
    )?;
    let process = spawned["process_id"].as_str().context("a process")?;
    let output = curl.certificate.0.path().join("events");
    let mut following = curl.command(&format!("{path}/{process}/stdout/stream"), &["--no-buffer", "--max-time", "60"]);
    let mut following = following.stdout(File::create(&output)?).spawn()?;
    let early = "ZWFybHkK";
    let arrived = until("the output arrives", TEST_TIMEOUT, || {
        fs::read_to_string(&output).ok().filter(|text| text.contains(early)).map(drop)
    });
    following.kill()?;
    following.wait()?;
    arrived
}

/// Checks that a caller that disconnects leaves the wait queue.
fn check_cancelled_wait(server: &Server, curl: &Curl<'_>) -> anyhow::Result<()> {
    curl.post("/browser_pools", &json!({ "size": 1, "name": "one", "headless": true }))?;
    let (acquire, in_queue) = ("/browser_pools/one/acquire", "select count(*) from pool_waiters where outcome is null");
    curl.post(acquire, &json!({ "acquire_timeout_seconds": 120 }))?;
    let body = json!({ "acquire_timeout_seconds": 600 }).to_string();
    let mut waiting = curl.command(acquire, &["--header", "Content-Type: application/json", "--data", &body]);
    let mut waiting = waiting.stdout(Stdio::null()).spawn()?;
    let entered = until_count(server, in_queue, |count| count == 1);
    waiting.kill()?;
    waiting.wait()?;
    entered.and_then(|()| until_count(server, in_queue, |count| count == 0))?;
    let body = json!({ "force": true }).to_string();
    let arguments = ["--request", "DELETE", "--header", "Content-Type: application/json", "--data", &body];
    curl.send("/browser_pools/one", &arguments).map(drop)
}

/// Returns the flags of a server that serves HTTPS.
fn https_flags(certificate: &Certificate) -> Vec<String> {
    let path = |path: PathBuf| path.display().to_string();
    vec!["--tls-cert".to_owned(), path(certificate.chain()), "--tls-key".to_owned(), path(certificate.key())]
}

#[test]
fn every_kind_of_call_works_over_https_of_the_server_itself() -> anyhow::Result<()> {
    let certificate = Certificate::new()?;
    let server = Server::start(Options { flags: https_flags(&certificate), ..Options::default() })?;
    let url = format!("https://{}", server.address());
    let started = server.output_lines().join("\n");
    ensure!(started.contains(&url) && started.contains("curl needs `--cacert FILE`"), "{started}");
    check_all(&server, &Curl { url: &url, key: server.key(), certificate: &certificate })?;
    check_command_line(&url, server.key(), &certificate)
}

/// Runs `casement sessions list` with these further words. Returns whether it succeeds, and what it says to people.
fn list_sessions(url: &str, key: &str, words: &[&str]) -> anyhow::Result<(bool, String)> {
    let home = TempDir::new()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_casement"));
    command.env_clear().env("HOME", home.path()).args(["sessions", "list", "--url", url, "--key", key]).args(words);
    let output = command.output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Checks what the command line says of a certificate that its operator made: with `--ca` and `--insecure` it works, and
/// without them, or as that of an authority, it is refused with the remedy.
fn check_command_line(url: &str, key: &str, certificate: &Certificate) -> anyhow::Result<()> {
    let chain = certificate.chain();
    let ca = ["--ca", chain.to_str().context("a path")?];
    // Without more, `openssl req -x509` makes the certificate of an authority.
    let (is_accepted, output) = list_sessions(url, key, &ca)?;
    ensure!(!is_accepted && output.contains("-addext basicConstraints=critical,CA:FALSE"), "{output}");
    let (is_accepted, output) = list_sessions(url, key, &["--insecure"])?;
    ensure!(is_accepted && output.contains("whoever answers gets the API key"), "{output}");
    certificate.make("own", &["-addext", "basicConstraints=critical,CA:FALSE"])?;
    until("the server has the new certificate", TEST_TIMEOUT, || {
        list_sessions(url, key, &ca).ok().filter(|(is_accepted, _)| *is_accepted)
    })?;
    let (is_trusted, output) = list_sessions(url, key, &[])?;
    ensure!(!is_trusted && output.contains("is not trusted here. --ca FILE"), "{output}");
    Ok(())
}

/// Returns the subject of the certificate that the server presents.
fn subject(address: SocketAddr) -> anyhow::Result<String> {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &address.to_string()]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = String::from_utf8_lossy(&openssl.output()?.stdout).into_owned();
    let line = output.lines().find(|line| line.starts_with("subject="));
    Ok(line.context("no certificate")?.replace(' ', ""))
}

#[test]
fn a_renewed_certificate_and_changed_limits_take_effect_without_a_restart() -> anyhow::Result<()> {
    let certificate = Certificate::new()?;
    let file = certificate.0.path().join("casement.toml");
    let files = format!("tls_cert = {:?}\ntls_key = {:?}\n", certificate.chain(), certificate.key());
    let settings = |sessions: &str, replay_days: u32| {
        fs::write(&file, format!("{files}max_concurrent_sessions = {sessions}\nreplay_days = {replay_days}\n"))
    };
    settings("3", 5)?;
    let flags = vec!["--config".to_owned(), file.display().to_string()];
    let server = Server::start(Options { flags, ..Options::default() })?;
    assert_eq!(subject(server.address())?, "subject=CN=first");
    certificate.renew("second")?;
    until("the new certificate is in use", TEST_TIMEOUT, || {
        subject(server.address()).ok().filter(|subject| subject == "subject=CN=second").map(drop)
    })?;

    let hang_up = || server.signal(&super::host::server_process(&server)?, Signal::HUP);
    let limit = |expected: u64| {
        let statement = "select max_concurrent_sessions from organizations";
        until_count(&server, statement, |count| count == expected)
    };
    limit(3)?;
    settings("4", 6)?;
    hang_up()?;
    limit(4)?;
    until("the log names what needs a new start", TEST_TIMEOUT, || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("take effect at the next start"))?;
        (line.contains("replay_days") && !line.contains("max_concurrent")).then_some(())
    })?;
    settings("\"many\"", 6)?;
    hang_up()?;
    until("an invalid file changes nothing", TEST_TIMEOUT, || {
        server.log().contains("the settings cannot be read").then_some(())
    })?;
    limit(4)
}

#[test]
fn a_certificate_without_its_key_fails_the_start() -> anyhow::Result<()> {
    let (certificate, other) = (Certificate::new()?, Certificate::new()?);
    let (chain, key) = (certificate.chain().display().to_string(), other.key().display().to_string());
    for (flags, message) in [
        (vec!["--tls-cert", &chain], "there is no --tls-key"),
        (vec!["--tls-key", &key], "there is no --tls-cert"),
        (vec!["--tls-cert", &chain, "--tls-key", &key], "cannot be used together"),
    ] {
        let folder = tempfile::tempdir()?;
        let mut serve = Command::new(env!("CARGO_BIN_EXE_casement"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--config", "/dev/null", "--data-dir"]).arg(folder.path());
        let output = serve.args(&flags).output()?;
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && log.contains(message), "{flags:?}: {log}");
        ensure!(!folder.path().join("postgres").exists(), "{flags:?}: nothing was created");
    }
    Ok(())
}

/// A reverse proxy. Dropping it ends it.
struct ReverseProxy {
    child: Child,
    _dir: TempDir,
}

impl Drop for ReverseProxy {
    fn drop(&mut self) {
        // A termination also ends the worker processes of nginx.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// Returns the configuration of the documentation in this language.
fn documented(language: &str) -> anyhow::Result<String> {
    let page = fs::read_to_string(repository().join("docs/reverse-proxy.md"))?;
    let block = page.split_once(&format!("```{language}\n")).context("the page has no such block")?.1;
    Ok(block.split_once("```").context("the block has no end")?.0.to_owned())
}

/// Replaces each text, which must occur.
fn replaced(mut text: String, replacements: &[(&str, &str)]) -> anyhow::Result<String> {
    for (from, to) in replacements {
        ensure!(text.contains(from), "{from:?} is not in the documented configuration");
        text = text.replace(from, to);
    }
    Ok(text)
}

/// Returns the program that `cargo xtask test` unpacks.
fn program(path: &str) -> PathBuf {
    let default = || repository().join("target/reverse-proxies");
    std::env::var_os("CASEMENT_TEST_REVERSE_PROXIES").map_or_else(default, PathBuf::from).join(path)
}

fn start(path: &str, arguments: &[&str], dir: TempDir) -> anyhow::Result<ReverseProxy> {
    let mut command = Command::new(program(path));
    command.args(arguments).current_dir(dir.path()).env("HOME", dir.path()).env_remove("XDG_DATA_HOME");
    let log = File::create(dir.path().join("log"))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let child = command.spawn().with_context(|| format!("cannot start {path}: `cargo xtask test` installs it"))?;
    Ok(ReverseProxy { child, _dir: dir })
}

/// Checks everything through a reverse proxy, which `start` starts for a server at an address, at a port.
fn check_behind(
    start: impl FnOnce(TempDir, &str, &str, &Certificate) -> anyhow::Result<ReverseProxy>,
) -> anyhow::Result<()> {
    let certificate = Certificate::new()?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let url = format!("https://localhost:{port}");
    let flags = ["--public-url", &url, "--trusted-proxy", "127.0.0.1/32"].map(str::to_owned).to_vec();
    let server = Server::start(Options { flags, ..Options::default() })?;
    let dir = tempfile::Builder::new().prefix("casement-proxy-").tempdir_in("/tmp")?;
    let _proxy = start(dir, &server.address().to_string(), &port, &certificate)?;
    let curl = Curl { url: &url, key: server.key(), certificate: &certificate };
    until("the proxy forwards calls", TEST_TIMEOUT, || curl.version().ok())?;
    check_all(&server, &curl)
}

const LETSENCRYPT: &str = "/etc/letsencrypt/live/casement.example.com";

#[test]
fn every_kind_of_call_works_behind_nginx_as_documented() -> anyhow::Result<()> {
    check_behind(|dir, server, port, certificate| {
        let files = certificate.0.path().display().to_string();
        let site = replaced(
            documented("nginx")?,
            &[
                ("127.0.0.1:8080", server),
                ("listen 443", &format!("listen 127.0.0.1:{port}")),
                ("casement.example.com;", "localhost;"),
                (LETSENCRYPT, &files),
            ],
        )?;
        let place = dir.path().display().to_string();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {place}/{kind};\n"))
            .concat();
        let whole = format!(
            "daemon off;\nuser root;\npid {place}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{site}}}\n"
        );
        let file = format!("{place}/nginx.conf");
        fs::write(&file, whole)?;
        let log = format!("{place}/log");
        start("usr/sbin/nginx", &["-p", &place, "-e", &log, "-c", &file], dir)
    })
}

#[test]
fn every_kind_of_call_works_behind_caddy_as_documented() -> anyhow::Result<()> {
    check_behind(|dir, server, port, certificate| {
        let (chain, key) = (certificate.chain(), certificate.key());
        let site = format!("https://localhost:{port} {{\n\ttls {} {}\n", chain.display(), key.display());
        let documented = documented("caddyfile")?;
        let site = replaced(documented, &[("127.0.0.1:8080", server), ("casement.example.com {\n", &site)])?;
        let file = dir.path().join("Caddyfile");
        fs::write(&file, format!("{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{site}"))?;
        let file = file.display().to_string();
        start("usr/bin/caddy", &["run", "--adapter", "caddyfile", "--config", &file], dir)
    })
}
