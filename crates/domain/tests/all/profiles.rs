//! Tests of profiles: loading at the begin of a session, saving after its end, and stored versions.

mod leases;
mod versions;

use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use casement_domain::blob::{BlobError, MockBlobStore};
use casement_domain::browser::{Browser, BrowserState, EngineError, Shape};
use casement_domain::field::FieldCode;
use casement_domain::pool::{Observed, Pool, PoolRequest, PoolStored, PoolUpdateRequest};
use casement_domain::profile::{
    LoadedProfile, MockProfileMachine, MockProfileReports, MockProfileRepository, Profile, ProfileDeps, ProfileRequest,
    ProfileSource as _, ProfileVersion, ProfileVersions, Profiles, Saved, SessionProfiles, VersionStored,
};
use casement_domain::reference::Reference;
use casement_domain::sealing::SealError;
use casement_domain::session::{
    CreateSessionError, Created, EndReason, MockPoolWake, Session, SessionEvent, SessionRequest, SessionState,
    SessionUpdateRequest, StartFailed, UpdateSessionError,
};
use casement_domain::session_operation::{ByteStream, OperationError};
use casement_domain::testing::{
    CountingIds, FixedClock, NOON, PlainSealer, browser_id, pool, pool_id, profile, scope, session, session_id,
};
use casement_domain::{BrowserId, ProfileId, ProfileVersionId};
use futures_util::StreamExt as _;
use futures_util::stream::once;
use parking_lot::Mutex;
use time::Duration;
use ulid::Ulid;

use crate::support::{World, pooled_browser, store_down};

fn id(n: u128) -> ProfileId {
    ProfileId::from_ulid(Ulid::from_parts(13, n))
}

fn version(n: u128) -> ProfileVersionId {
    ProfileVersionId::from_ulid(Ulid::from_parts(14, n))
}

fn saved() -> Profile {
    Profile { version: Some(version(1)), ..profile(id(1), "login") }
}

fn loaded(save_changes: bool) -> LoadedProfile {
    LoadedProfile { id: id(1), version: Some(version(1)), save_changes }
}

/// Returns the session with the profile.
fn with_profile(save_changes: bool) -> Session {
    let shape = Shape { profile: Some(loaded(save_changes)), ..session(1).shape };
    Session { shape, ..session(1) }
}

fn bytes(text: &'static str) -> ByteStream {
    Box::pin(once(ready(Ok(Bytes::from_static(text.as_bytes())))))
}

fn broken() -> ByteStream {
    Box::pin(once(ready(Err(OperationError::Timeout { seconds: 60 }))))
}

/// Reads a stream that has at most one part.
async fn part(mut content: ByteStream) -> Option<Result<Bytes, OperationError>> {
    content.next().await
}

/// The ports of profiles.
#[derive(Default)]
struct Ports {
    rows: MockProfileRepository,
    blobs: MockBlobStore,
    machine: MockProfileMachine,
    reports: MockProfileReports,
    wake: MockPoolWake,
}

impl Ports {
    /// Creates the ports with one profile that is not deleted and whose first version is current.
    fn with_profile() -> Self {
        let mut ports = Self::default();
        ports.rows.expect_living().returning(|_| Ok(Some(saved())));
        ports.rows.expect_find().returning(|_, _| Ok(Some(saved())));
        ports
    }

    /// Expects that the user data of the browser is captured and its bytes are stored.
    fn captures(mut self) -> Self {
        self.machine.expect_capture().withf(|id, _| *id == browser_id(1)).returning(|_, _| Ok(bytes("state")));
        self.blobs.expect_put().withf(|key, _| key.starts_with("profiles/")).returning(|_, _| Ok(()));
        self
    }

    fn stored(rows: MockProfileRepository, blobs: MockBlobStore) -> ProfileVersions {
        ProfileVersions::new(Arc::new(rows), Arc::new(blobs), Arc::new(PlainSealer), Arc::new(FixedClock::default()))
    }

    fn build(self) -> SessionProfiles {
        SessionProfiles::new(ProfileDeps {
            stored: Self::stored(self.rows, self.blobs),
            machine: Arc::new(self.machine),
            reports: Arc::new(self.reports),
            pools: Arc::new(self.wake),
            ids: Arc::new(CountingIds::default()),
        })
    }
}

/// Returns a world with this session.
fn with_session(session: Session, ports: Ports) -> World {
    let mut world = World { profiles: Some(ports.build()), ..World::default() };
    let _ = world.keep_sessions([session]);
    world.connections.expect_close().return_const(());
    world
}

#[tokio::test]
async fn what_a_session_leaves_is_saved_before_its_sandbox_ends() {
    let mut ports = Ports::with_profile().captures();
    let steps = Arc::new(Mutex::new(Vec::new()));
    let of = steps.clone();
    ports.rows.expect_save().times(1).returning(move |stored| {
        assert_eq!((stored.profile, stored.session, stored.based_on), (id(1), session_id(1), Some(version(1))));
        assert_eq!(stored.key, PlainSealer::stream_key(&ProfileVersion::place(id(1), stored.id)));
        of.lock().push("saved");
        Ok(VersionStored::Yes(Saved { unseen: Some(version(7)), pools: vec![pool_id(3)] }))
    });
    ports.reports.expect_saved().times(1).withf(|_, _, saved| saved.unseen == Some(version(7))).return_const(());
    ports.wake.expect_wake().times(1).withf(|pool| *pool == pool_id(3)).return_const(());
    let mut world = with_session(with_profile(true), ports);
    let of = steps.clone();
    world.engine.expect_end().times(1).returning(move |_| {
        of.lock().push("ended");
        Ok(())
    });
    world.browsers.expect_forget().times(1).returning(|_| Ok(()));
    world.build().sessions.end(session_id(1), SessionEvent::Delete).await.expect("ended");
    assert_eq!(*steps.lock(), ["saved", "ended"]);
}

#[tokio::test]
async fn what_is_not_to_be_saved_or_that_no_caller_had_is_not() {
    for (session, event) in [
        (with_profile(false), SessionEvent::Delete),
        (session(1), SessionEvent::Delete),
        (with_profile(true), SessionEvent::StartFailed),
        (with_profile(true), SessionEvent::Undelivered),
    ] {
        let mut world = with_session(session, Ports::default());
        world.expect_cleanup(browser_id(1));
        world.build().sessions.end(session_id(1), event).await.expect("ended");
    }
}

#[tokio::test]
async fn a_session_whose_profile_was_deleted_saves_nothing() {
    let mut ports = Ports::default();
    ports.rows.expect_living().returning(|_| Ok(None));
    let mut world = with_session(with_profile(true), ports);
    world.expect_cleanup(browser_id(1));
    world.build().sessions.end(session_id(1), SessionEvent::Delete).await.expect("ended");

    // If the profile is deleted during the capture, the bytes are deleted too.
    let mut ports = Ports::with_profile().captures();
    ports.rows.expect_save().returning(|_| Ok(VersionStored::NotWanted));
    ports.blobs.expect_delete().times(1).returning(|_| Ok(()));
    let mut world = with_session(with_profile(true), ports);
    world.expect_cleanup(browser_id(1));
    world.build().sessions.end(session_id(1), SessionEvent::Delete).await.expect("ended");
}

#[tokio::test]
async fn a_browser_that_cannot_be_captured_is_cleaned_up_and_reported() {
    let mut whole = Ports::with_profile();
    whole.machine.expect_capture().returning(|id, _| Err(EngineError::NotRunning(id).into()));
    let mut cut = Ports::with_profile();
    cut.machine.expect_capture().returning(|_, _| Ok(broken()));
    cut.blobs.expect_put().returning(|_, _| Err(OperationError::Timeout { seconds: 60 }.into()));
    for mut ports in [whole, cut] {
        ports.reports.expect_lost().times(1).withf(|_, profile, _| *profile == id(1)).return_const(());
        let mut world = with_session(with_profile(true), ports);
        world.expect_cleanup(browser_id(1));
        world.build().sessions.end(session_id(1), SessionEvent::Delete).await.expect("ended");
    }
}

/// Returns the browser of an ended session.
fn ending() -> Browser {
    let row = pooled_browser(1, BrowserState::Ending);
    Browser { pool: None, session: Some(session_id(1)), shape: with_profile(true).shape, ..row }
}

#[tokio::test]
async fn where_the_store_fails_the_browser_waits_for_the_housekeeping_but_not_for_ever() {
    let mut ports = Ports::with_profile().captures();
    ports.rows.expect_save().times(3).returning(|_| Err(store_down()));
    ports.reports.expect_late().times(2).withf(|_, profile, _| *profile == id(1)).return_const(());
    ports.reports.expect_lost().times(1).return_const(());
    let mut world = with_session(with_profile(true), ports);
    world.browsers.expect_of_node().returning(|_| Ok(vec![ending()]));
    world.expect_cleanup(browser_id(1));
    let casement = world.build();
    casement.sessions.end(session_id(1), SessionEvent::Delete).await.expect("ended");
    casement.clock.advance(Duration::minutes(9));
    casement.sessions.clean_up_pending().await.expect("tried again");
    casement.clock.advance(Duration::minutes(2));
    casement.sessions.clean_up_pending().await.expect("given up");
}

#[tokio::test]
async fn where_the_blob_store_does_not_respond_the_browser_waits_without_a_limit() {
    let mut ports = Ports::with_profile();
    ports.machine.expect_capture().returning(|_, _| Ok(broken()));
    ports.blobs.expect_put().returning(|_, _| Err(BlobError::Unavailable("it does not respond".to_owned())));
    let late = |_: &Session, _: &ProfileId, why: &str| why.ends_with("it does not respond");
    ports.reports.expect_late().times(2).withf(late).return_const(());
    let mut world = with_session(with_profile(true), ports);
    world.browsers.expect_of_node().returning(|_| Ok(vec![ending()]));
    let casement = world.build();
    casement.sessions.end(session_id(1), SessionEvent::Delete).await.expect("ended");
    casement.clock.advance(Duration::days(3));
    casement.sessions.clean_up_pending().await.expect("tried again");
}

#[tokio::test]
async fn what_is_saved_already_is_not_saved_again() {
    let ended = SessionState::Ended(EndReason::Deleted);
    let mut world =
        with_session(Session { state: ended, ended_at: Some(NOON), ..with_profile(false) }, Ports::default());
    world.browsers.expect_of_node().returning(|_| Ok(vec![ending()]));
    world.expect_cleanup(browser_id(1));
    world.build().sessions.clean_up_pending().await.expect("cleared");
}

#[tokio::test]
async fn what_idle_sessions_leave_is_saved_by_the_housekeeping() {
    let mut ports = Ports::with_profile().captures();
    ports.rows.expect_save().times(1).returning(|_| Ok(VersionStored::Yes(Saved { unseen: None, pools: Vec::new() })));
    ports.reports.expect_saved().return_const(());
    let mut world = with_session(with_profile(true), ports);
    world.browsers.expect_of_node().returning(|_| Ok(vec![ending()]));
    world.expect_cleanup(browser_id(1));
    let casement = world.build();
    casement.activity.watch(&with_profile(true));
    casement.clock.advance(Duration::seconds(90));
    casement.sessions.sweep_idle().await.expect("swept at once");
    casement.sessions.clean_up_pending().await.expect("saved and buried");
}

#[tokio::test]
async fn a_restarted_server_keeps_browsers_with_unsaved_profiles() {
    let ended = SessionState::Ended(EndReason::Deleted);
    for (alive, stored) in [(true, vec![browser_id(1)]), (false, vec![])] {
        let row = Session { state: ended, ended_at: Some(NOON), ..with_profile(true) };
        let mut ports = Ports::with_profile();
        if !alive {
            ports.machine.expect_capture().returning(|id, _| Err(EngineError::NotRunning(id).into()));
            ports.reports.expect_lost().times(1).return_const(());
        }
        let mut world = with_session(row, ports);
        world.sessions.expect_of_node().returning(|_| Ok(Vec::new()));
        world.browsers.expect_of_node().returning(|_| Ok(vec![ending()]));
        if !alive {
            world.expect_cleanup(browser_id(1));
        }
        let running: &[BrowserId] = if alive { &[browser_id(1)] } else { &[] };
        assert_eq!(world.build().sessions.adopt(running).await.expect("adopted"), stored);
    }
}

#[tokio::test]
async fn chromium_that_was_closed_to_be_saved_is_not_taken_for_one_that_crashed() {
    let ended = SessionState::Ended(EndReason::Deleted);
    let row = Session { state: ended, ended_at: Some(NOON), ..with_profile(true) };
    let mut ports = Ports::with_profile().captures();
    ports.rows.expect_save().times(1).returning(|_| Ok(VersionStored::Yes(Saved { unseen: None, pools: Vec::new() })));
    ports.reports.expect_saved().times(1).return_const(());
    let mut world = with_session(row, ports);
    world.browsers.expect_find().returning(|_| Ok(Some(ending())));
    world.browsers.expect_discard().returning(|_| Ok(false));
    world.sessions.expect_of_browser().returning(|_| Ok(None));
    world.expect_cleanup(browser_id(1));
    world.build().sessions.browser_lost(browser_id(1), SessionEvent::Crash).await.expect("saved first");
}

#[tokio::test]
async fn what_is_lost_with_a_node_is_reported() {
    let mut ports = Ports::default();
    ports.reports.expect_lost().times(1).return_const(());
    let elsewhere = Session { node: crate::support::other_node(), ..with_profile(true) };
    let world = with_session(elsewhere, ports);
    world.build().sessions.end(session_id(1), SessionEvent::NodeLost).await.expect("ended");
}

fn request(name: &str, save_changes: bool) -> ProfileRequest {
    ProfileRequest { which: Reference { id: None, name: Some(name.to_owned()) }, save_changes }
}

#[tokio::test]
async fn a_profile_that_cannot_be_loaded_leaves_no_session() {
    let mut world = World { profiles: Some(Ports::with_profile().build()), ..World::default() };
    let rows = world.keep_new_sessions();
    world.spares.expect_take().returning(|_| None);
    world
        .engine
        .expect_start()
        .withf(|launch| launch.shape.profile == Some(loaded(true)))
        .returning(|_| Err(EngineError::Profile("the saved data is truncated or altered".to_owned())));
    world.engine.expect_end().times(1).returning(|_| Ok(()));
    world.connections.expect_close().return_const(());
    let requested = SessionRequest { profile: Some(request("login", true)), ..SessionRequest::default() };
    let refused = world.build().sessions.create(&scope(), requested).await;
    assert!(matches!(refused, Err(CreateSessionError::Specific(StartFailed(EngineError::Profile(_))))), "{refused:?}");
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::StartFailed)]);
}

#[tokio::test]
async fn a_living_session_gets_one_profile_and_no_second() {
    let mut ports = Ports::with_profile();
    ports.rows.expect_version().returning(|profile, id| {
        let key = PlainSealer::stream_key(&ProfileVersion::place(profile, id));
        Ok(Some(ProfileVersion { id, profile, session: session_id(9), based_on: None, key, created_at: NOON }))
    });
    ports.blobs.expect_get().returning(|_| Ok(Some(bytes("state"))));
    ports.machine.expect_load().times(1).returning(|_, _| Ok(()));
    ports.rows.expect_used().times(1).returning(|_, _| Ok(()));
    let mut world = World { profiles: Some(ports.build()), ..World::default() };
    let given = Arc::new(Mutex::new(None));
    let of = given.clone();
    world.sessions.expect_find_in_project().returning(move |_, _, _| {
        let shape = Shape { profile: *of.lock(), ..session(1).shape };
        Ok(Some(Session { shape, ..session(1) }))
    });
    let of = given.clone();
    world.sessions.expect_set_profile().times(1).returning(move |_, profile| {
        *of.lock() = Some(profile);
        Ok(true)
    });
    world.sessions.expect_change().returning(|_, _| Ok(Some(Created::Yes)));
    world.connections.expect_restarted().times(2).return_const(());
    let casement = world.build();
    let update = || SessionUpdateRequest { profile: Some(request("login", true)), ..SessionUpdateRequest::default() };
    let changed = casement.sessions.update(&scope(), "one", update()).await.expect("changed");
    assert_eq!(changed.shape.profile, Some(loaded(true)));
    let refused = casement.sessions.update(&scope(), "one", update()).await;
    assert!(matches!(refused, Err(UpdateSessionError::HasProfile(_))), "{refused:?}");
}

#[tokio::test]
async fn a_damaged_profile_is_not_noted_as_loaded() {
    let mut ports = Ports::with_profile();
    ports.rows.expect_version().returning(|profile, id| {
        Ok(Some(ProfileVersion { id, profile, session: session_id(9), based_on: None, key: vec![1], created_at: NOON }))
    });
    ports.blobs.expect_get().returning(|_| Ok(Some(bytes("state"))));
    let mut world = World { profiles: Some(ports.build()), ..World::default() };
    world.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    world.connections.expect_restarted().return_const(());
    let names = Arc::new(Mutex::new(Vec::new()));
    let seen = names.clone();
    world.sessions.expect_change().times(2).returning(move |_, changes| {
        assert_eq!(changes.tags, None, "they were to stay");
        seen.lock().push(changes.name.clone().flatten().map(|name| name.to_string()));
        Ok(Some(Created::Yes))
    });
    let name = Some(Some("two".to_owned()));
    let update =
        SessionUpdateRequest { name, profile: Some(request("login", false)), ..SessionUpdateRequest::default() };
    let refused = world.build().sessions.update(&scope(), "one", update).await;
    let Err(UpdateSessionError::Profile(OperationError::Engine(EngineError::Profile(_)))) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(*names.lock(), [Some("two".to_owned()), session(1).name.map(|name| name.to_string())]);
}

#[tokio::test]
async fn a_change_with_a_name_that_is_taken_loads_no_profile() {
    let mut world = World { profiles: Some(Ports::with_profile().build()), ..World::default() };
    world.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    world.sessions.expect_change().times(1).returning(|_, _| Ok(Some(Created::NameTaken)));
    let name = Some(Some("taken".to_owned()));
    let update =
        SessionUpdateRequest { name, profile: Some(request("login", false)), ..SessionUpdateRequest::default() };
    let refused = world.build().sessions.update(&scope(), "one", update).await;
    assert!(matches!(refused, Err(UpdateSessionError::NameTaken(_))), "{refused:?}");
}

#[tokio::test]
async fn a_browser_of_a_pool_is_started_with_the_version_that_is_current_then() {
    let mut ports = Ports::default();
    ports.rows.expect_living().returning(|_| Ok(Some(Profile { version: Some(version(5)), ..saved() })));
    let mut world = World { profiles: Some(ports.build()), ..World::default() };
    let mut row = pool(1).growth(1, NOON).build();
    row.config.shape.profile = Some(LoadedProfile { version: None, ..loaded(false) });
    world.pools.expect_lead().returning(|_, _, _| Ok(Some(casement_domain::pool::LeaderFence(1))));
    world.pools.expect_find_by_id().returning(move |_| Ok(Some(row.clone())));
    world.pools.expect_observe().returning(|_, _| Ok(Observed::default()));
    world.pools.expect_warm().times(1).returning(|browser, _| {
        assert_eq!(browser.shape.profile, Some(LoadedProfile { version: Some(version(5)), ..loaded(false) }));
        Ok(casement_domain::Replaced::Yes)
    });
    let round = world.build().filler.look(pool_id(1)).await.expect("looked");
    assert_eq!(round.launches[0].shape.profile.and_then(|profile| profile.version), Some(version(5)));
}

/// Stores an update of `before` and returns the stored pool.
async fn updated(before: Pool, input: PoolRequest) -> Result<Pool, Vec<(String, FieldCode)>> {
    let mut world = World { profiles: Some(Ports::with_profile().build()), ..World::default() };
    world.pools.expect_find().returning(move |_, _| Ok(Some(before.clone())));
    world.pools.expect_replace().returning(|_, _, _, _| Ok((PoolStored::Yes, Vec::new())));
    world.pools.expect_counts().returning(|_| Ok(Default::default()));
    world.wake.expect_wake().return_const(());
    let update = PoolUpdateRequest { input, ..PoolUpdateRequest::default() };
    match world.build().pools.update(&scope(), "x", update).await {
        Ok((pool, _)) => Ok(pool),
        Err(casement_domain::UseCaseError::Invalid(bad)) => {
            Err(bad.fields().iter().map(|one| (one.field.clone(), one.code)).collect())
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_pool_follows_a_new_profile_unless_disabled_and_none_without_one() {
    let named = |name: &str| Some(Reference { id: None, name: Some(name.to_owned()) });
    let cleared = || Some(Reference { id: Some(String::new()), name: None });
    let plain = || pool(1).build();
    let mut following = pool(1).build();
    following.config.shape.profile = Some(LoadedProfile { version: None, ..loaded(false) });
    following.config.refresh_on_profile_update = true;
    let input =
        |profile, refresh| PoolRequest { profile, refresh_on_profile_update: refresh, ..PoolRequest::default() };
    let came = |pool: Pool| (pool.config.shape.profile.is_some(), pool.config.refresh_on_profile_update);
    for (before, profile, refresh, after) in [
        (plain(), named("login"), None, (true, true)),
        (plain(), named("login"), Some(false), (true, false)),
        (plain(), None, None, (false, false)),
        (following.clone(), None, None, (true, true)),
        (following.clone(), None, Some(false), (true, false)),
        (following.clone(), cleared(), None, (false, false)),
        (plain(), cleared(), None, (false, false)),
    ] {
        let reported = format!("{profile:?} {refresh:?}");
        assert_eq!(updated(before, input(profile, refresh)).await.map(came), Ok(after), "{reported}");
    }
    let refused = Err(vec![("refresh_on_profile_update".to_owned(), FieldCode::MutuallyExclusive)]);
    assert_eq!(updated(plain(), input(None, Some(true))).await.map(came), refused);
    assert_eq!(updated(following, input(cleared(), Some(true))).await.map(came), refused);
}
