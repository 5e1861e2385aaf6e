//! The routes `/org/api_keys`.

use casement_domain::{
    ApiKeyId, UserId,
    api_key::{ApiKey, KeyEntry, KeyFilter, KeyOrder, MockApiKeyDirectory, MockApiKeyRepository},
    name::LabelName,
    organization::User,
    page::Listed,
    permission::Policy,
    session::StatusFilter,
    testing::{NOON, organization_id, project_id},
};
use pretty_assertions::assert_eq;
use serde_json::json;
use time::Duration;

use super::support::{Key, Ports, TestApi, default_keys, keys_with_policy};

fn known() -> ApiKeyId {
    ApiKeyId::from_ulid(ulid::Ulid::from_parts(9, 70))
}

fn entry(id: ApiKeyId) -> KeyEntry {
    let maker = UserId::from_ulid(ulid::Ulid::from_parts(8, 1));
    let key = ApiKey {
        id,
        organization: organization_id(),
        project: Some(project_id()),
        name: LabelName::parse("robot").unwrap(),
        hash: casement_domain::api_key::SecretHash([0; 32]),
        last4: "wxyz".to_owned(),
        created_by: maker,
        created_at: NOON - Duration::days(30),
        expires_at: Some(NOON + Duration::days(60)),
        deleted_at: None,
        for_deployment: false,
        policy: None,
    };
    let created_by = User { id: maker, organization: organization_id(), email: "ada@casement.test".into(), name: None };
    KeyEntry { key, created_by, project_name: Some("default".to_owned()) }
}

fn ports(change: impl FnOnce(&mut MockApiKeyDirectory, &mut MockApiKeyRepository)) -> Ports {
    let mut directory = MockApiKeyDirectory::new();
    let mut keys = default_keys();
    change(&mut directory, &mut keys);
    directory.expect_find().returning(|_, id| Ok((id.ulid().0 >> 80 != 5).then(|| entry(id))));
    Ports { directory, keys: Some(keys), ..Ports::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_shows_its_text_once() {
    let api = TestApi::start(ports(|_, keys| {
        keys.expect_insert().returning(|key| {
            assert_eq!((key.project, key.expires_at), (Some(project_id()), Some(NOON + Duration::days(3))));
            Ok(())
        });
    }));
    let body = json!({ "name": "robot", "days_to_expire": 3, "project_id": project_id().to_string() });
    let reply = api.post("/org/api_keys", body).await;
    assert_eq!(reply.status, 201, "{reply}");
    let body = reply.json();
    let id = body["id"].as_str().unwrap();
    assert!(body["key"].as_str().unwrap().starts_with(&format!("csk_{id}_")));
    assert_eq!(reply.header("location"), Some(format!("/org/api_keys/{id}").as_str()));

    let read = api.get(&format!("/org/api_keys/{id}")).await.json();
    let record = json!({
        "id": id, "name": "robot", "masked_key": format!("csk_{id}_****wxyz"),
        "created_at": "2026-11-01T12:00:00.000000Z", "expires_at": "2027-01-30T12:00:00.000000Z", "deleted_at": null,
        "created_by": { "id": "00000000080000000000000001", "email": "ada@casement.test", "name": null },
        "project_id": project_id().to_string(), "project_name": "default",
    });
    assert_eq!(read, record);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_of_a_new_key_are_named() {
    let api = TestApi::start(ports(|_, _| ()));
    let details = async |body| api.post("/org/api_keys", body).await.details();
    assert_eq!(
        details(json!({ "days_to_expire": 3651 })).await,
        ["required: name: is required", "out_of_range: days_to_expire: must be from 1 to 3650"]
    );
    for unknown in ["nothing", "7zzzzzzzzzzzzzzzzzzzzzzzzz"] {
        assert_eq!(
            details(json!({ "name": "a", "project_id": unknown })).await,
            ["reference_not_found: project_id: names no project of the organization"]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_follows_its_parameters() {
    let api = TestApi::start(ports(|directory, _| {
        directory.expect_list().returning(|_, filter, _| {
            let (name, query) = (None, Some("ro".to_owned()));
            let expected =
                KeyFilter { status: StatusFilter::All, name, query, order: KeyOrder::ExpiresAt, ascending: true };
            assert_eq!(filter, &expected);
            Ok(Listed { items: vec![entry(known())], next_offset: None })
        });
    }));
    let reply =
        api.get("/org/api_keys?include_deleted=true&sort_by=expires_at&sort_direction=asc&query=ro&name=").await;
    assert_eq!((reply.status, reply.header("x-has-more")), (200, Some("false")));
    assert!(!reply.text().contains("\"key\""));
    for (query, field) in [("status=old", "status"), ("sort_by=id", "sort_by"), ("sort_direction=up", "sort_direction")]
    {
        let details = api.get(&format!("/org/api_keys?{query}")).await.details();
        assert!(details[0].starts_with(&format!("not_allowed: {field}:")), "{details:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_keeps_its_scope_and_its_lifetime() {
    let api = TestApi::start(ports(|directory, _| {
        directory.expect_rotate().times(1).returning(|old, expires_at, next| {
            assert_eq!((old, expires_at), (known(), NOON + Duration::days(7)));
            assert_eq!((next.project, next.expires_at), (Some(project_id()), Some(NOON + Duration::days(90))));
            Ok(true)
        });
        directory.expect_rotate().returning(|_, expires_at, next| {
            assert_eq!((expires_at, next.expires_at), (NOON, Some(NOON + Duration::days(2))));
            Ok(true)
        });
    }));
    let path = format!("/org/api_keys/{}/rotate", known());
    let reply = api.post(&path, json!({})).await;
    assert_eq!(reply.status, 201, "{reply}");
    assert!(reply.json()["key"].is_string());
    assert_eq!(api.post(&path, json!({ "expire_in_days": 0, "days_to_expire": 2 })).await.status, 201);
    assert_eq!(
        api.post(&path, json!({ "expire_in_days": -1, "days_to_expire": 0 })).await.details(),
        [
            "out_of_range: days_to_expire: must be from 1 to 3650",
            "out_of_range: expire_in_days: must be from 0 to 3650"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_needs_the_right_to_change_the_old_key() {
    let one = format!("organization/api_keys/{}", known());
    let rotate = async |action| {
        let mut directory = MockApiKeyDirectory::new();
        directory.expect_find().returning(|_, id| {
            let KeyEntry { key, created_by, project_name } = entry(id);
            let key = ApiKey { policy: Some(Policy::new(Vec::new()).unwrap()), ..key };
            Ok(Some(KeyEntry { key, created_by, project_name }))
        });
        directory.expect_rotate().returning(|_, _, _| Ok(true));
        let keys = Some(keys_with_policy(&[("api_keys:create", &one), (action, &one)]));
        let api = TestApi::start(Ports { directory, keys, ..Ports::default() });
        api.post(&format!("/org/api_keys/{}/rotate", known()), json!({})).await
    };
    let refused = rotate("api_keys:read").await;
    assert_eq!((refused.status, &*refused.code()), (403, "insufficient_scope"), "{refused}");
    let message = format!("this needs api_keys:update on {one}, which the key's policy does not allow");
    assert_eq!(refused.json()["message"], message);
    assert_eq!(rotate("api_keys:update").await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_deletes_others_but_not_itself() {
    let api = TestApi::start(ports(|_, keys| {
        keys.expect_delete().returning(|_, id, _| Ok(id == known()));
    }));
    assert_eq!(api.call("DELETE", &format!("/org/api_keys/{}", known()), "").await.status, 204);
    let own = Key::Organization.text();
    let own = own.split('_').nth(1).unwrap();
    let itself = api.call("DELETE", &format!("/org/api_keys/{own}"), "").await;
    assert_eq!((itself.status, itself.code()), (409, "invalid_state".to_owned()));
    for unknown in ["nothing", "7zzzzzzzzzzzzzzzzzzzzzzzzz"] {
        assert_eq!(api.call("DELETE", &format!("/org/api_keys/{unknown}"), "").await.code(), "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_key_cannot_administer_keys() {
    let api = TestApi::start(ports(|_, _| ()));
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    let one = format!("/org/api_keys/{}", known());
    let rotate = format!("{one}/rotate");
    for (method, path) in [
        ("GET", "/org/api_keys"),
        ("POST", "/org/api_keys"),
        ("GET", one.as_str()),
        ("PATCH", &one),
        ("DELETE", &one),
        ("POST", &rotate),
    ] {
        let reply = api.request(method, path, &[&key], "").await;
        assert_eq!((reply.status, reply.code()), (403, "forbidden".to_owned()), "{method} {path}");
    }
}
