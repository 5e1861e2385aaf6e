//! The routes `/audit-logs/export/destinations`: only the buckets and the role of the operator can be chosen.

use casement_domain::{
    AuditDestinationId,
    audit_destination::{
        AuditDestination, AuditDestinationStored, AuditExportOffer, AuditExportStatus, BucketFault, ExportHealth,
    },
    organization::{Limit, LimitExceeded},
    page::Listed,
    testing::{NOON, audit_destination, organization_id},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use time::Duration;

use super::support::{Key, Ports, TestApi};

const PATH: &str = "/audit-logs/export/destinations";

fn id() -> AuditDestinationId {
    audit_destination().id
}

fn one() -> String {
    format!("{PATH}/{}", id())
}

fn offered() -> Ports {
    let offer = AuditExportOffer { buckets: vec!["records".to_owned()], role: "operator".to_owned() };
    Ports { audit_offer: Some(offer), ..Ports::default() }
}

fn found(mut ports: Ports, destination: AuditDestination) -> Ports {
    ports.audit_destinations.expect_find().returning(move |organization, which| {
        assert_eq!(organization, organization_id());
        Ok((which == id()).then(|| destination.clone()))
    });
    ports
}

fn body() -> Value {
    json!({
        "type": "s3", "format": "jsonl.gz", "bucket": "records", "prefix": "trail", "region": "eu-central-1",
        "role_arn": "operator", "kms_key_id": "alias/audit",
    })
}

#[tokio::test]
async fn a_new_destination_is_paused_and_exports_nothing_yet() {
    let mut ports = offered();
    ports.audit_destinations.expect_create().times(1).returning(|new, max| {
        assert_eq!((new.organization, max), (organization_id(), AuditDestination::MAX));
        assert_eq!((new.status, new.exported, new.planned), (AuditExportStatus::Paused, None, None));
        Ok(AuditDestinationStored::Yes)
    });
    let created = TestApi::start(ports).post(PATH, body()).await;
    assert_eq!(created.status, 201, "{created}");
    let record = created.json();
    assert_eq!(created.header("location").unwrap(), format!("{PATH}/{}", record["id"].as_str().unwrap()));
    let mut expected = body();
    let rest = json!({
        "id": record["id"], "kernel_role_arn": "operator", "external_id": record["id"], "status": "paused",
        "created_at": record["created_at"], "updated_at": record["updated_at"], "consecutive_failures": 0,
    });
    expected.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    assert_eq!(record, expected);
}

#[tokio::test]
async fn what_the_operator_does_not_offer_is_refused() {
    let nothing = TestApi::start(Ports::default()).post(PATH, body()).await;
    assert_eq!((nothing.status, &*nothing.code()), (400, "not_supported"), "{nothing}");
    assert!(nothing.to_string().contains("--audit-export-bucket"), "{nothing}");
    for (field, value, code) in [
        ("role_arn", "arn:aws:iam::1:role/x", "not_supported"),
        ("bucket", "theirs", "invalid_input"),
        ("type", "gcs", "invalid_input"),
        ("format", "csv", "invalid_input"),
        ("region", "x.evil.example", "invalid_input"),
    ] {
        let mut body = body();
        body[field] = value.into();
        let refused = TestApi::start(offered()).post(PATH, body).await;
        assert_eq!((refused.status, &*refused.code()), (400, code), "{field}: {refused}");
        assert!(refused.to_string().contains(field), "{refused}");
    }
}

#[tokio::test]
async fn destinations_are_listed_in_pages_for_keys_of_the_organization() {
    let mut ports = Ports::default();
    ports.audit_destinations.expect_list().times(1).returning(|_, page| {
        assert_eq!((page.limit, page.offset), (1, 3));
        Ok(Listed { items: vec![audit_destination()], next_offset: Some(4) })
    });
    let api = TestApi::start(ports);
    let reply = api.get(&format!("{PATH}?limit=1&offset=3")).await;
    let pages = (reply.header("x-has-more"), reply.header("x-next-offset"));
    assert_eq!((reply.status, pages), (200, (Some("true"), Some("4"))));
    assert_eq!(reply.json()[0]["id"], id().to_string());
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    let refused = api.request("GET", PATH, &[&key], "").await;
    assert_eq!((refused.status, &*refused.code()), (403, "forbidden"));
}

#[tokio::test]
async fn the_state_of_an_export_is_shown() {
    let health = ExportHealth {
        consecutive_failures: 2,
        last_error: Some("the store answers 403 AccessDenied".to_owned()),
        last_error_at: Some(NOON),
        last_success_at: None,
        next_attempt_at: Some(NOON + Duration::SECOND),
    };
    let api = TestApi::start(found(Ports::default(), AuditDestination { health, ..audit_destination() }));
    let record = api.get(&one()).await.json();
    assert_eq!((&record["status"], &record["consecutive_failures"]), (&json!("active"), &json!(2)));
    assert_eq!(record["last_error"], "the store answers 403 AccessDenied");
    assert!(record["next_attempt_at"].is_string() && record.get("last_success_at").is_none(), "{record}");
    assert!(record["last_exported_cursor"].as_str().unwrap().starts_with("v1."), "{record}");
    let missing = api.get(&format!("{PATH}/x")).await;
    assert_eq!((missing.status, &*missing.code()), (404, "not_found"));
}

#[tokio::test]
async fn the_first_activation_begins_the_export_and_later_ones_continue_it() {
    for before in [None, audit_destination().exported] {
        let status = AuditExportStatus::Paused;
        let stored = AuditDestination { status, exported: before, ..audit_destination() };
        let mut ports = found(offered(), stored);
        ports.audit_destinations.expect_replace().times(1).returning(move |current, next| {
            assert_eq!((current.exported, next.status), (before, AuditExportStatus::Active));
            assert!(next.exported.is_some() && before.is_none_or(|before| next.exported == Some(before)));
            assert!(next.updated_at > current.updated_at);
            Ok(true)
        });
        let changed = TestApi::start(ports).patch(&one(), json!({ "status": "active" })).await;
        assert_eq!((changed.status, &changed.json()["status"]), (200, &json!("active")), "{changed}");
    }
}

#[tokio::test]
async fn an_export_can_be_paused_without_an_offer_but_not_changed() {
    let mut ports = found(Ports::default(), audit_destination());
    ports.audit_destinations.expect_replace().times(1).returning(|_, next| {
        assert_eq!(next.status, AuditExportStatus::Paused);
        Ok(true)
    });
    let api = TestApi::start(ports);
    let paused = api.patch(&one(), json!({ "status": "paused" })).await;
    assert_eq!((paused.status, &paused.json()["status"]), (200, &json!("paused")), "{paused}");
    let refused = api.patch(&one(), json!({ "prefix": "x" })).await;
    assert_eq!((refused.status, &*refused.code()), (400, "not_supported"), "{refused}");
}

#[tokio::test]
async fn a_test_reports_why_the_bucket_refuses_the_object() {
    let mut ports = found(offered(), audit_destination());
    let mut answers = vec![Ok(()), Err(BucketFault::Refused { status: 403, code: Some("AccessDenied".to_owned()) })];
    ports.audit_buckets.expect_put().times(2).returning(move |target, name, _| {
        assert_eq!((&*target.bucket, name), ("records", &*format!("trail/destination_id={}/_test", id())));
        answers.pop().unwrap()
    });
    // Keys that may only write are enough for an export.
    ports.audit_buckets.expect_remove().times(1).returning(|_, _| Err(BucketFault::Silent));
    let api = TestApi::start(ports);
    let failed = api.post(&format!("{}/test", one()), json!({})).await;
    let error = json!({ "code": "put_object_failed", "message": "the store answers 403 AccessDenied" });
    assert_eq!(failed.json(), json!({ "success": false, "stage": "put_object", "error": error }));
    let complete = api.post(&format!("{}/test", one()), json!({})).await;
    assert_eq!(complete.json(), json!({ "success": true, "stage": "complete" }));
}

#[tokio::test]
async fn a_deleted_destination_is_gone_and_the_number_of_them_is_limited() {
    let mut ports = found(offered(), audit_destination());
    ports.audit_destinations.expect_delete().times(1).returning(|_, _| Ok(true));
    let limit = Limit::OrganizationAuditDestinations;
    let exceeded = LimitExceeded { limit, value: 10, used: 10, requested: 1 };
    ports.audit_destinations.expect_create().returning(move |_, _| Ok(AuditDestinationStored::LimitExceeded(exceeded)));
    let api = TestApi::start(ports);
    assert_eq!(api.call("DELETE", &one(), "").await.status, 204);
    let refused = api.post(PATH, body()).await;
    assert_eq!((refused.status, &*refused.code()), (429, "limit_exceeded"), "{refused}");
}
