//! Tests of pages that are slow, never settle, or do not accept actions.

use casement_domain::auth_connection::{FlowError, FlowStatus, FlowStep, SubmitRequest};
use casement_domain::login_page::{Act, ButtonKind, Captcha, Input, LoginPageError, Mark, Reading, Text, TextKind};
use casement_domain::testing::{auth_connection_id, scope};
use pretty_assertions::assert_eq;
use secrecy::{ExposeSecret as _, SecretString};
use time::Duration;

use super::login_run::*;
use super::site::*;

#[tokio::test]
async fn a_value_that_the_page_cannot_take_is_requested_again_up_to_a_limit() {
    let boxes = |_: &Done, act: &Act| match act {
        Act::FillCode { into, code, .. } if into.len() != code.expose_secret().len() => {
            Err(LoginPageError::NotUsable("there are 6 boxes for 5 characters".to_owned()))
        }
        _ => Ok(()),
    };
    let shows = |done: &Done| Ok(if done.typed("123456") { home() } else { six_boxes() });
    let mut login_run = Scenario::new().at(shows, boxes);
    let question = login_run.run().await;
    assert_eq!((question.step, question.website_error.as_deref()), (FlowStep::AwaitingInput, None));
    let again = login_run.submit(&[("code", "12345")]).await;
    assert_eq!((again.step, again.status), (FlowStep::AwaitingInput, FlowStatus::InProgress));
    assert!(again.website_error.as_deref().is_some_and(|message| message.contains("6 boxes for 5")), "{again:?}");
    assert_eq!(again.fields, question.fields, "fields keep their ids");
    assert!(login_run.clock_since_noon() < Duration::minutes(2));
    let over = login_run.submit(&[("code", "123456")]).await;
    assert_eq!(over.status, FlowStatus::Success);

    let mut login_run = Scenario::new().at(|_| Ok(six_boxes()), boxes);
    let mut flow = login_run.run().await;
    let mut times = 0;
    while flow.status == FlowStatus::InProgress {
        flow = login_run.submit(&[("code", "12345")]).await;
        times += 1;
    }
    assert_eq!((why(&flow), times), (failed(FlowError::PageNotUnderstood), 5));
    assert_eq!(*login_run.pictures.lock(), 1);
}

#[tokio::test]
async fn a_page_that_takes_nothing_ends_a_login_by_itself_soon() {
    // A covered button, a form that is always rendered again, and a handler that hangs.
    let covered = |act: &Act| match act {
        Act::Click { .. } => Err(LoginPageError::NotUsable("something lies over it".to_owned())),
        _ => Ok(()),
    };
    let redrawn = |act: &Act| match act {
        Act::Fill { into, .. } => Err(LoginPageError::Stale(into.clone())),
        _ => Ok(()),
    };
    let hangs = |act: &Act| match act {
        Act::Click { .. } => Err(LoginPageError::Hangs { seconds: 5 }),
        _ => Ok(()),
    };
    /// Returns whether a page accepts an action.
    type IsTaken = fn(&Act) -> Result<(), LoginPageError>;
    let ways: [(IsTaken, bool, FlowError); 3] = [
        (covered, true, FlowError::PageNotUnderstood),
        (redrawn, false, FlowError::PageNotUnderstood),
        (hangs, true, FlowError::NavigationFailed),
    ];
    for (takes, rests, code) in ways {
        let shows = move |done: &Done| Ok(if rests { login() } else { restless(login(), done) });
        let mut login_run = Scenario::new().with_ann().unattended().at(shows, move |_, act| takes(act));
        let over = login_run.run().await;
        assert_eq!(why(&over), failed(code), "{over:?}");
        assert!(login_run.clock_since_noon() < Duration::minutes(2), "{}", login_run.clock_since_noon());
        assert!(login_run.done(|done| done.tried) <= 6);

        // An attended login waits for the person instead.
        let mut login_run = Scenario::new().with_ann().at(shows, move |_, act| takes(act));
        let flow = login_run.run().await;
        if code == FlowError::PageNotUnderstood {
            assert_eq!((flow.step, flow.status), (FlowStep::AwaitingInput, FlowStatus::InProgress), "{flow:?}");
        } else {
            assert_eq!(why(&flow), failed(code));
        }
    }
}

#[tokio::test]
async fn a_banner_that_cannot_be_pressed_ends_the_login() {
    let shows = |_: &Done| {
        let mut reading = login();
        reading.layers =
            vec![casement_domain::login_page::Layer { marks: "div cookie-consent".to_owned(), dialog: true }];
        let mut accept = button(50, "Accept all cookies", ButtonKind::Button);
        accept.layer = Some(0);
        reading.buttons.push(accept);
        reading.texts.push(Text { layer: Some(0), ..text(49, TextKind::Plain, "We use cookies on this site") });
        Ok(reading)
    };
    let takes = |_: &Done, _: &Act| Err(LoginPageError::NotUsable("something lies over it".to_owned()));
    let mut login_run = Scenario::new().with_ann().at(shows, takes);
    assert_eq!(why(&login_run.run().await), failed(FlowError::PageNotUnderstood));
}

#[tokio::test]
async fn a_slow_site_is_waited_for_and_refuses_nothing_by_that() {
    for unattended in [true, false] {
        // The form remains for half a minute until the site answers.
        let shows = |done: &Done| {
            Ok(match done.typed("right") {
                true if done.reads > 4 => home(),
                true => Reading { settled: false, ..login() },
                false => login(),
            })
        };
        let play = Scenario::new().with_ann();
        let play = if unattended { play.unattended() } else { play };
        let mut login_run = play.at(shows, accept_all);
        let over = login_run.run().await;
        assert_eq!(over.status, FlowStatus::Success, "{over:?}");
        assert_eq!(login_run.done(|done| done.pressed("Continue")), 1, "it is sent once");
    }
    // The error of the previous attempt does not count again.
    let shows = |done: &Done| {
        let wrong = says(login(), "Wrong user name or password.");
        Ok(match (done.typed("right"), done.typed("wrong")) {
            (true, _) if done.reads > 20 => home(),
            (true, _) => Reading { settled: false, ..wrong },
            (_, true) => wrong,
            _ => login(),
        })
    };
    let mut login_run = Scenario::new().at(shows, accept_all);
    login_run.run().await;
    let again = login_run.submit(&[("identifier", "ann"), ("password", "wrong")]).await;
    assert_eq!(again.website_error.as_deref(), Some("Wrong user name or password."));
    login_run.done.lock().reads = 17;
    let over = login_run.submit(&[("identifier", "ann"), ("password", "right")]).await;
    assert_eq!(over.status, FlowStatus::Success, "{over:?}");
}

#[tokio::test]
async fn a_home_page_that_never_rests_is_a_success_all_the_same() {
    // After an approval on the phone, after a captcha, and after an action in the live view.
    let push = || {
        let mut reading = page("/push", "push");
        reading.texts = vec![text(1, TextKind::Plain, "Approve the sign-in request on your phone")];
        reading
    };
    let captcha = || {
        let mut reading = page("/captcha", "captcha");
        reading.captchas = vec![Captcha { kind: "recaptcha".to_owned(), blocking: true, solved: false }];
        reading
    };
    let asks: [fn() -> Reading; 3] = [push, captcha, login];
    for first in asks {
        let shows = move |done: &Done| Ok(if done.reads > 5 { restless(home(), done) } else { first() });
        let mut login_run = Scenario::new().at(shows, accept_all);
        let over = login_run.run().await;
        assert_eq!(over.status, FlowStatus::Success, "{over:?}");
    }
}

#[tokio::test]
async fn changes_of_a_step_elsewhere_are_reported_up_to_a_limit() {
    let push = |n: usize| {
        let mut reading = page("/push", &n.to_string());
        reading.texts = vec![text(1, TextKind::Plain, &format!("Approve the sign-in request on your phone: {n}"))];
        reading
    };
    let shows = move |done: &Done| Ok(if done.reads > 100 { home() } else { push(done.reads) });
    let mut login_run = Scenario::new().at(shows, accept_all);
    let waits = login_run.run().await;
    assert_eq!(waits.step, FlowStep::AwaitingExternalAction, "{waits:?}");
    let action = waits.external_action.as_deref().unwrap_or_default();
    // The message is reported once at the begin of the step and for 50 changes.
    assert!(action.ends_with(": 51"), "{action}");
    assert_eq!(login_run.run().await.revision, waits.revision, "nothing more is reported");
    login_run.done.lock().reads = 100;
    assert_eq!(login_run.run().await.status, FlowStatus::Success, "the page is looked at all the same");
}

#[tokio::test]
async fn a_page_that_changes_its_fields_without_end_is_given_up() {
    let shows = |done: &Done| {
        let name = if done.reads.is_multiple_of(2) { "company" } else { "tenant" };
        let inputs = vec![input(1, name, "text"), input(2, "username", "text"), input(3, "password", "password")];
        Ok(asks("/login", "Sign in", inputs))
    };
    let mut login_run = Scenario::new().at(shows, accept_all);
    let over = login_run.run().await;
    assert_eq!(why(&over), failed(FlowError::PageNotUnderstood));
    assert!(login_run.clock_since_noon() < Duration::minutes(5));
}

#[tokio::test]
async fn what_counts_down_in_a_choice_does_not_rename_it() {
    let shows = |done: &Done| {
        let mut reading = code_by_text_message();
        let left = 60 - done.reads.min(59);
        let label = format!("Call me instead ({left} s)");
        reading.buttons.push(button(95, &label, ButtonKind::Button));
        reading.mark = Mark(label);
        Ok(reading)
    };
    let mut play = Scenario::new();
    play.flow.progress.password = true;
    play.flow.acts = 1;
    let mut login_run = play.at(shows, accept_all);
    let waits = login_run.run().await;
    let ids: Vec<_> = waits.choices.iter().map(|choice| (choice.id.as_str(), choice.label.as_str())).collect();
    assert_eq!(ids, [("mfa-call-me-instead", "Call me instead")]);
    let revision = waits.revision;
    assert_eq!(login_run.run().await.revision, revision, "nothing has moved");
}

#[tokio::test]
async fn a_list_takes_one_of_its_options() {
    let shows = |done: &Done| {
        let options = vec!["North".to_owned(), "South".to_owned()];
        let company = Input { options, ..input(1, "company", "select") };
        let inputs = vec![company, input(2, "username", "text"), input(3, "password", "password")];
        Ok(if done.typed("right") { home() } else { asks("/login", "Sign in", inputs) })
    };
    let mut login_run = Scenario::new().at(shows, accept_all);
    let waits = login_run.run().await;
    assert_eq!(waits.fields[0].options, ["North", "South"]);
    let company = waits.fields[0].id.clone();
    let input = |option: &str| {
        let values = [(&*company, option), ("identifier", "ann"), ("password", "right")];
        let values = values.map(|(id, value)| (id.to_owned(), SecretString::from(value)));
        SubmitRequest { field_values: Some(values.into()), ..SubmitRequest::default() }
    };
    let id = auth_connection_id(1).to_string();
    let refused = login_run.connections.submit(&scope(), &id, input("West")).await.expect_err("no such option");
    assert!(refused.to_string().contains("options"), "{refused}");
    login_run.connections.submit(&scope(), &id, input("South")).await.expect("taken");
    assert_eq!(login_run.run().await.status, FlowStatus::Success);
    assert!(login_run.done(|done| done.typed("South")));
}
