//! Tests of recordings at the end of their session: completed and stored, or marked as failed, and deleted later.

use std::sync::Arc;

use casement_domain::blob::{BlobError, MockBlobStore};
use casement_domain::browser::{Browser, BrowserState, EngineError};
use casement_domain::profile::{
    LoadedProfile, MockProfileMachine, MockProfileReports, MockProfileRepository, ProfileDeps, ProfileVersions,
    SessionProfiles,
};
use casement_domain::replay::{
    MockReplayMachine, MockReplayRepository, Replay, ReplayArchive, ReplayDeps, ReplayLimits, ReplayState,
    SessionReplays,
};
use casement_domain::session::{EndReason, MockCleanupWake, MockPoolWake, Session, SessionEvent, SessionState};
use casement_domain::session_operation::{ByteStream, OperationError};
use casement_domain::storage::MockDiskSpace;
use casement_domain::testing::{CountingIds, FixedClock, NOON, PlainSealer, browser_id, session, session_id};
use casement_domain::{ProfileId, ReplayId, StoreError};
use parking_lot::Mutex;
use time::Duration;
use ulid::Ulid;

use crate::support::{World, pooled_browser};

const MAX_COUNT: u64 = 3 << 20;

fn id(n: u128) -> ReplayId {
    ReplayId::from_ulid(Ulid::from_parts(15, n))
}

fn key(n: u128) -> String {
    format!("replays/{}/{}", session_id(1), id(n))
}

fn replay(n: u128, state: ReplayState) -> Replay {
    let finished_at = (state != ReplayState::Running).then_some(NOON + Duration::seconds(9));
    let size_bytes = if state == ReplayState::Running { 0 } else { 1000 };
    Replay { id: id(n), started_at: NOON, finished_at, state, size_bytes, detail: None }
}

fn ended() -> Session {
    Session { state: SessionState::Ended(EndReason::Deleted), ended_at: Some(NOON), ..session(1) }
}

/// Returns the browser of the ended session, which is not cleaned up yet.
fn pending_cleanup() -> Browser {
    Browser { session: Some(session_id(1)), pool: None, ..pooled_browser(1, BrowserState::Ending) }
}

fn bytes() -> ByteStream {
    Box::pin(futures_util::stream::empty())
}

/// The ports of recordings, and a list of what happened.
#[derive(Default)]
struct Ports {
    rows: MockReplayRepository,
    blobs: MockBlobStore,
    machine: MockReplayMachine,
    pending_cleanup: MockCleanupWake,
    clock: Arc<FixedClock>,
    is_disk_low: bool,
    steps: Arc<Mutex<Vec<String>>>,
}

impl Ports {
    /// Creates the ports with the unsettled recordings of the session.
    fn left(running: impl IntoIterator<Item = u128>) -> Self {
        let ids: Vec<_> = running.into_iter().collect();
        let mut ports = Self::default();
        let left = ids.clone();
        ports.rows.expect_unsettled().returning(move |_| Ok(left.iter().map(|n| id(*n)).collect()));
        let noted = ids.clone();
        ports
            .rows
            .expect_of_session()
            .returning(move |_| Ok(noted.iter().map(|n| replay(*n, ReplayState::Running)).collect()));
        ports
    }

    /// Sets the recordings that the sandbox reports.
    fn recorded(mut self, replays: impl IntoIterator<Item = Replay>) -> Self {
        let replays: Vec<_> = replays.into_iter().collect();
        self.machine.expect_list().withf(|id| *id == browser_id(1)).returning(move |_| Ok(replays.clone()));
        self
    }

    fn reads(mut self) -> Self {
        self.rows.expect_stored_bytes().returning(|| Ok(2 << 20));
        self.machine.expect_read().returning(|_, _, offset, length| {
            assert_eq!((offset, length), (0, 1000));
            Ok(bytes())
        });
        self
    }

    fn keeps(mut self) -> Self {
        let steps = self.steps.clone();
        self.blobs.expect_put().returning(move |key, _| {
            steps.lock().push(format!("kept {key}"));
            Ok(())
        });
        self
    }

    /// Adds a step for each settled recording, with its reason.
    fn settles(mut self) -> Self {
        let steps = self.steps.clone();
        self.rows.expect_settle().returning(move |replay| {
            assert!(replay.finished_at.is_some() && replay.state != ReplayState::Running);
            let detail = replay.detail.as_deref().unwrap_or("whole");
            steps.lock().push(format!("settled {} bytes: {detail}", replay.size_bytes));
            Ok(())
        });
        self
    }

    fn archive(
        rows: MockReplayRepository,
        blobs: MockBlobStore,
        clock: Arc<FixedClock>,
        is_disk_low: bool,
    ) -> ReplayArchive {
        let mut disk = MockDiskSpace::new();
        disk.expect_is_low().return_const(is_disk_low);
        let limits = ReplayLimits { most_bytes: MAX_COUNT, retention: Duration::days(7) };
        ReplayArchive::new(Arc::new(rows), Arc::new(blobs), clock, limits, Arc::new(disk))
    }

    /// Returns a world with these recordings, and the steps, which include the end of the browser.
    fn world(self, session: Session) -> (World, Arc<Mutex<Vec<String>>>) {
        let replays = SessionReplays::new(ReplayDeps {
            stored: Self::archive(self.rows, self.blobs, self.clock.clone(), self.is_disk_low),
            machine: Arc::new(self.machine),
            pending_cleanup: Arc::new(self.pending_cleanup),
        });
        let mut world = World { replays: Some(replays), clock: self.clock, ..World::default() };
        let _ = world.keep_sessions([session]);
        world.connections.expect_close().return_const(());
        let steps = self.steps.clone();
        world.engine.expect_end().returning(move |_| {
            steps.lock().push("buried".to_owned());
            Ok(())
        });
        world.browsers.expect_forget().returning(|_| Ok(()));
        (world, self.steps)
    }
}

fn steps(of: &Arc<Mutex<Vec<String>>>) -> Vec<String> {
    of.lock().clone()
}

#[tokio::test]
async fn the_end_of_a_session_does_not_wait_for_its_videos() {
    for event in [SessionEvent::Delete, SessionEvent::IdleTimeout, SessionEvent::Crash] {
        let mut ports = Ports::left([1]);
        ports.pending_cleanup.expect_wake().times(1).return_const(());
        let (world, done) = ports.world(session(1));
        world.build().sessions.end(session_id(1), event).await.expect("ended");
        assert_eq!(steps(&done), [""; 0], "it is the housekeeping's work");
    }
}

#[tokio::test]
async fn videos_are_stored_before_the_browser_is_cleaned_up_and_running_ones_stop_first() {
    let replays = [replay(1, ReplayState::Finished), replay(2, ReplayState::Running)];
    let mut ports = Ports::left([1, 2]).recorded(replays).reads().keeps().settles();
    let done = ports.steps.clone();
    ports.machine.expect_stop().returning(move |_, which| {
        done.lock().push("stopped".to_owned());
        Ok(Replay { id: which, ..replay(2, ReplayState::Finished) })
    });
    let (world, done) = ports.world(ended());
    world.build().sessions.clean_up_browser(&pending_cleanup()).await.expect("laid to rest");
    let stored = |n| format!("kept {}", key(n));
    let settled = "settled 1000 bytes: whole".to_owned();
    let wanted = [
        "stopped".to_owned(),
        stored(1),
        settled.clone(),
        "stopped".to_owned(),
        stored(2),
        settled,
        "buried".to_owned(),
    ];
    assert_eq!(steps(&done), wanted);
}

#[tokio::test]
async fn a_recording_that_cannot_be_stored_fails_with_its_reason() {
    let failed = Replay { detail: Some("ffmpeg was killed".to_owned()), ..replay(1, ReplayState::Failed) };
    let empty = Replay { size_bytes: 0, ..failed.clone() };
    let large = Replay { size_bytes: MAX_COUNT, ..replay(1, ReplayState::Finished) };
    let whole = replay(1, ReplayState::Finished);
    let cut = || {
        let mut ports = Ports::left([1]).recorded([replay(1, ReplayState::Finished)]).reads().settles();
        ports
            .blobs
            .expect_put()
            .returning(|_, _| Err(BlobError::Content(OperationError::Failed("broke off".to_owned()))));
        ports
    };
    let gone = || {
        let mut ports = Ports::left([1]).settles();
        ports.machine.expect_list().returning(|id| Err(EngineError::NotRunning(id).into()));
        ports
    };
    let slow = || {
        let mut ports = Ports::left([1]).recorded([replay(1, ReplayState::Running)]).settles();
        ports.machine.expect_stop().times(2..20).returning(|_, _| Ok(replay(1, ReplayState::Running)));
        ports
    };
    let not_running = format!("the session's machine does not give it: browser {} is not running", browser_id(1));
    for (ports, wanted) in [
        (Ports::left([1]).recorded([failed]).reads().keeps().settles(), "settled 1000 bytes: ffmpeg was killed"),
        (Ports::left([1]).recorded([empty]).settles(), "settled 0 bytes: ffmpeg was killed"),
        (
            Ports::left([1]).recorded([large]).reads().settles(),
            "settled 0 bytes: the recordings of ended sessions take all of the 3 MiB that they may",
        ),
        (
            Ports { is_disk_low: true, ..Ports::left([1]).recorded([whole.clone()]).reads().settles() },
            "settled 0 bytes: the disk of this node is nearly full",
        ),
        (cut(), "settled 0 bytes: its video could not be read: broke off"),
        (gone(), &format!("settled 0 bytes: {not_running}")),
        (slow(), "settled 0 bytes: its video could not be made: it took too long"),
        (Ports::left([1]).recorded([]).settles(), "settled 0 bytes: it had not begun when its session ended"),
        (Ports::left([1]).recorded([whole]).reads().keeps().settles(), "settled 1000 bytes: whole"),
    ] {
        let (world, done) = ports.world(ended());
        world.build().sessions.clean_up_browser(&pending_cleanup()).await.expect("laid to rest");
        let last: Vec<_> = steps(&done).into_iter().filter(|step| !step.starts_with("kept")).collect();
        assert_eq!(last, [wanted, "buried"]);
    }
}

#[tokio::test]
async fn while_videos_cannot_be_stored_the_browser_waits_up_to_a_limit() {
    for (since, wanted) in
        [(9, &[][..]), (10, &["settled 0 bytes: its video could not be stored".to_owned(), "buried".to_owned()])]
    {
        let mut ports = Ports::left([1]).recorded([replay(1, ReplayState::Finished)]).reads().settles();
        ports.blobs.expect_put().returning(|_, _| Err(BlobError::Store("the disk is full".into())));
        ports.clock.advance(Duration::minutes(since));
        let (world, done) = ports.world(ended());
        world.build().sessions.clean_up_browser(&pending_cleanup()).await.expect("tried");
        assert_eq!(steps(&done), wanted);
    }
}

#[tokio::test]
async fn while_the_blob_store_does_not_respond_a_video_waits_without_a_limit() {
    let mut ports = Ports::left([1]).recorded([replay(1, ReplayState::Finished)]).reads().settles();
    ports.blobs.expect_put().returning(|_, _| Err(BlobError::Unavailable("it does not respond".to_owned())));
    ports.clock.advance(Duration::days(3));
    let (world, done) = ports.world(ended());
    world.build().sessions.clean_up_browser(&pending_cleanup()).await.expect("tried");
    assert_eq!(steps(&done), [] as [&str; 0]);
}

#[tokio::test]
async fn while_the_store_is_unavailable_nothing_is_settled_or_cleaned_up() {
    let away = || StoreError::unavailable("replay.settle", "away");
    let mut ports = Ports::left([1]).recorded([replay(1, ReplayState::Finished)]).reads().keeps();
    ports.rows.expect_settle().returning(move |_| Err(away()));
    ports.clock.advance(Duration::days(1));
    let (world, done) = ports.world(ended());
    world.build().sessions.clean_up_browser(&pending_cleanup()).await.expect("tried");
    assert_eq!(steps(&done), [format!("kept {}", key(1))]);
}

#[tokio::test]
async fn a_recording_that_the_store_refuses_is_retried_and_then_fails() {
    let refused = || StoreError::Broken { operation: "replay", source: "it cannot be".into() };
    let unsettled = || {
        let mut ports = Ports::left([1]).recorded([replay(1, ReplayState::Finished)]).reads().keeps();
        ports.rows.expect_settle().returning(move |_| Err(refused()));
        ports
    };
    let unknown_room = || {
        let mut ports = Ports::left([1]).recorded([replay(1, ReplayState::Finished)]).settles();
        ports.rows.expect_stored_bytes().returning(move || Err(refused()));
        ports
    };
    let unreadable = || {
        let mut ports = Ports::default().recorded([]);
        ports.rows.expect_unsettled().returning(|_| Ok(vec![id(1)]));
        ports.rows.expect_of_session().returning(move |_| Err(refused()));
        ports
    };
    for (minutes, wanted) in [(9, &[][..]), (10, &["buried"])] {
        for ports in [unsettled(), unknown_room(), unreadable()] {
            ports.clock.advance(Duration::minutes(minutes));
            let (world, done) = ports.world(ended());
            world.build().sessions.clean_up_browser(&pending_cleanup()).await.expect("tried");
            let buried: Vec<_> = steps(&done).into_iter().filter(|step| step == "buried").collect();
            assert_eq!(buried, wanted, "after {minutes} minutes");
        }
    }
}

#[tokio::test]
async fn a_machine_that_reports_many_running_recordings_stops_only_a_stored_one() {
    let replays = [9, 1, 2].map(|n| replay(n, ReplayState::Running));
    let mut ports = Ports::left([1, 2]).recorded(replays).reads().keeps().settles();
    ports
        .machine
        .expect_stop()
        .withf(|_, which| *which == id(9))
        .times(1)
        .returning(|_, _| Err(OperationError::Timeout { seconds: 50 }));
    ports
        .machine
        .expect_stop()
        .withf(|_, which| *which == id(1))
        .times(1)
        .returning(|_, _| Ok(replay(1, ReplayState::Finished)));
    let (world, done) = ports.world(ended());
    world.build().sessions.clean_up_browser(&pending_cleanup()).await.expect("laid to rest");
    let several = "settled 0 bytes: the session's machine tells of several that run";
    let stored = format!("kept {}", key(1));
    assert_eq!(steps(&done), [stored.as_str(), "settled 1000 bytes: whole", several, "buried"]);
}

#[tokio::test]
async fn a_machine_that_is_slow_with_its_videos_does_not_keep_its_browser() {
    let replays = [1, 2, 3].map(|n| replay(n, ReplayState::Finished));
    let mut ports = Ports::left([1, 2, 3]).recorded(replays).settles();
    ports.rows.expect_stored_bytes().returning(|| Ok(0));
    let clock = ports.clock.clone();
    ports.machine.expect_read().times(2).returning(move |_, _, _, _| {
        clock.advance(Duration::minutes(30));
        Err(OperationError::Timeout { seconds: 600 })
    });
    let (world, done) = ports.world(ended());
    world.build().sessions.clean_up_browser(&pending_cleanup()).await.expect("laid to rest");
    let last = ["settled 0 bytes: the session's machine took too long".to_owned(), "buried".to_owned()];
    assert_eq!(steps(&done)[2..], last);
}

#[tokio::test]
async fn an_end_stops_recordings_then_closes_the_browser_and_saves_its_profile() {
    let mut ports = Ports::left([1]).recorded([replay(1, ReplayState::Running)]);
    let done = ports.steps.clone();
    ports.machine.expect_stop().times(1).returning(move |_, _| {
        done.lock().push("stopped".to_owned());
        Ok(replay(1, ReplayState::Finished))
    });
    ports.pending_cleanup.expect_wake().times(1).return_const(());
    let id = ProfileId::from_ulid(Ulid::from_parts(13, 1));
    let mut shape = session(1).shape;
    shape.profile = Some(LoadedProfile { id, version: None, save_changes: true });
    let (mut world, done) = ports.world(Session { shape, ..session(1) });
    let (mut profiles, mut closing) = (MockProfileRepository::new(), MockProfileMachine::new());
    profiles.expect_living().returning(move |_| Ok(Some(casement_domain::testing::profile(id, "login"))));
    let of = done.clone();
    closing.expect_capture().times(1).returning(move |_, _| {
        of.lock().push("closed".to_owned());
        Err(OperationError::Failed("as a test wishes".to_owned()))
    });
    let mut reports = MockProfileReports::new();
    reports.expect_lost().times(1).return_const(());
    let versions = ProfileVersions::new(
        Arc::new(profiles),
        Arc::new(MockBlobStore::new()),
        Arc::new(PlainSealer),
        Arc::new(FixedClock::default()),
    );
    world.profiles = Some(SessionProfiles::new(ProfileDeps {
        stored: versions,
        machine: Arc::new(closing),
        reports: Arc::new(reports),
        pools: Arc::new(MockPoolWake::new()),
        ids: Arc::new(CountingIds::default()),
    }));
    world.build().sessions.end(session_id(1), SessionEvent::Delete).await.expect("ended");
    assert_eq!(steps(&done), ["stopped", "closed"], "the film itself nobody waits for");
}

#[tokio::test]
async fn a_restarted_server_keeps_browsers_with_unsaved_videos() {
    let (mut world, done) = Ports::left([1]).world(ended());
    world.sessions.expect_of_node().returning(|_| Ok(Vec::new()));
    world.browsers.expect_of_node().returning(|_| Ok(vec![pending_cleanup()]));
    assert_eq!(world.build().sessions.adopt(&[browser_id(1)]).await.expect("adopted"), [browser_id(1)]);
    assert_eq!(steps(&done), [""; 0]);
}

#[tokio::test]
async fn recordings_of_a_lost_node_are_reported_as_failed() {
    let other = Session { node: crate::support::other_node(), ..session(1) };
    let (world, done) = Ports::left([1]).settles().world(other);
    world.build().sessions.end(session_id(1), SessionEvent::NodeLost).await.expect("ended");
    assert_eq!(steps(&done), ["settled 0 bytes: its node was lost"]);
}

#[tokio::test]
async fn the_sweep_forgets_what_is_old_and_bytes_that_belong_to_nothing() {
    let (mut rows, mut blobs) = (MockReplayRepository::new(), MockBlobStore::new());
    rows.expect_reconcile_lost().times(1).returning(|_, _| Ok(()));
    let mut outdated = vec![vec![], vec![(session_id(1), id(1))]];
    rows.expect_outdated().times(2).returning(move |before| {
        assert_eq!(before, NOON - Duration::days(7));
        Ok(outdated.pop().expect("asked until there is none"))
    });
    rows.expect_forget().times(1).withf(|which| *which == id(1)).returning(|_| Ok(()));
    let old = NOON - Duration::hours(2);
    blobs
        .expect_list()
        .withf(|prefix| prefix == "replays/")
        .returning(move |_| Ok(vec![(key(2), old), (key(3), old), (key(4), NOON), ("replays/x".to_owned(), old)]));
    rows.expect_stored().times(1).withf(|ids| ids == [id(2), id(3)]).returning(|_| Ok(vec![id(2)]));
    let deleted = Arc::new(Mutex::new(Vec::new()));
    let of = deleted.clone();
    blobs.expect_delete().returning(move |key| {
        of.lock().push(key.to_owned());
        Ok(())
    });
    Ports::archive(rows, blobs, Arc::new(FixedClock::default()), false).clear().await.expect("cleared");
    assert_eq!(*deleted.lock(), [key(1), key(3)]);
}
