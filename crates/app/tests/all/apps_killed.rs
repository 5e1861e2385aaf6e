//! Tests that builds and invocations continue after the server was killed, or fail with the reason, and never both.

use std::process::Command;

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Options, Server, until};
use serde_json::json;

use super::host::sql;
use super::programs::{Place, TEST_TIMEOUT, lines};

/// A trigger that records every end of an invocation.
const TRACE: &str = "
    CREATE TABLE ends (id uuid NOT NULL, before text NOT NULL, after text NOT NULL);
    CREATE FUNCTION trace_ends() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO ends VALUES (NEW.id, OLD.status, NEW.status); RETURN NULL;
    END $$;
    CREATE TRIGGER trace AFTER UPDATE ON invocations FOR EACH ROW
        WHEN (NEW.finished_at IS NOT NULL) EXECUTE FUNCTION trace_ends()";

fn default_project(server: &Server) -> anyhow::Result<String> {
    super::host::id_of(&sql(server, "select id from projects where name = 'default'")?)
}

#[test]
fn builds_and_invocations_continue_after_a_killed_server_without_a_rebuild() -> anyhow::Result<()> {
    let mut server = Server::start(Options::default())?;
    sql(&server, TRACE)?;
    let project = default_project(&server)?;
    let place = Place::of(&server, &project);
    let built = place.running("1")?;
    let secret = "a-word-that-stands-nowhere-else";
    let building = place.deploy("2", &json!({ "WAIT": "go", "SECRET": secret }))?;
    let waiting = |server: &Server, count: usize| {
        until("the build waits", TEST_TIMEOUT, || {
            let found = lines(server, &building).ok()?;
            (found.iter().filter(|line| *line == "waiting").count() == count).then_some(())
        })
    };
    waiting(&server, 1)?;
    let goes_on = place.begun("1", "wait", Some("\"go\""))?;
    let returns = place.begun("1", "return when alone", None)?;
    let dies = place.begun("1", "die when alone", None)?;
    // The deadline of `returns` passes before the server runs again, but the call returns while no server runs.
    let late = format!(
        "UPDATE invocations SET started_at = started_at - interval '1 hour', deadline = deadline - interval '1 hour' WHERE id = '{}'",
        super::host::uuid(&returns)?
    );
    sql(&server, &late)?;

    server.kill()?;
    server.restart()?;

    let place = Place::of(&server, &project);
    let died = place.end(&dies)?;
    assert_eq!((&died["status"], &died["output"]), (&json!("failed"), &json!(null)), "{died}");
    assert!(died["status_reason"].as_str().is_some_and(|why| why.contains("exit code 3")), "{died}");
    let returned = place.end(&returns)?;
    assert_eq!((&returned["status"], &returned["output"]), (&json!("succeeded"), &json!("\"alone\"")), "{returned}");
    waiting(&server, 2)?;
    place.allow("go")?;
    let ended = place.end(&goes_on)?;
    assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &json!("\"go\"")), "{ended}");
    assert_eq!(lines(&server, &goes_on)?, ["began", "done"], "each line once");
    let ends = sql(&server, "select count(*), count(distinct id), count(*) filter (where before = after) from ends")?;
    assert_eq!(ends, "3|3|0", "each ended once, and nothing moved after its end");

    place.until_running(&building)?;
    let log_lines = lines(&server, &building)?;
    let times = |text: &str| log_lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!((times("loading main.py"), times("built before")), (2, 2), "{log_lines:#?}");
    let echoed = place.invoke("2", "echo", &json!({ "payload": "[1]" }))?.expect(200)?.json()?;
    assert_eq!(echoed["output"], "[1]");

    // A built deployment runs again without a build, and no file has its secrets in clear text.
    let before = lines(&server, &built)?;
    assert!(server.stop()?.success());
    server.restart()?;
    let place = Place::of(&server, &project);
    for version in ["1", "2"] {
        let echoed = place.invoke(version, "echo", &json!({ "payload": "{\"n\":2}" }))?.expect(200)?.json()?;
        assert_eq!((&echoed["status"], &echoed["output"]), (&json!("succeeded"), &json!("{\"n\":2}")), "{echoed}");
    }
    assert_eq!(lines(&server, &built)?, before);
    let found = Command::new("grep").args(["-rlF", secret]).arg(server.data_dir()).output()?;
    ensure!(found.stdout.is_empty(), "the secret lies in {}", String::from_utf8_lossy(&found.stdout));
    ensure!(!server.log().contains(secret), "the secret was logged");
    Ok(())
}

#[test]
fn an_invocation_whose_process_was_still_starting_begins_again_after_a_kill() -> anyhow::Result<()> {
    let mut server = Server::start(Options::default())?;
    let project = default_project(&server)?;
    let place = Place::of(&server, &project);
    place.allow("load")?;
    let deployment = place.deploy("1", &json!({ "WAIT": "load" }))?;
    place.until_running(&deployment)?;
    // The ready process is in use, and no other one can be loaded.
    let first = place.begun("1", "wait", Some("\"go\""))?;
    place.send("DELETE", "/profiles/load", &json!({}))?.expect(204)?;
    // A process that was loaded before the deletion takes one of these.
    let made = (0..3).map(|_| {
        let made = place.invoke("1", "echo", &json!({ "async": true, "payload": "[2]" }))?.expect(202)?.json()?;
        Ok(made["id"].as_str().context("no id")?.to_owned())
    });
    let waiting: Vec<String> = made.collect::<anyhow::Result<_>>()?;
    until("an invocation runs without a process", TEST_TIMEOUT, || {
        let running = sql(&server, "select count(*) from invocations where status = 'running'").ok()?;
        let records = std::fs::read_dir(server.data_dir().join("apps/calls")).ok()?.count();
        running.parse::<usize>().ok().filter(|running| *running > records)
    })?;

    server.kill()?;
    server.restart()?;

    let place = Place::of(&server, &project);
    place.allow("load")?;
    for invocation in &waiting {
        let ended = place.end(invocation)?;
        assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &json!("[2]")), "{ended}");
    }
    place.allow("go")?;
    assert_eq!(place.end(&first)?["status"], "succeeded");
    Ok(())
}
