//! Flows from their first reading to their end, on a site that is played: what they are given, and what is kept of it. That something
//! always ends them, and what.

mod endings;
mod pages;
mod sites;
mod stage;

use casement_domain::SessionId;
use casement_domain::auth_connection::{
    CollectedCredential, ConnectionStatus, CredentialRef, FlowError, FlowKind, FlowRequirement, FlowSettings,
    FlowStatus, FlowStep, Memory, ProfileSavePermission, ReauthReason, Settings, SubmitRequest,
};
use casement_domain::login_page::{ButtonKind, Frame, HostPattern, LoginPageError, Reading};
use casement_domain::session::{EndReason, Session, SessionState};
use casement_domain::testing::{NOON, auth_connection_id, scope};
use pretty_assertions::assert_eq;
use time::Duration;

use crate::support::nth;

use self::stage::*;

#[tokio::test]
async fn what_a_person_gives_logs_in_and_is_kept_with_the_end() {
    let mut stage = Play::new().at(plain, takes_all);
    let waits = stage.plays().await;
    assert_eq!(waits.step, FlowStep::AwaitingInput);
    let ids: Vec<_> = waits.fields.iter().map(|field| field.id.as_str()).collect();
    assert_eq!(ids, ["identifier", "password"]);
    let over = stage.submits(&[("identifier", "ann"), ("password", "right")]).await;
    assert_eq!((over.status, over.step), (FlowStatus::Success, FlowStep::Completed), "{over:?}");
    let end = stage.last_end();
    assert_eq!(end.status, Some(ConnectionStatus::Authenticated));
    assert_eq!(
        end.needs,
        Some(vec![FlowRequirement::Value("password".to_owned()), FlowRequirement::Value("username".to_owned())])
    );
    let Some(CollectedCredential::New { credential, secrets, most: 9 }) = end.kept else { panic!("{:?}", end.kept) };
    assert_eq!((credential.name.as_str(), end.credential.as_deref()), ("d1.example ann", Some("d1.example ann")));
    assert_eq!(secrets.values.keys().collect::<Vec<_>>(), ["password", "username"]);
    assert_eq!(stage.rows.states(), [SessionState::Ended(EndReason::Deleted)]);
}

#[tokio::test]
async fn after_a_deletion_what_was_given_is_kept_nowhere() {
    let mut stage = Play::new().at(plain, takes_all);
    stage.plays().await;
    let values = [("identifier", "ann"), ("password", "right")].map(|(id, value)| (id.to_owned(), value.into()));
    let input = SubmitRequest { field_values: Some(values.into()), ..SubmitRequest::default() };
    stage.connections.submit(&scope(), &auth_connection_id(1).to_string(), input).await.expect("taken");
    while stage.flow().post_login_url.is_none() {
        stage.runner.step(stage.flow().id, &mut stage.memory).await.expect("a step");
    }
    // No repository of credentials but this one's end may write; the mock of the other one refuses every call that does.
    stage.kept.lock().deleted = true;
    stage.runner.step(stage.flow().id, &mut stage.memory).await.expect("a step");
    assert!(stage.kept.lock().ends.is_empty());
}

#[tokio::test]
async fn a_login_whose_profile_was_saved_by_another_is_made_again_with_what_was_given() {
    let mut play = Play::new();
    let second = SessionId::from_ulid(nth(1));
    play.sessions.push(Session { id: second, ..active() });
    play.let_saves = vec![ProfileSavePermission::Outdated, ProfileSavePermission::NotYet];
    // Each session begins logged out.
    let shows = |done: &Done| Ok(if done.pressed("Continue") < done.opened.len() { login() } else { home() });
    let mut stage = play.at(shows, takes_all);
    stage.plays().await;
    let over = stage.submits(&[("identifier", "ann"), ("password", "right")]).await;
    assert_eq!((over.status, over.session, over.begun_again), (FlowStatus::Success, second, 1), "{over:?}");
    assert_eq!(stage.done(|done| (done.opened.len(), done.pressed("Continue"))), (2, 2));
    assert_eq!(stage.rows.states(), [SessionState::Ended(EndReason::Deleted); 2]);
    assert_eq!(
        stage.last_end().needs,
        Some(vec![FlowRequirement::Value("password".to_owned()), FlowRequirement::Value("username".to_owned())])
    );
}

#[tokio::test]
async fn a_page_that_was_lost_with_who_carried_the_login_is_opened_again_and_filled_in_as_before() {
    let lost = |done: &Done| {
        if done.opened.len() == 1 && done.pressed("Continue") == 1 {
            return Err(LoginPageError::NavigationFailed { reason: "net::ERR_EMPTY_RESPONSE".to_owned() });
        }
        Ok(if done.pressed("Continue") == 2 { home() } else { login() })
    };
    for carried_on in [true, false] {
        let mut stage = Play::new().of_ann().at(lost, takes_all);
        while stage.flow().acts == 0 {
            stage.runner.step(stage.flow().id, &mut stage.memory).await.expect("a step");
        }
        if !carried_on {
            stage.memory = Memory::default();
        }
        let over = stage.plays().await;
        // Whoever has seen the page go wrong knows that it is the site's fault.
        let expected = if carried_on { failed(FlowError::NavigationFailed) } else { (FlowStatus::Success, None) };
        assert_eq!(why(&over), expected, "{over:?}");
    }
}

#[tokio::test]
async fn a_login_goes_on_with_what_it_began_with() {
    let mut play = Play::new().of_ann();
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
    let mut stage = play.at(shows, takes_all);
    {
        // It is told something else: another page, no other host, no credential, and to keep nothing.
        let mut kept = stage.kept.lock();
        kept.connection.settings =
            Settings { login_url: Some(format!("{ORIGIN}/new")), save_credentials: false, ..Settings::default() };
        kept.connection.credential = None;
        kept.connection.updated_at = NOON + Duration::seconds(1);
    }
    let over = stage.plays().await;
    assert_eq!(over.status, FlowStatus::Success, "{over:?}");
    assert_eq!(stage.done(|done| done.opened.clone()), [format!("{ORIGIN}/old")]);
}

#[tokio::test]
async fn what_was_only_called_otherwise_is_followed() {
    let mut play = Play::new().of_ann();
    play.flow.begun_with = Some(Box::new(FlowSettings {
        credential: Some(CredentialRef::Auto { provider: "called otherwise since".to_owned() }),
        ..FlowSettings::of(&play.connection)
    }));
    assert_eq!(play.at(plain, takes_all).plays().await.status, FlowStatus::Success);
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
    let mut stage = Play::new().of_ann().at(shows, takes_all);
    let waits = stage.plays().await;
    assert_eq!(waits.step, FlowStep::AwaitingInput, "{waits:?}");
    let code = waits.fields[0].id.clone();
    assert_eq!(stage.submits(&[(&code, "424242")]).await.status, FlowStatus::Success);
    let connection = stage.kept.lock().connection.clone();
    assert_eq!(connection.reauth(false).reason, ReauthReason::RequiresSmsCode);

    let mut play = Play::new().of_ann();
    play.connection.needs = connection.needs;
    let mut stage = play.at(|_| Ok(home()), takes_all);
    assert_eq!(stage.plays().await.status, FlowStatus::Success);
    let connection = stage.kept.lock().connection.clone();
    assert_eq!(connection.reauth(false).reason, ReauthReason::RequiresSmsCode);

    // The first login of all may find itself logged in.
    let mut stage = Play::new().of_ann().at(|_| Ok(home()), takes_all);
    assert_eq!(stage.plays().await.status, FlowStatus::Success);
    assert_eq!(stage.last_end().needs, Some(Vec::new()));
}

#[tokio::test]
async fn who_answers_in_the_live_view_is_needed_again() {
    let shows = |done: &Done| Ok(if done.reads > 4 { home() } else { login() });
    let mut stage = Play::new().at(shows, takes_all);
    assert_eq!(stage.plays().await.status, FlowStatus::Success);
    assert_eq!(stage.last_end().needs, Some(vec![FlowRequirement::External]));

    // A form that only grows was answered by nobody.
    let shows = |done: &Done| {
        Ok(match done.typed("right") {
            true => home(),
            false if done.reads > 3 => login(),
            false => asks("/login", "Sign in", vec![input(1, "username", "text")]),
        })
    };
    let mut stage = Play::new().at(shows, takes_all);
    let waits = stage.plays().await;
    assert_eq!(waits.fields.len(), 2, "{waits:?}");
    stage.submits(&[("identifier", "ann"), ("password", "right")]).await;
    assert!(!stage.last_end().needs.expect("needs").contains(&FlowRequirement::External));
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
    let waits = Play::new().at(shows, takes_all).plays().await;
    let label = waits.choices.first().expect("a choice").label.clone();
    let mut play = Play::new().of_ann().unattended();
    let fields = ["username", "password"].map(|name| FlowRequirement::Value(name.to_owned()));
    play.connection.needs = Some([vec![FlowRequirement::Choice(label)], fields.to_vec()].concat());
    let mut stage = play.at(shows, takes_all);
    let over = stage.plays().await;
    assert_eq!(over.status, FlowStatus::Success, "{over:?}");
    assert_eq!(stage.done(|done| done.pressed(SITE)), 1);
}

#[tokio::test]
async fn a_look_that_finds_the_login_gone_begins_the_next_one_with_its_end() {
    let mut play = Play::new().of_ann();
    play.flow.kind = FlowKind::HealthCheck;
    play.flow.unattended = true;
    play.connection.status = ConnectionStatus::Authenticated;
    play.connection.needs = Some(vec![FlowRequirement::Value("username".to_owned())]);
    let mut stage = play.at(|_| Ok(login()), takes_all);
    stage.plays().await;
    let end = stage.last_end();
    let next = end.next.expect("a login by itself");
    assert_eq!((next.kind, next.unattended), (FlowKind::Reauth, true));
    assert_eq!(end.status, Some(ConnectionStatus::Authenticated), "until that has ended");
    assert!(stage.kept.lock().begun.is_empty(), "not in a step of its own, which may never come");

    // Whoever switched it off meanwhile is heard.
    let mut play = Play::new().of_ann();
    play.flow.kind = FlowKind::HealthCheck;
    play.connection.needs = Some(vec![FlowRequirement::Value("username".to_owned())]);
    play.flow.begun_with = Some(Box::new(FlowSettings::of(&play.connection)));
    play.connection.settings.auto_reauth = false;
    play.connection.updated_at = NOON + Duration::seconds(1);
    let mut stage = play.at(|_| Ok(login()), takes_all);
    stage.plays().await;
    assert_eq!((stage.last_end().next, stage.last_end().status), (None, Some(ConnectionStatus::NeedsAuth)));
}
