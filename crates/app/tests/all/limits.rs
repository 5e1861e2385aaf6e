//! Tests of the limits of the organization and of a project, with concurrent creates and after changes.

use std::thread;
use std::time::Duration;

use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Options, Server, until};
use serde_json::json;

use super::host::{count, sql};

/// A trigger that records the number of running sessions at every change of a session.
const TRACE: &str = "
    CREATE TABLE trace (live bigint NOT NULL);
    CREATE FUNCTION trace_sessions() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO trace SELECT count(*) FROM sessions WHERE state <> 'ended'; RETURN NULL;
    END $$;
    CREATE TRIGGER trace AFTER INSERT OR UPDATE ON sessions FOR EACH STATEMENT EXECUTE FUNCTION trace_sessions()";

/// Sends concurrent creates and returns the responses.
fn rush(server: &Server, callers: usize) -> anyhow::Result<Vec<Answer>> {
    let body = json!({ "headless": true, "timeout_seconds": 600 });
    let create = Request::new("POST", "/browsers").bearer(server.key()).json(&body);
    let answers: Vec<_> = thread::scope(|scope| {
        let callers: Vec<_> = (0..callers).map(|_| scope.spawn(|| decided(&create, server))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    answers.into_iter().collect()
}

/// Sends one more create, which the limit must refuse, and returns the message.
fn refusal(server: &Server) -> anyhow::Result<String> {
    let create = Request::new("POST", "/browsers").bearer(server.key()).json(&json!({ "headless": true }));
    let refused = decided(&create, server)?.expect(429)?;
    assert_eq!((refused.header("x-should-retry"), refused.header("retry-after")), (Some("false"), None));
    let body = refused.json()?;
    assert_eq!(body["code"], "limit_exceeded");
    Ok(body["message"].as_str().unwrap_or_default().to_owned())
}

fn live(server: &Server) -> anyhow::Result<u64> {
    count(server, "select count(*) from sessions where state <> 'ended'")
}

#[test]
fn concurrent_creates_meet_the_limits_exactly_and_changes_apply_at_once() -> anyhow::Result<()> {
    let server = Server::start(Options { spares: 1, ..Options::default() })?;
    sql(&server, TRACE)?;
    sql(&server, "update organizations set max_concurrent_sessions = 3")?;

    let answers = rush(&server, 200)?;

    let of_status = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((of_status(201), of_status(429)), (3, 197), "{:?}", odd(&answers));
    assert_eq!(count(&server, "select max(live) from trace")?, 3, "it was never exceeded, not for a moment");
    assert_eq!(live(&server)?, 3);
    let names_limit_value_and_use = "max_concurrent_sessions of the organization is 3, 3 in use, 1 more requested";
    assert_eq!(refusal(&server)?, names_limit_value_and_use);
    let pool = json!({ "size": 1, "headless": true });
    let pool = Request::new("POST", "/browser_pools").bearer(server.key()).json(&pool);
    let pool = decided(&pool, &server)?.expect(429)?;
    assert_eq!(pool.json()?["code"], "limit_exceeded", "a pool's size counts with the sessions");

    let first = answers.iter().find(|answer| answer.status == 201).map(Answer::json).unwrap()?;
    server.delete(&format!("/browsers/{}", first["session_id"].as_str().unwrap()))?.expect(204)?;
    sql(&server, "delete from trace")?;
    let answers = rush(&server, 20)?;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1, "{:?}", odd(&answers));
    assert_eq!(count(&server, "select max(live) from trace")?, 3);

    sql(&server, "update organizations set max_concurrent_sessions = 1")?;
    refusal(&server)?;
    assert_eq!(live(&server)?, 3, "a lowered limit ends nothing");
    sql(&server, "update organizations set max_concurrent_sessions = null")?;
    sql(&server, "update projects set max_concurrent_sessions = 4")?;
    server.headless()?;
    let of_the_project = refusal(&server)?;
    assert!(of_the_project.contains("project is 4, 4 in use"), "{of_the_project}");
    Ok(())
}

/// Triggers that record the usage of the limits of sessions and of pools at every change of a session or a pool.
const BOTH: &str = "
    CREATE TABLE trace (counted bigint NOT NULL, pooled bigint NOT NULL);
    CREATE FUNCTION trace_use() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE pooled bigint := (SELECT coalesce(sum(size), 0) FROM browser_pools WHERE deleted_at IS NULL);
    BEGIN
        INSERT INTO trace SELECT count(*) + pooled, pooled FROM sessions WHERE state <> 'ended' AND pool_id IS NULL;
        RETURN NULL;
    END $$;
    CREATE TRIGGER trace AFTER INSERT OR UPDATE ON sessions FOR EACH STATEMENT EXECUTE FUNCTION trace_use();
    CREATE TRIGGER trace AFTER INSERT OR UPDATE ON browser_pools FOR EACH STATEMENT EXECUTE FUNCTION trace_use()";

/// Repeats a request until its response is not 503, because a server on a busy machine may refuse it.
fn decided(request: &Request, server: &Server) -> anyhow::Result<Answer> {
    until("an answer other than 503", Duration::from_secs(300), || match request.send(server.address()) {
        Ok(answer) if answer.status == 503 => None,
        answered => Some(answered),
    })?
}

/// The number of callers that share a thousand calls.
const CALLERS: usize = 250;

#[test]
fn a_thousand_creates_over_two_servers_meet_the_limits_exactly() -> anyhow::Result<()> {
    let first = Server::start(Options::default())?;
    let second = first.another(Options::default())?;
    sql(&first, BOTH)?;
    sql(&first, "update projects set max_concurrent_sessions = 3, max_pooled_sessions = 1")?;

    let create = |path: &str, body| Request::new("POST", path).bearer(first.key()).json(&body);
    let session = create("/browsers", json!({ "headless": true, "timeout_seconds": 600 }));
    let pool = create("/browser_pools", json!({ "size": 1, "headless": true }));
    let answers: Vec<(bool, Answer)> = thread::scope(|scope| {
        let call = |n: usize| {
            let server = if n.is_multiple_of(2) { &first } else { &second };
            let pooled = n % 100 < 2;
            anyhow::Ok((pooled, decided(if pooled { &pool } else { &session }, server)?))
        };
        // All at once would wait for their audit records longer than a busy machine allows.
        let caller = move |caller: usize| (caller..1000).step_by(CALLERS).map(call).collect::<Result<Vec<_>, _>>();
        let callers: Vec<_> = (0..CALLERS).map(|n| scope.spawn(move || caller(n))).collect();
        let answers = callers.into_iter().map(|caller| caller.join().unwrap()).collect::<Result<Vec<_>, _>>()?;
        anyhow::Ok(answers.into_iter().flatten().collect())
    })?;

    let all: Vec<Answer> = answers.iter().map(|(_, answer)| answer.clone()).collect();
    let made = |pools: bool| answers.iter().filter(|(pooled, answer)| *pooled == pools && answer.status == 201).count();
    assert_eq!(made(true) + made(false), 3, "{:?}", odd(&all));
    assert_eq!(all.iter().filter(|answer| answer.status == 429).count(), 997, "{:?}", odd(&all));
    assert!(made(true) <= 1, "{} pools", made(true));
    assert_eq!(sql(&first, "select max(counted), max(pooled) <= 1 from trace")?, "3|t", "not for a moment");
    for server in [&first, &second] {
        assert_eq!(refusal(server)?, "max_concurrent_sessions of the project is 3, 3 in use, 1 more requested");
    }
    Ok(())
}

/// Returns the responses that are neither a success nor a refusal by a limit.
fn odd(answers: &[Answer]) -> Vec<(u16, String)> {
    let odd = answers.iter().filter(|answer| answer.status != 201 && answer.status != 429);
    odd.map(|answer| (answer.status, answer.text())).collect()
}
