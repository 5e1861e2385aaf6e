//! Tests of logins with a person, automatic logins and health checks, also with kills and deletions.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Options, Pages, Server, Shared, until};
use serde_json::{Value, json};

use super::host::sql;
use super::login_site::{Connection, HOME, LOGIN, PASSWORD, RIDDLE, Site, TEST_TIMEOUT, WRONG, ann, uuid};

#[test]
fn after_a_persons_login_sessions_are_logged_in_and_logins_are_automatic() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-person");
    let connection = Connection::new(server, &site, &json!({}))?;
    let login = connection.login()?;
    assert_eq!(login["flow_type"], "LOGIN");
    assert_eq!(connection.login()?["handoff_code"], login["handoff_code"], "the same login is answered again");

    let waiting = connection.until_awaiting()?;
    let kinds: Vec<_> = waiting["fields"].as_array().into_iter().flatten().map(|field| field["type"].clone()).collect();
    assert_eq!(kinds, ["identifier", "password"], "{waiting}");
    let live = waiting["live_view_url"].as_str().context("no live view")?;
    assert!(live.contains("/live/") && waiting["browser_session_id"].is_string(), "{waiting}");
    let refused = server.post(&connection.path("/submit"), &json!({ "fields": { "nobody": "x" } }))?;
    assert_eq!(refused.status, 400);

    connection.submit(&ann(WRONG))?;
    let again = connection.until("refused by the site", |now| now["website_error"].is_string())?;
    assert_eq!(again["website_error"], "Wrong user name or password.");
    let again = connection.until_awaiting()?;
    let mut expected = waiting["fields"].clone();
    for field in expected.as_array_mut().into_iter().flatten() {
        assert_eq!(field["reason"], "missing");
        field["reason"] = json!("rejected");
    }
    assert_eq!(again["fields"], expected, "fields keep their ids");
    connection.submit(&ann(PASSWORD))?;
    let done = connection.until_over("SUCCESS")?;
    assert_eq!([&done["status"], &done["flow_step"]], [&json!("AUTHENTICATED"), &json!("COMPLETED")]);
    assert_eq!(done["post_login_url"], site.url("home"));
    assert_eq!([&done["can_reauth"], &done["can_reauth_reason"]], [&json!(true), &json!("requirements_satisfiable")]);
    connection.until_closed()?;
    assert_eq!(connection.seen(&site)?, "Your orders - Shop");

    // The accepted values are stored, and sealed; the rejected ones are not stored.
    let name = done["credential"]["name"].as_str().context("no credential")?;
    let stored = server.get(&format!("/credentials/{}", name.replace(' ', "%20")))?.expect(200)?.json()?;
    assert_eq!(stored["value_keys"], json!(["password", "username"]));

    // After the site has logged the user out, the login is automatic.
    site.put("home", &HOME.replace("in=ann", "in=ann2"));
    site.put("login", &LOGIN.replace("in=ann", "in=ann2"));
    assert_eq!(connection.login()?["flow_type"], "REAUTH");
    let done = connection.until_over("SUCCESS")?;
    assert_eq!(done["flow_type"], "REAUTH");
    connection.until_closed()?;
    assert_eq!(connection.seen(&site)?, "Your orders - Shop");

    let timeline = server.get(&connection.path("/timeline"))?.expect(200)?.json()?;
    let entries: Vec<_> =
        timeline.as_array().into_iter().flatten().map(|one| (one["type"].clone(), one["status"].clone())).collect();
    assert_eq!(entries, [(json!("reauth"), json!("SUCCESS")), (json!("login"), json!("SUCCESS"))]);
    secrets_are_nowhere(server)?;
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

/// Asserts that neither the accepted nor the rejected values are stored in clear text.
fn secrets_are_nowhere(server: &Server) -> anyhow::Result<()> {
    let tables =
        sql(server, "SELECT string_agg(quote_ident(tablename), ' ') FROM pg_tables WHERE schemaname = 'public'")?;
    for table in tables.split(' ') {
        for secret in [PASSWORD, WRONG] {
            let found = sql(server, &format!("SELECT count(*) FROM {table} t WHERE t::text LIKE '%{secret}%'"))?;
            ensure!(found == "0", "{table} holds {secret}");
            let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
            let found = sql(server, &format!("SELECT count(*) FROM {table} t WHERE t::text LIKE '%{hex}%'"))?;
            ensure!(found == "0", "{table} holds {secret} as bytes");
        }
    }
    let log = server.log();
    ensure!(!log.contains(PASSWORD) && !log.contains(WRONG), "the log holds a secret");
    Ok(())
}

#[test]
fn an_unknown_page_ends_the_login_with_a_screenshot_for_the_operator() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-riddle");
    site.put("home", RIDDLE);
    let connection = Connection::new(server, &site, &json!({}))?;
    connection.login()?;
    let over = connection.until_over("FAILED")?;
    assert_eq!(over["error_code"], "page_not_understood", "{over}");
    connection.until_closed()?;
    let timeline = server.get(&connection.path("/timeline"))?.expect(200)?.json()?;
    let flow = timeline[0]["id"].as_str().context("no flow")?;
    let picture = std::fs::read(server.data_dir().join(format!("login-pages/{flow}.png")))?;
    assert!(picture.starts_with(b"\x89PNG"));
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

#[test]
fn a_login_opens_only_allowed_destinations() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    for (name, to, code) in [
        ("shop-elsewhere", pages.url("/form"), "domain_not_allowed"),
        ("shop-private", "http://10.0.0.1:81/".to_owned(), "navigation_failed"),
    ] {
        let site = Site::new(pages, name);
        site.put("home", &format!("<!doctype html><title>Off</title><script>location = '{to}'</script>"));
        let connection = Connection::new(server, &site, &json!({}))?;
        connection.login()?;
        let over = connection.until_over("FAILED")?;
        let entries = over["error_code"].as_str().unwrap_or_default();
        // The check of domains may refuse the destination before the egress does.
        assert!(entries == code || entries == "domain_not_allowed", "{name}: {over}");
        connection.until_closed()?;
        server.delete(&connection.path(""))?.expect(204)?;
    }
    Ok(())
}

#[test]
fn a_login_follows_no_redirect_to_a_forbidden_destination() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    for (name, to, codes) in [
        ("shop-302-elsewhere", pages.url("/form"), ["domain_not_allowed", "domain_not_allowed"]),
        ("shop-302-private", "http://10.0.0.1:81/".to_owned(), ["navigation_failed", "domain_not_allowed"]),
        ("shop-302-metadata", "http://169.254.169.254/".to_owned(), ["navigation_failed", "domain_not_allowed"]),
        ("shop-302-file", "file:///etc/passwd".to_owned(), ["navigation_failed", "domain_not_allowed"]),
    ] {
        let site = Site::new(pages, name);
        pages.redirect(&site.path("home"), &to);
        let connection = Connection::new(server, &site, &json!({}))?;
        connection.login()?;
        let over = connection.until_over("FAILED")?;
        assert!(codes.contains(&over["error_code"].as_str().unwrap_or_default()), "{name}: {over}");
        assert!(!over.to_string().contains("root:"), "{over}");
        connection.until_closed()?;
        server.delete(&connection.path(""))?.expect(204)?;
    }
    Ok(())
}

#[test]
fn a_page_that_never_loads_ends_the_login_and_an_endless_one_does_not() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-silent");
    pages.hold(&site.path("home"));
    let connection = Connection::new(server, &site, &json!({}))?;
    connection.login()?;
    let over = connection.until_over("FAILED")?;
    assert_eq!(over["error_code"], "navigation_failed", "{over}");
    connection.until_closed()?;
    server.delete(&connection.path(""))?.expect(204)?;

    let site = Site::new(pages, "shop-endless");
    pages.put_without_end(&site.path("login"), LOGIN);
    let connection = Connection::new(server, &site, &json!({}))?;
    connection.login()?;
    connection.until_awaiting()?;
    connection.submit(&ann(PASSWORD))?;
    connection.until_over("SUCCESS")?;
    connection.until_closed()?;
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

#[test]
fn a_slow_site_gets_time_and_no_second_submission() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-slow");
    // A form response that is slower than the limit for other resources of a page.
    pages.put_late(&site.path("slow"), Duration::from_secs(15), "ok");
    let slow =
        "f.onsubmit = async event => {\n    event.preventDefault();\n    await fetch('slow', { method: 'POST' });";
    site.put("login", &LOGIN.replace("f.onsubmit = event => {\n    event.preventDefault();", slow));
    let values = json!({ "name": "slow", "domain": "localhost", "values": { "email": "ann", "password": PASSWORD } });
    server.post("/credentials", &values)?.expect(201)?;
    let connection = Connection::new(server, &site, &json!({ "credential": { "name": "slow" } }))?;
    connection.login()?;
    let over = connection.until_over("SUCCESS")?;
    // A request to a person would have changed the reason, because an answer in the live view is assumed.
    assert_eq!(over["can_reauth_reason"], "requirements_satisfiable", "{over}");
    assert_eq!(pages.requests().iter().filter(|request| *request == "POST /shop-slow/slow").count(), 1);
    connection.until_closed()?;
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

/// A page for a code in six boxes, which accepts only one code.
const BOXES: &str = "<!doctype html><html lang=en><title>Verification - Shop</title><h1>Enter the verification code</h1>\
    <form id=f><input maxlength=1 aria-label='Digit 1'><input maxlength=1 aria-label='Digit 2'><input maxlength=1 aria-label='Digit 3'>\
    <input maxlength=1 aria-label='Digit 4'><input maxlength=1 aria-label='Digit 5'><input maxlength=1 aria-label='Digit 6'>\
    <button>Verify</button></form><script>f.onsubmit = () => { const code = [...f.querySelectorAll('input')].map(it => it.value).join('');\
    if (code === '731946') { document.cookie = 'in=ann; max-age=9999; path=/'; location = 'home'; } return false; };</script>";

#[test]
fn values_that_a_page_rejects_are_requested_again() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-boxes");
    site.put("login", BOXES);
    let connection = Connection::new(server, &site, &json!({}))?;
    connection.login()?;
    connection.until_awaiting()?;
    connection.submit(&json!({ "code": "73194" }))?;
    let again = connection.until("asked again", |now| now["website_error"].is_string())?;
    assert_eq!(again["flow_step"], "AWAITING_INPUT", "{again}");
    connection.submit(&json!({ "code": "731946" }))?;
    connection.until_over("SUCCESS")?;
    connection.until_closed()?;
    server.delete(&connection.path(""))?.expect(204)?;

    // An element covers the button.
    let site = Site::new(pages, "shop-covered");
    let over = "<div style='position:relative'><button type=submit>Sign in</button>\
        <div style='position:absolute;inset:0'></div></div>";
    site.put("login", &LOGIN.replace("<button type=submit>Sign in</button>", over));
    let connection = Connection::new(server, &site, &json!({}))?;
    connection.login()?;
    connection.until_awaiting()?;
    connection.submit(&ann(PASSWORD))?;
    let again = connection.until("asked again", |now| now["website_error"].is_string())?;
    assert_eq!(again["flow_step"], "AWAITING_INPUT", "{again}");
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

#[test]
fn a_running_login_keeps_the_settings_of_its_start() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-told");
    let connection = Connection::new(server, &site, &json!({}))?;
    connection.login()?;
    connection.until_awaiting()?;
    let settings = json!({ "save_credentials": false, "login_url": "http://localhost:1/nowhere" });
    server.send("PATCH", &connection.path(""), Some(&settings))?.expect(200)?;
    connection.submit(&ann(PASSWORD))?;
    let over = connection.until_over("SUCCESS")?;
    assert!(over["credential"]["name"].is_string(), "{over}");
    assert_eq!(over["login_url"], "http://localhost:1/nowhere");
    connection.until_closed()?;
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

#[test]
fn deleting_a_connection_ends_its_login_and_saves_nothing() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    for at in ["at once", "waiting", "submitted"] {
        let name = format!("shop-deleted-{}", at.replace(' ', "-"));
        let site = Site::new(pages, &name);
        let connection = Connection::new(server, &site, &json!({}))?;
        connection.login()?;
        if at != "at once" {
            connection.until_awaiting()?;
        }
        if at == "submitted" {
            connection.submit(&ann(PASSWORD))?;
        }
        server.delete(&connection.path(""))?.expect(204)?;
        assert_eq!(server.get(&connection.path(""))?.status, 404);
        connection.until_closed()?;
        let left = format!("SELECT count(*) FROM auth_flows WHERE connection_id = {}", uuid(&connection.id)?);
        until("the flow forgotten", TEST_TIMEOUT, || (sql(server, &left).ok()? == "0").then_some(()))?;
        let living = format!(
            "SELECT count(*) FROM sessions s JOIN profiles p ON p.id = s.profile_id WHERE p.name = '{name}' AND s.state <> 'ended'"
        );
        until("no session of it", TEST_TIMEOUT, || (sql(server, &living).ok()? == "0").then_some(()))?;
        let profile = server.get(&format!("/profiles/{name}"))?.expect(200)?.json()?;
        let saved = sql(
            server,
            &format!(
                "SELECT count(*) FROM profile_versions v JOIN profiles p ON p.id = v.profile_id WHERE p.name = '{name}'"
            ),
        )?;
        assert_eq!(saved, "0", "{at}: {profile}");
    }
    Ok(())
}

/// A trigger that prevents new versions of profiles.
const UNSAVED: &str = "CREATE FUNCTION unsaved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$; \
     CREATE TRIGGER unsaved BEFORE INSERT ON profile_versions FOR EACH ROW EXECUTE FUNCTION unsaved(); \
     ALTER TABLE profile_versions DISABLE TRIGGER unsaved";

#[test]
fn a_login_continues_at_its_step_after_the_server_is_killed() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let variables = vec![("CASEMENT_LOG".to_owned(), "trace,tokio_postgres=info".to_owned())];
    let mut server = Server::start(Options { variables, ..Options::reaching(&pages) })?;
    sql(&server, UNSAVED)?;
    for at in ["begun", "waiting", "submitted", "saving"] {
        let site = Site::new(&pages, &format!("shop-killed-{at}"));
        let connection = Connection::new(&server, &site, &json!({}))?;
        let (id, profile) = (connection.id.clone(), connection.profile.clone());
        connection.login()?;
        if at != "begun" {
            connection.until_awaiting()?;
        }
        if matches!(at, "submitted" | "saving") {
            connection.submit(&ann(PASSWORD))?;
        }
        if at == "saving" {
            sql(&server, "ALTER TABLE profile_versions ENABLE TRIGGER unsaved")?;
            let state = format!(
                "SELECT count(*) FROM auth_flows WHERE connection_id = {} AND status = 'IN_PROGRESS' AND (details->>'saving')::boolean",
                uuid(&connection.id)?
            );
            until("its profile being saved", TEST_TIMEOUT, || (sql(&server, &state).ok()? == "1").then_some(()))?;
        }
        server.kill()?;
        server.restart()?;
        if at == "saving" {
            sql(&server, "ALTER TABLE profile_versions DISABLE TRIGGER unsaved")?;
        }
        let connection = Connection { server: &server, id, profile };
        if matches!(at, "begun" | "waiting") {
            connection.until_awaiting()?;
            connection.submit(&ann(PASSWORD))?;
        }
        let over = connection.until("over or asked again", |now| {
            now["flow_status"] == "SUCCESS" || now["flow_step"] == "AWAITING_INPUT"
        })?;
        if over["flow_status"] != "SUCCESS" {
            // A value that was typed during the kill did not reach the page, so it is requested again.
            connection.submit(&ann(PASSWORD))?;
            connection.until_over("SUCCESS")?;
        }
        connection.until_closed()?;
        assert_eq!(connection.seen(&site)?, "Your orders - Shop", "{at}");
    }
    secrets_are_nowhere(&server)?;
    until("no session left", TEST_TIMEOUT, || {
        let living = sql(&server, "SELECT count(*) FROM sessions WHERE state <> 'ended'").ok()?;
        (living == "0").then_some(())
    })?;
    until("no browser left", TEST_TIMEOUT, || {
        let spares = sql(&server, "SELECT count(*) FROM browsers").ok()?;
        (spares == "0").then_some(())
    })
}

#[test]
fn a_health_check_detects_a_logout_and_logs_in_again() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-looks");
    let values = json!({ "name": "looks", "domain": "localhost", "values": { "email": "ann", "password": PASSWORD } });
    server.post("/credentials", &values)?.expect(201)?;
    let connection =
        Connection::new(server, &site, &json!({ "credential": { "name": "looks" }, "save_credentials": false }))?;
    assert_eq!(connection.get()?["can_reauth_reason"], "no_prior_successful_login");
    connection.login()?;
    connection.until_over("SUCCESS")?;
    connection.until_closed()?;
    let due = format!(
        "UPDATE auth_connections SET check_taken_at = now() - interval '2 hours' WHERE id = {}",
        uuid(&connection.id)?
    );
    let events = || -> Option<Vec<(String, String)>> {
        let timeline = server.get(&connection.path("/timeline")).ok()?.json().ok()?;
        let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
        Some(timeline.as_array()?.iter().map(|one| (text(one, "type"), text(one, "status"))).collect())
    };
    let pair = |kind: &str, status: &str| (kind.to_owned(), status.to_owned());

    sql(server, &due)?;
    until("a look", TEST_TIMEOUT, || events()?.contains(&pair("health_check", "AUTHENTICATED")).then_some(()))?;
    assert!(connection.get()?["last_auth_check_at"].is_string());
    connection.until_closed()?;

    // The site logs the user out.
    site.put("home", &HOME.replace("in=ann", "in=ann2"));
    site.put("login", &LOGIN.replace("in=ann", "in=ann2"));
    sql(server, &due)?;
    until("the login made anew", TEST_TIMEOUT, || events()?.contains(&pair("reauth", "SUCCESS")).then_some(()))?;
    assert!(events().context("no timeline")?.contains(&pair("health_check", "NEEDS_AUTH")));
    assert_eq!(connection.get()?["status"], "AUTHENTICATED");
    connection.until_closed()?;

    // The site logs the user out, and rejects the password.
    site.put("home", &HOME.replace("in=ann", "in=ann3"));
    site.put("login", &LOGIN.replace("in=ann", "in=ann3").replace("hunter2-so-secret", "another"));
    sql(server, &due)?;
    until("the login given up", TEST_TIMEOUT, || (connection.get().ok()?["status"] == "NEEDS_AUTH").then_some(()))?;
    let over = connection.get()?;
    assert_eq!([&over["flow_status"], &over["error_code"]], [&json!("FAILED"), &json!("credentials_rejected")]);
    assert_eq!(over["website_error"], "Wrong user name or password.");
    connection.until_closed()?;
    server.delete(&connection.path(""))?.expect(204).map(drop)
}
