//! Login flows: the node that runs them, their ends, and the stored results.

use casement_domain::auth_connection::OrphanedFlow;
use pretty_assertions::assert_eq;

use super::*;

#[tokio::test]
async fn one_login_at_a_time_and_one_look_and_what_is_over_makes_room() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let second = auth_flow(2, flow.connection);
    assert_eq!(site.connections.begin(&second).await?, FlowBegun::Running(Box::new(flow.clone())));
    let look = Flow { kind: FlowKind::HealthCheck, ..auth_flow(3, flow.connection) };
    assert_eq!(site.connections.begin(&look).await?, FlowBegun::Yes);
    let gone = auth_flow(4, auth_connection_id(9));
    assert_eq!(site.connections.begin(&gone).await?, FlowBegun::Gone);
    assert_eq!(site.stored().await?.flow, Some(Box::new(flow.clone())), "a look is no login");

    let later = Flow { created_at: flow.expires_at, ..second };
    assert_eq!(site.connections.begin(&later).await?, FlowBegun::Yes);
    let expired = site.connections.flow(flow.id).await?.ok_or("gone")?;
    assert_eq!(expired.status, FlowStatus::Expired);
    assert_eq!(site.stored().await?.flow, Some(Box::new(later)));

    let many = (10..20).map(|n| {
        let (connections, flow) = (
            site.connections.clone(),
            Flow { created_at: seconds(4000), expires_at: seconds(4900), ..auth_flow(n, flow.connection) },
        );
        tokio::spawn(async move { connections.begin(&flow).await })
    });
    let mut begun = 0;
    for one in many.collect::<Vec<_>>() {
        begun += u32::from(one.await?? == FlowBegun::Yes);
    }
    assert_eq!(begun, 1, "two began at once");
    Ok(())
}

#[tokio::test]
async fn a_flow_is_stored_whole_by_whoever_has_seen_the_last_of_it() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let next = full(&flow);
    assert!(site.connections.put(&next).await?);
    let stored = site.connections.flow(flow.id).await?.ok_or("gone")?;
    assert_eq!(stored, Flow { revision: 1, ..next.clone() });
    assert!(!site.connections.put(&flow).await?, "an older one was stored over a newer one");
    assert_eq!(site.connections.flow(flow.id).await?, Some(stored.clone()));

    let failed = stored.on(FlowEvent::Failed(FlowFailure::new(FlowError::Captcha, "no")), seconds(5))?;
    assert!(site.connections.end(&failed, &FlowEnd::default()).await?);
    let stored = site.connections.flow(flow.id).await?.ok_or("gone")?;
    assert_eq!(stored, Flow { revision: 2, ..failed });
    assert_eq!((stored.submission.clone(), stored.entered.clone()), (None, None));
    assert!(!site.connections.put(&stored).await?, "what has ended was stored again");
    assert!(!site.connections.end(&stored, &FlowEnd::default()).await?);
    Ok(())
}

#[tokio::test]
async fn the_end_of_a_flow_and_what_it_does_to_its_connection_are_one() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let logged_in = flow.on(FlowEvent::LoggedIn("https://d1.example/".to_owned()), seconds(2))?;
    let done = logged_in.on(FlowEvent::Completed, seconds(3))?;
    let end = FlowEnd {
        status: Some(ConnectionStatus::Authenticated),
        needs: Some(vec![FlowRequirement::Totp]),
        credential: Some("made".to_owned()),
        checked_at: Some(seconds(3)),
        ..FlowEnd::default()
    };
    let unseen = Flow { revision: 5, ..done.clone() };
    assert!(!site.connections.end(&unseen, &end).await?);
    assert_eq!(site.stored().await?.status, ConnectionStatus::NeedsAuth);
    assert!(site.connections.end(&done, &end).await?);
    let connection = site.stored().await?;
    assert_eq!(
        (connection.status, connection.needs, connection.last_check_at, connection.settings.credential),
        (
            ConnectionStatus::Authenticated,
            Some(vec![FlowRequirement::Totp]),
            Some(seconds(3)),
            Some(CredentialRef::Named("made".to_owned()))
        )
    );

    // A connection with a credential keeps it.
    let next = Flow { created_at: seconds(4), ..auth_flow(2, flow.connection) };
    assert_eq!(site.connections.begin(&next).await?, FlowBegun::Yes);
    let done = next.on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?;
    let end = FlowEnd { credential: Some("other".to_owned()), ..FlowEnd::default() };
    assert!(site.connections.end(&done, &end).await?);
    assert_eq!(site.stored().await?.settings.credential, Some(CredentialRef::Named("made".to_owned())));

    let timeline = site.connections.timeline(flow.connection, None, PAGE).await?;
    assert_eq!(timeline.items.iter().map(|one| one.flow.id).collect::<Vec<_>>(), [auth_flow_id(2), auth_flow_id(1)]);
    let looks = site.connections.timeline(flow.connection, Some(FlowKind::HealthCheck), PAGE).await?;
    assert!(looks.items.is_empty());
    Ok(())
}

/// The end of a flow that stores the entered values as a new credential.
fn stored(n: u32, named: &str, max: u32) -> Result<FlowEnd, Fault> {
    let secrets = SealedSecrets { values: [("password".to_owned(), vec![7])].into(), totp: None };
    let stored = CollectedCredential::New { credential: Box::new(credential(n, named)?), secrets, max };
    Ok(FlowEnd {
        status: Some(ConnectionStatus::Authenticated),
        collected: Some(stored),
        credential: Some(named.to_owned()),
        ..FlowEnd::default()
    })
}

#[tokio::test]
async fn what_a_login_was_given_is_stored_with_its_end_or_not_at_all() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let done = flow.on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?;
    let names = async || {
        let listed = site.credentials.list(testing::project_id(), &CredentialFilter::default(), PAGE).await?;
        Ok::<_, Fault>(listed.items.into_iter().map(|one| one.name.as_str().to_owned()).collect::<Vec<_>>())
    };
    // Not stored for an outdated revision, nor beyond the limit, where the login succeeds all the same.
    let unseen = Flow { revision: 5, ..done.clone() };
    assert!(!site.connections.end(&unseen, &stored(2, "mine", 10)?).await?);
    assert_eq!(names().await?, ["Shop"]);
    assert!(site.connections.end(&done, &stored(2, "mine", 1)?).await?);
    assert_eq!((names().await?, site.stored().await?.settings.credential), (vec!["Shop".to_owned()], None));
    assert_eq!(site.stored().await?.status, ConnectionStatus::Authenticated);

    // Nor with a taken name.
    let again = |n: u32| Flow { created_at: seconds(i64::from(n)), ..auth_flow(n, flow.connection) };
    let done = async |n: u32| {
        assert_eq!(site.connections.begin(&again(n)).await?, FlowBegun::Yes);
        Ok::<_, Fault>(again(n).on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?)
    };
    assert!(site.connections.end(&done(2).await?, &stored(2, "SHOP", 10)?).await?);
    assert_eq!((names().await?.len(), site.stored().await?.settings.credential), (1, None));
    assert!(site.connections.end(&done(3).await?, &stored(2, "mine", 10)?).await?);
    let connection = site.stored().await?;
    assert_eq!(connection.settings.credential, Some(CredentialRef::Named("mine".to_owned())));
    let mine = connection.credential.ok_or("no credential")?;
    assert_eq!(mine.value_keys, ["password"]);

    // Stored in an existing credential.
    let change = CredentialChange { values: [("password".to_owned(), vec![8])].into(), ..CredentialChange::default() };
    let end = FlowEnd {
        collected: Some(CollectedCredential::Changed { id: mine.id, change: change.clone() }),
        ..FlowEnd::default()
    };
    assert!(site.connections.end(&done(4).await?, &end).await?);
    let secrets = async || site.credentials.secrets(mine.id).await.map(|found| found.map(|secrets| secrets.values));
    assert_eq!(secrets().await?, Some([("password".to_owned(), vec![8])].into()));

    // After a deletion nothing is stored.
    let late = done(5).await?;
    assert!(site.connections.delete(flow.connection).await?.is_some());
    assert!(!site.connections.end(&late, &stored(3, "late", 10)?).await?);
    let change = CredentialChange { values: [("password".to_owned(), vec![9])].into(), ..change };
    let end = FlowEnd { collected: Some(CollectedCredential::Changed { id: mine.id, change }), ..FlowEnd::default() };
    assert!(!site.connections.end(&late, &end).await?);
    assert_eq!(names().await?.len(), 2);
    assert_eq!(secrets().await?, Some([("password".to_owned(), vec![8])].into()));
    Ok(())
}

#[tokio::test]
async fn the_login_that_follows_on_a_look_begins_with_the_end_of_it() -> TestResult {
    let site = Site::new().await?;
    let look = Flow { kind: FlowKind::HealthCheck, ..auth_flow(1, auth_connection_id(1)) };
    assert_eq!(site.connections.begin(&look).await?, FlowBegun::Yes);
    let over = look.on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?;
    let next = Flow { kind: FlowKind::Reauth, ..auth_flow(2, look.connection) };
    let end = FlowEnd { next: Some(Box::new(next.clone())), ..FlowEnd::default() };
    let unseen = Flow { revision: 5, ..over.clone() };
    assert!(!site.connections.end(&unseen, &end).await?);
    assert_eq!(site.connections.flow(next.id).await?, None);
    assert!(site.connections.end(&over, &end).await?);
    assert_eq!(site.connections.flow(next.id).await?, Some(next));
    Ok(())
}

#[tokio::test]
async fn a_flow_is_carried_by_one_node_as_long_as_that_lives() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let carried = site.connections.orphaned_flows(node_id()).await?;
    assert_eq!(carried, [OrphanedFlow { flow: flow.id, connection: flow.connection, is_new: true }]);
    let taken = site.connections.take(flow.id, other_node()).await?.ok_or("not taken")?;
    assert_eq!((taken.node, taken.revision), (Some(other_node()), 1));
    assert_eq!(site.connections.orphaned_flows(node_id()).await?, []);
    assert_eq!(site.connections.take(flow.id, node_id()).await?, None);
    let found = site.connections.orphaned_flows(other_node()).await?;
    assert_eq!(found.iter().map(|one| one.is_new).collect::<Vec<_>>(), [false], "its own next life finds it");
    site.world.silence(other_node()).await?;
    assert_eq!(site.connections.orphaned_flows(node_id()).await?.len(), 1);
    let taken = site.connections.take(flow.id, node_id()).await?.ok_or("not taken over")?;
    assert_eq!((taken.node, taken.revision), (Some(node_id()), 2));

    // An ended flow stays until its session is cleaned up.
    let open = Flow { open: true, ..taken };
    assert!(site.connections.put(&open).await?);
    let open = site.connections.flow(flow.id).await?.ok_or("gone")?;
    assert!(site.connections.end(&open.on(FlowEvent::Expired, NOON)?, &FlowEnd::default()).await?);
    assert_eq!(site.connections.orphaned_flows(node_id()).await?.len(), 1);
    site.connections.closed(flow.id).await?;
    assert_eq!(site.connections.orphaned_flows(node_id()).await?, []);
    assert!(site.connections.flow(flow.id).await?.is_some(), "the timeline keeps it");
    Ok(())
}

#[tokio::test]
async fn after_a_deletion_nothing_is_written_any_more_neither_flow_nor_profile() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let session = site.session_of(&flow).await?;
    assert!(site.connections.put(&Flow { open: true, session_made: true, ..flow.clone() }).await?);
    let flow = site.connections.flow(flow.id).await?.ok_or("gone")?;
    // The flow was about to save its profile.
    assert_eq!(site.connections.permit_save(&flow, false).await?, ProfileSavePermission::Yes);
    let deleted = site.connections.delete(flow.connection).await?.ok_or("not there")?;
    assert_eq!(deleted.sessions, [session.id]);

    let canceled = site.connections.flow(flow.id).await?.ok_or("gone")?;
    assert_eq!(canceled.status, FlowStatus::Canceled);
    assert!(!site.connections.put(&flow).await?);
    let done = flow.on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?;
    assert!(!site.connections.end(&done, &FlowEnd::default()).await?);
    assert_eq!(site.connections.permit_save(&flow, true).await?, ProfileSavePermission::No);
    let ended = Session { state: SessionState::Ended(EndReason::Deleted), ended_at: Some(NOON), ..session.clone() };
    assert_eq!(site.world.sessions.end(&session, &ended).await?, Replaced::Yes);
    let version = ProfileVersion {
        id: ProfileVersionId::from_ulid(Ulid::from_parts(14, 1)),
        profile: profile_id(1),
        session: session.id,
        based_on: None,
        key: vec![1],
        created_at: NOON,
    };
    assert_eq!(site.profiles.save(&version).await?, VersionStored::NotWanted);

    // The node still has to end the session, after which the flow is deleted.
    assert_eq!(site.connections.orphaned_flows(node_id()).await?.len(), 1);
    site.connections.closed(flow.id).await?;
    assert_eq!(site.connections.flow(flow.id).await?, None);
    Ok(())
}

#[tokio::test]
async fn only_a_flow_that_goes_on_lets_its_session_save() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    assert_eq!(site.connections.permit_save(&flow, false).await?, ProfileSavePermission::No, "there is no session yet");
    let session = site.session_of(&flow).await?;
    let saves = async || {
        let found = site.world.sessions.find(session.id).await?.ok_or("gone")?;
        Ok::<_, Fault>(found.shape.profile.is_some_and(|profile| profile.save_changes))
    };
    assert!(!saves().await?);
    assert_eq!(site.connections.permit_save(&flow, false).await?, ProfileSavePermission::Yes);
    assert!(saves().await?);
    assert_eq!(site.connections.permit_save(&flow, false).await?, ProfileSavePermission::Yes, "it may already");
    Ok(())
}

#[tokio::test]
async fn a_flow_saves_no_profile_over_an_unseen_version_nor_beside_another_flow() -> TestResult {
    let site = Site::new().await?;
    let second = AuthConnection { domain: "second.example".to_owned(), ..auth_connection(2, profile_id(1)) };
    assert_eq!(site.connections.create(&second, 9).await?, ConnectionStored::Yes);
    let (one, two) = (site.begun(1).await?, auth_flow(2, second.id));
    assert_eq!(site.connections.begin(&two).await?, FlowBegun::Yes);
    let session = site.session_of(&one).await?;
    site.nth_session_of(2, &two).await?;

    assert_eq!(site.connections.permit_save(&one, false).await?, ProfileSavePermission::Yes);
    assert_eq!(site.connections.permit_save(&two, true).await?, ProfileSavePermission::NotYet);
    let version = ProfileVersion {
        id: ProfileVersionId::from_ulid(Ulid::from_parts(14, 1)),
        profile: profile_id(1),
        session: session.id,
        based_on: None,
        key: vec![1],
        created_at: NOON,
    };
    assert!(matches!(site.profiles.save(&version).await?, VersionStored::Yes(_)));
    assert_eq!(site.connections.permit_save(&two, false).await?, ProfileSavePermission::Outdated);
    assert_eq!(site.connections.permit_save(&two, true).await?, ProfileSavePermission::Yes);
    Ok(())
}

#[tokio::test]
async fn looks_are_due_after_their_interval_and_never_while_the_profile_is_in_use() -> TestResult {
    let site = Site::new().await?;
    let due = async |at: i64| {
        let found = site.connections.due(seconds(at), 10).await?;
        Ok::<_, Fault>(found.into_iter().map(|one| one.id).collect::<Vec<_>>())
    };
    assert_eq!(due(9000).await?, [], "it was never logged in");
    let flow = site.begun(1).await?;
    let done = flow.on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?;
    let end = FlowEnd { status: Some(ConnectionStatus::Authenticated), ..FlowEnd::default() };
    assert!(site.connections.end(&done, &end).await?);
    assert_eq!(due(3599).await?, []);

    let session = site.session_of(&auth_flow(7, flow.connection)).await?;
    assert_eq!(due(3600).await?, [], "its profile is in use");
    let ended = Session { state: SessionState::Ended(EndReason::Deleted), ended_at: Some(NOON), ..session.clone() };
    assert_eq!(site.world.sessions.end(&session, &ended).await?, Replaced::Yes);
    let off = ConnectionChange { health_checks: Some(false), ..ConnectionChange::default() };
    let _ = site.connections.update(flow.connection, &off, NOON).await?;
    assert_eq!(due(3600).await?, [], "nobody wants them");
    let on = ConnectionChange { health_checks: Some(true), ..ConnectionChange::default() };
    let _ = site.connections.update(flow.connection, &on, NOON).await?;
    let next = Flow { created_at: seconds(10), ..auth_flow(2, flow.connection) };
    assert_eq!(site.connections.begin(&next).await?, FlowBegun::Yes);
    assert_eq!(due(3600).await?, [], "it is being logged in");
    assert!(site.connections.end(&next.on(FlowEvent::Expired, NOON)?, &FlowEnd::default()).await?);
    assert_eq!(due(3600).await?, [flow.connection]);
    assert_eq!(due(3601).await?, [], "it was taken on");
    Ok(())
}

#[tokio::test]
async fn flows_of_long_ago_are_forgotten_but_the_latest() -> TestResult {
    let site = Site::new().await?;
    for n in 1..=3 {
        let flow = Flow { created_at: seconds(i64::from(n)), ..auth_flow(n, auth_connection_id(1)) };
        assert_eq!(site.connections.begin(&flow).await?, FlowBegun::Yes);
        let over = flow.on(FlowEvent::Expired, seconds(i64::from(n)))?;
        assert!(site.connections.end(&over, &FlowEnd::default()).await?);
    }
    site.connections.forget(seconds(2)).await?;
    let left = site.connections.timeline(auth_connection_id(1), None, PAGE).await?;
    assert_eq!(left.items.iter().map(|one| one.flow.id).collect::<Vec<_>>(), [auth_flow_id(3), auth_flow_id(2)]);
    site.connections.forget(seconds(99)).await?;
    let left = site.connections.timeline(auth_connection_id(1), None, PAGE).await?;
    assert_eq!(left.items.iter().map(|one| one.flow.id).collect::<Vec<_>>(), [auth_flow_id(3)]);
    assert_eq!(site.world.sessions.find(session_id(3)).await?, None);
    Ok(())
}
