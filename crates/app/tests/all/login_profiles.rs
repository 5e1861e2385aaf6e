//! Tests of concurrent logins and health checks: of one connection, of one profile, and with a session of the profile.

use std::thread;

use anyhow::ensure;
use casement_test_support::program::http::Request;
use casement_test_support::program::{Cdp, Server, Session, Shared, until};
use serde_json::{Value, json};

use super::host::sql;
use super::login_site::{Connection, HOME, LOGIN, PASSWORD, Site, TEST_TIMEOUT, ann, uuid};

/// The number of concurrent starts.
const CONCURRENT_STARTS: usize = 8;

#[test]
fn concurrent_starts_of_a_login_start_one() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let site = Site::new(pages, "shop-at-once");
    let connection = Connection::new(server, &site, &json!({}))?;
    let begin = || {
        let request = Request::new("POST", &connection.path("/login")).bearer(server.key()).json(&json!({}));
        let address = server.address();
        thread::spawn(move || request.send(address)?.expect(200)?.json())
    };
    let begun: Vec<_> = (0..CONCURRENT_STARTS).map(|_| begin()).collect();
    let begun = begun.into_iter().map(|one| one.join().unwrap()).collect::<anyhow::Result<Vec<Value>>>()?;
    assert!(begun.iter().all(|one| one["hosted_url"] == begun[0]["hosted_url"]), "{begun:?}");
    connection.until_awaiting()?;
    let later = connection.login()?;
    assert_eq!(
        [&later["hosted_url"], &later["flow_expires_at"]],
        [&begun[0]["hosted_url"], &begun[0]["flow_expires_at"]]
    );
    let flows = format!("SELECT count(*) FROM auth_flows WHERE connection_id = {}", uuid(&connection.id)?);
    assert_eq!(sql(server, &flows)?, "1");
    assert_eq!(sessions_of(server, &connection.profile)?, 1);
    server.delete(&connection.path(""))?.expect(204).map(drop)
}

/// Returns the number of running sessions with the profile.
fn sessions_of(server: &Server, profile: &str) -> anyhow::Result<u64> {
    let of_it = "SELECT count(*) FROM sessions s JOIN profiles p ON p.id = s.profile_id";
    Ok(sql(server, &format!("{of_it} WHERE p.name = '{profile}' AND s.state <> 'ended'"))?.parse()?)
}

fn version_of(server: &Server, profile: &str) -> anyhow::Result<String> {
    sql(server, &format!("SELECT version_id FROM profiles WHERE name = '{profile}'"))
}

#[test]
fn two_logins_of_one_profile_at_once_leave_it_logged_in_to_both_sites() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let (site, other) = (Site::new(pages, "shop-both"), Site::new(pages, "shop-both-other"));
    for (page, html) in [("home", HOME), ("login", LOGIN)] {
        other.put(page, &html.replace("in=ann", "to=ann"));
    }
    let one = Connection::new(server, &site, &json!({}))?;
    let elsewhere = json!({ "domain": "other.example", "allowed_domains": ["localhost"], "profile_name": one.profile });
    let two = Connection { profile: one.profile.clone(), ..Connection::new(server, &other, &elsewhere)? };
    for connection in [&one, &two] {
        connection.login()?;
    }
    // Waits until both have loaded the old version of the profile.
    for connection in [&one, &two] {
        connection.until_awaiting()?;
    }
    for connection in [&one, &two] {
        connection.submit(&ann(PASSWORD))?;
    }
    for connection in [&one, &two] {
        // Stored values are not requested again.
        let over = connection
            .until("over or asked again", |now| now["flow_status"] == "SUCCESS" || now["website_error"].is_string())?;
        assert_eq!(over["status"], "AUTHENTICATED", "{over}");
        connection.until_closed()?;
    }
    assert_eq!(one.seen(&site)?, "Your orders - Shop");
    assert_eq!(two.seen(&other)?, "Your orders - Shop");
    for connection in [&one, &two] {
        server.delete(&connection.path(""))?.expect(204)?;
    }
    Ok(())
}

/// Creates a session that saves its changes to the profile.
fn saving(server: &Server, profile: &str) -> anyhow::Result<Session> {
    let profile = json!({ "name": profile, "save_changes": true });
    server.create(&json!({ "headless": true, "timeout_seconds": 600, "profile": profile }))
}

/// Returns the results of the finished health checks, the latest first.
fn looks(connection: &Connection<'_>) -> anyhow::Result<Vec<String>> {
    let timeline = connection.server.get(&connection.path("/timeline?type=health_check"))?.expect(200)?.json()?;
    let looks = timeline.as_array().into_iter().flatten().map(|one| one["status"].as_str().unwrap_or_default());
    Ok(looks.filter(|status| *status != "IN_PROGRESS").map(str::to_owned).collect())
}

/// Makes the health check due.
fn due(connection: &Connection<'_>) -> anyhow::Result<()> {
    let due = "UPDATE auth_connections SET check_taken_at = now() - interval '2 hours'";
    sql(connection.server, &format!("{due} WHERE id = {}", uuid(&connection.id)?)).map(drop)
}

#[test]
fn a_health_check_waits_for_sessions_of_its_profile_and_overwrites_no_save() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let values = json!({ "name": "beside", "domain": "localhost", "values": { "email": "ann", "password": PASSWORD } });
    server.post("/credentials", &values)?.expect(201)?;
    let (site, other) = (Site::new(pages, "shop-beside"), Site::new(pages, "shop-beside-other"));
    site.put("account", "<!doctype html><title>Account</title><h1>Account</h1>");
    let credential = json!({ "credential": { "name": "beside" } });
    let used = Connection::new(server, &site, &credential)?;
    let unused = Connection::new(server, &other, &credential)?;
    for connection in [&used, &unused] {
        connection.login()?;
    }
    for connection in [&used, &unused] {
        connection.until_over("SUCCESS")?;
        connection.until_closed()?;
    }

    let session = saving(server, &used.profile)?;
    let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = client.page()?;
    client.open(&page, &site.url("account"))?;
    client.evaluate(&page, "window.mark = 42; document.cookie = 'first=yes; max-age=9999; path=/'")?;
    for connection in [&used, &unused] {
        due(connection)?;
    }
    until("the look at the other profile", TEST_TIMEOUT, || (!looks(&unused).ok()?.is_empty()).then_some(()))?;
    assert_eq!(looks(&used)?, [""; 0]);
    assert_eq!(sessions_of(server, &used.profile)?, 1);
    assert_eq!(client.evaluate(&page, "window.mark")?, 42);
    let home = format!("GET {}", site.path("home"));
    let requests = || pages.requests().iter().filter(|one| **one == home).count();
    let mut before = requests();
    pages.hold(&site.path("home"));
    drop(client);
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;

    // While the health check runs, a session begins and ends.
    let comes_and_goes = |before: usize| -> anyhow::Result<String> {
        until("the look", TEST_TIMEOUT, || (requests() > before).then_some(()))?;
        let session = saving(server, &used.profile)?;
        let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = client.page()?;
        client.open(&page, &site.url("account"))?;
        let cookies = client.evaluate(&page, "document.cookie = 'later=yes; max-age=9999; path=/'; document.cookie")?;
        let all = cookies.as_str().unwrap_or_default();
        ensure!(all.contains("first=yes") && all.contains("later=yes"), "{cookies}");
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
        version_of(server, &used.profile)
    };
    let mut failed = 0;
    let version = loop {
        let version = comes_and_goes(before)?;
        let over = looks(&used)?.len();
        if over == failed {
            break version;
        }
        // On a busy machine this may exceed the timeout of the health check, so it is repeated.
        ensure!(over < 5, "no look waits for as long as somebody comes and goes");
        failed = over;
        used.until_closed()?;
        before = requests();
        due(&used)?;
    };
    site.put("home", HOME);
    let found = until("the look's end", TEST_TIMEOUT, || looks(&used).ok().filter(|all| all.len() > failed))?;
    assert_eq!(found[0], "AUTHENTICATED");
    used.until_closed()?;
    assert_eq!(version_of(server, &used.profile)?, version);
    assert_eq!(used.seen(&site)?, "Your orders - Shop");
    for connection in [&used, &unused] {
        server.delete(&connection.path(""))?.expect(204)?;
    }
    server.delete("/credentials/beside")?.expect(204).map(drop)
}
