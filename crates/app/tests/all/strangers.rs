//! Tests that another organization of the installation and another project of the organization find nothing of this
//! one, on any route, by any id or name; and that no text of a caller breaks a list or a file for others.

use std::time::Duration;

use anyhow::Context as _;
use casement_test_support::archives::zip;
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Options, Server, until};
use serde_json::{Value, json};

use super::extensions::{form, send};
use super::host::sql;
use super::hostile::{comparable, filled, operations};

/// The second organization, whose only key has a secret of 32 zeros.
const STRANGERS: &str = "
    INSERT INTO organizations (id, name, created_at) VALUES ('01990000-0000-7000-8000-000000000001', 'Strangers', now());
    INSERT INTO users (id, organization_id, email) VALUES
        ('01990000-0000-7000-8000-000000000002', '01990000-0000-7000-8000-000000000001', 'eve@strangers.test');
    INSERT INTO projects (id, organization_id, name, is_default, status, created_at, updated_at) VALUES
        ('01990000-0000-7000-8000-000000000003', '01990000-0000-7000-8000-000000000001', 'default', true, 'active', now(), now());
    INSERT INTO api_keys (id, organization_id, name, secret_sha256, last4, created_by, created_at) VALUES
        ('01990000-0000-7000-8000-000000000004', '01990000-0000-7000-8000-000000000001', 'theirs',
         sha256(decode(repeat('00', 32), 'hex')), 'AAAA', '01990000-0000-7000-8000-000000000002', now())";
/// An app of the first organization that was deployed and invoked once.
const PROGRAM: &str = "
    INSERT INTO deployments (id, project_id, status, region, version, force, entrypoint, env_names, api_key_id, used_at, created_at, updated_at)
        SELECT '01990000-0000-7000-8000-000000000005', projects.id, 'stopped', 'aws.us-east-1a', '1', false, 'main.py', '{}', api_keys.id,
            now(), now(), now()
        FROM projects JOIN api_keys USING (organization_id)
        WHERE is_default AND organization_id <> '01990000-0000-7000-8000-000000000001' ORDER BY api_keys.created_at LIMIT 1;
    INSERT INTO invocations (id, project_id, deployment_id, app_name, version, action_name, status, timeout_seconds, deadline, started_at,
            finished_at)
        SELECT '01990000-0000-7000-8000-000000000006', project_id, id, 'an-app', '1', 'an-action', 'failed', 60, now(), now(), now()
        FROM deployments";
const NOWHERE: &str = "01k9zk0000000000000000000a";

/// A server with two organizations, and one resource of each kind in the first.
struct Two {
    server: Server,
    stranger: String,
    /// The key of another project of the first organization.
    neighbour: String,
    /// The path of each kind of resource, with the id and, if any, the name of one.
    things: Vec<(&'static str, Vec<String>)>,
}

impl Two {
    fn start() -> anyhow::Result<Self> {
        let server = Server::start(Options::default())?;
        sql(&server, STRANGERS)?;
        sql(&server, PROGRAM)?;
        let id = super::host::id_of("01990000-0000-7000-8000-000000000004")?;
        let stranger = format!("csk_{id}_{}", "A".repeat(43));
        let make = |path: &str, body: Value| {
            let made = server.post(path, &body)?.expect(201)?.json()?;
            let id = made["id"].as_str().or(made["session_id"].as_str()).context("no id")?;
            anyhow::Ok(id.to_owned())
        };
        let closed = json!({ "host": "127.0.0.1", "port": 9 });
        let proxy = json!({ "type": "custom", "name": "an-exit", "config": closed });
        let session = json!({ "headless": true, "timeout_seconds": 600, "name": "a-session" });
        let pool = json!({ "name": "a-pool", "size": 1, "headless": true });
        let project = make("/org/projects", json!({ "name": "a-project" }))?;
        let elsewhere = make("/org/projects", json!({ "name": "elsewhere" }))?;
        let neighbour = server.post("/org/api_keys", &json!({ "name": "a-neighbour", "project_id": elsewhere }))?;
        let neighbour = neighbour.expect(201)?.json()?["key"].as_str().context("no key")?.to_owned();
        let manifest = json!({ "manifest_version": 3, "name": "x", "version": "1" }).to_string();
        let archive = zip(&[("manifest.json", &manifest)])?;
        let extension = send(&server, form("/extensions", &[("name", "an-extension")], &[("file", &archive)]))?;
        let extension = extension.expect(201)?.json()?["id"].as_str().context("no id")?.to_owned();
        let credential =
            json!({ "name": "a-credential", "domain": "shop.example", "values": { "password": "hunter2" } });
        let provider = json!({
            "provider_type": "passwordmanager", "name": "a-provider", "token": "t", "server_url": "http://127.0.0.1:9",
        });
        let destination = json!({ "name": "a-destination", "endpoint": "https://1.1.1.1" });
        let connection = json!({ "domain": "shop.example", "profile_name": "a-login" });
        let things = vec![
            ("/profiles/", vec![make("/profiles", json!({ "name": "a-profile" }))?, "a-profile".to_owned()]),
            ("/extensions/", vec![extension, "an-extension".to_owned()]),
            ("/credentials/", vec![make("/credentials", credential)?, "a-credential".to_owned()]),
            ("/org/credential_providers/", vec![make("/org/credential_providers", provider)?]),
            (
                "/telemetry/destinations/",
                vec![make("/telemetry/destinations", destination)?, "a-destination".to_owned()],
            ),
            ("/auth/connections/", vec![make("/auth/connections", connection)?]),
            ("/org/api_keys/", vec![make("/org/api_keys", json!({ "name": "a-key", "project_id": project }))?]),
            ("/org/projects/", vec![project]),
            ("/proxies/", vec![make("/proxies", proxy)?]),
            ("/browsers/", vec![make("/browsers", session)?, "a-session".to_owned()]),
            ("/browser_pools/", vec![make("/browser_pools", pool)?, "a-pool".to_owned()]),
            ("/deployments/", vec![super::host::id_of("01990000-0000-7000-8000-000000000005")?]),
            ("/invocations/", vec![super::host::id_of("01990000-0000-7000-8000-000000000006")?]),
        ];
        Ok(Self { server, stranger, neighbour, things })
    }

    fn of(&self, kind: &str) -> &str {
        let (_, names) = self.things.iter().find(|(path, _)| *path == kind).expect("a kind that there is");
        &names[0]
    }

    /// Sends a request with the key of the second organization.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.ask_as(&self.stranger, method, path, body)
    }

    fn ask_as(&self, key: &str, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let request = Request::new(method, path).bearer(key);
        body.map_or_else(|| request.clone(), |body| request.clone().json(body)).send(self.server.address())
    }

    fn list(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("GET", path, None)?.expect(200)?.json()
    }
}

#[test]
fn another_organization_finds_nothing_on_any_route_and_learns_nothing() -> anyhow::Result<()> {
    let two = Two::start()?;
    let rows = || {
        let states =
            "select (select count(*) from sessions where state <> 'ended'), (select count(*) from browser_pools
            where deleted_at is null), (select count(*) from proxies where deleted_at is null), (select count(*) from
            projects where deleted_at is null), (select count(*) from api_keys where deleted_at is null),
            (select count(*) from profiles where deleted_at is null), (select count(*) from extensions),
            (select count(*) from credentials), (select count(*) from credential_providers),
            (select count(*) from telemetry_destinations), (select count(*) from
            auth_connections), (select count(*) from auth_flows), (select count(*) from deployments), (select count(*) from invocations)";
        sql(&two.server, states)
    };
    let before = rows()?;
    let mut tried = 0;
    for (method, path) in operations(&two.server)?.into_iter().filter(|(_, path)| path.contains('{')) {
        let Some((_, names)) = two.things.iter().find(|(kind, _)| path.starts_with(kind)) else { continue };
        let by_name = names.iter().skip(1).map(|name| (name, "x".repeat(name.len())));
        let by_name = by_name.filter(|_| path.contains("_or_name}"));
        for (name, unknown) in [(&names[0], NOWHERE.to_owned())].into_iter().chain(by_name) {
            let session_id = two.of("/browsers/");
            let body = json!({ "session_id": session_id, "size": 2, "name": "taken-over", "force": true });
            for (key, of_the_organization) in [(&two.stranger, 404), (&two.neighbour, 403)] {
                // The key of a project has no access to resources of the organization.
                let of_destination = path.starts_with("/telemetry/");
                if of_destination && method == "GET" && key == &two.neighbour {
                    // The key of a project reads them, because its sessions export to them.
                    continue;
                }
                let refusal = if path.starts_with("/org/") || of_destination { of_the_organization } else { 404 };
                let found = two.ask_as(key, &method, &filled(&path, name), Some(&body))?;
                let not_found = two.ask_as(key, &method, &filled(&path, &unknown), Some(&body))?;
                assert_eq!(found.status, refusal, "{method} {path} {name}: {}", found.text());
                assert_eq!(comparable(&found, name), comparable(&not_found, &unknown), "{method} {path} {name}");
                tried += 1;
            }
        }
    }
    assert!(tried > 200, "{tried} operations are too few");
    let of_projects = [
        "/browsers?status=all",
        "/browser_pools",
        "/proxies",
        "/extensions",
        "/profiles",
        "/credentials",
        "/auth/connections",
        "/deployments",
        "/invocations",
    ];
    for list in of_projects {
        assert_eq!(two.list(list)?, json!([]), "{list}");
        assert_eq!(two.ask_as(&two.neighbour, "GET", list, None)?.expect(200)?.json()?, json!([]), "{list}");
    }
    assert_eq!(two.list("/org/credential_providers")?, json!([]));
    assert_eq!(two.list("/telemetry/destinations")?, json!([]));
    let names = |path: &str| {
        let listed = two.list(path)?;
        let found = listed.as_array().into_iter().flatten().map(|one| one["name"].as_str().unwrap_or_default());
        anyhow::Ok(found.map(str::to_owned).collect::<Vec<_>>())
    };
    assert_eq!(
        (names("/org/projects")?, names("/org/api_keys?status=all")?),
        (vec!["default".into()], vec!["theirs".into()])
    );

    let project = two.of("/org/projects/");
    for list in of_projects {
        let request = Request::new("GET", list).bearer(&two.stranger).header("X-Kernel-Project-Id", project);
        assert_eq!(request.send(two.server.address())?.status, 404, "{list} with a project of others");
    }
    let export = json!({ "otlp": { "destination": { "name": "a-destination" } } });
    for (path, body) in [
        ("/org/api_keys", json!({ "name": "mine", "project_id": project })),
        ("/browsers", json!({ "headless": true, "proxy_id": two.of("/proxies/") })),
        ("/browsers", json!({ "headless": true, "proxy_id": "an-exit" })),
        ("/browser_pools", json!({ "size": 1, "proxy_id": two.of("/proxies/") })),
        ("/browsers", json!({ "headless": true, "profile": { "id": two.of("/profiles/") } })),
        ("/browsers", json!({ "headless": true, "profile": { "name": "a-profile" } })),
        ("/browsers", json!({ "headless": true, "extensions": [{ "id": two.of("/extensions/") }] })),
        ("/browsers", json!({ "headless": true, "extensions": [{ "name": "an-extension" }] })),
        ("/browser_pools", json!({ "size": 1, "profile": { "id": two.of("/profiles/") } })),
        ("/browsers", json!({ "telemetry": { "enabled": true, "export": export } })),
        (
            "/auth/connections",
            json!({ "domain": "x.example", "profile_name": "x", "credential": { "name": "a-credential" } }),
        ),
        (
            "/auth/connections",
            json!({ "domain": "x.example", "profile_name": "x", "credential": { "provider": "a-provider", "auto": true } }),
        ),
    ] {
        for key in [&two.stranger, &two.neighbour] {
            let of_organization = path == "/org/api_keys"
                || ["a-provider", "a-destination"].iter().any(|name| body.to_string().contains(name));
            let is_theirs = key == &two.neighbour && of_organization;
            if is_theirs {
                continue;
            }
            let refused = two.ask_as(key, "POST", path, Some(&body))?;
            assert_eq!(refused.status, 400, "{path} {body}: {}", refused.text());
        }
    }
    assert_eq!(rows()?, before, "nothing was made, changed or ended");
    Ok(())
}

#[test]
fn filters_are_literal_and_cursors_belong_to_their_organization() -> anyhow::Result<()> {
    let two = Two::start()?;
    let server = &two.server;
    let proxy = json!({ "type": "custom", "name": "100%_x\\", "config": { "host": "127.0.0.1", "port": 9 } });
    server.post("/proxies", &proxy)?.expect(201)?;
    let listed = |path: &str| anyhow::Ok(server.get(path)?.expect(200)?.json()?.as_array().map_or(0, Vec::len));
    assert_eq!(
        [listed("/proxies?query=%25_x%5C")?, listed("/proxies?query=0%25_")?, listed("/proxies?query=_%25")?],
        [1, 1, 0]
    );
    let hostile = [
        "%25",
        "_",
        "%27%20OR%20%271%27%3D%271",
        "%27%3B%20DROP%20TABLE%20sessions%3B%20--",
        "%5C",
        "%22",
        "%7B%7D",
        "%C3%28",
    ];
    for list in ["/org/projects", "/org/api_keys", "/browsers", "/browser_pools", "/extensions"] {
        let filters: &[&str] = if list == "/browsers" { &["query"] } else { &["query", "name"] };
        for (text, filter) in hostile.iter().flat_map(|text| filters.iter().map(move |filter| (text, filter))) {
            let answer = server.get(&format!("{list}?{filter}={text}"))?;
            // Invalid UTF-8 is refused; all other values find nothing.
            let nothing = answer.status == 400 || (answer.status == 200 && answer.json()? == json!([]));
            assert!(nothing, "{list} {filter}={text}: {} {}", answer.status, answer.text());
        }
    }

    let range = "start=2000-01-01&end=9999-12-31T23:59:59Z&limit=1";
    let chunk = |query: &str, key: &str| {
        Request::new("GET", &format!("/audit-logs/export/chunk?{query}")).bearer(key).send(server.address())
    };
    let first = chunk(range, server.key())?.expect(200)?;
    let cursor = first.header("x-next-cursor").context("there are several records")?.to_owned();
    assert_eq!(chunk(&format!("{range}&cursor={cursor}"), server.key())?.status, 200);
    two.list("/browsers")?;
    two.list("/browsers")?;
    let middle = cursor.len() / 2;
    let altered = format!(
        "{}{}{}",
        &cursor[..middle],
        if &cursor[middle..=middle] == "A" { "B" } else { "A" },
        &cursor[middle + 1..]
    );
    for (cursor, key) in [
        (cursor.as_str(), two.stranger.as_str()),
        (&cursor[..cursor.len() - 2], server.key()),
        (&cursor[..1], server.key()),
        (&altered, server.key()),
        (&format!("{cursor}AAAA"), server.key()),
    ] {
        let refused = chunk(&format!("{range}&cursor={cursor}"), key)?;
        assert_eq!((refused.status, &refused.json()?["code"]), (400, &json!("invalid_cursor")), "{cursor}");
    }
    Ok(())
}

#[test]
fn an_audit_export_is_complete_whatever_callers_write() -> anyhow::Result<()> {
    let two = Two::start()?;
    let server = &two.server;
    let agent = "evil\"\\\t{}\u{2028}\u{85}]\u{7f}";
    for path in
        ["/browsers/%0A%22%5C", "/browsers/%E2%80%A8%00%1F", "/browsers/%0D%0A%0D%0A{\"id\":1}", "/browsers/'\"%25_;--"]
    {
        let request = Request::new("GET", path).bearer(server.key()).header("User-Agent", &agent.replace('\u{7f}', ""));
        let status = request.send(server.address())?.status;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    // A character that no header may contain is refused before authentication: the connection closes.
    let request = Request::new("GET", "/browsers").bearer(server.key()).header("User-Agent", agent);
    assert_eq!(request.send(server.address())?.status, 400);

    let ask = |query: &str| server.get(&format!("/audit-logs/export/chunk?format=jsonl&{query}"));
    // A response is sent before the record of the call is written, and the calls of this test create records too.
    let browsers = "start=0001-01-01&end=9999-12-31T23:59:59.999999Z&method=GET&search=/browsers/";
    let file = until("the records of all four calls", Duration::from_secs(90), || {
        let file = ask(browsers).ok()?;
        (file.header("x-record-count") == Some("4")).then_some(file)
    })?;
    let lines: Vec<Value> = file.text().lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!((lines.len(), file.text().matches('\n').count()), (4, 4));
    let agents: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["user_agent"].as_str())
        .filter(|recorded_path| recorded_path.starts_with("evil"))
        .collect();
    assert_eq!(agents, ["evil\"\\\t{}\u{2028}\u{85}]"; 4]);
    let found = ask("start=2000-01-01&end=9000-01-01&search=%250A%2522%255C")?.expect(200)?;
    assert_eq!(found.text().lines().count(), 1, "a percent sign is one: {}", found.text());
    let others =
        two.ask("GET", "/audit-logs/export/chunk?format=jsonl&start=2000-01-01&end=9000-01-01", None)?.expect(200)?;
    assert_eq!(others.text(), "", "nothing of this organization");

    let users = "search_user_id=x&".repeat(101);
    for query in [
        "start=2026-12-02&end=2026-12-01",
        "start=2026-12-01&end=2026-12-01",
        "start=2026-12-01&end=10000-01-01",
        "start=2026-12-01&end=9999-12-31T23:59:59-23:59",
        "start=-4000-01-01&end=2026-12-01",
        "start=2026-02-30&end=2026-12-01",
        "start=2026-12-01&end=2026-12-02&limit=0",
        "start=2026-12-01&end=2026-12-02&limit=50001",
        "start=2026-12-01&end=2026-12-02&limit=99999999999999999999",
        "start=2026-12-01&end=2026-12-02&exclude_method=A,B,C,D,E,F,G,H,I,J,K",
        &format!("start=2026-12-01&end=2026-12-02&{users}"),
        &format!("start=2026-12-01&end=2026-12-02&search={}", "x".repeat(257)),
        "start=2026-12-01&end=2026-12-02&search=%00",
    ] {
        let refused = ask(query)?;
        assert_eq!(refused.status, 400, "{query}: {}", refused.text());
        assert_eq!(refused.json()?["code"], "invalid_input", "{query}");
    }
    Ok(())
}
