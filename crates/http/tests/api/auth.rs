//! Authentication and authorization.

use casement_domain::{
    ProjectId, StoreError,
    api_key::MockApiKeyRepository,
    page::Listed,
    project::{MockProjectRepository, Project, ProjectStatus},
    testing::{project, project_id},
};
use pretty_assertions::assert_eq;
use serde_json::Value;

use super::support::{Key, Ports, TestApi, other_project, projects as projects_repository, request};

/// Returns every operation of the API description: its method, its path, and whether it requires a key.
fn operations() -> Vec<(String, String, bool)> {
    let document: Value = serde_json::from_str(casement_http::openapi()).unwrap();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let open = operation["security"]
                .as_array()
                .is_some_and(|needs| needs.iter().all(|need| need == &serde_json::json!({})));
            let path = path.replace("{id_or_name}", "x").replace("{id}", "00000000000000000000000001");
            operations.push((method.to_uppercase(), path, !open));
        }
    }
    assert!(operations.len() >= 18, "{operations:?}");
    operations
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_refuses_a_missing_a_malformed_and_a_revoked_key() {
    let api = TestApi::start(Ports::default());
    let good = Key::Organization.text();
    let credentials = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some(format!("Basic {good}")),
        Some(format!("Token {good}")),
        Some(good.clone()),
        Some("Bearer csk_x".to_owned()),
        Some(format!("Bearer {}", good.replace("csk_", "csx_"))),
        Some(format!("Bearer {}A", good)),
        Some(format!("Bearer {}", &good[..good.len() - 1])),
        Some(format!("Bearer {}", Key::Revoked.text())),
    ];
    for (method, path, keyed) in operations() {
        for credential in &credentials {
            let line = credential.as_ref().map(|text| format!("Authorization: {text}"));
            let reply = api.request(&method, &path, line.as_deref().as_slice(), "").await;
            if !keyed {
                assert!(reply.status == 200, "{method} {path}: {reply}");
                continue;
            }
            let challenge = match credential {
                None => "Bearer realm=\"casement\"",
                Some(_) => "Bearer realm=\"casement\", error=\"invalid_token\"",
            };
            // Removed routes send the date of their removal even without a valid credential.
            let lines = reply.to_string();
            let dated = |line: &&str| ["deprecation: ", "sunset: ", "link: "].iter().any(|name| line.starts_with(name));
            // WebDriver clients read the error from a member of its own.
            let lines = match (lines.split_once("{\"value\":"), lines.split_once("\"data\":")) {
                (Some((before, _)), Some((_, data))) if path.starts_with("/wd/") => {
                    format!("{before}{}", data.strip_suffix("}}").unwrap_or(data))
                }
                _ => lines,
            };
            let lines = lines.lines().filter(|line| !(path.starts_with("/projects/") && dated(line)));
            assert_eq!(
                lines.collect::<Vec<_>>().join("\n"),
                format!(
                    "401\nwww-authenticate: {challenge}\n\
                     {{\"code\":\"unauthorized\",\"message\":\"the credential is missing or not valid\"}}"
                ),
                "{method} {path} with {credential:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_credentials_count_as_none() {
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let reply = TestApi::start(Ports::default()).request("GET", "/browsers", &[&key, &key], "").await;
    assert_eq!(reply.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authorization_scheme_is_case_insensitive() {
    let mut ports = Ports::default();
    ports.sessions.expect_list().returning(|_, _, _| Ok(Listed { items: Vec::new(), next_offset: None }));
    let key = format!("Authorization: bEARER  {}", Key::Organization.text());
    assert_eq!(TestApi::start(ports).request("GET", "/browsers", &[&key], "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_key_does_not_open_another_project() {
    let api = TestApi::start(Ports::default());
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    let project = format!("X-Kernel-Project-Id: {}", project_id());
    let reply = api.request("GET", "/browsers", &[&key, &project], "").await;
    assert_eq!((reply.status, &*reply.code()), (403, "forbidden"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_project_header_selects_the_project() {
    let mut ports = Ports::default();
    ports
        .sessions
        .expect_list()
        .withf(|project, _, _| *project == other_project())
        .times(1)
        .returning(|_, _, _| Ok(Listed { items: Vec::new(), next_offset: None }));
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let named = |text: &str| format!("X-Kernel-Project-Id: {text}");
    let ask = async |header: String| api.request("GET", "/browsers", &[&key, &header], "").await;
    assert_eq!(ask(named(&other_project().to_string().to_uppercase())).await.status, 200);
    assert_eq!(ask(named("default")).await.code(), "bad_request");
    assert_eq!(ask(named("01k9zk0000000000000000000a")).await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_project_header_takes_a_name_and_is_never_ignored() {
    let mut projects = projects_repository();
    projects
        .expect_find_by_name()
        .returning(|_, name| Ok((name == "Übung").then(|| Project { id: other_project(), ..project() })));
    let mut ports = Ports { projects: Some(projects), ..Ports::default() };
    ports
        .sessions
        .expect_list()
        .withf(|project, _, _| *project == other_project())
        .times(3)
        .returning(|_, _, _| Ok(Listed { items: Vec::new(), next_offset: None }));
    let api = TestApi::start(ports);
    let ask = async |key: Key, id: Option<ProjectId>, named: &str| {
        let key = format!("Authorization: Bearer {}", key.text());
        let named = format!("X-Kernel-Project: {named}");
        let id = id.map(|id| format!("X-Kernel-Project-Id: {id}"));
        let headers: Vec<&str> = [&key, &named].into_iter().chain(&id).map(String::as_str).collect();
        let reply = api.request("GET", "/browsers", &headers, "").await;
        (reply.status, if reply.status == 200 { String::new() } else { reply.code() })
    };
    let (by_id, refused) = (other_project().to_string(), |status, code: &str| (status, code.to_owned()));
    for (key, id, named, expected) in [
        (Key::Organization, None, "Übung", refused(200, "")),
        (Key::Organization, None, &*by_id, refused(200, "")),
        (Key::OtherProject, Some(other_project()), "Übung", refused(200, "")),
        (Key::Organization, None, "nowhere", refused(404, "not_found")),
        (Key::Organization, Some(project_id()), "Übung", refused(400, "bad_request")),
        (Key::OtherProject, None, "nowhere", refused(403, "forbidden")),
    ] {
        assert_eq!(ask(key, id, named).await, expected, "{id:?} {named}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_project_accepts_nothing_new() {
    let mut projects = MockProjectRepository::new();
    projects.expect_default_of().returning(|_| Ok(Project { status: ProjectStatus::Archived, ..project() }));
    let api = TestApi::start(Ports { projects: Some(projects), ..Ports::default() });
    for path in ["/browsers", "/browser_pools"] {
        let reply = api.post(path, r#"{"size": 1}"#).await;
        assert_eq!((reply.status, &*reply.code()), (403, "project_archived"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_store_is_no_refusal_of_the_key() {
    let mut keys = MockApiKeyRepository::new();
    keys.expect_find().returning(|_| Err(StoreError::unavailable("api_key.find", "away")));
    let api = TestApi::start(Ports { keys: Some(keys), ..Ports::default() });
    let reply = api.get("/browsers").await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_credential_is_checked_before_the_body_is_read() {
    let api = TestApi::start(Ports::default());
    let reply = api.raw(request("POST", "/browsers", &["Content-Type: text/plain"], "no json")).await;
    assert_eq!(reply.status, 401);
    // A key in the query would appear in the logs of proxies.
    let reply = api.request("GET", &format!("/browsers?api_key={}", Key::Organization.text()), &[], "").await;
    assert_eq!(reply.status, 401);
}
