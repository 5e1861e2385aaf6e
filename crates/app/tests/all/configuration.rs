//! Tests of the configuration file and of `casement doctor`.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use anyhow::ensure;
use casement_test_support::program::{Options, Server, Shared};
use serde_json::json;

fn casement(words: &[&str], file: &std::path::Path) -> anyhow::Result<std::process::Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casement"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CASEMENT_")) {
        command.env_remove(name);
    }
    Ok(command.args(words).env("CASEMENT_CONFIG", file).output()?)
}

#[test]
fn commands_read_the_configuration_file_and_flags_override_it() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("casement.toml");
    std::fs::write(&file, format!("data_dir = {:?}\n", Shared::get().server.data_dir()))?;

    let found = casement(&["keys", "list"], &file)?;
    ensure!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    assert!(String::from_utf8_lossy(&found.stdout).contains("csk_"));

    let elsewhere = folder.path().join("elsewhere");
    let stopped = casement(&["stop", "--data-dir", &elsewhere.to_string_lossy()], &file)?;
    let report = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert!(report.contains(&format!("no casement serve runs on {}", elsewhere.display())), "{report}");
    Ok(())
}

#[test]
fn a_server_does_not_start_with_an_invalid_configuration_file() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("casement.toml");
    std::fs::write(&file, "spares = 1\nlisten_on = \"127.0.0.1:0\"\n")?;

    let output = casement(&["serve"], &file)?;

    assert!(!output.status.success());
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(report, format!("casement: {}:2: listen_on: there is no such option\n", file.display()));
    Ok(())
}

/// Runs `casement doctor` after a shell command. Returns true if it succeeds, and the report.
fn doctor(before: &str) -> anyhow::Result<(bool, String)> {
    let changed = format!("{before}; exec \"$0\" doctor --data-dir \"$1\"");
    let data_dir = Shared::get().server.data_dir();
    let mut command = Command::new("sh");
    command.args(["-c", &changed, env!("CARGO_BIN_EXE_casement")]).arg(data_dir).env("CASEMENT_CONFIG", "/dev/null");
    let output = command.output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

#[test]
fn the_doctor_checks_every_requirement_and_names_the_remedy() -> anyhow::Result<()> {
    let (well, report) = doctor("ulimit -n 8192")?;
    assert!(well && !report.contains("MISSING"), "{report}");
    for name in [
        "Chromium",
        "chromedriver",
        "X server",
        "ffmpeg",
        "fonts",
        "script runner",
        "PostgreSQL",
        "disk",
        "open files",
        "bubblewrap",
        "user namespaces",
        "memory",
        "a browser",
    ] {
        assert!(report.lines().any(|line| line.starts_with("ok ") && line.contains(name)), "{name}: {report}");
    }
    let (well, report) = doctor(
        "export FONTCONFIG_FILE=\"$1/no-fonts.conf\"; echo '<fontconfig/>' > \"$FONTCONFIG_FILE\"; ulimit -n 4096",
    )?;
    assert!(!well);
    let lines: Vec<&str> = report.lines().filter(|line| !line.starts_with("ok ")).collect();
    assert_eq!(lines.len(), 4, "{report}");
    assert!(lines[0].starts_with("lacking  fonts: none for Arabic, ") && lines[0].contains(", Thai, "), "{report}");
    assert!(lines[1].starts_with("         -> install the packages fonts-"), "{report}");
    assert_eq!(lines[2], "MISSING  open files: at most 4096");
    assert!(lines[3].starts_with("         -> raise the limit"), "{report}");
    Ok(())
}

#[test]
fn the_doctor_leaves_no_trace_before_a_first_start_and_checks_the_given_database() -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("casement-e2e-").tempdir_in("/tmp")?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_casement"));
    command.args(["doctor", "--database-url", "postgresql://nobody@127.0.0.1:1/none", "--data-dir"]);
    command.arg(folder.path().join("data")).env("CASEMENT_CONFIG", "/dev/null");

    let output = command.output()?;

    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let missing: Vec<&str> = report.lines().filter(|line| line.starts_with("MISSING")).collect();
    assert!(missing.len() == 1 && missing[0].starts_with("MISSING  PostgreSQL: "), "{report}");
    assert_eq!(std::fs::read_dir(folder.path())?.count(), 0, "{report}");
    Ok(())
}

#[test]
fn the_doctor_reports_a_driver_that_is_too_old_or_does_not_match_chromium() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (text, driver) = (folder.path().join("text"), folder.path().join("chromedriver"));
    let before = format!("PATH={}:$PATH", folder.path().display());
    for (version, found) in [
        ("ChromeDriver 148.0.7778.167 (3b2)", "which is older than 156"),
        ("ChromeDriver 999.0.1.2 (3b2)", "it drives Chromium 999, and there is"),
        ("a driver", "does not say its version"),
    ] {
        std::fs::write(&text, format!("#!/bin/sh\necho '{version}'\n"))?;
        // Copies the file: one that this process wrote may be busy, because a child of another test may have it open.
        ensure!(Command::new("install").args(["-m", "755"]).args([&text, &driver]).status()?.success());

        let (well, report) = doctor(&before)?;

        assert!(!well);
        let lines: Vec<&str> = report.lines().filter(|line| !line.starts_with("ok ")).collect();
        assert_eq!(lines.len(), 2, "{report}");
        assert!(lines[0].starts_with("MISSING  chromedriver: ") && lines[0].contains(found), "{report}");
        assert_eq!(lines[1], "         -> install the package chromium-driver of a current version", "{report}");
    }
    Ok(())
}

#[test]
fn what_a_session_gets_does_not_depend_on_how_the_server_was_started() -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir()?;
    let (text, program) = (folder.path().join("text"), folder.path().join("casement"));
    let before = "umask 077; export TZ=Asia/Tokyo LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 LANGUAGE=de PYTHONPATH=/nowhere";
    std::fs::write(&text, format!("#!/bin/sh\n{before}\nexec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_casement")))?;
    ensure!(Command::new("install").args(["-m", "755"]).args([&text, &program]).status()?.success());
    let started_otherwise = Server::start(Options { program: Some(program), ..Options::default() })?;
    let seen = |server: &Server| {
        let session = server.headless()?;
        let look = "umask; date +%z; echo > ~/made; stat -c %a ~/made; locale; env | grep -v -i casement | sort";
        let run = json!({ "command": "sh", "args": ["-c", look] });
        let ended = server.post(&format!("/browsers/{}/process/exec", session.id()), &run)?.expect(200)?.json()?;
        ensure!(ended["exit_code"] == 0, "{ended}");
        let code = "return [Intl.DateTimeFormat().resolvedOptions().timeZone, await page.evaluate(() => \
                    [navigator.language, Intl.DateTimeFormat().resolvedOptions().timeZone, String(new Date(0))])]";
        let script = json!({ "code": code });
        let script = server.post(&format!("/browsers/{}/playwright/execute", session.id()), &script)?;
        Ok((ended["stdout_b64"].clone(), script.expect(200)?.json()?["result"].clone()))
    };

    let (usual, otherwise) = (seen(&Shared::get().server)?, seen(&started_otherwise)?);

    ensure!(usual.0.as_str().is_some_and(|text| !text.is_empty()) && usual.1.is_array(), "{usual:?}");
    assert_eq!(otherwise, usual);
    Ok(())
}
