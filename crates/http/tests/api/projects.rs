//! The routes `/org/projects`, limits, and the removed routes under `/projects`.

use casement_domain::{
    organization::{Caps, Organization, OrganizationUsage, Usage},
    page::Listed,
    project::{
        MockProjectRepository, Project, ProjectDeleted, ProjectFilter, ProjectReplaced, ProjectStatus, ProjectStored,
        ResourceCount,
    },
    testing::{organization, project, project_id},
};
use pretty_assertions::assert_eq;
use serde_json::json;
use time::macros::datetime;

use super::support::{Key, Ports, Reply, TestApi, other_project};

/// Returns a repository with the default project, and another one named `second`.
fn store() -> MockProjectRepository {
    let mut store = MockProjectRepository::new();
    store.expect_default_of().returning(|_| Ok(project()));
    store.expect_find().returning(|_, id| Ok([project(), second()].into_iter().find(|known| known.id == id)));
    store.expect_find_by_name().returning(|_, name| Ok(name.eq_ignore_ascii_case("second").then(second)));
    store.expect_organization().returning(|_| Ok(organization()));
    store
}

fn second() -> Project {
    Project { id: other_project(), is_default: false, name: "second".parse_label(), ..project() }
}

trait ParseLabel {
    fn parse_label(&self) -> casement_domain::name::LabelName;
}

impl ParseLabel for str {
    fn parse_label(&self) -> casement_domain::name::LabelName {
        casement_domain::name::LabelName::parse(self).unwrap()
    }
}

fn api(store: MockProjectRepository) -> TestApi {
    TestApi::start(Ports { projects: Some(store), ..Ports::default() })
}

fn project_key() -> String {
    format!("Authorization: Bearer {}", Key::OtherProject.text())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_is_created_with_its_record() {
    let mut projects = store();
    projects.expect_create().returning(|_| Ok(ProjectStored::Yes));
    let reply = api(projects).post("/org/projects", json!({ "name": "  Straße " })).await;
    assert_eq!(reply.status, 201);
    let body = reply.json();
    assert_eq!(reply.header("location"), Some(format!("/org/projects/{}", body["id"].as_str().unwrap()).as_str()));
    assert_eq!((&body["name"], &body["status"]), (&json!("Straße"), &json!("active")));
    assert_eq!(body["created_at"], "2026-12-01T12:00:00.000000Z");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_needs_a_valid_and_unused_name() {
    let mut projects = store();
    projects.expect_create().returning(|_| Ok(ProjectStored::NameTaken));
    let api = api(projects);
    assert_eq!(api.post("/org/projects", json!({})).await.details(), ["required: name: is required"]);
    assert_eq!(
        api.post("/org/projects", json!({ "name": "a/b" })).await.details(),
        ["invalid_format: name: may not hold '/'"]
    );
    let taken = api.post("/org/projects", json!({ "name": "second" })).await;
    assert_eq!((taken.status, taken.code()), (409, "name_conflict".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_takes_its_filters_literally() {
    let mut projects = store();
    projects.expect_list().returning(|_, filter, page| {
        assert_eq!(filter, &ProjectFilter { name: Some("ä%".into()), query: Some("_'".into()) });
        Ok(Listed { items: vec![project()], next_offset: Some(page.offset + 1) })
    });
    let reply = api(projects).get("/org/projects?name=%C3%A4%25&query=_%27&limit=1&offset=4").await;
    assert_eq!((reply.header("x-has-more"), reply.header("x-next-offset")), (Some("true"), Some("5")));
    assert_eq!(reply.json().as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_key_reads_its_project_and_changes_none() {
    let api = api(store());
    api.clock.set(datetime!(2026-11-23 0:00 UTC));
    let key = project_key();
    let own = format!("/org/projects/{}", other_project());
    let as_project = async |method: &str, path: &str, body: &str| api.request(method, path, &[&key], body).await;
    assert_eq!(as_project("GET", &own, "").await.json()["name"], "second");
    assert_eq!(as_project("GET", "/org/projects/SECOND", "").await.status, 200);
    assert_eq!(as_project("GET", &format!("{own}/limits"), "").await.status, 200);
    let foreign = format!("/org/projects/{}", project_id());
    for (method, path) in [
        ("GET", foreign.as_str()),
        ("GET", "/org/projects/nothing"),
        ("GET", "/org/projects/01k9zk0000000000000000000a/limits"),
        ("GET", &format!("{foreign}/limits")),
        ("PATCH", &own),
        ("DELETE", &own),
        ("PATCH", &format!("{own}/limits")),
        ("GET", "/org/projects"),
        ("POST", "/org/projects"),
        ("GET", "/org/limits"),
        ("PATCH", "/org/limits"),
    ] {
        let reply = as_project(method, path, "").await;
        assert_eq!((reply.status, reply.code()), (403, "forbidden".to_owned()), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_project_can_be_neither_deleted_nor_archived() {
    let api = api(store());
    let path = format!("/org/projects/{}", project_id());
    let archived = api.patch(&path, json!({ "status": "archived" })).await;
    assert_eq!((archived.status, archived.code()), (409, "invalid_state".to_owned()));
    let deleted = api.call("DELETE", &path, "").await;
    assert_eq!((deleted.status, deleted.code()), (409, "invalid_state".to_owned()));
    assert_eq!(api.patch(&path, json!({ "status": "active" })).await.status, 200, "as it is already");
    let unknown = api.patch(&path, json!({ "status": "gone" })).await;
    assert_eq!(unknown.details(), ["not_allowed: status: must be active or archived"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_after_a_concurrent_change_is_decided_again() {
    let mut projects = store();
    projects.expect_replace().times(1).returning(|_, _| Ok(ProjectReplaced::LostRace));
    projects.expect_replace().times(1).returning(|current, next| {
        assert_eq!((current.status, next.status), (ProjectStatus::Active, ProjectStatus::Archived));
        Ok(ProjectReplaced::Yes)
    });
    let reply = api(projects).patch("/org/projects/second", json!({ "status": "archived" })).await;
    assert_eq!(reply.json()["status"], "archived");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_with_active_resources_is_not_deleted_and_they_are_named() {
    let mut projects = store();
    let resources =
        vec![ResourceCount { kind: "sessions", count: 2 }, ResourceCount { kind: "browser pools", count: 1 }];
    projects.expect_delete().times(1).return_once(|_, _, _| Ok(ProjectDeleted::InUse(resources)));
    projects.expect_delete().returning(|_, _, _| Ok(ProjectDeleted::Yes));
    let api = api(projects);
    let refused = api.call("DELETE", "/org/projects/second", "").await;
    assert_eq!((refused.status, refused.code()), (409, "resource_in_use".to_owned()));
    assert!(refused.text().contains("2 sessions, 1 browser pools"), "{refused}");
    assert_eq!(api.call("DELETE", "/org/projects/second", "").await.status, 204);
    assert_eq!(api.call("DELETE", "/org/projects/third", "").await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_set_stored_and_cleared() {
    let mut projects = store();
    projects.expect_replace().returning(|_, next| {
        assert_eq!(
            next.caps,
            Caps { concurrent_sessions: Some(5), concurrent_invocations: None, pooled_sessions: None }
        );
        Ok(ProjectReplaced::Yes)
    });
    let api = api(projects);
    let path = "/org/projects/second/limits";
    let body = json!({ "max_concurrent_sessions": 5, "max_pooled_sessions": 0, "max_concurrent_invocations": null });
    let limits =
        json!({ "max_concurrent_sessions": 5, "max_concurrent_invocations": null, "max_pooled_sessions": null });
    assert_eq!(api.patch(path, body).await.json(), limits);

    let above = api.patch(path, json!({ "max_concurrent_sessions": 51, "max_pooled_sessions": -1 })).await;
    assert_eq!(
        above.details(),
        [
            "out_of_range: max_concurrent_sessions: must be from 0 to 50",
            "out_of_range: max_pooled_sessions: must be from 0 to 50"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_organizations_defaults_apply_to_projects_without_limits() {
    let mut projects = store();
    projects
        .expect_set_default_sessions()
        .returning(|_, value| Ok(Organization { default_project_max_concurrent_sessions: value, ..organization() }));
    projects.expect_usage().returning(|_| {
        let limited = Usage { on_demand: 3, pooled: 4, beyond: 1, invocations: 2 };
        Ok(OrganizationUsage { limited, auth_connections: 6 })
    });
    let api = api(projects);
    let seen = api.get("/org/limits").await.json();
    let before = json!({
        "max_concurrent_sessions": 50, "default_project_max_concurrent_sessions": null,
        "max_concurrent_invocations": 100, "max_pooled_sessions": 50,
        "concurrent_sessions_used": 8, "concurrent_sessions_available": 42,
        "auth_connections_used": 6, "max_auth_connections": null, "min_health_check_interval_seconds": 300,
        "vaults_used": 0, "max_vaults": 0,
    });
    assert_eq!(seen, before);
    let set = api.patch("/org/limits", json!({ "default_project_max_concurrent_sessions": 7 })).await.json();
    assert_eq!(set["default_project_max_concurrent_sessions"], 7);
    let above = api.patch("/org/limits", json!({ "default_project_max_concurrent_sessions": 51 })).await;
    assert_eq!(above.details(), ["out_of_range: default_project_max_concurrent_sessions: must be from 0 to 50"]);
}

fn dated(reply: &Reply) -> [Option<&str>; 3] {
    ["deprecation", "sunset", "link"].map(|name| reply.header(name))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_removed_routes_always_return_410() {
    // The repository has no expectations: nothing is read and nothing is deleted.
    let api = api(MockProjectRepository::new());
    let link = |id: &str| format!("</org/projects/{id}>; rel=\"successor-version\"");
    let expected = |link: &str| {
        [Some("@1763942400"), Some("Tue, 24 Nov 2026 00:00:00 GMT"), Some(link)].map(|s| s.map(str::to_owned))
    };
    let deprecation = |reply: &Reply| dated(reply).map(|text| text.map(str::to_owned));
    let project_key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    for day in [datetime!(2026-11-01 0:00 UTC), datetime!(2026-11-24 0:00 UTC), datetime!(2027-01-01 0:00 UTC)] {
        api.clock.set(day);
        for (method, id) in [("GET", "second"), ("DELETE", "second"), ("GET", "a%20b"), ("DELETE", "nothing")] {
            let path = format!("/projects/{id}");
            let message =
                format!("{method} /projects/{{id}} was removed on 2026-11-24; use {method} /org/projects/{{id}}");
            for gone in [api.call(method, &path, "").await, api.request(method, &path, &[&project_key], "").await] {
                assert_eq!((gone.status, deprecation(&gone)), (410, expected(&link(id))), "{day} {method} {id}");
                assert_eq!(gone.json(), json!({ "code": "gone", "message": message }));
            }
        }
    }
    let without_key = api.request("GET", "/projects/second", &[], "").await;
    assert_eq!((without_key.status, deprecation(&without_key)), (401, expected(&link("second"))));
    assert_eq!(api.call("PATCH", "/projects/second", "").await.status, 405);
    assert_eq!(api.get("/projects").await.code(), "route_not_found");
}
