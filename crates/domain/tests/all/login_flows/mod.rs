//! Tests of flows from their first reading to their end, at a fake site: entered and stored values, and ends.

mod endings;
mod login_run;
mod pages;
mod site;
mod sites;

use casement_domain::SessionId;
use casement_domain::auth_connection::{
    CollectedCredential, ConnectionStatus, CredentialRef, FlowError, FlowKind, FlowRequirement, FlowSettings,
    FlowStatus, FlowStep, PagePhase, ProfileSavePermission, ReauthReason, Settings, SubmitRequest,
};
use casement_domain::login_page::{ButtonKind, Frame, HostPattern, LoginPageError, Reading};
use casement_domain::session::{EndReason, Session, SessionState};
use casement_domain::testing::{NOON, auth_connection_id, scope};
use pretty_assertions::assert_eq;
use time::Duration;

use crate::support::nth;

use self::login_run::*;
use self::site::*;

#[tokio::test]
async fn what_a_person_enters_logs_in_and_is_stored_with_the_end() {
    let mut login_run = Scenario::new().at(plain, accept_all);
    let waits = login_run.run().await;
    assert_eq!(waits.step, FlowStep::AwaitingInput);
    let ids: Vec<_> = waits.fields.iter().map(|field| field.id.as_str()).collect();
    assert_eq!(ids, ["identifier", "password"]);
    let over = login_run.submit(&[("identifier", "ann"), ("password", "right")]).await;
    assert_eq!((over.status, over.step), (FlowStatus::Success, FlowStep::Completed), "{over:?}");
    let end = login_run.last_end();
    assert_eq!(end.status, Some(ConnectionStatus::Authenticated));
    assert_eq!(
        end.needs,
        Some(vec![FlowRequirement::Value("password".to_owned()), FlowRequirement::Value("username".to_owned())])
    );
    let Some(CollectedCredential::New { credential, secrets, max: 9 }) = end.collected else {
        panic!("{:?}", end.collected)
    };
    assert_eq!((credential.name.as_str(), end.credential.as_deref()), ("d1.example ann", Some("d1.example ann")));
    assert_eq!(secrets.values.keys().collect::<Vec<_>>(), ["password", "username"]);
    assert_eq!(login_run.rows.states(), [SessionState::Ended(EndReason::Deleted)]);
}

#[tokio::test]
async fn after_a_deletion_entered_values_are_not_stored() {
    let mut login_run = Scenario::new().at(plain, accept_all);
    login_run.run().await;
    let values = [("identifier", "ann"), ("password", "right")].map(|(id, value)| (id.to_owned(), value.into()));
    let input = SubmitRequest { field_values: Some(values.into()), ..SubmitRequest::default() };
    login_run.connections.submit(&scope(), &auth_connection_id(1).to_string(), input).await.expect("taken");
    while login_run.flow().post_login_url.is_none() {
        login_run.runner.step(login_run.flow().id, &mut login_run.phase).await.expect("a step");
    }
    // Values may be stored only by the end of the flow; the mock of the credential repository refuses writes.
    login_run.store.lock().deleted = true;
    login_run.runner.step(login_run.flow().id, &mut login_run.phase).await.expect("a step");
    assert!(login_run.store.lock().ends.is_empty());
}

#[tokio::test]
async fn a_login_whose_profile_was_saved_by_another_is_made_again_with_what_was_given() {
    let mut play = Scenario::new();
    let second = SessionId::from_ulid(nth(1));
    play.sessions.push(Session { id: second, ..active() });
    play.let_saves = vec![ProfileSavePermission::Outdated, ProfileSavePermission::NotYet];
    // Each session begins without a login.
    let shows = |done: &Done| Ok(if done.pressed("Continue") < done.opened.len() { login() } else { home() });
    let mut login_run = play.at(shows, accept_all);
    login_run.run().await;
    let over = login_run.submit(&[("identifier", "ann"), ("password", "right")]).await;
    assert_eq!((over.status, over.session, over.begun_again), (FlowStatus::Success, second, 1), "{over:?}");
    assert_eq!(login_run.done(|done| (done.opened.len(), done.pressed("Continue"))), (2, 2));
    assert_eq!(login_run.rows.states(), [SessionState::Ended(EndReason::Deleted); 2]);
    assert_eq!(
        login_run.last_end().needs,
        Some(vec![FlowRequirement::Value("password".to_owned()), FlowRequirement::Value("username".to_owned())])
    );
}

#[tokio::test]
async fn a_page_that_was_lost_with_its_node_is_opened_and_filled_in_again() {
    let lost = |done: &Done| {
        if done.opened.len() == 1 && done.pressed("Continue") == 1 {
            return Err(LoginPageError::NavigationFailed { reason: "net::ERR_EMPTY_RESPONSE".to_owned() });
        }
        Ok(if done.pressed("Continue") == 2 { home() } else { login() })
    };
    for carried_on in [true, false] {
        let mut login_run = Scenario::new().with_ann().at(lost, accept_all);
        while login_run.flow().acts == 0 {
            login_run.runner.step(login_run.flow().id, &mut login_run.phase).await.expect("a step");
        }
        if !carried_on {
            login_run.phase = PagePhase::default();
        }
        let over = login_run.run().await;
        // With its page phase the runner knows that the site failed; without, it repeats the login.
        let expected = if carried_on { failed(FlowError::NavigationFailed) } else { (FlowStatus::Success, None) };
        assert_eq!(why(&over), expected, "{over:?}");
    }
}

/// The page phase is not stored, so the runner must continue a flow from its stored step.
#[tokio::test]
async fn a_flow_is_run_on_from_each_of_its_stored_steps() {
    let mut login_run = Scenario::new().at(plain, accept_all);
    let mut steps = Vec::new();
    while login_run.flow().status == FlowStatus::InProgress || login_run.flow().open {
        login_run.phase = PagePhase::default();
        login_run.runner.step(login_run.flow().id, &mut login_run.phase).await.expect("a step");
        let flow = login_run.flow();
        steps.push(flow.step);
        if flow.step == FlowStep::AwaitingInput && flow.acts == 0 {
            let values =
                [("identifier", "ann"), ("password", "right")].map(|(id, value)| (id.to_owned(), value.into()));
            let input = SubmitRequest { field_values: Some(values.into()), ..SubmitRequest::default() };
            let id = auth_connection_id(1).to_string();
            login_run.connections.submit(&scope(), &id, input).await.expect("accepted");
        }
        assert!(steps.len() < 50, "{steps:?}");
    }
    steps.dedup();
    assert_eq!(steps, [FlowStep::AwaitingInput, FlowStep::Submitting, FlowStep::Completed]);
    assert_eq!(login_run.flow().status, FlowStatus::Success, "{:?}", login_run.flow());
    assert_eq!(login_run.done(|done| done.pressed("Continue")), 1, "nothing is sent twice");
}

#[tokio::test]
async fn a_login_goes_on_with_what_it_began_with() {
    let mut play = Scenario::new().with_ann();
    let credentials = [play.connection.credential.as_mut(), play.credential.as_mut().map(|(credential, _)| credential)];
    credentials.into_iter().flatten().for_each(|credential| credential.domain = "idp.example".to_owned());
    play.connection.settings.login_url = Some(format!("{ORIGIN}/old"));
    play.connection.settings.allowed_domains = vec![HostPattern::parse("idp.example").expect("a host")];
    play.flow.begun_with = Some(Box::new(FlowSettings::of(&play.connection)));
    let elsewhere = |reading: Reading| Reading {
        url: "https://idp.example/login".to_owned(),
        frames: vec![Frame { origin: "https://idp.example".to_owned(), url: "https://idp.example/login".to_owned() }],
        ..reading
    };
    let shows = move |done: &Done| Ok(if done.typed("right") { home() } else { elsewhere(login()) });
    let mut login_run = play.at(shows, accept_all);
    {
        // The settings change: another page, no additional host, no credential, and no storing of values.
        let mut store = login_run.store.lock();
        store.connection.settings =
            Settings { login_url: Some(format!("{ORIGIN}/new")), save_credentials: false, ..Settings::default() };
        store.connection.credential = None;
        store.connection.updated_at = NOON + Duration::seconds(1);
    }
    let over = login_run.run().await;
    assert_eq!(over.status, FlowStatus::Success, "{over:?}");
    assert_eq!(login_run.done(|done| done.opened.clone()), [format!("{ORIGIN}/old")]);
}

#[tokio::test]
async fn what_was_only_called_otherwise_is_followed() {
    let mut play = Scenario::new().with_ann();
    play.flow.begun_with = Some(Box::new(FlowSettings {
        credential: Some(CredentialRef::Auto { provider: "called otherwise since".to_owned() }),
        ..FlowSettings::of(&play.connection)
    }));
    assert_eq!(play.at(plain, accept_all).run().await.status, FlowStatus::Success);
}

#[tokio::test]
async fn who_is_logged_in_already_does_not_change_what_a_login_needs() {
    let shows = |done: &Done| {
        Ok(match (done.typed("right"), done.typed("424242")) {
            (true, true) => home(),
            (true, false) => code_by_text_message(),
            _ => login(),
        })
    };
    let mut login_run = Scenario::new().with_ann().at(shows, accept_all);
    let waits = login_run.run().await;
    assert_eq!(waits.step, FlowStep::AwaitingInput, "{waits:?}");
    let code = waits.fields[0].id.clone();
    assert_eq!(login_run.submit(&[(&code, "424242")]).await.status, FlowStatus::Success);
    let connection = login_run.store.lock().connection.clone();
    assert_eq!(connection.reauth(false).reason, ReauthReason::RequiresSmsCode);

    let mut play = Scenario::new().with_ann();
    play.connection.needs = connection.needs;
    let mut login_run = play.at(|_| Ok(home()), accept_all);
    assert_eq!(login_run.run().await.status, FlowStatus::Success);
    let connection = login_run.store.lock().connection.clone();
    assert_eq!(connection.reauth(false).reason, ReauthReason::RequiresSmsCode);

    // The first login may find that the user is logged in already.
    let mut login_run = Scenario::new().with_ann().at(|_| Ok(home()), accept_all);
    assert_eq!(login_run.run().await.status, FlowStatus::Success);
    assert_eq!(login_run.last_end().needs, Some(Vec::new()));
}

#[tokio::test]
async fn a_person_who_answers_in_the_live_view_is_needed_again() {
    let shows = |done: &Done| Ok(if done.reads > 4 { home() } else { login() });
    let mut login_run = Scenario::new().at(shows, accept_all);
    assert_eq!(login_run.run().await.status, FlowStatus::Success);
    assert_eq!(login_run.last_end().needs, Some(vec![FlowRequirement::External]));

    // A form that gets more fields was not answered by a person.
    let shows = |done: &Done| {
        Ok(match done.typed("right") {
            true => home(),
            false if done.reads > 3 => login(),
            false => asks("/login", "Sign in", vec![input(1, "username", "text")]),
        })
    };
    let mut login_run = Scenario::new().at(shows, accept_all);
    let waits = login_run.run().await;
    assert_eq!(waits.fields.len(), 2, "{waits:?}");
    login_run.submit(&[("identifier", "ann"), ("password", "right")]).await;
    assert!(!login_run.last_end().needs.expect("needs").contains(&FlowRequirement::External));
}

#[tokio::test]
async fn a_login_by_itself_goes_by_the_other_site_that_was_chosen_beside_a_form_before() {
    const SITE: &str = "Continue with Microsoft";
    let shows = |done: &Done| {
        let mut reading = login();
        match (done.pressed(SITE), done.typed("right")) {
            (0, _) => reading.buttons.push(button(95, SITE, ButtonKind::Button)),
            (_, true) => return Ok(home()),
            _ => reading.url = "https://d1.example/other".to_owned(),
        }
        Ok(reading)
    };
    let waits = Scenario::new().at(shows, accept_all).run().await;
    let label = waits.choices.first().expect("a choice").label.clone();
    let mut play = Scenario::new().with_ann().unattended();
    let fields = ["username", "password"].map(|name| FlowRequirement::Value(name.to_owned()));
    play.connection.needs = Some([vec![FlowRequirement::Choice(label)], fields.to_vec()].concat());
    let mut login_run = play.at(shows, accept_all);
    let over = login_run.run().await;
    assert_eq!(over.status, FlowStatus::Success, "{over:?}");
    assert_eq!(login_run.done(|done| done.pressed(SITE)), 1);
}

#[tokio::test]
async fn a_look_that_finds_the_login_gone_begins_the_next_one_with_its_end() {
    let mut play = Scenario::new().with_ann();
    play.flow.kind = FlowKind::HealthCheck;
    play.flow.unattended = true;
    play.connection.status = ConnectionStatus::Authenticated;
    play.connection.needs = Some(vec![FlowRequirement::Value("username".to_owned())]);
    let mut login_run = play.at(|_| Ok(login()), accept_all);
    login_run.run().await;
    let end = login_run.last_end();
    let next = end.next.expect("a login by itself");
    assert_eq!((next.kind, next.unattended), (FlowKind::Reauth, true));
    assert_eq!(end.status, Some(ConnectionStatus::Authenticated), "until that has ended");
    assert!(login_run.store.lock().begun.is_empty(), "not in a step of its own, which may never come");

    // No login begins if unattended logins were disabled in the meantime.
    let mut play = Scenario::new().with_ann();
    play.flow.kind = FlowKind::HealthCheck;
    play.connection.needs = Some(vec![FlowRequirement::Value("username".to_owned())]);
    play.flow.begun_with = Some(Box::new(FlowSettings::of(&play.connection)));
    play.connection.settings.auto_reauth = false;
    play.connection.updated_at = NOON + Duration::seconds(1);
    let mut login_run = play.at(|_| Ok(login()), accept_all);
    login_run.run().await;
    assert_eq!((login_run.last_end().next, login_run.last_end().status), (None, Some(ConnectionStatus::NeedsAuth)));
}
