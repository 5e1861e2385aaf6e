//! Tests of creating a session: on a spare browser, after spare browsers that do not answer, and on a new browser.

use std::collections::BTreeMap;

use casement_domain::browser::{BrowserState, EngineError, Shape, Started};
use casement_domain::field::FieldCode;
use casement_domain::organization::{Limit, LimitExceeded};
use casement_domain::session::{
    CreateSessionError, Created, EndReason, Session, SessionRequest, SessionState, StartFailed,
};
use casement_domain::testing::{NOON, browser_id, invocation, node_id, scope};
use casement_domain::{BrowserId, Replaced, SessionId};
use pretty_assertions::assert_eq;

use crate::support::{World, archived, default_shape, hung, nth, store_down};

fn request() -> SessionRequest {
    SessionRequest { headless: Some(true), name: Some("checkout".to_owned()), ..SessionRequest::default() }
}

const FULL: LimitExceeded = LimitExceeded { limit: Limit::ProjectSessions, value: 1, used: 1, requested: 1 };

#[tokio::test]
async fn a_spare_browser_is_handed_out_and_none_is_started() {
    let mut world = World::default();
    let headless = Shape { headless: true, ..default_shape() };
    world.spares.expect_take().withf(move |shape| *shape == headless).times(1).return_const(Some(browser_id(1)));
    world
        .sessions
        .expect_create()
        .withf(|_, session, browser| {
            let browser = browser.as_ref().expect("stored with its browser");
            (browser.state, browser.session, browser.pool) == (BrowserState::Leased, Some(session.id), None)
        })
        .times(1)
        .returning(|_, _, _| Ok(Created::Yes));
    world
        .engine
        .expect_hand_out()
        .withf(|id, to| *id == browser_id(1) && to.start_url.is_none() && to.abandoned_after_seconds == 60)
        .times(1)
        .returning(|_, _| Ok(()));
    let casement = world.build();

    let session = casement.sessions.create(&scope(), request()).await.expect("created");

    assert_eq!((session.state, session.browser, session.node), (SessionState::Active, Some(browser_id(1)), node_id()));
    assert_eq!((session.timeout_seconds, session.created_at, session.last_active_at), (60, NOON, NOON));
    casement.clock.advance(time::Duration::seconds(60));
    assert_eq!(casement.activity.idle(), [session.id], "its idle clock runs");
}

#[tokio::test]
async fn a_spare_that_does_not_answer_is_ended_and_the_next_one_is_used() {
    let mut world = World::default();
    let rows = world.keep_new_sessions();
    let mut spares = [browser_id(2), browser_id(1)].to_vec();
    world.spares.expect_take().times(2).returning(move |_| spares.pop());
    world.engine.expect_hand_out().times(2).returning(|id, _| if id == browser_id(1) { Err(hung()) } else { Ok(()) });
    world.expect_cleanup(browser_id(1));
    world.expect_close(SessionId::from_ulid(nth(1)), EndReason::StartFailed);

    let session = world.build().sessions.create(&scope(), request()).await.expect("created");

    assert_eq!(session.browser, Some(browser_id(2)));
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed), SessionState::Active]);
}

#[tokio::test]
async fn after_two_spares_that_do_not_answer_a_browser_is_started() {
    let mut world = World::default();
    let rows = world.keep_new_sessions();
    let mut spares = [browser_id(3), browser_id(2), browser_id(1)].to_vec();
    world.spares.expect_take().times(2).returning(move |_| spares.pop());
    world.engine.expect_hand_out().times(2).returning(|_, _| Err(hung()));
    world.engine.expect_hand_out().times(1).returning(|_, _| Ok(()));
    world.expect_cleanup(browser_id(1));
    world.expect_cleanup(browser_id(2));
    world.connections.expect_close().times(2).return_const(());
    world.engine.expect_start().times(1).returning(|_| Ok(Started::default()));
    let stored = rows.clone();
    world.sessions.expect_activate().times(1).returning(move |current, next, _| Ok(stored.swap(current, next)));

    let session = world.build().sessions.create(&scope(), request()).await.expect("created");

    assert!(session.is_active());
    let failed = SessionState::Ended(EndReason::StartFailed);
    assert_eq!(rows.states(), [failed, failed, SessionState::Active]);
}

#[tokio::test]
async fn a_spare_goes_back_untouched_when_the_store_refuses() {
    for refusal in [Created::NameTaken, Created::LimitExceeded(FULL), Created::ProjectGone, Created::NoInvocation] {
        let mut world = World::default();
        world.spares.expect_take().times(1).return_const(Some(browser_id(1)));
        world.spares.expect_put_back().withf(|_, id| *id == browser_id(1)).times(1).return_const(());
        let answer = refusal.clone();
        world.sessions.expect_create().times(1).returning(move |_, _, _| Ok(answer.clone()));

        let error = world.build().sessions.create(&scope(), request()).await.expect_err("refused");

        let fits = match refusal {
            Created::NameTaken => {
                matches!(&error, CreateSessionError::NameTaken(taken) if taken.name == "checkout")
            }
            Created::LimitExceeded(_) => matches!(error, CreateSessionError::Limit(limit) if limit == FULL),
            Created::ProjectGone => matches!(error, CreateSessionError::ProjectDeleted),
            Created::NoInvocation => matches!(error, CreateSessionError::Invalid(_)),
            Created::Yes => false,
        };
        assert!(fits, "{error:?}");
    }
}

#[tokio::test]
async fn a_spare_that_the_store_may_call_leased_is_never_taken_again() {
    let mut world = World::default();
    world.spares.expect_take().times(1).return_const(Some(browser_id(1)));
    world.sessions.expect_create().times(1).returning(|_, _, _| Err(store_down()));
    world.sessions.expect_find().returning(|_| Err(store_down()));
    world.expect_cleanup(browser_id(1));
    let error = world.build().sessions.create(&scope(), request()).await.expect_err("the store is down");
    assert!(matches!(error, CreateSessionError::Store(_)), "{error:?}");
}

#[tokio::test]
async fn without_a_spare_the_place_is_reserved_before_the_browser_starts() {
    let mut world = World::default();
    world.spares.expect_take().times(1).return_const(None);
    let rows = world.keep_new_sessions();
    let stored = rows.clone();
    world.engine.expect_start().times(1).returning(move |launch| {
        assert_eq!(stored.states(), [SessionState::Starting]);
        assert_eq!(launch.abandoned_after_seconds, 90);
        Ok(Started::default())
    });
    world
        .engine
        .expect_hand_out()
        .withf(|_, to| to.start_url.as_ref().is_some_and(|url| url.as_str() == "https://example.com/"))
        .times(1)
        .returning(|_, _| Ok(()));
    let stored = rows.clone();
    world
        .sessions
        .expect_activate()
        .withf(|_, next, browser| next.browser == Some(browser.id) && browser.session == Some(next.id))
        .times(1)
        .returning(move |current, next, _| Ok(stored.swap(current, next)));

    let request =
        SessionRequest { timeout_seconds: Some(90), start_url: Some("https://example.com/".to_owned()), ..request() };
    let session = world.build().sessions.create(&scope(), request).await.expect("created");

    assert_eq!(rows.get(session.id), Some(session));
}

/// The report of the lost browser found no session to end.
#[tokio::test]
async fn a_browser_that_died_before_its_session_was_active_is_not_handed_out() {
    let mut world = World::default();
    world.spares.expect_take().times(1).return_const(None);
    let rows = world.keep_new_sessions();
    world.engine.expect_start().times(1).returning(|_| Ok(Started::default()));
    let stored = rows.clone();
    world.sessions.expect_activate().times(1).returning(move |current, next, _| Ok(stored.swap(current, next)));
    world.engine.expect_hand_out().times(1).returning(|id, _| Err(EngineError::NotRunning(id)));
    world.engine.expect_end().returning(|_| Ok(()));
    world.browsers.expect_forget().times(1).returning(|_| Ok(()));
    world.connections.expect_close().times(1).return_const(());

    let casement = world.build();
    let error = casement.sessions.create(&scope(), request()).await.expect_err("it is gone");

    assert!(matches!(error, CreateSessionError::Specific(StartFailed(EngineError::NotRunning(_)))), "{error:?}");
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed)]);
}

#[tokio::test]
async fn a_slow_new_browser_is_probed_again_and_never_handed_out_unprobed() {
    for (silent_for, comes) in [(3, true), (1000, false)] {
        let mut world = World::default();
        world.spares.expect_take().times(1).return_const(None);
        let rows = world.keep_new_sessions();
        world.engine.expect_start().times(1).returning(|_| Ok(Started::default()));
        let stored = rows.clone();
        world.sessions.expect_activate().times(1).returning(move |current, next, _| Ok(stored.swap(current, next)));
        let mut requested = 0;
        world.engine.expect_hand_out().returning(move |_, _| {
            requested += 1;
            if requested > silent_for { Ok(()) } else { Err(EngineError::Timeout { seconds: 2 }) }
        });
        world.engine.expect_end().returning(|_| Ok(()));
        world.browsers.expect_forget().returning(|_| Ok(()));
        world.connections.expect_close().return_const(());
        let created = world.build().sessions.create(&scope(), request()).await;
        assert_eq!(created.is_ok(), comes, "silent for {silent_for} questions");
        let end = if comes { SessionState::Active } else { SessionState::Ended(EndReason::StartFailed) };
        assert_eq!(rows.states(), [end]);
    }
}

#[tokio::test]
async fn an_uncertain_reservation_is_ended() {
    let mut world = World::default();
    world.spares.expect_take().times(1).return_const(None);
    let rows = world.keep_sessions([]);
    let stored = rows.clone();
    world.sessions.expect_create().times(1).returning(move |_, session, _| {
        stored.put(session.clone());
        Err(store_down())
    });
    world.connections.expect_close().times(1).return_const(());

    let error = world.build().sessions.create(&scope(), request()).await.expect_err("nobody knows");

    assert!(matches!(error, CreateSessionError::Store(_)), "{error:?}");
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed)]);
}

#[tokio::test]
async fn a_start_that_fails_ends_the_reservation_and_the_sandbox() {
    let mut world = World::default();
    world.spares.expect_take().times(1).return_const(None);
    let rows = world.keep_new_sessions();
    world.engine.expect_start().times(1).returning(|_| Err(hung()));
    world.engine.expect_end().times(1).returning(|_| Ok(()));
    world.expect_close(SessionId::from_ulid(nth(1)), EndReason::StartFailed);

    let error = world.build().sessions.create(&scope(), request()).await.expect_err("the start failed");

    assert!(matches!(error, CreateSessionError::Specific(_)), "{error:?}");
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed)]);
}

#[tokio::test]
async fn a_reservation_that_ended_during_the_start_gives_no_session_and_leaves_no_browser() {
    let mut world = World::default();
    world.spares.expect_take().times(1).return_const(None);
    let rows = world.keep_new_sessions();
    let stored = rows.clone();
    world.engine.expect_start().times(1).returning(move |_| {
        let session = stored.get(SessionId::from_ulid(nth(1))).expect("reserved");
        stored.put(Session { state: SessionState::Ended(EndReason::NodeLost), ..session });
        Ok(Started::default())
    });
    world.sessions.expect_activate().times(1).returning(|_, _, _| Ok(Replaced::LostRace));
    let started = BrowserId::from_ulid(nth(2));
    world.engine.expect_end().withf(move |id| *id == started).times(1).returning(|_| Ok(()));

    let error = world.build().sessions.create(&scope(), request()).await.expect_err("has ended");

    assert!(matches!(error, CreateSessionError::Specific(_)), "{error:?}");
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::NodeLost)], "nothing else ends it again");
}

#[tokio::test]
async fn an_archived_project_refuses_before_anything_is_touched() {
    let nonsense = SessionRequest { timeout_seconds: Some(-1), ..request() };
    let error = World::default().build().sessions.create(&archived(), nonsense).await.expect_err("archived");
    assert!(matches!(error, CreateSessionError::Archived(_)), "{error:?}");
}

#[tokio::test]
async fn what_this_installation_cannot_do_is_refused_and_never_ignored() {
    // With `headless: true` the contradiction would be reported first.
    let request = SessionRequest { gpu: Some(true), headless: Some(false), ..request() };
    let error = World::default().build().sessions.create(&scope(), request).await.expect_err("gpu");
    match error {
        CreateSessionError::NotSupported(unsupported) => assert_eq!(unsupported.field, "gpu"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_session_belongs_to_an_invocation_that_has_not_ended_or_is_not_made() {
    let named = || SessionRequest { invocation: Some(invocation(1).id.to_string()), ..request() };
    let mut world = World::default();
    world.sessions.expect_create().times(1).returning(|_, session, _| {
        assert_eq!(session.invocation, Some(invocation(1).id));
        Ok(Created::NoInvocation)
    });
    world.spares.expect_take().returning(|_| None);
    let error = world.build().sessions.create(&scope(), named()).await.expect_err("it has ended");
    let odd = SessionRequest { invocation: Some("x".to_owned()), ..request() };
    let other = World::default().build().sessions.create(&scope(), odd).await.expect_err("no identifier");
    for error in [error, other] {
        let CreateSessionError::Invalid(invalid) = error else { panic!("{error:?}") };
        let codes: Vec<_> = invalid.fields().iter().map(|field| (field.field.as_str(), field.code)).collect();
        assert_eq!(codes, [("invocation_id", FieldCode::ReferenceNotFound)]);
    }
}

#[tokio::test]
async fn every_bad_field_is_named_at_once() {
    let request = SessionRequest {
        gpu: Some(true),
        headless: Some(true),
        name: Some("a/b".to_owned()),
        timeout_seconds: Some(9),
        start_url: Some("javascript:alert(1)".to_owned()),
        tags: Some(BTreeMap::from([(String::new(), String::new())])),
        ..SessionRequest::default()
    };
    let error = World::default().build().sessions.create(&scope(), request).await.expect_err("not valid");
    let CreateSessionError::Invalid(invalid) = error else { panic!("{error:?}") };
    let fields: Vec<_> = invalid.fields().iter().map(|error| (error.field.as_str(), error.code)).collect();
    assert_eq!(
        fields,
        [
            ("gpu", FieldCode::MutuallyExclusive),
            ("name", FieldCode::InvalidFormat),
            ("timeout_seconds", FieldCode::OutOfRange),
            ("start_url", FieldCode::InvalidFormat),
            ("tags", FieldCode::TooShort),
        ]
    );
}
