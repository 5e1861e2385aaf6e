//! Tests of logins that end without success.

use casement_domain::auth_connection::{
    ConnectionStatus, CredentialRef, ExternalLogin, Flow, FlowError, FlowStatus, FlowStep,
};
use casement_domain::browser::EngineError;
use casement_domain::login_page::{ButtonKind, Captcha, LoginPageError, TextKind};
use casement_domain::session::{EndReason, Session, SessionState};
use casement_domain::testing::{NOON, browser_id};
use pretty_assertions::assert_eq;
use time::Duration;

use super::login_run::*;
use super::site::*;

#[tokio::test]
async fn a_site_that_never_answers_ends_a_login_by_itself() {
    let shows = |done: &Done| Ok(if done.typed("right") { restless(login(), done) } else { login() });
    let mut login_run = Scenario::new().with_ann().unattended().at(shows, accept_all);
    let over = login_run.run().await;
    assert_eq!(why(&over), failed(FlowError::CredentialsRejected));
    assert!(login_run.clock_since_noon() < Duration::minutes(3));
}

#[tokio::test]
async fn what_is_not_stored_ends_a_login_by_itself() {
    let mut login_run = Scenario::new().with_values(&[("username", "ann")]).unattended().at(plain, accept_all);
    let over = login_run.run().await;
    assert_eq!(why(&over), failed(FlowError::CredentialMissing));
    assert!(over.failure.is_some_and(|failure| failure.message.contains("password")));
    assert_eq!(login_run.last_end().status, Some(ConnectionStatus::NeedsAuth));
}

#[tokio::test]
async fn a_provider_that_fails_ends_the_login() {
    for unattended in [true, false] {
        let mut play = Scenario::new();
        play.connection.settings.credential = Some(CredentialRef::Auto { provider: "vault".to_owned() });
        play.external.expect_fetch().returning(|_, _, _| Err("the vault is closed".to_owned()));
        let play = if unattended { play.unattended() } else { play };
        let over = play.at(plain, accept_all).run().await;
        assert_eq!(why(&over), failed(FlowError::ProviderError));
        assert_eq!(over.failure.map(|failure| failure.message).as_deref(), Some("the vault is closed"));
    }
    // A provider without a matching item is another error.
    let mut play = Scenario::new().unattended();
    play.connection.settings.credential = Some(CredentialRef::Auto { provider: "vault".to_owned() });
    play.external.expect_fetch().returning(|_, _, _| Ok(None::<ExternalLogin>));
    assert_eq!(why(&play.at(plain, accept_all).run().await), failed(FlowError::CredentialMissing));
}

#[tokio::test]
async fn a_captcha_stops_a_login_by_itself_and_makes_a_person_wait() {
    let shows = |_: &Done| {
        let mut reading = login();
        reading.captchas = vec![Captcha { kind: "recaptcha".to_owned(), blocking: false, solved: false }];
        Ok(reading)
    };
    let mut login_run = Scenario::new().with_ann().unattended().at(shows, accept_all);
    assert_eq!(why(&login_run.run().await), failed(FlowError::Captcha));
    assert_eq!(login_run.done(|done| done.tried), 0, "nothing is sent past it");
    let mut login_run = Scenario::new().with_ann().at(shows, accept_all);
    let waits = login_run.run().await;
    assert_eq!(waits.step, FlowStep::AwaitingExternalAction, "{waits:?}");
}

#[tokio::test]
async fn a_browser_that_is_gone_ends_the_login() {
    let ended = Session { state: SessionState::Ended(EndReason::Crashed), ended_at: Some(NOON), ..active() };
    let mut play = Scenario::new();
    play.sessions = vec![ended];
    assert_eq!(why(&play.at(plain, accept_all).run().await), failed(FlowError::BrowserEnded));
    let gone = |_: &Done| Err(LoginPageError::Engine(EngineError::NotRunning(browser_id(1))));
    let mut login_run = Scenario::new().at(gone, accept_all);
    assert_eq!(why(&login_run.run().await), failed(FlowError::BrowserEnded));
    assert_eq!(login_run.done(|done| done.reads), 1);
}

#[tokio::test]
async fn a_login_without_an_answer_expires() {
    let mut login_run = Scenario::new().at(plain, accept_all);
    assert_eq!(login_run.run().await.step, FlowStep::AwaitingInput);
    login_run.clock.advance(Flow::LIFE);
    let over = login_run.run().await;
    assert_eq!((over.status, over.step), (FlowStatus::Expired, FlowStep::AwaitingInput));
    assert_eq!(login_run.rows.states(), [SessionState::Ended(EndReason::Deleted)], "its browser ends");
}

#[tokio::test]
async fn a_site_with_too_many_requests_ends_the_login_in_its_words() {
    let shows = |done: &Done| {
        let mut reading = page("/login", "too many");
        reading.status = Some(429);
        reading.texts = vec![text(1, TextKind::Heading, "Too many attempts. Try again later.")];
        Ok(if done.acts.is_empty() { login() } else { reading })
    };
    let mut login_run = Scenario::new().with_ann().at(shows, accept_all);
    let over = login_run.run().await;
    assert_eq!(why(&over), failed(FlowError::CredentialsRejected));
    assert_eq!(over.website_error.as_deref(), Some("Too many attempts. Try again later."));
}

#[tokio::test]
async fn a_site_refuses_so_often_and_no_more() {
    let shows = |done: &Done| {
        let sent = done.pressed("Continue");
        Ok(if sent > 0 { says(login(), &format!("Wrong password ({sent})")) } else { login() })
    };
    let mut login_run = Scenario::new().at(shows, accept_all);
    let mut flow = login_run.run().await;
    let mut times = 0;
    let mut interactions = std::collections::BTreeSet::new();
    while flow.status == FlowStatus::InProgress {
        assert!(interactions.insert(flow.interaction_id().expect("it asks")), "the id of an earlier question");
        assert!(flow.fields.iter().all(|field| field.rejected == (times > 0)), "{:?}", flow.fields);
        flow = login_run.submit(&[("identifier", "ann"), ("password", "guess")]).await;
        times += 1;
    }
    assert_eq!(flow.interaction_id(), None);
    assert_eq!((why(&flow), times), (failed(FlowError::CredentialsRejected), 5));
    assert!(flow.website_error.is_some_and(|message| message.starts_with("Wrong password")));
}

#[tokio::test]
async fn a_login_acts_so_often_and_no_more() {
    // Every page has only a link to the next login page.
    let shows = |done: &Done| {
        let mut reading = page(&format!("/{}", done.acts.len()), &format!("{}", done.acts.len()));
        reading.texts = vec![text(1, TextKind::Heading, "Welcome to the shop")];
        reading.buttons = vec![button(2, "Log in", ButtonKind::Link)];
        Ok(reading)
    };
    let mut login_run = Scenario::new().at(shows, accept_all);
    let over = login_run.run().await;
    assert_eq!(why(&over), failed(FlowError::PageNotUnderstood));
    assert_eq!((over.acts, login_run.done(|done| done.tried)), (40, 40));
}
