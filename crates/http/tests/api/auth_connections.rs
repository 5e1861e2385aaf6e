//! The routes `/auth/connections`: creating, updating and deleting connections.

use casement_domain::{
    AuthConnectionId, ProfileId, ProxyId, SessionId,
    auth_connection::{
        AuthConnection, ConnectionDeleted, ConnectionStatus, ConnectionStored, ConnectionUpdated, Flow, FlowKind,
        FlowStep, RequestedChoice, RequestedField, Settings,
    },
    login_page::{ChoiceKind, FieldKind, HostPattern, InputKind, MfaKind},
    profile::{Profile, ProfileStored},
    sealing::Sealer as _,
    testing::{NOON, PlainSealer, organization_id, project_id},
};
use pretty_assertions::assert_eq;
use serde_json::json;

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

pub(super) fn field(id: &str, kind: FieldKind, required: bool) -> RequestedField {
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
        rejected: false,
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

pub(super) fn finds(ports: &mut Ports, found: AuthConnection) {
    ports.auth_connections.expect_find().returning(move |project, which| {
        assert_eq!(project, project_id());
        Ok((which == id()).then(|| found.clone()))
    });
}

pub(super) fn path(tail: &str) -> String {
    format!("/auth/connections/{}{tail}", id())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_created_with_defaults_and_with_its_profile_if_missing() {
    let mut ports = Ports::default();
    ports.profiles.expect_find().returning(|_, _| Ok(None));
    ports.profiles.expect_create().times(1).returning(|profile: &Profile, _| {
        assert_eq!(profile.name.as_ref().map(|name| name.as_str().to_owned()), Some("ann".to_owned()));
        Ok(ProfileStored::Yes)
    });
    ports.auth_connections.expect_create().times(1).returning(|connection, max| {
        assert_eq!((max, connection.settings.clone()), (500, Settings::default()));
        assert_eq!((&*connection.domain, connection.status), ("shop.example", ConnectionStatus::NeedsAuth));
        Ok(ConnectionStored::Yes)
    });
    let body = json!({ "domain": "Shop.Example", "profile_name": "ann" });
    let reply = TestApi::start(ports).post("/auth/connections", &body).await;
    assert_eq!(reply.status, 201, "{reply}");
    let mut body = reply.json();
    assert_eq!(reply.header("location"), Some(&*format!("/auth/connections/{}", body["id"].as_str().unwrap())));
    body.as_object_mut().unwrap().remove("id");
    assert_eq!(
        body,
        json!({
            "domain": "shop.example", "profile_name": "ann", "status": "NEEDS_AUTH", "record_session": false,
            "save_credentials": true, "allowed_domains": [], "auto_reauth": true, "health_checks": true,
            "health_check_interval": 3600, "can_reauth": false, "can_reauth_reason": "no_prior_successful_login",
            "flow_status": null, "flow_step": null, "flow_type": null, "flow_expires_at": null,
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_invalid_field_is_named_and_nothing_is_created() {
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
async fn resources_that_a_connection_names_must_exist() {
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
async fn an_update_refuses_a_login_url_outside_the_allowed_domains() {
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
async fn an_update_changes_only_the_given_fields() {
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
