//! Logins of auth connections: their state, submitted values, the timeline and the event stream.

use casement_domain::{
    auth_connection::{
        AuthConnection, ConnectionStatus, CredentialRef, Flow, FlowBegun, FlowError, FlowFailure, FlowKind,
        FlowRequirement, FlowStatus, FlowStep, RequestedField, Settings, TimelineEvent,
    },
    login_page::{FieldKind, InputKind},
    page::Listed,
    sealing::Sealer as _,
    testing::{NOON, PlainSealer},
};
use futures_util::{StreamExt as _, stream};
use pretty_assertions::assert_eq;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{
    auth_connections::{connection, field, finds, flow, id, path, waiting},
    support::{Ports, TestApi},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_login_is_shown_in_both_forms() {
    let mut ports = Ports::default();
    finds(&mut ports, waiting());
    let body = TestApi::start(ports).get(&path("")).await.json();
    assert_eq!(
        [&body["flow_status"], &body["flow_step"], &body["flow_type"], &body["website_error"]],
        [&json!("IN_PROGRESS"), &json!("AWAITING_INPUT"), &json!("LOGIN"), &json!("Try again")]
    );
    let hosted = body["hosted_url"].as_str().unwrap();
    assert!(hosted.ends_with(&format!("/login/{}?code=the-code", id())), "{hosted}");
    assert_eq!(
        body["fields"][0],
        json!({
            "id": "identifier", "ref": "identifier-name", "type": "identifier", "label": "Your identifier",
            "observed_selector": "#identifier", "required": true, "reason": "missing", "input_mode": "text",
        })
    );
    assert_eq!(
        body["choices"][1],
        json!({
            "id": "text", "label": "By text", "type": "mfa_method", "mfa_type": "sms", "observed_selector": "#text",
        })
    );
    assert_eq!(body["discovered_fields"][1]["name"], "company-name");
    assert_eq!(body["choices"].as_array().unwrap().len(), 3);
    assert_eq!(body["mfa_options"], json!([{ "label": "By text", "type": "sms" }]));
    assert_eq!(
        body["pending_sso_buttons"],
        json!([{ "label": "By google", "provider": "google", "selector": "//button[@id='google']" }])
    );
    assert_eq!(body["sign_in_options"], json!([{ "id": "other", "label": "By other" }]));
    assert!(body.get("browser_session_id").is_none() && body.get("error_code").is_none(), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_field_shows_its_options_and_accepts_no_others() {
    let mut ports = Ports::default();
    let company = field("company", FieldKind::Text, true);
    let company = RequestedField { options: vec!["North".to_owned(), "South".to_owned()], ..company };
    let flow = Flow { fields: vec![company], ..flow() };
    finds(&mut ports, AuthConnection { flow: Some(Box::new(flow)), ..connection() });
    ports.auth_connections.expect_put().times(1).returning(|_| Ok(true));
    let api = TestApi::start(ports);
    assert_eq!(api.get(&path("")).await.json()["fields"][0]["options"], json!(["North", "South"]));
    for given in [json!({ "field_values": { "company": "West" } }), json!({ "fields": { "company-name": "north" } })] {
        let reply = api.post(&path("/submit"), &given).await;
        assert_eq!((reply.status, &reply.json()["details"][0]["code"]), (400, &json!("not_allowed")), "{reply}");
    }
    let reply = api.post(&path("/submit"), &json!({ "field_values": { "company": "South" } })).await;
    assert_eq!(reply.status, 202, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_says_whether_its_value_was_refused_and_which_keyboard_fits() {
    for (input, mode) in [
        (InputKind::Email, json!("email")),
        (InputKind::Tel, json!("tel")),
        (InputKind::Totp, json!("numeric")),
        (InputKind::Code, json!(null)),
        (InputKind::Password, json!(null)),
    ] {
        let mut ports = Ports::default();
        let hint = Some("to •• 42".to_owned());
        let code = RequestedField { input, hint, rejected: true, ..field("code", FieldKind::Code, true) };
        let flow = Flow { fields: vec![code], ..flow() };
        finds(&mut ports, AuthConnection { flow: Some(Box::new(flow)), ..connection() });
        let shown = TestApi::start(ports).get(&path("")).await.json()["fields"][0].clone();
        let expected = [&json!("rejected"), &json!("to •• 42"), &mode];
        assert_eq!([&shown["reason"], &shown["hint"], &shown["input_mode"]], expected, "{input:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_for_an_earlier_question_is_refused() {
    let shown = async |flow: Flow| {
        let mut ports = Ports::default();
        finds(&mut ports, AuthConnection { flow: Some(Box::new(flow)), ..connection() });
        ports.auth_connections.expect_put().returning(|_| Ok(true));
        let api = TestApi::start(ports);
        let id = api.get(&path("")).await.json()["interaction_id"].clone();
        (api, id.as_str().expect("an id").to_owned())
    };
    let (_, earlier) = shown(flow()).await;
    let (api, present) = shown(Flow { acts: 1, ..flow() }).await;
    let submit = async |id: &str| {
        let body = json!({ "interaction_id": id, "field_values": { "identifier": "me" } });
        api.post(&path("/submit"), &body).await
    };
    let refused = submit(&earlier).await;
    let why = "is not the id of the current question of the login; read the auth connection again";
    assert_eq!((refused.status, refused.details()), (400, vec![format!("not_allowed: interaction_id: {why}")]));
    assert_eq!(submit(&present).await.status, 202);
    assert_eq!(submit("").await.status, 202, "it is optional");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_past_its_expiry_is_shown_as_expired() {
    let mut ports = Ports::default();
    let over = Flow { expires_at: NOON, ..flow() };
    finds(&mut ports, AuthConnection { flow: Some(Box::new(over)), ..connection() });
    let api = TestApi::start(ports);
    let body = api.get(&path("")).await.json();
    assert_eq!([&body["flow_status"], &body["flow_expires_at"]], [&json!("EXPIRED"), &Value::Null]);
    assert!(body.get("fields").is_none() && body.get("hosted_url").is_none(), "{body}");
    let reply = api.post(&path("/submit"), &json!({ "field_values": { "identifier": "me" } })).await;
    assert_eq!((reply.status, &reply.json()["code"]), (409, &json!("invalid_state")), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn starting_a_login_returns_at_once_and_a_running_one_is_returned_again() {
    let mut ports = Ports::default();
    let can = AuthConnection {
        needs: Some(vec![FlowRequirement::Value("username".to_owned())]),
        settings: Settings {
            credential: Some(CredentialRef::Auto { provider: "vault".to_owned() }),
            ..Settings::default()
        },
        ..connection()
    };
    finds(&mut ports, can);
    ports.external.expect_known().returning(|_, _| Ok(true));
    let mut first = None;
    ports.auth_connections.expect_begin().times(2).returning(move |flow| {
        Ok(match &first {
            None => {
                assert_eq!((flow.kind, flow.record_session), (FlowKind::Reauth, true));
                first = Some(flow.clone());
                FlowBegun::Yes
            }
            Some(running) => FlowBegun::Running(Box::new(running.clone())),
        })
    });
    let api = TestApi::start(ports);
    let one = api.post(&path("/login"), &json!({ "record_session": true })).await;
    assert_eq!(one.status, 200, "{one}");
    let body = one.json();
    let code = body["handoff_code"].as_str().unwrap();
    assert!(code.len() >= 43 && body["hosted_url"].as_str().unwrap().ends_with(&format!("?code={code}")), "{one}");
    assert_eq!([&body["id"], &body["flow_type"]], [&json!(id().to_string()), &json!("REAUTH")]);
    let two = api.post(&path("/login"), &json!({})).await;
    assert_eq!(two.json(), one.json());
}

#[tokio::test(flavor = "multi_thread")]
async fn submitted_values_are_checked_against_the_requested_ones() {
    let mut ports = Ports::default();
    finds(&mut ports, waiting());
    let api = TestApi::start(ports);
    for (body, field, code) in [
        (json!({}), "body", "required"),
        (json!({ "field_values": {} }), "field_values.identifier", "required"),
        (json!({ "field_values": { "company": "x" } }), "field_values.identifier", "required"),
        (json!({ "field_values": { "identifier": "" } }), "field_values.identifier", "required"),
        (json!({ "field_values": { "other": "x" } }), "field_values.other", "not_allowed"),
        (json!({ "fields": { "identifier": "x" } }), "fields.identifier", "not_allowed"),
        (
            json!({ "fields": { "identifier-name": "x" }, "field_values": { "identifier": "x" } }),
            "fields",
            "mutually_exclusive",
        ),
        (json!({ "selected_choice_id": "none" }), "selected_choice_id", "not_allowed"),
        (json!({ "mfa_option_id": "push" }), "mfa_option_id", "not_allowed"),
        (json!({ "sso_provider": "github" }), "sso_provider", "not_allowed"),
        (json!({ "selected_choice_id": "text", "sso_provider": "google" }), "sso_provider", "mutually_exclusive"),
        (json!({ "field_values": { "identifier": "x".repeat(8193) } }), "field_values.identifier", "too_long"),
    ] {
        let reply = api.post(&path("/submit"), &body).await;
        let detail = &reply.json()["details"][0];
        let shown = body.to_string().chars().take(80).collect::<String>();
        assert_eq!((reply.status, &detail["code"]), (400, &json!(code)), "{shown}: {reply}");
        assert!(detail["message"].as_str().unwrap().starts_with(&format!("{field}: ")), "{shown}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn submitted_values_are_sealed_and_continue_the_login() {
    for body in [
        json!({ "field_values": { "identifier": "hunter2" } }),
        json!({ "fields": { "identifier-name": "hunter2" }, "mfa_option_id": "sms" }),
        json!({ "sso_provider": "Google" }),
        json!({ "sso_button_selector": "//button[@id='google']" }),
        json!({ "sign_in_option_id": "other" }),
        json!({ "selected_choice_id": "text" }),
    ] {
        let mut ports = Ports::default();
        finds(&mut ports, waiting());
        ports.auth_connections.expect_put().times(1).returning(|next| {
            assert_eq!((next.step, next.revision, &next.website_error), (FlowStep::Submitting, 4, &None));
            let sealed = next.submission.as_ref().unwrap();
            assert!(!sealed.windows(7).any(|part| part == b"hunter2"), "it is stored in clear");
            let opened = PlainSealer.open(&Flow::submission_place(next.id), sealed).unwrap();
            let opened: Value = serde_json::from_slice(opened.expose_secret()).unwrap();
            assert!(opened["values"]["identifier"] == "hunter2" || opened["choice"].is_string(), "{opened}");
            Ok(true)
        });
        let reply = TestApi::start(ports).post(&path("/submit"), &body).await;
        assert_eq!((reply.status, reply.json()), (202, json!({ "accepted": true })), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_can_be_submitted_while_nothing_is_requested() {
    for flow in [
        None,
        Some(Flow { step: FlowStep::Discovering, ..flow() }),
        Some(Flow { step: FlowStep::Submitting, ..flow() }),
        Some(Flow { status: FlowStatus::Failed, ..flow() }),
    ] {
        let mut ports = Ports::default();
        finds(&mut ports, AuthConnection { flow: flow.map(Box::new), ..connection() });
        let reply = TestApi::start(ports).post(&path("/submit"), &json!({ "selected_choice_id": "text" })).await;
        assert_eq!((reply.status, &reply.json()["code"]), (409, &json!("invalid_state")), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeline_lists_logins_and_checks_newest_first() {
    let mut ports = Ports::default();
    finds(&mut ports, connection());
    ports.auth_connections.expect_timeline().times(1).returning(|_, kind, page| {
        assert_eq!((kind, page.limit), (Some(FlowKind::HealthCheck), 2));
        let failed = Flow {
            status: FlowStatus::Failed,
            failure: Some(FlowFailure::new(FlowError::Captcha, "a captcha")),
            ..flow()
        };
        let look = Flow {
            kind: FlowKind::HealthCheck,
            status: FlowStatus::Success,
            found: Some((ConnectionStatus::Authenticated, ConnectionStatus::NeedsAuth)),
            ..flow()
        };
        let items = vec![TimelineEvent { flow: failed }, TimelineEvent { flow: look }];
        Ok(Listed { items, next_offset: Some(2) })
    });
    let api = TestApi::start(ports);
    let reply = api.get(&path("/timeline?type=health_check&limit=2")).await;
    assert_eq!((reply.status, reply.header("x-next-offset")), (200, Some("2")), "{reply}");
    let body = reply.json();
    assert_eq!(
        [&body[0]["type"], &body[0]["status"], &body[0]["error_code"]],
        [&json!("login"), &json!("FAILED"), &json!("captcha")]
    );
    assert_eq!(
        [&body[1]["type"], &body[1]["status"], &body[1]["previous_status"]],
        [&json!("health_check"), &json!("NEEDS_AUTH"), &json!("AUTHENTICATED")]
    );
    let reply = api.get(&path("/timeline?type=other")).await;
    assert_eq!(reply.status, 400, "{reply}");
}

/// Parses the events of a stream.
fn events_in(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_reports_every_change_and_ends_with_the_login() {
    let mut ports = Ports::default();
    finds(&mut ports, waiting());
    ports.flow_notifier.expect_follow().returning(|_| stream::repeat(()).take(3).boxed());
    let mut looks = [
        flow(),
        flow(),
        Flow { revision: 5, step: FlowStep::Submitting, ..flow() },
        Flow {
            revision: 6,
            status: FlowStatus::Success,
            step: FlowStep::Completed,
            post_login_url: Some("https://shop.example/home".to_owned()),
            ..flow()
        },
    ]
    .into_iter();
    ports
        .auth_connections
        .expect_any()
        .returning(move |_| Ok(looks.next().map(|flow| AuthConnection { flow: Some(Box::new(flow)), ..connection() })));
    let reply = TestApi::start(ports).get(&path("/events")).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
    let text = reply.text();
    let events = events_in(&text);
    let steps: Vec<_> = events.iter().map(|event| event["flow_step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["AWAITING_INPUT", "SUBMITTING", "COMPLETED"]);
    assert!(events.iter().all(|event| event["event"] == "managed_auth_state" && event["timestamp"].is_string()));
    assert_eq!(events[0]["fields"][0]["id"], "identifier");
    assert_eq!(events[2]["post_login_url"], "https://shop.example/home");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_of_a_deleted_connection_ends_as_cancelled() {
    let mut ports = Ports::default();
    finds(&mut ports, waiting());
    ports.flow_notifier.expect_follow().returning(|_| stream::repeat(()).take(1).boxed());
    let mut looks = [Some(waiting()), None].into_iter();
    ports.auth_connections.expect_any().returning(move |_| Ok(looks.next().flatten()));
    let text = TestApi::start(ports).get(&path("/events")).await.text();
    let events = events_in(&text);
    let last = events.last().unwrap();
    assert_eq!([&last["flow_status"], &last["flow_step"]], [&json!("CANCELED"), &json!("AWAITING_INPUT")]);
}
