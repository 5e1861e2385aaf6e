//! Replays: stored before they begin, settled once, deleted when they are outdated.

use casement_domain::replay::{Replay, ReplayRepository as _, ReplayState};
use casement_domain::session::{Created, Session, SessionEvent, SessionRepository as _};
use casement_domain::testing::{self, NOON, browser_id, session, session_id};
use casement_domain::{Replaced, ReplayId, browser::BrowserRepository as _};
use casement_postgres::PgReplays;
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{Fault, World, seconds};

fn id(n: u128) -> ReplayId {
    ReplayId::from_ulid(Ulid::from_parts(15, n))
}

fn running(n: u128) -> Replay {
    Replay {
        id: id(n),
        started_at: seconds(i64::try_from(n).unwrap_or(0)),
        finished_at: None,
        state: ReplayState::Running,
        size_bytes: 0,
        detail: None,
    }
}

/// Stores an active session on demand.
async fn active(world: &World, n: u32) -> Result<Session, Fault> {
    let session = session(n);
    let browser = casement_domain::browser::Browser {
        id: browser_id(n),
        node: testing::node_id(),
        pool: None,
        shape: session.shape.clone(),
        state: casement_domain::browser::BrowserState::Leased,
        session: Some(session.id),
        created_at: NOON,
    };
    let stored = world.sessions.create(testing::organization_id(), &session, Some(browser)).await?;
    assert_eq!(stored, Created::Yes);
    Ok(session)
}

async fn end(world: &World, session: &Session, at: i64) -> Result<(), Fault> {
    let next = session.on(SessionEvent::Delete, seconds(at)).map_err(|error| error.to_string())?;
    assert_eq!(world.sessions.end(session, &next).await?, Replaced::Yes);
    Ok(())
}

#[tokio::test]
async fn recordings_begin_in_active_sessions_alone_and_are_settled_once() -> TestResult {
    let world = World::new().await?;
    let replays = PgReplays::new(world.db.database().clone());
    let session = active(&world, 1).await?;
    for n in [2, 1, 3] {
        assert!(replays.begin(session.id, id(n), running(n).started_at).await?);
    }
    replays.forget(id(3)).await?;
    assert_eq!(replays.of_session(session.id).await?, [running(1), running(2)], "oldest first");
    assert_eq!(replays.of_session(session_id(2)).await?, []);
    end(&world, &session, 10).await?;
    assert!(!replays.begin(session.id, id(4), seconds(11)).await?, "it has ended");
    assert!(!replays.begin(session_id(9), id(4), seconds(11)).await?, "there is no such session");

    let finished = Replay {
        started_at: seconds(3),
        finished_at: Some(seconds(9)),
        state: ReplayState::Finished,
        size_bytes: 5 << 30,
        ..running(1)
    };
    let detail = Some("odd\0text".to_owned());
    let failed =
        Replay { state: ReplayState::Failed, size_bytes: 0, detail, finished_at: Some(seconds(9)), ..running(2) };
    assert_eq!(replays.unsettled(session.id).await?.len(), 2);
    replays.settle(&finished).await?;
    replays.settle(&failed).await?;
    replays.settle(&Replay { size_bytes: 1, ..finished.clone() }).await?;
    let reported = Replay { detail: Some("odd\u{fffd}text".to_owned()), ..failed };
    assert_eq!(replays.of_session(session.id).await?, [reported, finished]);
    assert_eq!(replays.unsettled(session.id).await?, []);
    assert_eq!(replays.stored_bytes().await?, 5 << 30);
    assert_eq!(replays.stored(&[id(1), id(2), id(9)]).await?, [id(1)]);
    Ok(())
}

#[tokio::test]
async fn recordings_go_after_their_time_and_those_that_no_one_can_ask_for_are_lost() -> TestResult {
    let world = World::new().await?;
    let replays = PgReplays::new(world.db.database().clone());
    let (one, two) = (active(&world, 1).await?, active(&world, 2).await?);
    assert!(replays.begin(one.id, id(1), NOON).await? && replays.begin(two.id, id(2), NOON).await?);
    end(&world, &one, 10).await?;
    // The browser of one session still exists, and the other session has not ended.
    replays.reconcile_lost(seconds(11), "lost").await?;
    assert_eq!(replays.unsettled(one.id).await?, [id(1)]);
    assert_eq!(replays.outdated(seconds(99)).await?, [], "somebody is still at it");
    world.browsers.forget(browser_id(1)).await?;
    world.browsers.forget(browser_id(2)).await?;
    replays.reconcile_lost(seconds(12), "lost").await?;
    let lost = Replay {
        state: ReplayState::Failed,
        finished_at: Some(seconds(12)),
        detail: Some("lost".to_owned()),
        started_at: NOON,
        ..running(1)
    };
    assert_eq!(replays.of_session(one.id).await?, [lost]);
    assert_eq!(replays.unsettled(two.id).await?, [id(2)], "its session lives");
    assert_eq!(replays.outdated(seconds(10)).await?, []);
    assert_eq!(replays.outdated(seconds(11)).await?, [(one.id, id(1))]);
    Ok(())
}
