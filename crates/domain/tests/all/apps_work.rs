//! Tests of a node's work on deployments and invocations: taking work and storing its results.

use std::collections::BTreeMap;
use std::sync::Arc;

use casement_domain::api_key::{ApiKeys, MockApiKeyRepository};
use casement_domain::blob::MockBlobStore;
use casement_domain::deployment::{
    BuildEnd, BuildFailure, BuildLease, BuildStep, Builds, Built, BuiltApp, Deployment, DeploymentDeps,
    DeploymentRequest, DeploymentRules, DeploymentSecret, DeploymentStatus, DeploymentStored, Deployments, FollowDeps,
    Followed, Follower, InspectedPackage, Line, MockChangeNotifier, MockChangeWaiter, MockDeploymentRepository,
    MockLineStore, MockPackageArchives, Registered, SealedDeployment, Subject, WakeReason,
};
use casement_domain::invocation::{
    CallLimits, Invocation, InvocationStatus, LeasedInvocation, MockInvocationRepository, RunFailure, RunFault, Runs,
};
use casement_domain::sealing::Sealer as _;
use casement_domain::session_operation::ByteStream;
use casement_domain::testing::{CountingIds, FixedClock, NOON, PlainSealer, deployment, invocation, node_id, scope};
use casement_domain::{DeploymentId, InvocationId, ProjectId, Replaced, StoreError, UserId};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use time::Duration;

use crate::support::{nth, store_down};

#[derive(Default)]
struct World {
    deployments: MockDeploymentRepository,
    invocations: MockInvocationRepository,
    blobs: MockBlobStore,
    archives: MockPackageArchives,
}

impl World {
    fn work(self) -> (Builds, Runs) {
        let (_, builds, runs) = self.build();
        (builds, runs)
    }

    fn build(self) -> (Deployments, Builds, Runs) {
        let (clock, ids) = (Arc::new(FixedClock::default()), Arc::new(CountingIds::default()));
        let (deployments, invocations) = (Arc::new(self.deployments), Arc::new(self.invocations));
        let keys = ApiKeys::new(Arc::new(MockApiKeyRepository::new()), clock.clone(), ids.clone(), ids.clone());
        let use_cases = Deployments::new(DeploymentDeps {
            deployments: deployments.clone(),
            invocations: invocations.clone(),
            lines: Arc::new(MockLineStore::new()),
            notifier: Arc::new(MockChangeNotifier::new()),
            blobs: Arc::new(self.blobs),
            archives: Arc::new(self.archives),
            keys,
            sealer: Arc::new(PlainSealer),
            clock: clock.clone(),
            ids,
            rules: DeploymentRules { regions: Vec::new(), origins: Vec::new() },
            max: 1,
        });
        let builds = Builds::new(use_cases.clone(), node_id(), "http://casement.example".to_owned());
        let runs = Runs::new(invocations, deployments, clock, builds.clone(), CallLimits::DEFAULT, 10);
        (use_cases, builds, runs)
    }
}

fn sealed() -> SealedDeployment {
    sealed_of(deployment(1).id)
}

fn sealed_of(id: DeploymentId) -> SealedDeployment {
    let seal =
        |secret, clear: &str| PlainSealer.seal(&Deployment::place(id, &secret), clear.as_bytes()).expect("sealed");
    SealedDeployment {
        env_vars: BTreeMap::from([(
            "GREETING".to_owned(),
            seal(DeploymentSecret::EnvVar("GREETING".to_owned()), "hello"),
        )]),
        token: None,
        api_key: seal(DeploymentSecret::ApiKey, "csk_key"),
    }
}

fn running() -> Deployment {
    Deployment { status: DeploymentStatus::Running, artifact: Some("built".to_owned()), ..deployment(1) }
}

fn taken(n: u32) -> Invocation {
    Invocation { status: InvocationStatus::Running, node: Some(node_id()), ..invocation(n) }
}

/// Stores invocations in memory, where they change by compare-and-set.
fn keep(invocations: &mut MockInvocationRepository, rows: Vec<Invocation>) -> Arc<Mutex<Vec<Invocation>>> {
    let rows = Arc::new(Mutex::new(rows));
    let (stored, found) = (rows.clone(), rows.clone());
    invocations.expect_replace().returning(move |current, next| {
        let mut rows = stored.lock();
        let row = rows.iter_mut().find(|row| row.id == current.id && row.status == current.status);
        Ok(row.map_or(Replaced::LostRace, |row| {
            next.clone_into(row);
            Replaced::Yes
        }))
    });
    let get = move |id: InvocationId| found.lock().iter().find(|row| row.id == id).cloned();
    invocations.expect_get().returning(move |id| Ok(get(id)));
    rows
}

#[tokio::test]
async fn a_node_takes_what_waits_with_all_that_its_process_needs() {
    let mut world = World::default();
    world.invocations.expect_queued().returning(|_| Ok(vec![invocation(1), invocation(2)]));
    // Another node has taken the first one in the meantime.
    let rows = keep(
        &mut world.invocations,
        vec![Invocation { status: InvocationStatus::Running, ..invocation(1) }, invocation(2)],
    );
    world.deployments.expect_get().returning(|_| Ok(Some(running())));
    world.deployments.expect_secrets().returning(|_| Ok(Some(sealed())));
    let (_, runs) = world.work();

    let found = runs.take().await.expect("taken");

    assert_eq!(found.len(), 1);
    assert_eq!(found[0].invocation, taken(2));
    assert_eq!(rows.lock()[1], taken(2));
    let call = &found[0].call;
    assert_eq!((call.app.as_str(), call.action.as_str(), call.deadline), ("shop", "buy", invocation(2).deadline()));
    assert_eq!(
        call.runnable.environment.variables().into_keys().collect::<Vec<_>>(),
        ["GREETING", "KERNEL_API_KEY", "KERNEL_BASE_URL"]
    );
}

#[tokio::test]
async fn an_archive_is_not_deleted_if_its_deployment_may_be_stored() {
    let refusals = [(Ok(DeploymentStored::ProjectGone), 1), (Err(store_down()), 0)];
    for (stored, deleted) in refusals {
        let mut world = World::default();
        world
            .archives
            .expect_inspect()
            .returning(|_, content| Ok(InspectedPackage { size_bytes: 0, checksum: "00".to_owned(), content }));
        world.blobs.expect_put().times(1).returning(|_, _| Ok(()));
        world.blobs.expect_delete().times(deleted).returning(|_| Ok(()));
        world.deployments.expect_create().return_once(move |_, _, _, _, _| stored);
        let (deployments, _, _) = world.build();
        let request =
            DeploymentRequest { entrypoint_rel_path: Some("main.py".to_owned()), file: true, ..Default::default() };
        let archive: ByteStream = Box::pin(futures_util::stream::empty());
        let refused = deployments.create(&scope(), UserId::from_ulid(nth(2)), request, Some(archive)).await;
        assert!(refused.is_err(), "{refused:?}");
    }
}

#[tokio::test]
async fn what_was_taken_before_the_store_went_away_is_run() {
    let mut world = World::default();
    world.invocations.expect_queued().returning(|_| Ok(vec![invocation(1), invocation(2)]));
    world
        .invocations
        .expect_replace()
        .times(2)
        .returning(|current, _| if current.id == invocation(1).id { Ok(Replaced::Yes) } else { Err(store_down()) });
    world.deployments.expect_get().returning(|_| Ok(Some(running())));
    world.deployments.expect_secrets().returning(|_| Ok(Some(sealed())));
    let (_, runs) = world.work();
    let found = runs.take().await.expect("the first");
    assert_eq!(found.into_iter().map(|one| one.invocation).collect::<Vec<_>>(), [taken(1)]);
}

#[tokio::test]
async fn a_call_whose_deployment_is_gone_fails_and_the_next_one_is_taken() {
    let mut world = World::default();
    world.invocations.expect_queued().returning(|_| Ok(vec![invocation(1)]));
    let rows = keep(&mut world.invocations, vec![invocation(1)]);
    world.deployments.expect_get().returning(|_| Ok(Some(running())));
    world.deployments.expect_secrets().returning(|_| Ok(None));
    let (_, runs) = world.work();
    assert!(runs.take().await.expect("none").is_empty());
    let row = rows.lock()[0].clone();
    assert_eq!(row.status, InvocationStatus::Failed);
    assert!(row.status_reason.is_some_and(|why| why.starts_with("it could not be prepared: ")));
}

#[tokio::test]
async fn a_result_is_stored_once_and_dropped_when_it_comes_late() {
    let cases = [
        (Ok(Some("[1]".to_owned())), InvocationStatus::Succeeded, None, Some("[1]")),
        (Ok(None), InvocationStatus::Succeeded, None, None),
        (
            Err(RunFailure { fault: RunFault::Raised, reason: "ValueError: no".to_owned() }),
            InvocationStatus::Failed,
            Some("ValueError: no"),
            None,
        ),
    ];
    for (end, status, why, output) in cases {
        let mut world = World::default();
        let rows = keep(&mut world.invocations, vec![taken(1)]);
        let (_, runs) = world.work();
        let id = invocation(1).id;
        runs.finish(id, &end).await.expect("stored");
        let first = rows.lock()[0].clone();
        assert_eq!(
            (first.status, first.status_reason.as_deref(), first.output.as_deref(), first.finished_at),
            (status, why, output, Some(NOON))
        );
        runs.time_up(id).await.expect("nothing to do");
        runs.finish(id, &Ok(Some("2".to_owned()))).await.expect("nothing to do");
        assert_eq!(rows.lock()[0], first);
        assert!(runs.over(id).await.expect("looked"));
    }
}

#[tokio::test]
async fn what_is_no_json_or_too_long_is_no_result() {
    for text in ["not json".to_owned(), format!("\"{}\"", "x".repeat(1 << 20))] {
        let mut world = World::default();
        let rows = keep(&mut world.invocations, vec![taken(1)]);
        let (_, runs) = world.work();
        runs.finish(invocation(1).id, &Ok(Some(text))).await.expect("stored");
        let row = rows.lock()[0].clone();
        assert_eq!((row.status, row.output), (InvocationStatus::Failed, None));
        assert!(row.status_reason.is_some_and(|why| why.starts_with("the result must ")));
    }
}

fn building() -> Deployment {
    let lease = BuildLease { node: node_id(), number: 1, expires_at: NOON + Duration::seconds(45) };
    Deployment {
        status: DeploymentStatus::InProgress,
        lease: Some(lease),
        begun_at: Some(NOON),
        updated_at: NOON,
        ..deployment(1)
    }
}

fn built(apps: &[(&str, &[&str])]) -> BuildEnd {
    let app = |(name, actions): &(&str, &[&str])| BuiltApp {
        name: (*name).to_owned(),
        actions: actions.iter().map(|action| (*action).to_owned()).collect(),
    };
    BuildEnd::Done(Ok(Built {
        source_checksum: "cd".repeat(32),
        apps: apps.iter().map(app).collect(),
        artifact: "built".to_owned(),
    }))
}

#[tokio::test]
async fn a_build_that_cannot_run_fails_with_its_reason() {
    let host = BuildEnd::Done(Err(BuildFailure { step: BuildStep::Install, reason: "pip: no".to_owned() }));
    let many: Vec<String> = (0..51).map(|n| format!("app{n}")).collect();
    let many: Vec<(&str, &[&str])> = many.iter().map(|name| (name.as_str(), ["a"].as_slice())).collect();
    let cases = [
        (host, "pip: no"),
        (BuildEnd::TimedOut, "not built within 15 minutes"),
        (built(&[]), "the entrypoint registers no app with an action"),
        (built(&[("shop", &[])]), "the entrypoint registers no app with an action"),
        (built(&[("shop", &["buy", "buy"])]), "the app shop has the action buy twice"),
        (built(&[("shop", &["buy"]), ("shop", &["look"])]), "the entrypoint registers the app shop twice"),
        (built(&many), "the entrypoint registers 51 apps; 50 are allowed"),
    ];
    for (end, why) in cases {
        let mut world = World::default();
        world.blobs.expect_delete().returning(|_| Ok(()));
        world.invocations.expect_unfinished_of().returning(|_| Ok(Vec::new()));
        world.deployments.expect_replace().times(1).returning(move |_, next| {
            assert_eq!((next.status, next.status_reason.as_deref()), (DeploymentStatus::Failed, Some(why)));
            Ok(Replaced::Yes)
        });
        let (builds, _) = world.work();
        builds.finish(&building(), &end).await.expect("stored");
    }
}

#[tokio::test]
async fn an_existing_version_fails_the_build_and_a_replaced_one_ends_with_its_calls() {
    let mut world = World::default();
    world.blobs.expect_delete().returning(|_| Ok(()));
    world.invocations.expect_unfinished_of().returning(|_| Ok(Vec::new()));
    world.deployments.expect_register().returning(|_, _, _| Ok(Registered::VersionExists { app: "shop".to_owned() }));
    world.deployments.expect_replace().times(1).returning(|_, next| {
        assert_eq!(next.status_reason.as_deref(), Some("version exists: shop v1"));
        Ok(Replaced::Yes)
    });
    let (builds, _) = world.work();
    builds.finish(&building(), &built(&[("shop", &["buy"])])).await.expect("stored");

    let mut world = World::default();
    world.blobs.expect_delete().returning(|_| Ok(()));
    let older = Deployment { status: DeploymentStatus::Stopped, ..deployment(9) };
    world.deployments.expect_register().returning(move |_, next, apps| {
        assert_eq!((next.status, next.artifact.as_deref(), apps.len()), (DeploymentStatus::Running, Some("built"), 1));
        Ok(Registered::Yes(vec![older.clone()]))
    });
    world.invocations.expect_unfinished_of().returning(|of| {
        assert_eq!(of, deployment(9).id);
        Ok(vec![taken(1)])
    });
    let rows = keep(&mut world.invocations, vec![taken(1)]);
    let (builds, _) = world.work();
    builds.finish(&building(), &built(&[("shop", &["buy"])])).await.expect("stored");
    assert_eq!(rows.lock()[0].status_reason.as_deref(), Some("deployment stopped"));
}

#[tokio::test]
async fn what_a_failed_build_left_is_spent_after_a_day_and_what_is_named_is_not() {
    let mut world = World::default();
    let released = NOON - Duration::days(1);
    world.deployments.expect_release_artifacts().returning(move |before, _| {
        assert_eq!(before, released);
        Ok(vec!["ended".to_owned(), "old".to_owned()])
    });
    world.deployments.expect_unnamed_artifacts().times(1).returning(|names| {
        assert_eq!(names, ["old", "named"]);
        Ok(vec!["old".to_owned()])
    });
    let (builds, _) = world.work();
    let stored = [("old", 25), ("named", 25), ("young", 23)];
    let stored = stored.map(|(name, hours)| (name.to_owned(), NOON - Duration::hours(hours)));
    assert_eq!(builds.spent_artifacts(stored.to_vec()).await.expect("looked"), ["ended", "old"]);
}

#[tokio::test]
async fn what_is_late_times_out_unless_somebody_else_knows_its_end() {
    let other = casement_domain::NodeId::from_ulid(ulid::Ulid::from_parts(9, 9));
    let late =
        |n, seconds| Invocation { timeout_seconds: 1, started_at: NOON - Duration::seconds(seconds), ..taken(n) };
    let queued = Invocation { status: InvocationStatus::Queued, node: None, ..late(1, 2) };
    let attended = late(2, 1000);
    let mine = late(3, 2);
    let others = Invocation { node: Some(other), ..late(4, 20) };
    let lost = Invocation { node: Some(other), ..late(5, 60) };
    let all = vec![queued.clone(), attended.clone(), mine.clone(), others, lost.clone()];

    let mut world = World::default();
    let found = all.clone();
    world.invocations.expect_overdue().returning(move |_, _| Ok(found.clone()));
    world.invocations.expect_stranded().returning(|_| Ok(Vec::new()));
    let rows = keep(&mut world.invocations, all);
    let (_, runs) = world.work();
    runs.tidy(&[attended.id].into()).await.expect("tidied");
    let over: Vec<InvocationId> = rows.lock().iter().filter(|row| row.status.is_final()).map(|row| row.id).collect();
    assert_eq!(over, [queued.id, mine.id, lost.id]);
}

#[tokio::test]
async fn a_call_that_was_lost_after_its_deadline_timed_out_and_its_known_end_stays() {
    let lost = RunFault::Lost;
    let cases = [(lost, 5, "timed out after 5 s"), (lost, 6, "it is gone"), (RunFault::Died, 5, "it is gone")];
    for (fault, timeout_seconds, reason) in cases {
        let mut world = World::default();
        let row = Invocation { timeout_seconds, started_at: NOON - Duration::seconds(5), ..taken(1) };
        let rows = keep(&mut world.invocations, vec![row]);
        let (_, runs) = world.work();
        let end = Err(RunFailure { fault, reason: "it is gone".to_owned() });
        runs.finish(invocation(1).id, &end).await.expect("stored");
        assert_eq!(rows.lock()[0].status_reason.as_deref(), Some(reason));
    }
    for (timeout_seconds, reason) in [(5, "timed out after 5 s"), (6, "the node that ran it was lost")] {
        let mut world = World::default();
        let row = Invocation { timeout_seconds, started_at: NOON - Duration::seconds(5), ..taken(1) };
        let rows = keep(&mut world.invocations, vec![row.clone()]);
        let (_, runs) = world.work();
        runs.give_up(row).await.expect("stored");
        assert_eq!(rows.lock()[0].status_reason.as_deref(), Some(reason));
    }
}

fn follower(invocations: MockInvocationRepository, lines: MockLineStore, notifier: MockChangeNotifier) -> Follower {
    let (invocations, lines, notifier) = (Arc::new(invocations), Arc::new(lines), Arc::new(notifier));
    let deps = FollowDeps { deployments: Arc::new(MockDeploymentRepository::new()), invocations, lines, notifier };
    Follower::new(deps, Subject::Invocation(invocation(1).id), None)
}

#[tokio::test]
async fn who_follows_a_call_reads_it_when_it_moves_and_not_with_every_line() {
    let mut invocations = MockInvocationRepository::new();
    let mut states = vec![InvocationStatus::Succeeded, InvocationStatus::Running];
    invocations
        .expect_get()
        .times(2)
        .returning(move |_| Ok(Some(Invocation { status: states.pop().expect("read too often"), ..taken(1) })));
    let mut looks = 0;
    invocations.expect_status().returning(move |_| {
        looks += 1;
        Ok(Some(if looks < 10 { InvocationStatus::Running } else { InvocationStatus::Succeeded }))
    });
    let mut lines = MockLineStore::new();
    let line = |number| Line { number, at: NOON, text: "x".to_owned() };
    lines.expect_page().returning(move |_, span| Ok(if span.from < 9 { vec![line(span.from)] } else { Vec::new() }));
    let mut notifier = MockChangeNotifier::new();
    notifier.expect_expect().returning(|_| {
        let mut waiting = MockChangeWaiter::new();
        waiting.expect_next().returning(|_| WakeReason::Changed);
        Box::new(waiting)
    });
    let mut follower = follower(invocations, lines, notifier);
    let mut reported = Vec::new();
    while let Some(one) = follower.next().await.expect("followed") {
        reported.push(match one {
            Followed::Invocation(invocation) => invocation.status.as_str().to_owned(),
            Followed::Line(line) => line.number.to_string(),
            other => format!("{other:?}"),
        });
    }
    assert_eq!(reported.join(" "), "running 0 1 2 3 4 5 6 7 8 succeeded");
}

#[tokio::test]
async fn a_follower_that_does_not_wait_ends_after_the_stored_lines() {
    let mut invocations = MockInvocationRepository::new();
    let running = Invocation { status: InvocationStatus::Running, ..taken(1) };
    invocations.expect_get().returning(move |_| Ok(Some(running.clone())));
    invocations.expect_status().returning(|_| Ok(Some(InvocationStatus::Running)));
    let mut lines = MockLineStore::new();
    let line = |number| Line { number, at: NOON, text: "x".to_owned() };
    lines.expect_page().returning(move |_, span| Ok(if span.from < 2 { vec![line(span.from)] } else { Vec::new() }));
    let mut notifier = MockChangeNotifier::new();
    // A waiter that is asked fails the test.
    notifier.expect_expect().returning(|_| Box::new(MockChangeWaiter::new()));
    let mut follower = follower(invocations, lines, notifier).without_waiting();
    let mut events = 0;
    while follower.next().await.expect("followed").is_some() {
        events += 1;
    }
    assert_eq!(events, 3, "the state and two lines");
}

#[tokio::test]
async fn an_unavailable_store_is_reported_before_anything_is_taken() {
    let mut world = World::default();
    world.invocations.expect_queued().returning(|_| Err(store_down()));
    world.deployments.expect_due().returning(|_, _, _, _| Err(store_down()));
    let (builds, runs) = world.work();
    assert!(matches!(runs.take().await, Err(StoreError::Unavailable { .. })));
    assert!(matches!(builds.take().await, Err(StoreError::Unavailable { .. })));
}

fn other_project() -> ProjectId {
    ProjectId::from_ulid(ulid::Ulid(404))
}

#[tokio::test]
async fn a_project_whose_calls_take_every_place_leaves_some_to_others_which_come_first() {
    let mut world = World::default();
    let theirs = |n: u32| Invocation { project: other_project(), ..invocation(n) };
    // There are ten slots.
    let queued: Vec<_> = (1..=20).map(invocation).chain([theirs(21)]).collect();
    let waiting = queued.clone();
    world.invocations.expect_queued().times(1).return_once(move |_| Ok(waiting));
    let more = vec![invocation(22), theirs(23)];
    world.invocations.expect_queued().times(1).return_once(move |_| Ok(more));
    world.invocations.expect_replace().returning(|_, _| Ok(Replaced::Yes));
    world.deployments.expect_get().returning(|_| Ok(Some(running())));
    world.deployments.expect_secrets().returning(|_| Ok(Some(sealed())));
    let (_, runs) = world.work();
    let mut found = runs.take().await.expect("taken");
    let whose = |found: &[LeasedInvocation]| {
        let theirs = found.iter().filter(|one| one.invocation.project == other_project()).count();
        (found.len() - theirs, theirs)
    };
    assert_eq!(whose(&found), (8, 1));
    // After one of the many ends, the project with fewer running calls comes first.
    found.remove(0);
    let next = runs.take().await.expect("taken");
    assert_eq!(whose(&next), (1, 1));
    assert_eq!(next[0].invocation.project, other_project());
}

#[tokio::test]
async fn a_project_whose_builds_do_not_end_leaves_a_place_to_the_others() {
    let mut world = World::default();
    let theirs = Deployment { project: other_project(), ..deployment(5) };
    let due: Vec<_> = (1..=4).map(deployment).chain([theirs.clone()]).collect();
    let built = Arc::new(Mutex::new(Vec::new()));
    let (taken, seen) = (built.clone(), built.clone());
    world.deployments.expect_due().returning(move |_, _, _, _| {
        let taken = taken.lock();
        Ok(due.iter().filter(|one| !taken.contains(&one.id)).cloned().collect())
    });
    world.deployments.expect_replace().returning(move |current, _| {
        seen.lock().push(current.id);
        Ok(Replaced::Yes)
    });
    world.deployments.expect_secrets().returning(|id| Ok(Some(sealed_of(id))));
    let (builds, _) = world.work();
    let mut held = Vec::new();
    for wanted in [deployment(1).id, theirs.id, deployment(2).id] {
        let found = builds.take().await.expect("taken").expect("there is a place");
        assert_eq!(found.deployment.id, wanted);
        held.push(found);
    }
    assert!(builds.take().await.expect("taken").is_none(), "every place is taken");
    drop(held.remove(1));
    assert!(builds.take().await.expect("taken").is_none(), "the last place is for others");
    drop(held.remove(0));
    assert_eq!(builds.take().await.expect("taken").map(|found| found.deployment.id), Some(deployment(3).id));
}
