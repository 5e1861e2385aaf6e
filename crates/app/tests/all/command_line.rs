//! Tests of the commands that drive a server over its API.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Server, Shared};
use serde_json::Value;

/// A user with a home directory.
struct User {
    home: tempfile::TempDir,
}

struct Done {
    code: Option<i32>,
    printed: String,
    stderr: String,
}

impl Done {
    fn ok(self) -> anyhow::Result<String> {
        ensure!(self.code == Some(0), "exit code {:?}: {}", self.code, self.stderr);
        Ok(self.printed)
    }

    fn json(self) -> anyhow::Result<Value> {
        let printed = self.ok()?;
        serde_json::from_str(&printed).with_context(|| printed.clone())
    }

    /// Returns the message of a failed command.
    fn refused(self) -> anyhow::Result<String> {
        ensure!(self.code.is_some_and(|code| code > 0), "it succeeded: {}", self.printed);
        Ok(self.stderr)
    }
}

impl User {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { home: tempfile::tempdir()? })
    }

    /// Runs a command without any variable that names a server.
    fn run(&self, words: &[&str]) -> anyhow::Result<Done> {
        self.run_with_input(b"", words)
    }

    /// Runs a command with this standard input.
    fn run_with_input(&self, input: &[u8], words: &[&str]) -> anyhow::Result<Done> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_casement"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.home.path());
        let file = self.home.path().join("input");
        fs::write(&file, input)?;
        let output = command.args(words).stdin(fs::File::open(&file)?).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Done { code: output.status.code(), printed: text(&output.stdout), stderr: text(&output.stderr) })
    }

    /// Runs a command in a terminal of 90 columns and 20 rows, in which this is typed.
    fn run_in_terminal(&self, typed: &[u8], words: &[&str]) -> anyhow::Result<Done> {
        let quoted = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let line = format!("stty cols 90 rows 20; exec '{}' {quoted}", env!("CARGO_BIN_EXE_casement"));
        let mut command = Command::new("script");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.home.path());
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        let mut started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        started.stdin.take().context("a pipe")?.write_all(typed)?;
        let output = started.wait_with_output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Done { code: output.status.code(), printed: text(&output.stdout), stderr: text(&output.stderr) })
    }

    /// Returns a user who has saved the server.
    fn of(server: &Server) -> anyhow::Result<Self> {
        let user = Self::new()?;
        user.run(&["context", "add", "here", "--url", &server.url(), "--key", server.key()])?.ok()?;
        Ok(user)
    }
}

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().unwrap_or_default()
}

#[test]
fn a_saved_server_is_used_and_its_key_goes_to_no_other() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let user = User::new()?;
    let missing = user.run(&["pools", "list"])?.refused()?;
    ensure!(missing.contains("casement context add"), "{missing}");

    user.run(&["context", "add", "here", "--url", &server.url(), "--key", server.key()])?.ok()?;
    let file = user.home.path().join(".config/casement/contexts.toml");
    ensure!(fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600, "others may read the keys");
    ensure!(user.run(&["context", "list"])?.ok()? == format!("* here\t{}/\n", server.url()));
    let pools = user.run(&["pools", "list", "-o", "json"])?.json()?;
    ensure!(pools.as_array().is_some_and(|pools| pools.iter().any(|pool| pool["name"] == "default")), "{pools}");

    let elsewhere = user.run(&["pools", "list", "--url", "http://127.0.0.1:9"])?.refused()?;
    ensure!(elsewhere.contains("there is no API key for http://127.0.0.1:9"), "{elsewhere}");
    let nothing = user.run(&["pools", "list", "--url", "http://127.0.0.1:9", "--key", "x"])?.refused()?;
    ensure!(nothing.contains("cannot be reached") && nothing.contains("casement serve"), "{nothing}");
    let refused = user.run(&["pools", "list", "--key", "csk_wrong"])?.refused()?;
    ensure!(refused.contains("401") && refused.contains("casement keys create"), "{refused}");

    let other = user.run(&["context", "use", "there"])?.refused()?;
    ensure!(other.contains("there is no context there; there are here"), "{other}");
    user.run(&["context", "remove", "here"])?.ok()?;
    ensure!(!fs::read_to_string(&file)?.contains(server.key()));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    let open = user.run(&["context", "list"])?.refused()?;
    ensure!(open.contains("chmod 600"), "{open}");
    Ok(())
}

#[test]
fn resources_are_created_listed_changed_and_deleted_in_every_format() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let user = User::of(server)?;
    let words =
        ["proxies", "create", "--type", "custom", "--name", "cli", "--config.host", "192.0.2.1", "--config.port"];
    let made = user.run(&[&words[..], &["8080", "--bypass-hosts", "a.example", "-o", "json"]].concat())?.json()?;
    ensure!(made["config"]["port"] == 8080 && made["bypass_hosts"] == serde_json::json!(["a.example"]), "{made}");
    let id = text(&made, "id");

    let listed = user.run(&["proxies", "list", "--name", "cli"])?.ok()?;
    let mut lines = listed.lines();
    ensure!(lines.next().is_some_and(|head| head.starts_with("NAME ") && head.contains("STATUS")), "{listed}");
    ensure!(lines.next().is_some_and(|line| line.starts_with("cli ") && line.contains(id)), "{listed}");
    let yaml = user.run(&["proxies", "get", id, "--output", "yaml"])?.ok()?;
    ensure!(yaml.lines().any(|line| line == "name: cli"), "{yaml}");
    let record = user.run(&["proxies", "get", id])?.ok()?;
    ensure!(record.lines().any(|line| line.starts_with("name ") && line.ends_with(" cli")), "{record}");

    user.run(&["proxies", "update", id, "--name", "renamed"])?.ok()?;
    let body = user.home.path().join("body.json");
    fs::write(&body, r#"{ "type": "custom", "config": { "host": "192.0.2.2", "port": 1 }, "name": "from a file" }"#)?;
    let body = format!("@{}", body.display());
    let other = user.run(&["proxies", "create", "--input", &body, "--name", "flag", "-o", "json"])?.json()?;
    ensure!(text(&other, "name") == "flag", "a flag replaces the body's field: {other}");
    let all = user.run(&["proxies", "list", "--limit", "1", "-o", "json"])?;
    ensure!(all.stderr.contains("--offset 1, or --all"), "{}", all.stderr);
    let all = user.run(&["proxies", "list", "--limit", "1", "--all", "-o", "json"])?.json()?;
    ensure!(all.as_array().is_some_and(|all| all.len() >= 2), "{all}");

    let mixed = user.run(&["proxies", "delete", "renamed", "nobody", text(&other, "id")])?;
    ensure!(mixed.code == Some(1) && mixed.stderr.contains("nobody: 404"), "{}", mixed.stderr);
    ensure!(
        mixed.printed == format!("proxy renamed deleted\nproxy {} deleted\n", text(&other, "id")),
        "{}",
        mixed.printed
    );
    let none = user.run(&["proxies", "list", "--name", "cli"])?;
    ensure!(none.stderr.trim() == "no proxies with --name cli" && none.printed.is_empty(), "{}", none.stderr);
    let gone = user.run(&["proxies", "get", id])?.refused()?;
    ensure!(gone.contains("404"), "{gone}");
    let missing = user.run(&["proxies", "create"])?.refused()?;
    ensure!(missing.contains("--type"), "{missing}");
    let wrong = user.run(&["pools", "create", "--name", "x", "--size", "0"])?.refused()?;
    ensure!(wrong.matches("size").count() == 1, "a wrong field is said once: {wrong}");
    Ok(())
}

#[test]
fn people_find_commands_and_resources_by_the_words_they_use() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let user = User::of(server)?;
    let words = ["--output", "json", "browser", "create", "--headless", "--name", "by words", "--tag", "a=b"];
    let session = user.run(&[&words[..], &["--viewport", "1280x800"]].concat())?.json()?;
    ensure!(session["tags"]["a"] == "b" && session["viewport"]["width"] == 1280, "{session}");
    let listed = user.run(&["sessions", "ls"])?.ok()?;
    ensure!(listed.lines().any(|line| line.starts_with("by words ") && line.contains(" active ")), "{listed}");
    let titles: Vec<&str> = listed.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(titles, ["NAME", "ID", "STATUS", "AGE", "USED", "ENGINE", "POOL", "PROFILE", "TAGS"]);
    user.run(&["session", "rm", "by words"])?.ok()?;
    let ended = user.run(&["sessions", "list", "--status", "deleted"])?.ok()?;
    ensure!(ended.lines().any(|line| line.starts_with("by words ") && line.contains(" deleted ")), "{ended}");

    let gone = user.run(&["sessions", "get", "by words"])?.ok()?;
    ensure!(gone.lines().any(|line| line.starts_with("end_reason ") && line.ends_with(" deleted")), "{gone}");
    let silent = user.run(&["sessions", "telemetry", "by words", "--limit", "5"])?;
    ensure!(
        silent.stderr.contains("no telemetry events: the session was created without --telemetry"),
        "{}",
        silent.stderr
    );

    let made = user.run(&["key", "create", "--name", "for a day", "-o", "json"])?.json()?;
    ensure!(user.run(&["keys", "get", "for a day", "-o", "json"])?.json()?["id"] == made["id"]);
    ensure!(user.run(&["keys", "delete", "for a day"])?.ok()? == "key for a day revoked\n");
    let records = user.run(&["audit", "list", "--since", "1h", "--method", "DELETE"])?.ok()?;
    ensure!(records.contains("/org/api_keys/"), "a range needs no bounds: {records}");

    let ignored =
        user.run(&["pools", "create", "--input", r#"{"name": "words", "size": 1, "sise": 2, "headless": true}"#])?;
    ensure!(ignored.stderr.contains("sise"), "{}", ignored.stderr);
    user.run(&["pools", "delete", "words"])?.ok()?;
    let url = user.run(&["pools", "list", "--url", "127.0.0.1:8080"])?.refused()?;
    ensure!(url.contains("http://HOST:PORT"), "{url}");
    let tls =
        user.run(&["pools", "list", "--url", &server.url().replace("http:", "https:"), "--key", "k"])?.refused()?;
    ensure!(tls.contains("no TLS is spoken there"), "{tls}");
    Ok(())
}

#[test]
fn a_command_whose_reader_is_gone_ends_in_silence() -> anyhow::Result<()> {
    for words in [&["completion", "bash"][..], &["openapi"], &["man"], &["man", "serve"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_casement"));
        let mut child = command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        drop(child.stdout.take());
        let done = child.wait_with_output()?;
        ensure!(
            done.status.success() && done.stderr.is_empty(),
            "{words:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    Ok(())
}

#[test]
fn a_session_is_driven_from_the_command_line() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let user = User::of(server)?;
    let words = ["sessions", "create", "--headless", "--timeout-seconds", "600", "--tags", "made=here", "-o", "json"];
    let session = user.run(&words)?.json()?;
    let id = text(&session, "session_id");
    ensure!(session["tags"]["made"] == "here" && session["headless"] == true, "{session}");
    ensure!(user.run(&["sessions", "cdp", id])?.ok()?.trim() == text(&session, "cdp_ws_url"));
    ensure!(user.run(&["sessions", "open", id])?.ok()?.trim() == text(&session, "browser_live_view_url"));

    let ran = user.run(&["sessions", "exec", "--env", "A=b c", id, "sh", "-c", "echo \"$A\"; echo no >&2; exit 3"])?;
    ensure!((ran.code, ran.printed.as_str(), ran.stderr.as_str()) == (Some(3), "b c\n", "no\n"), "{}", ran.stderr);
    let given =
        user.run_with_input(b"first\nlast", &["sessions", "exec", id, "sh", "-c", "cat; echo .; wc -c </dev/null"])?;
    ensure!(given.ok()? == "first\nlast.\n0\n", "standard input is passed on, with its end");
    let none = user.run(&["sessions", "exec", id, "cat"])?;
    ensure!((none.code, none.printed.as_str()) == (Some(0), ""), "an empty input ends too: {}", none.stderr);
    let large = vec![b'x'; 3 << 20];
    let counted = user.run_with_input(&large, &["sessions", "exec", id, "sh", "-c", "sleep 1; wc -c"])?.ok()?;
    ensure!(counted.trim() == large.len().to_string(), "{counted}");
    let typed = user.run_in_terminal(
        b"hello\n",
        &["sessions", "exec", "-it", id, "sh", "-c", "stty size; read it; echo \"=$it=\"; exit 4"],
    )?;
    ensure!(typed.code == Some(4), "{:?} {}", typed.code, typed.printed);
    ensure!(typed.printed.contains("20 90\r\n") && typed.printed.contains("=hello=\r\n"), "{:?}", typed.printed);
    let without = user.run(&["sessions", "exec", "-it", id, "true"])?.refused()?;
    ensure!(without.contains("--tty needs a terminal"), "{without}");
    let title =
        user.run(&["sessions", "script", id, "await page.setContent('<title>Here</title>'); return page.title()"])?;
    ensure!(title.ok()?.trim() == "\"Here\"");
    let thrown = user.run(&["sessions", "script", id, "throw new Error('not today')"])?.refused()?;
    ensure!(thrown.contains("not today"), "{thrown}");
    files_are_copied(&user, id)?;
    let image = user.home.path().join("page.png");
    user.run(&["sessions", "screenshot", id, "--to-file", path(&image)?])?.ok()?;
    ensure!(fs::read(&image)?.starts_with(b"\x89PNG"));

    only_the_sessions_of_a_pool_are_listed(&user)?;
    user.run(&["sessions", "delete", id])?.ok()?;
    let gone = user.run(&["sessions", "exec", id, "true"])?.refused()?;
    ensure!(gone.contains("404"), "{gone}");
    Ok(())
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path")
}

/// Lists the sessions of a pool beside another session.
fn only_the_sessions_of_a_pool_are_listed(user: &User) -> anyhow::Result<()> {
    user.run(&["pools", "create", "--name", "of-the-user", "--size", "1", "--headless"])?.ok()?;
    let leased = user.run(&["pools", "acquire", "of-the-user", "-o", "json"])?.json()?;
    let listed = user.run(&["sessions", "list", "--pool", "of-the-user", "-o", "json"])?.json()?;
    let ids: Vec<&str> = listed.as_array().into_iter().flatten().map(|session| text(session, "session_id")).collect();
    ensure!(ids == [text(&leased, "session_id")], "{listed}");
    let none = user.run(&["sessions", "list", "--pool", "nobody"])?;
    ensure!(none.printed.is_empty() && none.stderr.contains("no sessions with --pool nobody"), "{}", none.stderr);
    user.run(&["sessions", "delete", text(&leased, "session_id")])?.ok()?;
    user.run(&["pools", "delete", "of-the-user"])?.ok().map(drop)
}

/// Copies a file and a folder to the session and back.
fn files_are_copied(user: &User, id: &str) -> anyhow::Result<()> {
    let here = user.home.path().join("here");
    fs::create_dir_all(here.join("below"))?;
    fs::write(here.join("a.txt"), "first")?;
    fs::write(here.join("below/b.bin"), [0, 159, 146, 150])?;
    let there = format!("{id}:/tmp/there");
    user.run(&["sessions", "cp", path(&here)?, &there])?.ok()?;
    let listed = user.run(&["sessions", "exec", id, "sh", "-c", "cd /tmp/there && find . -type f | sort"])?.ok()?;
    ensure!(listed == "./a.txt\n./below/b.bin\n", "{listed}");

    let back = user.home.path().join("back");
    user.run(&["sessions", "cp", &there, path(&back)?])?.ok()?;
    ensure!(fs::read(back.join("below/b.bin"))? == [0, 159, 146, 150] && fs::read(back.join("a.txt"))? == b"first");
    user.run(&["sessions", "cp", &format!("{there}/a.txt"), &format!("{}/", user.home.path().display())])?.ok()?;
    ensure!(fs::read(user.home.path().join("a.txt"))? == b"first");
    user.run(&["sessions", "cp", path(&back.join("a.txt"))?, &format!("{id}:/tmp/")])?.ok()?;
    ensure!(user.run(&["sessions", "exec", id, "cat", "/tmp/a.txt"])?.ok()? == "first");
    let both = user.run(&["sessions", "cp", &there, &there])?.refused()?;
    ensure!(both.contains("one of the two paths must be here"), "{both}");
    Ok(())
}

#[test]
fn completions_of_every_shell_know_resources_verbs_and_flags() -> anyhow::Result<()> {
    let user = User::new()?;
    for shell in ["bash", "zsh", "fish"] {
        let script = user.run(&["completion", shell])?.ok()?;
        for word in ["sessions", "acquire", "timeout-seconds", "serve"] {
            ensure!(script.contains(word), "{shell}: {word} is missing");
        }
    }
    Ok(())
}

#[test]
fn a_port_without_an_address_is_refused_with_both_choices() -> anyhow::Result<()> {
    let refused = User::new()?.run(&["serve", "--listen", "18099"])?.refused()?;
    ensure!(refused.contains("127.0.0.1:18099") && refused.contains("0.0.0.0:18099"), "{refused}");
    Ok(())
}

#[test]
fn a_command_that_drives_a_server_refuses_a_configuration_file() -> anyhow::Result<()> {
    for words in [["sessions", "list", "--config", "/tmp/x"], ["--config", "/tmp/x", "sessions", "list"]] {
        let refused = User::new()?.run(&words)?.refused()?;
        ensure!(refused.contains("`casement sessions` reads no configuration file"), "{refused}");
    }
    Ok(())
}
