//! The routes `/deployments` and `/apps`: all variants of the form, and secrets that are never returned.

use casement_domain::{
    deployment::{
        Deployment, DeploymentSecret, DeploymentSource, DeploymentStatus, DeploymentStored, Line, ListedApp,
        MockChangeWaiter, WakeReason,
    },
    page::Listed,
    sealing::Sealer as _,
    testing::{NOON, PlainSealer, app_version, deployment, project_id},
};
use pretty_assertions::assert_eq;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::support::{ARCHIVE, Ports, Reply, TestApi};

fn part(name: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

async fn send(ports: Ports, parts: &[(&str, &[u8])]) -> Reply {
    let mut body: Vec<u8> = parts.iter().flat_map(|(name, content)| part(name, content)).collect();
    body.extend_from_slice(b"--b--\r\n");
    TestApi::start(ports).form("/deployments", body).await
}

/// Returns ports that check the stored deployment.
fn storing(check: impl Fn(&Deployment) + Send + 'static) -> Ports {
    let mut ports = Ports::default();
    ports.packages.expect_put().returning(|_, _| Ok(()));
    ports.deployments.expect_create().times(1).returning(move |_, deployment, _, key, max| {
        assert_eq!((key.project, key.for_deployment, max), (Some(project_id()), true, 500));
        check(deployment);
        Ok(DeploymentStored::Yes)
    });
    ports
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_stored_and_its_deployment_is_queued_with_sealed_variables() {
    let mut ports = Ports::default();
    ports.packages.expect_put().times(1).returning(|key, _| {
        assert!(key.starts_with("deployments/"), "{key}");
        Ok(())
    });
    ports.deployments.expect_create().times(1).returning(|_, deployment, secrets, _, _| {
        assert!(deployment.force);
        let place = Deployment::place(deployment.id, &DeploymentSecret::EnvVar("WORD".to_owned()));
        let opened = PlainSealer.open(&place, &secrets.env_vars["WORD"]).unwrap();
        assert_eq!(opened.expose_secret(), b"hunter2");
        let place = Deployment::place(deployment.id, &DeploymentSecret::ApiKey);
        assert!(PlainSealer.open(&place, &secrets.api_key).unwrap().expose_secret().starts_with(b"csk_"));
        Ok(DeploymentStored::Yes)
    });
    let parts: [(&str, &[u8]); 6] = [
        ("entrypoint_rel_path", b"./src/main.py"),
        ("env_vars", br#"{"WORD": "hunter2", "OTHER": ""}"#),
        ("env_vars[WORD]", b"hunter2"),
        ("force", b"true"),
        ("version", b"1.0"),
        ("file", ARCHIVE),
    ];
    let reply = send(ports, &parts).await;
    assert_eq!(reply.status, 201, "{reply}");
    assert!(!reply.text().contains("hunter2"), "{reply}");
    let body = reply.json();
    assert_eq!(reply.header("location"), Some(format!("/deployments/{}", body["id"].as_str().unwrap()).as_str()));
    let mut body = body;
    body.as_object_mut().unwrap().remove("id");
    assert_eq!(
        body,
        json!({
            "status": "queued", "region": "aws.us-east-1a", "entrypoint_rel_path": "src/main.py",
            "env_vars": { "OTHER": "", "WORD": "" }, "source_type": "file", "source_checksum": "ab".repeat(32),
            "created_at": "2026-12-01T12:00:00.000000Z", "updated_at": "2026-12-01T12:00:00.000000Z",
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_repository_is_named_in_parts_or_in_one_text() {
    let parts: [(&str, &[u8]); 8] = [
        ("source[type]", b"github"),
        ("source[url]", b"https://github.com/me/shop"),
        ("source[ref]", b"feature/x"),
        ("source[entrypoint]", b"main.ts"),
        ("source[path]", b"apps/shop"),
        ("source[auth][method]", b"github_token"),
        ("source[auth][token]", b"ghp_secret"),
        ("entrypoint_rel_path", b"main.ts"),
    ];
    let whole = json!({
        "type": "github", "url": "https://github.com/me/shop", "ref": "feature/x", "entrypoint": "main.ts",
        "path": "apps/shop", "auth": { "method": "github_token", "token": "ghp_secret" },
    });
    let whole = whole.to_string();
    for parts in [&parts[..], &[("source", whole.as_bytes())][..]] {
        let ports = storing(|deployment| assert!(matches!(deployment.source, DeploymentSource::Git { .. })));
        let reply = send(ports, parts).await;
        assert_eq!(reply.status, 201, "{reply}");
        assert!(!reply.text().contains("ghp_secret"), "{reply}");
        let body = reply.json();
        let named = ["source_type", "source_url", "source_ref", "source_path", "entrypoint_rel_path"];
        assert_eq!(
            named.map(|name| body[name].as_str().unwrap()),
            ["github", "https://github.com/me/shop", "feature/x", "apps/shop", "main.ts"]
        );
        assert_eq!(body["source_checksum"], Value::Null);
    }
}

/// Each invalid form is listed with the field that the error names.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_field_is_named_and_nothing_is_stored() {
    let long = "x".repeat(33 << 10);
    let file: (&str, &[u8]) = ("file", ARCHIVE);
    let main: (&str, &[u8]) = ("entrypoint_rel_path", b"main.py");
    type Part<'a> = (&'a str, &'a [u8]);
    let cases: &[(&[Part<'_>], &str)] = &[
        (&[], "required: file:"),
        (&[file], "required: entrypoint_rel_path:"),
        (&[("source[type]", b"github"), main, file], "mutually_exclusive: source:"),
        (&[("entrypoint_rel_path", b"../main.py"), file], "blocked: entrypoint_rel_path:"),
        (&[("entrypoint_rel_path", b"/main.py"), file], "invalid_format: entrypoint_rel_path:"),
        (&[("entrypoint_rel_path", b"missing.py"), file], "invalid_format: entrypoint_rel_path:"),
        (&[main, ("file", b"no archive")], "invalid_format: file:"),
        (&[main, ("version", b""), file], "too_short: version:"),
        (&[main, ("version", b"a\nb"), file], "invalid_format: version:"),
        (&[main, ("region", b"moon"), file], "invalid_format: region:"),
        (&[main, ("region", b"aws.eu-west-1a"), file], "not_allowed: region:"),
        (&[main, ("force", b"yes"), file], "invalid_type: force:"),
        (&[main, ("env_vars", b"{"), file], "invalid_format: env_vars:"),
        (&[main, ("env_vars", br#"{"A": 1}"#), file], "invalid_type: env_vars.A:"),
        (&[main, ("env_vars", br#"["A"]"#), file], "invalid_type: env_vars:"),
        (&[main, ("env_vars", br#"{"A": "1", "A": "2"}"#), file], "invalid_format: env_vars:"),
        (&[main, ("env_vars[1A]", b"x"), file], "invalid_format: env_vars:"),
        (&[main, ("env_vars[A B]", b"x"), file], "invalid_format: env_vars:"),
        (&[main, ("env_vars[A]", b"a\0b"), file], "invalid_format: env_vars.A:"),
        (&[main, ("env_vars[A]", long.as_bytes()), file], "too_long: env_vars.A:"),
        (&[main, ("env_vars", br#"{"A": "1"}"#), ("env_vars[A]", b"2"), file], "mutually_exclusive: env_vars:"),
        (&[("source", b"x")], "invalid_format: source:"),
        (&[("source", br#"{"type": 1}"#)], "invalid_type: source.type:"),
    ];
    for (parts, expected) in cases {
        let reply = send(Ports::default(), parts).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "{expected}: {reply}");
        let details = reply.details();
        assert!(details.iter().any(|one| one.starts_with(expected)), "{expected}: {details:?}");
    }
    let twice = send(Ports::default(), &[main, main, file]).await;
    assert_eq!((twice.status, &*twice.code()), (400, "bad_request"));
    let two_files = send(Ports::default(), &[main, file, file]).await;
    assert_eq!((two_files.status, &*two_files.code()), (400, "bad_request"));
    let odd = send(Ports::default(), &[("entrypoint_rel_path", b"main.rb"), file]).await;
    assert_eq!((odd.status, &*odd.code()), (400, "not_supported"));
    let much = "x".repeat((1 << 20) + 1);
    let much = send(Ports::default(), &[main, ("env_vars[A]", much.as_bytes()), file]).await;
    assert_eq!((much.status, &*much.code()), (413, "payload_too_large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_repository_must_be_allowed() {
    let source = |name: &str, value: &str| {
        let mut source = json!({
            "type": "github", "url": "https://github.com/me/shop", "ref": "main", "entrypoint": "main.py",
        });
        source[name] = value.into();
        source.to_string()
    };
    for (name, value, expected) in [
        ("type", "gitlab", "not_allowed: source.type:"),
        ("url", "https://example.com/me/shop", "not_allowed: source.url:"),
        ("url", "http://github.com/me/shop", "not_allowed: source.url:"),
        ("url", "https://github.com:444/me/shop", "not_allowed: source.url:"),
        ("url", "http://169.254.169.254/me/shop", "not_allowed: source.url:"),
        ("url", "https://me:pw@github.com/me/shop", "blocked: source.url:"),
        ("url", "file:///etc/passwd", "not_allowed: source.url:"),
        ("url", "ext::sh -c id", "not_allowed: source.url:"),
        ("url", "github.com/me/shop", "invalid_format: source.url:"),
        ("url", "https://github.com/shop", "invalid_format: source.url:"),
        ("url", "https://github.com/me/shop/tree", "invalid_format: source.url:"),
        ("url", "https://github.com/me/shop?x=1", "invalid_format: source.url:"),
        ("url", "https://github.com/-me/shop", "invalid_format: source.url:"),
        ("ref", "", "too_short: source.ref:"),
        ("ref", "--upload-pack=id", "invalid_format: source.ref:"),
        ("ref", "a..b", "invalid_format: source.ref:"),
        ("ref", "a b", "invalid_format: source.ref:"),
        ("ref", "HEAD@{1}", "invalid_format: source.ref:"),
        ("entrypoint", "../main.py", "blocked: source.entrypoint:"),
        ("path", "../..", "blocked: source.path:"),
    ] {
        let reply = send(Ports::default(), &[("source", source(name, value).as_bytes())]).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "{value}: {reply}");
        let details = reply.details();
        assert!(details.iter().any(|one| one.starts_with(expected)), "{value}: {details:?}");
        assert!(!reply.text().contains("pw@"), "{reply}");
    }
    for url in ["https://github.com/me/shop.git", "http://127.0.0.1:3000/me/shop"] {
        let reply = send(storing(|_| ()), &[("source", source("url", url).as_bytes())]).await;
        assert_eq!(reply.status, 201, "{reply}");
    }
    let auth = json!({
        "type": "github", "url": "https://github.com/me/shop", "ref": "main", "entrypoint": "main.py",
        "auth": { "method": "github_token" },
    });
    let reply = send(Ports::default(), &[("source", auth.to_string().as_bytes())]).await;
    assert_eq!(reply.details(), ["required: source.auth.token: is required"]);
    let other: (&str, &[u8]) = ("entrypoint_rel_path", b"other.py");
    let reply = send(Ports::default(), &[("source", source("ref", "main").as_bytes()), other]).await;
    assert_eq!(reply.details().len(), 1, "{reply}");
    assert!(reply.details()[0].starts_with("mutually_exclusive: entrypoint_rel_path:"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_apply_their_filters_and_omit_values() {
    let mut ports = Ports::default();
    ports.deployments.expect_list().times(1).returning(|project, filter, page| {
        assert_eq!((project, page.limit), (project_id(), 1));
        assert_eq!((filter.app_name.as_deref(), filter.app_version.as_deref()), (Some("shop"), Some("v1")));
        Ok(Listed { items: vec![deployment(1)], next_offset: Some(1) })
    });
    ports.deployments.expect_list_apps().times(1).returning(|_, filter, _| {
        assert_eq!(filter.query.as_deref(), Some("sho"));
        Ok(Listed {
            items: vec![ListedApp { app: app_version(1), env_names: vec!["GREETING".to_owned()] }],
            next_offset: None,
        })
    });
    let api = TestApi::start(ports);
    let reply = api.get("/deployments?limit=1&app_name=shop&app_version=v1").await;
    assert_eq!((reply.header("x-has-more"), reply.header("x-next-offset")), (Some("true"), Some("1")));
    assert_eq!(reply.json()[0]["env_vars"], json!({ "GREETING": "" }));
    let reply = api.get("/apps?query=sho").await;
    let none = Value::Null;
    assert_eq!(
        reply.json(),
        json!([{
            "id": app_version(1).id.to_string(), "app_name": "shop", "version": "v1",
            "deployment": deployment(1).id.to_string(), "region": "aws.us-east-1a",
            "actions": [
                { "name": "buy", "input_schema": none, "output_schema": none },
                { "name": "look", "input_schema": none, "output_schema": none },
            ],
            "env_vars": { "GREETING": "" },
        }])
    );
    let reply = api.get("/deployments?app_version=v1").await;
    assert_eq!(reply.details(), ["required: app_name: is required with app_version"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_or_foreign_deployment_is_not_found() {
    let mut ports = Ports::default();
    ports.deployments.expect_find().returning(|_, _| Ok(None));
    let api = TestApi::start(ports);
    for (method, path) in [
        ("GET", format!("/deployments/{}", deployment(9).id)),
        ("GET", "/deployments/x".to_owned()),
        ("DELETE", "/deployments/x".to_owned()),
        ("GET", "/deployments/x/events".to_owned()),
    ] {
        let reply = api.call(method, &path, "").await;
        assert_eq!((reply.status, &*reply.code()), (404, "not_found"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_an_ended_invocation_changes_nothing() {
    let mut ports = Ports::default();
    let ended = || Deployment { status: DeploymentStatus::Failed, ..deployment(1) };
    ports.deployments.expect_find().returning(move |_, _| Ok(Some(ended())));
    ports.deployments.expect_get().returning(move |_| Ok(Some(ended())));
    let reply = TestApi::start(ports).call("DELETE", &format!("/deployments/{}", deployment(1).id), "").await;
    assert_eq!(reply.status, 204);
}

/// Parses the frames of a stream as JSON.
pub(super) fn frames(reply: &Reply) -> Vec<Value> {
    let text = reply.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_the_state_earlier_log_lines_and_all_events_until_the_end() {
    let mut ports = Ports::default();
    let at = |status| move || Deployment { status, ..deployment(1) };
    ports.deployments.expect_find().returning(move |_, _| Ok(Some(deployment(1))));
    let mut looks = 0;
    ports.deployments.expect_get().returning(move |_| {
        looks += 1;
        let status = [DeploymentStatus::InProgress, DeploymentStatus::Running, DeploymentStatus::Stopped];
        Ok(Some(at(status[(looks - 1).min(2)])()))
    });
    ports.deployments.expect_apps_of().returning(|_| Ok(vec![app_version(1)]));
    ports.lines.expect_page().returning(|_, span| {
        let line = |number: u64| Line { number, at: NOON, text: format!("line {number}\n2") };
        Ok((span.from..3).take(2).map(line).collect())
    });
    ports.change_notifier.expect_expect().times(1).returning(|_| {
        let mut waiting = MockChangeWaiter::new();
        waiting.expect_next().returning(|_| WakeReason::Changed);
        Box::new(waiting)
    });
    let reply = TestApi::start(ports).get(&format!("/deployments/{}/events?since=5m", deployment(1).id)).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let events: Vec<String> = frames(&reply)
        .iter()
        .map(|frame| match frame["event"].as_str().unwrap() {
            "deployment_state" => frame["deployment"]["status"].as_str().unwrap().to_owned(),
            "log" => frame["message"].as_str().unwrap().to_owned(),
            other => other.to_owned(),
        })
        .collect();
    assert_eq!(
        events,
        ["in_progress", "line 0\n2", "line 1\n2", "line 2\n2", "app_version_summary", "running", "stopped"]
    );
}
