//! Tests of deployments and invocations, with the public Python client and an app.

use std::io::{BufRead as _, BufReader};
use std::thread;

use anyhow::ensure;
use casement_test_support::program::http::Answer;
use casement_test_support::program::{Clients, Options, Process, Server, Shared, repository, until};
use serde_json::{Value, json};

use super::host::count;
use super::programs::{Place, TEST_TIMEOUT, invocation};

#[test]
fn every_call_of_the_python_client_for_apps_works() -> anyhow::Result<()> {
    Clients::of_both_versions()?.iter().try_for_each(every_call_works)
}

fn every_call_works(clients: &Clients) -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let framework = repository().join("crates/runner/tests/all/apps/kernel.py").display().to_string();
    let run = clients.run(&server, "crates/app/tests/scripts/kernel_apps.py", &[&framework])?;
    let saw = json!({
        "deployed": ["queued", { "GREETING": "" }, ["app_version_summary", "running"]],
        "deployment": "running",
        "listed": [true],
        "apps": [["shop", "1.0", ["echo", "browse", "fail"]]],
        "echo": ["succeeded", { "n": 1 }, "hi", true],
        "fail": ["failed", "ValueError: not today"],
        "followed": ["invocation_state", ["echoing {'n': 1}"]],
        "async": "queued",
        "browsers": [1, true],
        "browsers deleted": 0,
        "canceled": ["failed", "canceled", "\"enough\""],
        "the end of the stream": ["failed"],
        "too late": "invalid_state",
        "invocations": ["browse", "fail"],
        "retrieved": "{\"n\": 1}",
        "same version": ["failed", "version exists: shop 1.0"],
        "forced": ["running", "stopped"],
        "stopped": [["stopped", "stopped by request"]],
        "not running": "invalid_state",
    });
    assert_eq!(run.json()?, saw);

    // Calls of a deployment are recorded as calls of apps.
    let called = "select count(*) from audit_records where service = 'apps' and path = '/browsers'";
    until("its call is recorded", TEST_TIMEOUT, || (count(&server, called).ok()? > 0).then_some(()))?;
    // Ended deployments have no valid key and no stored secret.
    let left = "select count(*) from api_keys where for_deployment and deleted_at is null";
    assert_eq!(count(&server, left)?, 0);
    assert_eq!(count(&server, "select count(*) from deployment_secrets")?, 0);
    until("its processes are gone", TEST_TIMEOUT, || {
        let left = server.processes().iter().filter(|one| one.argv.iter().any(|word| word == "inside")).count();
        (left == 0).then_some(())
    })
}

#[test]
fn concurrent_invocations_meet_their_limit_exactly_and_none_is_lost() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let place = Place::new(server, "apps in a rush")?;
    let deployment = place.running("1")?;
    let project = format!("/org/projects/{}/limits", place.project());
    place.send("PATCH", &project, &json!({ "max_concurrent_invocations": 4 }))?.expect(200)?;

    let body = invocation("1", "wait", &json!({ "async": true, "payload": "\"go\"" }));
    let ask = place.request("POST", "/invocations").json(&body);
    let answers: Vec<Answer> = thread::scope(|scope| {
        let callers: Vec<_> = (0..24).map(|_| scope.spawn(|| ask.send(server.address()))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect::<anyhow::Result<_>>()
    })?;

    let accepted: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 202).collect();
    let refused: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 429).collect();
    let others = answers.iter().filter(|answer| !matches!(answer.status, 202 | 429)).map(Answer::text);
    assert_eq!((accepted.len(), refused.len()), (4, 20), "{:?}", others.collect::<Vec<_>>());
    for answer in refused {
        let body = answer.json()?;
        assert_eq!(body["code"], "limit_exceeded");
        assert_eq!(body["message"], "max_concurrent_invocations of the project is 4, 4 in use, 1 more requested");
    }
    place.allow("go")?;
    for answer in accepted {
        let ended = place.end(answer.json()?["id"].as_str().unwrap())?;
        assert_eq!((&ended["status"], &ended["output"]), (&json!("succeeded"), &json!("\"go\"")), "{ended}");
    }
    place.invoke("1", "echo", &json!({ "payload": "1" }))?.expect(200)?;
    place.request("DELETE", &format!("/deployments/{deployment}")).send(server.address())?.expect(204).map(drop)
}

#[test]
fn an_invocation_ends_at_its_timeout_by_its_caller_or_with_its_deployment() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let place = Place::new(server, "apps that end")?;
    let deployment = place.running("1")?;
    let late = json!({ "async": true, "async_timeout_seconds": 10, "payload": "\"go\"" });
    let late = place.invoke("1", "wait", &late)?.expect(202)?.json()?;
    let done = place.begun("1", "wait", Some("\"go\""))?;
    let stopped = place.begun("1", "wait", Some("\"never\""))?;

    let path = format!("/invocations/{done}");
    let body = json!({ "status": "succeeded", "output": "[\"mine\"]" });
    let patched = place.send("PATCH", &path, &body)?.expect(200)?.json()?;
    assert_eq!((&patched["status"], &patched["output"]), (&json!("succeeded"), &json!("[\"mine\"]")));
    let again = place.send("PATCH", &path, &body)?.expect(409)?.json()?;
    assert_eq!(again["code"], "invalid_state");

    let late = place.end(late["id"].as_str().unwrap())?;
    assert_eq!((&late["status"], &late["status_reason"]), (&json!("failed"), &json!("timed out after 10 s")));
    place.allow("go")?;
    place.request("DELETE", &format!("/deployments/{deployment}")).send(server.address())?.expect(204)?;
    let stopped = place.end(&stopped)?;
    assert_eq!((&stopped["status"], &stopped["status_reason"]), (&json!("failed"), &json!("deployment stopped")));
    assert_eq!(place.get(&path)?, patched, "what comes after the end changes nothing");
    until("no process of its programs is left", TEST_TIMEOUT, || {
        (!server.processes().iter().any(|process| is_of(process, &place))).then_some(())
    })
}

/// Returns true if a process belongs to an app of a place.
fn is_of(process: &Process, place: &Place<'_>) -> bool {
    let mark = format!("MARK={}", place.project());
    let environment = std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
}

#[test]
fn a_patch_ends_the_process_and_only_failed_ends_the_browsers_of_the_invocation() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let place = Place::new(server, "apps that are patched")?;
    let deployment = place.running("1")?;
    let browses = |process: &Process| {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
        name.trim() == "browsing" && is_of(process, &place)
    };
    for (status, remaining) in [("failed", 0), ("succeeded", 1)] {
        let id = place.begun("1", "browse", None)?;
        let browsers = || -> anyhow::Result<Vec<Value>> {
            let found = place.get(&format!("/invocations/{id}/browsers"))?;
            Ok(found["browsers"].as_array().cloned().unwrap_or_default())
        };
        assert_eq!(browsers()?.len(), 1);
        assert_eq!(server.processes().iter().filter(|process| browses(process)).count(), 1);

        place.send("PATCH", &format!("/invocations/{id}"), &json!({ "status": status }))?.expect(200)?;

        // The timeout of the invocation is fifteen minutes.
        until("its process is gone", TEST_TIMEOUT, || (!server.processes().iter().any(browses)).then_some(()))?;
        until("so are its browsers that go with it", TEST_TIMEOUT, || {
            (browsers().ok()?.len() == remaining).then_some(())
        })?;
        place.request("DELETE", &format!("/invocations/{id}/browsers")).send(server.address())?.expect(204)?;
        assert_eq!(browsers()?.len(), 0);
    }
    place.request("DELETE", &format!("/deployments/{deployment}")).send(server.address())?.expect(204).map(drop)
}

#[test]
fn idle_streams_send_keep_alives() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let place = Place::new(server, "apps in silence")?;
    let deployment = place.running("1")?;
    let waiting = place.begun("1", "wait", Some("\"never\""))?;
    thread::scope(|scope| {
        let paths = [format!("/deployments/{deployment}/events"), format!("/invocations/{waiting}/events")];
        let place = &place;
        let followers = paths.map(|path| {
            scope.spawn(move || -> anyhow::Result<()> {
                let stream = place.request("GET", &path).start(server.address())?;
                let lines = BufReader::new(stream).lines().map_while(Result::ok);
                let found = lines.into_iter().any(|line| line.contains(r#""event":"sse_heartbeat""#));
                ensure!(found, "{path}: no sign of life");
                Ok(())
            })
        });
        followers.into_iter().try_for_each(|follower| follower.join().unwrap())
    })?;
    place.request("DELETE", &format!("/deployments/{deployment}")).send(server.address())?.expect(204).map(drop)
}

#[test]
fn a_deleted_build_ends_with_its_processes() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let place = Place::new(server, "apps that are deleted")?;
    let building = place.deploy("1", &json!({ "WAIT": "never", "MARK": place.project() }))?;
    let count = || server.processes().iter().filter(|process| is_of(process, &place)).count();
    until("its program is loaded", TEST_TIMEOUT, || (count() > 0).then_some(()))?;
    place.request("DELETE", &format!("/deployments/{building}")).send(server.address())?.expect(204)?;
    // A build that its load timeout has ended is logged as such.
    until("the builder gives it up", TEST_TIMEOUT, || {
        let is_given_up = |line: &str| line.contains(&building) && line.contains("assigned to another node");
        server.log().lines().any(is_given_up).then_some(())
    })?;
    until("no process of it is left", TEST_TIMEOUT, || (count() == 0).then_some(()))?;
    let ended = place.get(&format!("/deployments/{building}"))?;
    assert_eq!((&ended["status"], &ended["status_reason"]), (&json!("stopped"), &json!("stopped by request")));
    Ok(())
}
