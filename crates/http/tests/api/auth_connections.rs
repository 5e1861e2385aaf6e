//! `/auth/connections`: what is asked for, what is shown, and what a login waits for.

use casement_domain::{
    AuthConnectionId, ProfileId, ProxyId, SessionId,
    auth_connection::{
        AuthConnection, ConnectionDeleted, ConnectionStatus, ConnectionStored, ConnectionUpdated, CredentialRef, Flow,
        FlowBegun, FlowError, FlowFailure, FlowKind, FlowRequirement, FlowStatus, FlowStep, RequestedChoice,
        RequestedField, Settings, TimelineEvent,
    },
    login_page::{ChoiceKind, FieldKind, HostPattern, InputKind, MfaKind},
    page::Listed,
    profile::{Profile, ProfileStored},
    sealing::Sealer as _,
    testing::{NOON, PlainSealer, organization_id, project_id},
};
use futures_util::{StreamExt as _, stream};
use pretty_assertions::assert_eq;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::support::{Ports, TestApi};

pub(super) fn id() -> AuthConnectionId {
    AuthConnectionId::from_ulid(ulid::Ulid::from_parts(21, 1))
}

pub(super) fn connection() -> AuthConnection {
    AuthConnection {
        id: id(),
        project: project_id(),
        organization: organization_id(),
        domain: "shop.example".to_owned(),
        profile: ProfileId::from_ulid(ulid::Ulid::from_parts(22, 1)),
        profile_name: "ann".to_owned(),
        status: ConnectionStatus::NeedsAuth,
        settings: Settings::default(),
        needs: None,
        last_check_at: None,
        created_at: NOON,
        updated_at: NOON,
        credential: None,
        flow: None,
    }
}

fn field(id: &str, kind: FieldKind, required: bool) -> RequestedField {
    RequestedField {
        id: id.to_owned(),
        name: format!("{id}-name"),
        kind,
        input: InputKind::Text,
        label: format!("Your {id}"),
        hint: None,
        placeholder: None,
        selector: format!("#{id}"),
        required,
        mfa: None,
        options: Vec::new(),
    }
}

fn choice(id: &str, kind: ChoiceKind, mfa: Option<MfaKind>, provider: Option<&str>) -> RequestedChoice {
    RequestedChoice {
        id: id.to_owned(),
        kind,
        label: format!("By {id}"),
        description: None,
        selector: format!("#{id}"),
        xpath: format!("//button[@id='{id}']"),
        mfa,
        target: None,
        provider: provider.map(str::to_owned),
    }
}

pub(super) fn flow() -> Flow {
    let id = casement_domain::AuthFlowId::from_ulid(ulid::Ulid::from_parts(23, 1));
    let session = SessionId::from_ulid(ulid::Ulid::from_parts(24, 1));
    Flow {
        step: FlowStep::AwaitingInput,
        revision: 4,
        open: true,
        fields: vec![field("identifier", FieldKind::Identifier, true), field("company", FieldKind::Text, false)],
        choices: vec![
            choice("google", ChoiceKind::SsoProvider, None, Some("google")),
            choice("text", ChoiceKind::MfaMethod, Some(MfaKind::Sms), None),
            choice("other", ChoiceKind::SignInMethod, None, None),
        ],
        website_error: Some("Try again".to_owned()),
        handoff: Some(PlainSealer.seal(&Flow::handoff_place(id), b"the-code").unwrap()),
        ..Flow::new(id, self::id(), FlowKind::Login, session, NOON)
    }
}

pub(super) fn waiting() -> AuthConnection {
    AuthConnection { flow: Some(Box::new(flow())), ..connection() }
}

fn finds(ports: &mut Ports, found: AuthConnection) {
    ports.auth_connections.expect_find().returning(move |project, which| {
        assert_eq!(project, project_id());
        Ok((which == id()).then(|| found.clone()))
    });
}

fn path(tail: &str) -> String {
    format!("/auth/connections/{}{tail}", id())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_made_with_its_defaults_and_its_profile_if_that_is_missing() {
    let mut ports = Ports::default();
    ports.profiles.expect_find().returning(|_, _| Ok(None));
    ports.profiles.expect_create().times(1).returning(|profile: &Profile, _| {
        assert_eq!(profile.name.as_ref().map(|name| name.as_str().to_owned()), Some("ann".to_owned()));
        Ok(ProfileStored::Yes)
    });
    ports.auth_connections.expect_create().times(1).returning(|connection, most| {
        assert_eq!((most, connection.settings.clone()), (500, Settings::default()));
        assert_eq!((&*connection.domain, connection.status), ("shop.example", ConnectionStatus::NeedsAuth));
        Ok(ConnectionStored::Yes)
    });
    let body = json!({ "domain": "Shop.Example", "profile_name": "ann" });
    let reply = TestApi::start(ports).post("/auth/connections", &body).await;
    assert_eq!(reply.status, 201, "{reply}");
    let mut said = reply.json();
    assert_eq!(reply.header("location"), Some(&*format!("/auth/connections/{}", said["id"].as_str().unwrap())));
    said.as_object_mut().unwrap().remove("id");
    assert_eq!(
        said,
        json!({
            "domain": "shop.example", "profile_name": "ann", "status": "NEEDS_AUTH", "record_session": false,
            "save_credentials": true, "allowed_domains": [], "auto_reauth": true, "health_checks": true,
            "health_check_interval": 3600, "can_reauth": false, "can_reauth_reason": "no_prior_successful_login",
            "flow_status": null, "flow_step": null, "flow_type": null, "flow_expires_at": null,
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_a_rule_is_named_field_by_field_and_nothing_is_made() {
    let api = TestApi::start(Ports::default());
    let many: Vec<String> = (0..51).map(|n| format!("a{n}.example")).collect();
    for (more, field, code) in [
        (json!({ "domain": null }), "domain", "required"),
        (json!({ "domain": "127.0.0.1" }), "domain", "invalid_format"),
        (json!({ "profile_name": "a b" }), "profile_name", "invalid_format"),
        (json!({ "health_check_interval": 299 }), "health_check_interval", "out_of_range"),
        (json!({ "health_check_interval": 86_401 }), "health_check_interval", "out_of_range"),
        (json!({ "allowed_domains": many }), "allowed_domains", "too_many"),
        (json!({ "allowed_domains": ["a.example", "*.*"] }), "allowed_domains.1", "invalid_format"),
        (json!({ "login_url": "file:///etc/passwd" }), "login_url", "invalid_format"),
        (json!({ "login_url": "https://me:pw@shop.example/" }), "login_url", "invalid_format"),
        (json!({ "login_url": "https://other.example/" }), "login_url", "not_allowed"),
        (json!({ "credential": { "provider": "p" } }), "credential", "required"),
        (json!({ "credential": { "path": "Web/Shop" } }), "credential.provider", "required"),
        (json!({ "credential": { "path": "Web/Shop", "auto": true } }), "credential.provider", "required"),
        (json!({ "credential": { "name": "a", "provider": "p", "auto": true } }), "credential", "mutually_exclusive"),
        (json!({ "proxy": { "id": "a", "name": "b" } }), "proxy", "mutually_exclusive"),
    ] {
        let mut body = json!({ "domain": "shop.example", "profile_name": "ann" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = api.post("/auth/connections", &body).await;
        let details = &reply.json()["details"];
        let message = details[0]["message"].as_str().unwrap_or_default();
        assert_eq!((reply.status, details[0]["code"].as_str()), (400, Some(code)), "{more}: {reply}");
        assert!(message.starts_with(&format!("{field}: ")), "{more}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_connection_names_must_be_there() {
    let mut ports = Ports::default();
    ports.credentials.expect_find().returning(|_, _| Ok(None));
    ports.external.expect_known().returning(|_, _| Ok(false));
    ports.proxies.expect_named().returning(|_, _| Ok(Vec::new()));
    let api = TestApi::start(ports);
    for (more, field) in [
        (json!({ "credential": { "name": "gone" } }), "credential"),
        (json!({ "credential": { "provider": "gone", "auto": true } }), "credential"),
        (json!({ "credential": { "auto": true } }), "credential"),
        (json!({ "proxy": { "name": "gone" } }), "proxy"),
    ] {
        let mut body = json!({ "domain": "shop.example", "profile_name": "ann" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = api.post("/auth/connections", &body).await;
        let detail = &reply.json()["details"][0];
        assert_eq!((reply.status, &detail["code"]), (400, &json!("reference_not_found")), "{more}: {reply}");
        assert!(detail["message"].as_str().unwrap().starts_with(&format!("{field}: ")), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_connection_of_a_profile_to_a_domain_is_refused() {
    let mut ports = Ports::default();
    let profile = Profile {
        id: connection().profile,
        organization: organization_id(),
        project: Some(project_id()),
        name: Some(casement_domain::name::SlugName::parse("ann").unwrap()),
        version: None,
        created_at: NOON,
        updated_at: NOON,
        last_used_at: None,
    };
    ports.profiles.expect_find().returning(move |_, _| Ok(Some(profile.clone())));
    ports.auth_connections.expect_create().returning(|_, _| Ok(ConnectionStored::Exists));
    let body = json!({ "domain": "shop.example", "profile_name": "ann" });
    let reply = TestApi::start(ports).post("/auth/connections", &body).await;
    assert_eq!((reply.status, &reply.json()["code"]), (409, &json!("already_exists")), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_waits_is_shown_in_both_forms() {
    let mut ports = Ports::default();
    finds(&mut ports, waiting());
    let said = TestApi::start(ports).get(&path("")).await.json();
    assert_eq!(
        [&said["flow_status"], &said["flow_step"], &said["flow_type"], &said["website_error"]],
        [&json!("IN_PROGRESS"), &json!("AWAITING_INPUT"), &json!("LOGIN"), &json!("Try again")]
    );
    let hosted = said["hosted_url"].as_str().unwrap();
    assert!(hosted.ends_with(&format!("/login/{}?code=the-code", id())), "{hosted}");
    assert_eq!(
        said["fields"][0],
        json!({
            "id": "identifier", "ref": "identifier-name", "type": "identifier", "label": "Your identifier",
            "observed_selector": "#identifier", "required": true,
        })
    );
    assert_eq!(said["discovered_fields"][1]["name"], "company-name");
    assert_eq!(said["choices"].as_array().unwrap().len(), 3);
    assert_eq!(said["mfa_options"], json!([{ "label": "By text", "type": "sms" }]));
    assert_eq!(
        said["pending_sso_buttons"],
        json!([{ "label": "By google", "provider": "google", "selector": "//button[@id='google']" }])
    );
    assert_eq!(said["sign_in_options"], json!([{ "id": "other", "label": "By other" }]));
    assert!(said.get("browser_session_id").is_none() && said.get("error_code").is_none(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_shows_its_options_and_takes_no_other() {
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
async fn a_login_whose_time_is_over_is_shown_as_expired_whoever_noted_it() {
    let mut ports = Ports::default();
    let over = Flow { expires_at: NOON, ..flow() };
    finds(&mut ports, AuthConnection { flow: Some(Box::new(over)), ..connection() });
    let api = TestApi::start(ports);
    let said = api.get(&path("")).await.json();
    assert_eq!([&said["flow_status"], &said["flow_expires_at"]], [&json!("EXPIRED"), &Value::Null]);
    assert!(said.get("fields").is_none() && said.get("hosted_url").is_none(), "{said}");
    let reply = api.post(&path("/submit"), &json!({ "field_values": { "identifier": "me" } })).await;
    assert_eq!((reply.status, &reply.json()["code"]), (409, &json!("invalid_state")), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_leaves_no_login_url_where_no_login_may_go() {
    let mut ports = Ports::default();
    let settings = Settings {
        allowed_domains: vec![HostPattern::parse("id.example").expect("a host")],
        login_url: Some("https://id.example/in".to_owned()),
        ..Settings::default()
    };
    finds(&mut ports, AuthConnection { settings, ..connection() });
    ports
        .auth_connections
        .expect_update()
        .times(4)
        .returning(|_, _, _| Ok(ConnectionUpdated::Yes(Box::new(connection()))));
    let api = TestApi::start(ports);
    let reply = api.patch(&path(""), &json!({ "allowed_domains": ["other.example"] })).await;
    assert_eq!((reply.status, &reply.json()["details"][0]["code"]), (400, &json!("not_allowed")), "{reply}");
    assert!(reply.text().contains("allowed_domains: "), "{reply}");
    for change in [
        json!({ "allowed_domains": ["*.example"] }),
        json!({ "allowed_domains": [], "login_url": "" }),
        json!({ "allowed_domains": ["other.example"], "login_url": "https://other.example/" }),
        json!({ "auto_reauth": false }),
    ] {
        let reply = api.patch(&path(""), &change).await;
        assert_eq!(reply.status, 200, "{change}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_changes_only_what_is_given() {
    let mut ports = Ports::default();
    let proxy = ProxyId::from_ulid(ulid::Ulid::from_parts(25, 1));
    let settings =
        Settings { proxy: Some(proxy), login_url: Some("https://shop.example/in".to_owned()), ..Settings::default() };
    finds(&mut ports, AuthConnection { settings, ..connection() });
    ports.auth_connections.expect_update().times(2).returning(|_, change, _| {
        let before = Settings { record_session: true, ..Settings::default() };
        if change.proxy == Some(None) {
            assert_eq!((change.credential.clone(), change.login_url.clone()), (Some(None), Some(None)));
        } else {
            assert_eq!(change.apply(&before), Settings { auto_reauth: false, ..before });
        }
        Ok(ConnectionUpdated::Yes(Box::new(connection())))
    });
    let api = TestApi::start(ports);
    let reply = api.patch(&path(""), &json!({ "auto_reauth": false })).await;
    assert_eq!(reply.status, 200, "{reply}");
    let reply = api.patch(&path(""), &json!({ "proxy": {}, "credential": {}, "login_url": "" })).await;
    assert_eq!(reply.status, 200, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_answered_at_once_and_one_that_goes_on_is_answered_again() {
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
    let said = one.json();
    let code = said["handoff_code"].as_str().unwrap();
    assert!(code.len() >= 43 && said["hosted_url"].as_str().unwrap().ends_with(&format!("?code={code}")), "{one}");
    assert_eq!([&said["id"], &said["flow_type"]], [&json!(id().to_string()), &json!("REAUTH")]);
    let two = api.post(&path("/login"), &json!({})).await;
    assert_eq!(two.json(), one.json());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_submitted_is_checked_against_what_is_waited_for() {
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
async fn what_is_submitted_is_sealed_and_moves_the_login_on() {
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
async fn nothing_can_be_submitted_while_nothing_is_waited_for() {
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
async fn a_connection_is_deleted_once() {
    let mut ports = Ports::default();
    finds(&mut ports, connection());
    let mut answers = [Some(ConnectionDeleted::default()), None].into_iter();
    ports.auth_connections.expect_delete().times(2).returning(move |_| Ok(answers.next().unwrap()));
    let api = TestApi::start(ports);
    assert_eq!(api.call("DELETE", &path(""), "").await.status, 204);
    assert_eq!(api.call("DELETE", &path(""), "").await.status, 404);
    assert_eq!(api.call("DELETE", "/auth/connections/not-an-id", "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeline_tells_logins_and_looks_newest_first() {
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
    let said = reply.json();
    assert_eq!(
        [&said[0]["type"], &said[0]["status"], &said[0]["error_code"]],
        [&json!("login"), &json!("FAILED"), &json!("captcha")]
    );
    assert_eq!(
        [&said[1]["type"], &said[1]["status"], &said[1]["previous_status"]],
        [&json!("health_check"), &json!("NEEDS_AUTH"), &json!("AUTHENTICATED")]
    );
    let reply = api.get(&path("/timeline?type=other")).await;
    assert_eq!(reply.status, 400, "{reply}");
}

/// The events of a stream, as it came: in chunks.
fn said(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_tells_every_change_and_ends_with_the_login() {
    let mut ports = Ports::default();
    finds(&mut ports, waiting());
    ports.auth_news.expect_follow().returning(|_| stream::repeat(()).take(3).boxed());
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
    let events = said(&text);
    let steps: Vec<_> = events.iter().map(|event| event["flow_step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["AWAITING_INPUT", "SUBMITTING", "COMPLETED"]);
    assert!(events.iter().all(|event| event["event"] == "managed_auth_state" && event["timestamp"].is_string()));
    assert_eq!(events[0]["fields"][0]["id"], "identifier");
    assert_eq!(events[2]["post_login_url"], "https://shop.example/home");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_of_a_connection_that_is_deleted_ends_as_cancelled() {
    let mut ports = Ports::default();
    finds(&mut ports, waiting());
    ports.auth_news.expect_follow().returning(|_| stream::repeat(()).take(1).boxed());
    let mut looks = [Some(waiting()), None].into_iter();
    ports.auth_connections.expect_any().returning(move |_| Ok(looks.next().flatten()));
    let text = TestApi::start(ports).get(&path("/events")).await.text();
    let events = said(&text);
    let last = events.last().unwrap();
    assert_eq!([&last["flow_status"], &last["flow_step"]], [&json!("CANCELED"), &json!("AWAITING_INPUT")]);
}
