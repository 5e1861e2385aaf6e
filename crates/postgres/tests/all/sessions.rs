//! Sessions: admitted by the limits, changed by compare-and-set.

use std::collections::BTreeMap;

use casement_domain::browser::{
    Browser, BrowserPolicy, BrowserRepository, BrowserState, Locale, Location, Memory, ReservedMemory, StartUrl,
    TimeZone, Viewport,
};
use casement_domain::organization::{Caps, Limit, Organization};
use casement_domain::page::Page;
use casement_domain::profile::{LoadedProfile, ProfileRepository, ProfileStored};
use casement_domain::proxy::{ProxyRepository, ProxyStored};
use casement_domain::session::{
    Created, EndReason, IdOrName, Session, SessionEvent, SessionFilter, SessionRepository, SessionState, SessionUpdate,
    StatusFilter, Tags,
};
use casement_domain::testing::{self, NOON};
use casement_domain::{ProfileId, ProxyId, Replaced, StoreError};
use casement_postgres::{PgProfiles, PgProxies, PgSessions};
use futures_util::future::try_join_all;
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::{TestResult, until};
use crate::world::{Fault, World, label, seconds, session_numbers};

const WHOLE: Page = Page { limit: 100, offset: 0 };

fn starting(n: u32) -> Session {
    Session { state: SessionState::Starting, browser: None, ..testing::session(n) }
}

fn browser_of(session: &Session) -> Result<Browser, Fault> {
    Ok(Browser {
        id: session.browser.ok_or("no browser")?,
        node: session.node,
        pool: None,
        shape: session.shape.clone(),
        state: BrowserState::Leased,
        session: Some(session.id),
        created_at: session.created_at,
    })
}

async fn create(sessions: &PgSessions, session: &Session) -> Result<Created, Fault> {
    let browser = session.browser.map(|_| browser_of(session)).transpose()?;
    Ok(sessions.create(testing::organization_id(), session, browser).await?)
}

#[tokio::test]
async fn everything_of_a_session_is_stored() -> TestResult {
    let world = World::new().await?;
    let mut session = testing::session(1);
    session.name = Some(label("Überblick")?);
    session.start_url = Some(StartUrl::parse("https://example.com/").map_err(|bad| format!("{bad:?}"))?);
    let pairs = BTreeMap::from([("team".to_owned(), "blue \"x\"".to_owned())]);
    session.tags = Tags::parse(pairs).map_err(|bad| format!("{bad:?}"))?;
    session.shape.stealth = true;
    session.shape.memory = Some(ReservedMemory { limit: Memory { mib: 4096 }, places: 2 });
    session.shape.location.locale = Some(Locale::parse("de-CH").map_err(|bad| format!("{bad:?}"))?);
    session.shape.viewport = Viewport { width: 800, height: 600, refresh_rate: 60 };
    // A text that jsonb would refuse.
    let policy = serde_json::Map::from_iter([("HomepageLocation".to_owned(), "a\0b".into())]);
    session.shape.policy = Some(BrowserPolicy::parse(policy).map_err(|bad| format!("{bad:?}"))?);

    assert_eq!(create(&world.sessions, &session).await?, Created::Yes);
    assert_eq!(world.sessions.find(session.id).await?, Some(session.clone()));
    assert_eq!(world.browsers.find(testing::browser_id(1)).await?, Some(browser_of(&session)?));
    assert_eq!(world.sessions.of_browser(testing::browser_id(1)).await?, Some(session.clone()));
    assert_eq!(world.sessions.of_node(session.node).await?, vec![session]);
    Ok(())
}

/// Two writers start from the same row: one succeeds, the other gets `LostRace`.
#[tokio::test]
async fn the_ignored_fields_of_a_session_are_stored_once() -> TestResult {
    let world = World::new().await?;
    let session = testing::session(1);
    assert_eq!(create(&world.sessions, &session).await?, Created::Yes);
    assert_eq!(world.sessions.ignored_fields(session.id).await?, Vec::<String>::new());
    let fields = ["headles".to_owned(), "viewport.widht".to_owned()];
    world.sessions.note_ignored_fields(session.id, &fields).await?;
    world.sessions.note_ignored_fields(session.id, &[]).await?;
    assert_eq!(world.sessions.ignored_fields(session.id).await?, fields);
    Ok(())
}

#[tokio::test]
async fn the_second_writer_loses_the_race() -> TestResult {
    let world = World::new().await?;
    let active = testing::session(1);
    assert_eq!(create(&world.sessions, &active).await?, Created::Yes);
    let deleted = active.on(SessionEvent::Delete, seconds(1))?;
    let crashed = active.on(SessionEvent::Crash, seconds(2))?;
    assert_eq!(world.sessions.end(&active, &deleted).await?, Replaced::Yes);
    assert_eq!(world.sessions.end(&active, &crashed).await?, Replaced::LostRace);
    assert_eq!(world.sessions.find(active.id).await?, Some(deleted));
    assert_eq!(world.state_of(testing::browser_id(1)).await?, Some(BrowserState::Ending));
    Ok(())
}

#[tokio::test]
async fn a_starting_session_becomes_active_with_its_browser_or_not_at_all() -> TestResult {
    let world = World::new().await?;
    let draft = starting(1);
    assert_eq!(create(&world.sessions, &draft).await?, Created::Yes);
    let by_id = IdOrName::Id(draft.id);
    assert_eq!(world.sessions.find_in_project(draft.project, &by_id, true).await?, None, "nobody sees it yet");

    let active = draft.on(SessionEvent::Ready(testing::browser_id(1)), seconds(1))?;
    assert_eq!(world.sessions.activate(&draft, &active, &browser_of(&active)?).await?, Replaced::Yes);
    assert_eq!(world.sessions.find_in_project(draft.project, &by_id, false).await?, Some(active));
    let again = draft.on(SessionEvent::Ready(testing::browser_id(2)), seconds(1))?;
    assert_eq!(world.sessions.activate(&draft, &again, &browser_of(&again)?).await?, Replaced::LostRace);
    assert_eq!(world.state_of(testing::browser_id(2)).await?, None);
    Ok(())
}

#[tokio::test]
async fn the_limit_is_met_exactly_by_two_hundred_reservations_at_once() -> TestResult {
    let caps = Caps { concurrent_sessions: Some(17), ..Caps::default() };
    let world = World::of(Organization { caps, ..testing::organization() }).await?;
    let drafts: Vec<Session> = (1..=200).map(starting).collect();
    let created = try_join_all(drafts.iter().map(|draft| create(&world.sessions, draft))).await?;
    assert_eq!(created.iter().filter(|created| **created == Created::Yes).count(), 17);
    let refused = |created: &Created| matches!(created, Created::LimitExceeded(refused) if refused.limit == Limit::OrganizationSessions && refused.used == 17);
    assert_eq!(created.iter().filter(|created| refused(created)).count(), 183);
    assert_eq!(world.sessions.of_node(testing::node_id()).await?.len(), 17);
    Ok(())
}

#[tokio::test]
async fn a_lowered_limit_refuses_the_next_and_ends_nothing() -> TestResult {
    let world = World::new().await?;
    for n in 1..=3 {
        assert_eq!(create(&world.sessions, &starting(n)).await?, Created::Yes);
    }
    world.db.execute("UPDATE projects SET max_concurrent_sessions = 1").await?;
    assert!(matches!(create(&world.sessions, &starting(4)).await?, Created::LimitExceeded(_)));
    assert_eq!(world.sessions.of_node(testing::node_id()).await?.len(), 3);
    world.db.execute("UPDATE projects SET max_concurrent_sessions = NULL").await?;
    assert_eq!(create(&world.sessions, &starting(4)).await?, Created::Yes);
    Ok(())
}

#[tokio::test]
async fn sessions_that_ended_do_not_count() -> TestResult {
    let caps = Caps { concurrent_sessions: Some(1), ..Caps::default() };
    let world = World::of(Organization { caps, ..testing::organization() }).await?;
    let draft = starting(1);
    assert_eq!(create(&world.sessions, &draft).await?, Created::Yes);
    let failed = draft.on(SessionEvent::StartFailed, seconds(1))?;
    assert_eq!(world.sessions.end(&draft, &failed).await?, Replaced::Yes);
    assert_eq!(create(&world.sessions, &starting(2)).await?, Created::Yes);
    Ok(())
}

#[tokio::test]
async fn sessions_are_deleted_when_their_retention_is_over_and_nothing_of_them_is_stored() -> TestResult {
    let world = World::new().await?;
    for n in 1..=5 {
        let draft = starting(n);
        assert_eq!(create(&world.sessions, &draft).await?, Created::Yes);
        if n < 5 {
            let failed = draft.on(SessionEvent::StartFailed, seconds(n.into()))?;
            assert_eq!(world.sessions.end(&draft, &failed).await?, Replaced::Yes);
        }
    }
    let counted = "INSERT INTO telemetry_counts (session_id, last_seq, last_at, agent_seq, last_batch)
        SELECT id, 1, now(), 1, id FROM sessions ORDER BY ended_at LIMIT 1";
    world.db.execute(counted).await?;

    assert_eq!(world.sessions.forget(seconds(4), 1).await?, 1, "the second one");
    assert_eq!(world.sessions.forget(seconds(4), 10).await?, 1, "the third one");
    assert_eq!(world.sessions.forget(seconds(4), 10).await?, 0);
    for (n, stays) in [(1, true), (2, false), (3, false), (4, true), (5, true)] {
        assert_eq!(world.sessions.find(testing::session(n).id).await?.is_some(), stays, "{n}");
    }
    world.db.execute("DELETE FROM telemetry_counts").await?;
    assert_eq!(world.sessions.forget(seconds(4), 10).await?, 1, "the first one");
    Ok(())
}

#[tokio::test]
async fn a_name_is_taken_whatever_its_case_until_its_session_ends() -> TestResult {
    let world = World::new().await?;
    let first = Session { name: Some(label("Café")?), ..testing::session(1) };
    let second = Session { name: Some(label("CAFE")?), ..testing::session(2) };
    assert_eq!(create(&world.sessions, &first).await?, Created::Yes);
    assert_eq!(create(&world.sessions, &second).await?, Created::NameTaken);
    assert_eq!(world.sessions.find(second.id).await?, None);
    assert_eq!(world.state_of(testing::browser_id(2)).await?, None, "nor its browser");
    let ended = first.on(SessionEvent::Delete, seconds(1))?;
    assert_eq!(world.sessions.end(&first, &ended).await?, Replaced::Yes);
    assert_eq!(create(&world.sessions, &second).await?, Created::Yes);

    let by_name = IdOrName::Name("cafe".to_owned());
    let found = |include| world.sessions.find_in_project(testing::project_id(), &by_name, include);
    assert_eq!(found(true).await?, Some(second.clone()), "the living one before the ended one");
    let gone = second.on(SessionEvent::Delete, seconds(2))?;
    assert_eq!(world.sessions.end(&second, &gone).await?, Replaced::Yes);
    assert_eq!(found(false).await?, None);
    assert_eq!(found(true).await?.map(|session| session.name), Some(second.name));
    assert_eq!(world.sessions.count_named(testing::project_id(), "cafe").await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_list_shows_what_was_requested_for_newest_first() -> TestResult {
    let world = World::new().await?;
    let tags =
        Tags::parse(BTreeMap::from([("team".to_owned(), "blue".to_owned())])).map_err(|bad| format!("{bad:?}"))?;
    for n in 1..=4 {
        let created_at = seconds(i64::from(n));
        let session = Session { created_at, name: Some(label(&format!("Nightly 100%_{n}"))?), ..testing::session(n) };
        let session = if n == 2 { Session { tags: tags.clone(), ..session } } else { session };
        assert_eq!(create(&world.sessions, &session).await?, Created::Yes);
    }
    for (n, event) in [(3, SessionEvent::Delete), (4, SessionEvent::Undelivered)] {
        let active = world.sessions.find(testing::session_id(n)).await?.ok_or("stored")?;
        assert_eq!(world.sessions.end(&active, &active.on(event, seconds(60))?).await?, Replaced::Yes);
    }
    let list = async |filter: SessionFilter, page| -> Result<Vec<u32>, Fault> {
        let listed = world.sessions.list(testing::project_id(), &filter, page).await?;
        let number = |session: &Session| (1..=4).find(|n| testing::session_id(*n) == session.id).unwrap_or(0);
        Ok(listed.items.iter().map(number).collect())
    };
    let by = |status| SessionFilter { status, ..SessionFilter::default() };
    let asking = |query: &str| SessionFilter { query: Some(query.to_owned()), ..SessionFilter::default() };
    assert_eq!(list(by(StatusFilter::Active), WHOLE).await?, [2, 1]);
    assert_eq!(list(by(StatusFilter::Deleted), WHOLE).await?, [3]);
    assert_eq!(list(by(StatusFilter::All), WHOLE).await?, [3, 2, 1]);
    assert_eq!(list(by(StatusFilter::All), Page { limit: 1, offset: 1 }).await?, [2]);
    assert_eq!(list(asking("NIGHTLY 100%_1"), WHOLE).await?, [1]);
    assert_eq!(list(asking("1__"), WHOLE).await?, Vec::<u32>::new(), "no wildcards");
    assert_eq!(list(asking(&testing::session_id(2).to_string()), WHOLE).await?, [2]);
    let tagged = SessionFilter { tags: tags.as_map().clone(), ..SessionFilter::default() };
    assert_eq!(list(tagged, WHOLE).await?, [2]);
    Ok(())
}

#[tokio::test]
async fn a_list_finds_what_uses_a_proxy_or_a_profile_by_its_whole_id() -> TestResult {
    let world = World::new().await?;
    let database = world.db.database();
    let proxy = testing::proxy(ProxyId::from_ulid(Ulid::from_parts(12, 1)), "exit");
    let profile = testing::profile(ProfileId::from_ulid(Ulid::from_parts(13, 1)), "login");
    assert_eq!(PgProxies::new(database.clone()).create(&proxy, 10).await?, ProxyStored::Yes);
    assert_eq!(PgProfiles::new(database.clone()).create(&profile, 10).await?, ProfileStored::Yes);
    let [mut routed, mut logged_in, other] = [1, 2, 3].map(testing::session);
    routed.shape.proxy = Some(proxy.id);
    logged_in.shape.profile = Some(LoadedProfile { id: profile.id, version: None, save_changes: false });
    for session in [&routed, &logged_in, &other] {
        assert_eq!(create(&world.sessions, session).await?, Created::Yes);
    }
    let (whole, part) = (profile.id.to_string(), profile.id.to_string()[1..].to_owned());
    for (query, found) in [(proxy.id.to_string(), vec![routed.id]), (whole, vec![logged_in.id]), (part, vec![])] {
        let filter = SessionFilter { query: Some(query.clone()), ..SessionFilter::default() };
        let listed = world.sessions.list(testing::project_id(), &filter, WHOLE).await?;
        assert_eq!(listed.items.iter().map(|session| session.id).collect::<Vec<_>>(), found, "{query}");
    }
    Ok(())
}

#[tokio::test]
async fn changes_reach_only_an_active_session() -> TestResult {
    let world = World::new().await?;
    let first = Session { name: Some(label("one")?), ..testing::session(1) };
    let second = testing::session(2);
    assert_eq!(create(&world.sessions, &first).await?, Created::Yes);
    assert_eq!(create(&world.sessions, &second).await?, Created::Yes);
    let named = |name: Option<&str>| -> Result<SessionUpdate, Fault> {
        Ok(SessionUpdate { name: Some(name.map(label).transpose()?), ..SessionUpdate::default() })
    };
    assert_eq!(world.sessions.change(second.id, &named(Some("ONE"))?).await?, Some(Created::NameTaken));
    assert_eq!(world.sessions.change(first.id, &named(None)?).await?, Some(Created::Yes));
    assert_eq!(world.sessions.change(second.id, &named(Some("ONE"))?).await?, Some(Created::Yes));
    assert_eq!(world.sessions.change(second.id, &SessionUpdate::default()).await?, Some(Created::Yes));
    let size = Viewport { width: 640, height: 480, refresh_rate: 60 };
    world.sessions.set_viewport(second.id, size).await?;
    let changed = world.sessions.find(second.id).await?.ok_or("stored")?;
    assert_eq!((changed.name, changed.shape.viewport), (Some(label("ONE")?), size));

    let ended = first.on(SessionEvent::Delete, seconds(1))?;
    assert_eq!(world.sessions.end(&first, &ended).await?, Replaced::Yes);
    assert_eq!(world.sessions.change(first.id, &named(Some("x"))?).await?, None);
    assert_eq!(world.sessions.change(first.id, &SessionUpdate::default()).await?, None);
    Ok(())
}

#[tokio::test]
async fn activity_is_never_noted_backwards() -> TestResult {
    let world = World::new().await?;
    for n in 1..=2 {
        assert_eq!(create(&world.sessions, &testing::session(n)).await?, Created::Yes);
    }
    let [one, two] = session_numbers(2)[..] else { return Err("two".into()) };
    world.sessions.note_activity(&[(two, seconds(5)), (one, seconds(9))]).await?;
    world.sessions.note_activity(&[(one, seconds(3)), (two, seconds(6))]).await?;
    let last = async |id| Ok::<_, Fault>(world.sessions.find(id).await?.map(|session| session.last_active_at));
    assert_eq!(last(one).await?, Some(seconds(9)));
    assert_eq!(last(two).await?, Some(seconds(6)));
    Ok(())
}

#[tokio::test]
async fn a_deleted_project_takes_nothing() -> TestResult {
    let world = World::new().await?;
    world.db.execute("UPDATE projects SET deleted_at = now()").await?;
    assert_eq!(create(&world.sessions, &testing::session(1)).await?, Created::ProjectGone);
    Ok(())
}

#[tokio::test]
async fn a_cut_database_is_unavailable_and_nothing_is_stored_twice() -> TestResult {
    let world = World::new().await?;
    let session = testing::session(1);
    assert_eq!(create(&world.sessions, &session).await?, Created::Yes);
    world.db.interrupt().await?;
    let refused = world.sessions.find(session.id).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { operation: "session.find", .. })), "{refused:?}");
    world.db.restore().await?;
    until("it answers", async || world.sessions.find(session.id).await.is_ok()).await?;
    let released = Session { state: SessionState::Ended(EndReason::Deleted), ended_at: Some(NOON), ..session.clone() };
    assert_eq!(world.sessions.end(&session, &released).await?, Replaced::Yes);
    Ok(())
}

#[tokio::test]
async fn a_large_session_takes_its_places_of_the_limit() -> TestResult {
    let caps = Caps { concurrent_sessions: Some(5), ..Organization::DEFAULT_CAPS };
    let world = World::of(Organization { caps, ..testing::organization() }).await?;
    let large = |n| {
        let mut session = starting(n);
        session.shape.memory = Some(ReservedMemory { limit: Memory { mib: 8192 }, places: 4 });
        session
    };
    assert_eq!(create(&world.sessions, &large(1)).await?, Created::Yes);
    let Created::LimitExceeded(limit) = create(&world.sessions, &large(2)).await? else {
        return Err("four of five places are taken".into());
    };
    assert_eq!((limit.limit, limit.used, limit.requested), (Limit::OrganizationSessions, 4, 4));
    assert_eq!(create(&world.sessions, &starting(3)).await?, Created::Yes);
    Ok(())
}

#[tokio::test]
async fn a_location_is_stored_with_the_session_and_its_browser() -> TestResult {
    let world = World::new().await?;
    let session = testing::session(1);
    assert_eq!(create(&world.sessions, &session).await?, Created::Yes);
    let location = Location {
        time_zone: Some(TimeZone::parse("Asia/Tokyo").map_err(|bad| format!("{bad:?}"))?),
        locale: Some(Locale::DEFAULT),
    };
    assert!(world.sessions.set_location(session.id, location).await?);
    let found = world.sessions.find(session.id).await?.ok_or("stored")?;
    assert_eq!(found.shape.location, location);
    let browser = world.browsers.find(session.browser.ok_or("it has one")?).await?.ok_or("stored")?;
    assert_eq!(browser.shape.location, location);
    assert!(!world.sessions.set_location(testing::session_id(2), location).await?);
    Ok(())
}
