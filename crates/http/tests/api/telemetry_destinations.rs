//! The routes `/telemetry/destinations`: headers are sealed and never returned. Sessions choose a destination.

use casement_domain::{
    TelemetryDestinationId,
    page::Listed,
    sealing::Sealer as _,
    session::Created,
    telemetry::Delivery,
    telemetry_destination::{
        AddressVerdict, DeliveryHealth, DestinationDeleted, DestinationStored, TelemetryDestination,
    },
    testing::{NOON, PlainSealer, organization_id, telemetry_destination},
};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::support::{Key, Ports, Reply, TestApi};

const PATH: &str = "/telemetry/destinations";

fn id() -> TelemetryDestinationId {
    telemetry_destination().id
}

fn stored() -> TelemetryDestination {
    let health = DeliveryHealth {
        consecutive_failures: 2,
        last_error: Some("no answer in time".to_owned()),
        last_error_at: Some(NOON),
        last_export_at: None,
    };
    TelemetryDestination { health, ..telemetry_destination() }
}

fn found() -> Ports {
    let mut ports = Ports::default();
    ports.telemetry_destinations.expect_find().returning(|_, which| Ok((which == id()).then(stored)));
    ports.telemetry_destinations.expect_named().returning(|_, name| Ok((name == "grafana").then(stored)));
    ports
}

fn verdict(mut ports: Ports, verdict: AddressVerdict) -> Ports {
    ports.destination_addresses.expect_check().returning(move |_| verdict);
    ports
}

/// Calls with a key of a project.
async fn of_project(api: &TestApi, method: &str, path: &str, body: &str) -> Reply {
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    api.request(method, path, &[&key, "Content-Type: application/json"], body).await
}

#[tokio::test]
async fn a_new_destination_seals_its_headers_and_shows_their_names_alone() {
    let mut ports = verdict(Ports::default(), AddressVerdict::Allowed);
    ports.telemetry_destinations.expect_create().times(1).returning(|new, max| {
        assert_eq!((new.organization, max), (organization_id(), TelemetryDestination::MAX));
        let sealed = PlainSealer.seal(&TelemetryDestination::place(new.id), br#"{"X-Key":"swordfish"}"#).unwrap();
        assert_eq!(new.headers, sealed);
        Ok(DestinationStored::Yes)
    });
    let api = TestApi::start(ports);
    let body = json!({ "name": "mine", "endpoint": "https://otel.test", "headers": { "x-key": "swordfish" } });
    let created = api.post(PATH, body).await;
    let record = created.json();
    assert_eq!(created.status, 201, "{created}");
    assert_eq!(created.header("location").unwrap(), format!("{PATH}/{}", record["id"].as_str().unwrap()));
    let expected = json!({
        "id": record["id"], "name": "mine", "endpoint": "https://otel.test", "headers": { "X-Key": "" },
        "created_at": record["created_at"], "updated_at": record["updated_at"], "consecutive_failures": 0,
    });
    assert_eq!(record, expected);
}

#[tokio::test]
async fn a_destination_is_read_by_id_and_name_also_with_a_key_of_a_project() {
    let api = TestApi::start(found());
    for which in [id().to_string(), "grafana".to_owned()] {
        let reply = of_project(&api, "GET", &format!("{PATH}/{which}"), "").await;
        assert_eq!(reply.status, 200, "{reply}");
        let record = reply.json();
        assert_eq!(record["headers"], json!({ "X-Key": "" }));
        assert_eq!((&record["consecutive_failures"], &record["last_error"]), (&json!(2), &json!("no answer in time")));
        assert!(record["last_error_at"].is_string() && record.get("last_export_at").is_none(), "{record}");
    }
    let missing = api.get(&format!("{PATH}/loki")).await;
    assert_eq!((missing.status, &*missing.code()), (404, "not_found"));
}

#[tokio::test]
async fn a_list_is_filtered_and_has_pages() {
    let mut ports = Ports::default();
    ports.telemetry_destinations.expect_list().times(1).returning(|_, filter, page| {
        assert_eq!((filter.name.as_deref(), filter.query.as_deref()), (Some("grafana"), Some("otel")));
        assert_eq!((page.limit, page.offset), (1, 3));
        Ok(Listed { items: vec![stored()], next_offset: Some(4) })
    });
    let api = TestApi::start(ports);
    let reply = api.get(&format!("{PATH}?name=grafana&query=otel&limit=1&offset=3")).await;
    assert_eq!(
        (reply.status, reply.header("x-has-more"), reply.header("x-next-offset")),
        (200, Some("true"), Some("4"))
    );
    assert_eq!(reply.json()[0]["name"], "grafana");
}

#[tokio::test]
async fn changes_edit_single_headers_and_keep_what_they_do_not_name() {
    let mut ports = found();
    ports.telemetry_destinations.expect_replace().times(1).returning(|before, next| {
        assert_eq!(before, &stored());
        let headers = br#"{"X-Key":"swordfish","X-Scope":"1"}"#;
        let headers = PlainSealer.seal(&TelemetryDestination::place(id()), headers).unwrap();
        let names = vec!["X-Key".to_owned(), "X-Scope".to_owned()];
        let expected = TelemetryDestination {
            description: Some("logs".to_owned()),
            header_names: names,
            headers,
            updated_at: next.updated_at,
            ..stored()
        };
        assert_eq!(next, &expected);
        assert!(next.updated_at > before.updated_at);
        Ok(DestinationStored::Yes)
    });
    let api = TestApi::start(ports);
    let changes = json!({ "description": "logs", "headers": { "x-scope": "1", "x-none": null } });
    let changed = api.patch(&format!("{PATH}/grafana"), changes).await;
    assert_eq!((changed.status, &changed.json()["description"]), (200, &json!("logs")), "{changed}");
}

#[tokio::test]
async fn another_endpoint_gets_no_header_whose_value_the_caller_does_not_give() {
    let mut ports = verdict(found(), AddressVerdict::Allowed);
    ports.telemetry_destinations.expect_replace().times(2).returning(|_, _| Ok(DestinationStored::Yes));
    let api = TestApi::start(ports);
    let moved = |headers| json!({ "endpoint": "https://elsewhere.test", "headers": headers });
    for headers in [json!(null), json!({ "x-other": "1" })] {
        let refused = api.patch(&format!("{PATH}/grafana"), moved(headers)).await;
        let rule =
            "required: headers: must give the values of X-Key again for another endpoint, or null to remove them";
        assert_eq!((refused.status, refused.details()), (400, vec![rule.to_owned()]));
    }
    for headers in [json!({ "x-key": "again" }), json!({ "X-Key": null })] {
        let changed = api.patch(&format!("{PATH}/grafana"), moved(headers)).await;
        assert_eq!(changed.status, 200, "{changed}");
    }
}

#[tokio::test]
async fn a_destination_in_use_is_neither_renamed_nor_deleted() {
    let mut ports = found();
    ports.telemetry_destinations.expect_replace().returning(|_, _| Ok(DestinationStored::InUse));
    ports.telemetry_destinations.expect_delete().returning(|_, _| Ok(DestinationDeleted::InUse));
    let api = TestApi::start(ports);
    for reply in [
        api.patch(&format!("{PATH}/grafana"), json!({ "name": "loki" })).await,
        api.call("DELETE", &format!("{PATH}/grafana"), "").await,
    ] {
        assert_eq!((reply.status, &*reply.code()), (409, "resource_in_use"), "{reply}");
    }
}

#[tokio::test]
async fn a_refused_address_and_invalid_fields_are_named() {
    let api = TestApi::start(verdict(Ports::default(), AddressVerdict::Refused));
    let private = api.post(PATH, json!({ "name": "x", "endpoint": "http://10.0.0.1" })).await;
    let rule = "blocked: endpoint: must be at a host that this server can resolve to a public address";
    assert_eq!((private.status, private.details()), (400, vec![rule.to_owned()]));
    let body = json!({ "endpoint": "https://otel.test/v1/logs", "headers": { "a b": "swordfish" } });
    let refused = api.post(PATH, body).await;
    assert_eq!((refused.status, refused.details().len()), (400, 3), "{refused}");
    assert!(!refused.to_string().contains("swordfish"), "{refused}");
}

#[tokio::test]
async fn a_key_of_a_project_changes_no_destination() {
    let api = TestApi::start(found());
    for (method, path) in
        [("POST", PATH.to_owned()), ("PATCH", format!("{PATH}/grafana")), ("DELETE", format!("{PATH}/grafana"))]
    {
        let reply = of_project(&api, method, &path, "{}").await;
        assert_eq!((reply.status, &*reply.code()), (403, "forbidden"), "{method}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_created_only_with_a_destination_that_exists() {
    let mut ports = found();
    let expected = Delivery { destination: Some(id()), stored: false };
    ports.spares.expect_take().returning(|_| None);
    ports.sessions.expect_create().times(1).returning(move |_, session, _| {
        assert_eq!(session.telemetry.as_ref().map(|capture| capture.delivery()), Some(expected));
        Ok(Created::ProjectGone)
    });
    let api = TestApi::start(ports);
    let body = |destination: serde_json::Value| {
        let export = json!({ "otlp": { "destination": destination } });
        json!({ "telemetry": { "enabled": true, "storage": { "enabled": false }, "export": export } })
    };
    let unknown = api.post("/browsers", body(json!({ "name": "loki" }))).await;
    let rule = "reference_not_found: telemetry.export.otlp.destination: loki is not among the organization's telemetry \
                destinations";
    assert_eq!((unknown.status, unknown.details()), (400, vec![rule.to_owned()]));
    api.post("/browsers", body(json!({ "name": "grafana" }))).await;
}
