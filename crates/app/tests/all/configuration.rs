//! The configuration file, as the built program reads it.

use std::process::Command;

use anyhow::ensure;

use super::support::Shared;

fn casement(words: &[&str], file: &std::path::Path) -> anyhow::Result<std::process::Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casement"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CASEMENT_")) {
        command.env_remove(name);
    }
    Ok(command.args(words).env("CASEMENT_CONFIG", file).output()?)
}

#[test]
fn a_command_finds_the_server_by_the_file_and_a_flag_goes_before_it() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("casement.toml");
    std::fs::write(&file, format!("data_dir = {:?}\n", Shared::get().server.data_dir()))?;

    let found = casement(&["keys", "list"], &file)?;
    ensure!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    assert!(String::from_utf8_lossy(&found.stdout).contains("csk_"));

    let elsewhere = folder.path().join("elsewhere");
    let stopped = casement(&["stop", "--data-dir", &elsewhere.to_string_lossy()], &file)?;
    let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert!(said.contains(&format!("no casement serve runs on {}", elsewhere.display())), "{said}");
    Ok(())
}

#[test]
fn a_server_does_not_start_on_a_file_with_a_mistake() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("casement.toml");
    std::fs::write(&file, "spares = 1\nlisten_on = \"127.0.0.1:0\"\n")?;

    let output = casement(&["serve"], &file)?;

    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, format!("casement: {}:2: listen_on: there is no such option\n", file.display()));
    Ok(())
}
