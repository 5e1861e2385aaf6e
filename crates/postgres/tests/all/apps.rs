//! Deployments and invocations: races have one winner, limits hold, ended deployments leave nothing behind.

mod lines;

use std::collections::BTreeMap;

use casement_domain::api_key::{ApiKey, ApiKeyRepository as _};
use casement_domain::deployment::{
    AppFilter, AppVersion, BuildLease, Deployment, DeploymentEvent, DeploymentFilter, DeploymentRepository as _,
    DeploymentSecret, DeploymentSource, DeploymentStatus, DeploymentStored, Line, LineRange, LineStore as _,
    Registered, SealedDeployment, SealedDeploymentSecret, StoredLines, Subject,
};
use casement_domain::invocation::{
    Invocation, InvocationEvent, InvocationFilter, InvocationRepository as _, InvocationStatus, InvocationStored,
};
use casement_domain::name::LabelName;
use casement_domain::organization::{Caps, Limit, Organization};
use casement_domain::page::Page;
use casement_domain::project::{Project, ProjectDeleted, ProjectRepository as _, ProjectStored};
use casement_domain::sealing::{KeyId, Sealer as _};
use casement_domain::session::{Created, SessionRepository as _};
use casement_domain::storage::{ROW_BYTES, StorageBounds, StorageBudgets};
use casement_domain::testing::{self, NOON, PlainSealer, app_version, deployment, invocation, node_id, session};
use casement_domain::{AppVersionId, NodeId, ProjectId, Replaced};
use casement_postgres::{PgDeployments, PgInvocations, PgLines};
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{Fault, World, key, label, other_node, seconds};

const PAGE: Page = Page { limit: 100, offset: 0 };

struct Apps {
    world: World,
    deployments: PgDeployments,
    invocations: PgInvocations,
    lines: PgLines,
}

fn key_of(one: &Deployment) -> Result<ApiKey, Fault> {
    Ok(ApiKey { id: one.api_key, project: Some(one.project), for_deployment: true, ..key(100)? })
}

fn sealed(one: &Deployment) -> Result<SealedDeployment, Fault> {
    let seal = |secret: DeploymentSecret| PlainSealer.seal(&Deployment::place(one.id, &secret), b"word");
    Ok(SealedDeployment {
        env_vars: BTreeMap::from([("GREETING".to_owned(), seal(DeploymentSecret::EnvVar("GREETING".to_owned()))?)]),
        token: Some(seal(DeploymentSecret::Token)?),
        api_key: seal(DeploymentSecret::ApiKey)?,
    })
}

impl Apps {
    async fn new() -> Result<Self, Fault> {
        Self::of(testing::organization()).await
    }

    async fn of(organization: Organization) -> Result<Self, Fault> {
        let world = World::of(organization).await?;
        let database = world.db.database().clone();
        Ok(Self {
            deployments: PgDeployments::new(database.clone()),
            invocations: PgInvocations::new(database.clone()),
            lines: PgLines::new(database, StorageBounds::unbounded(testing::node_id())),
            world,
        })
    }

    async fn store(&self, one: &Deployment) -> Result<DeploymentStored, Fault> {
        let organization = testing::organization_id();
        Ok(self.deployments.create(organization, one, &sealed(one)?, &key_of(one)?, 10).await?)
    }

    async fn take(&self, one: &Deployment, node: NodeId) -> Result<Deployment, Fault> {
        let number = one.lease.map_or(0, |lease| lease.number) + 1;
        let lease = BuildLease { node, number, expires_at: seconds(60) };
        let next = one.on(&DeploymentEvent::Take(lease), seconds(10))?;
        match self.deployments.replace(one, &next).await? {
            Replaced::Yes => Ok(next),
            Replaced::LostRace => Err("lost".into()),
        }
    }

    /// Creates a second project.
    async fn other_project(&self) -> Result<ProjectId, Fault> {
        let id = ProjectId::from_ulid(Ulid::from_parts(2, 2));
        let other = Project { id, name: label("other")?, is_default: false, ..testing::project() };
        assert_eq!(self.world.projects.create(&other).await?, ProjectStored::Yes);
        Ok(id)
    }

    /// Tries to register the app of a deployment that is being built.
    async fn register(&self, building: &Deployment) -> Result<(Deployment, Registered), Fault> {
        let event = DeploymentEvent::Built { checksum: "cd".repeat(32), artifact: format!("of {}", building.id) };
        let next = building.on(&event, seconds(20))?;
        let app = AppVersion {
            id: AppVersionId::from_ulid(Ulid(building.id.ulid().0 + 1)),
            project: building.project,
            deployment: building.id,
            version: building.version.clone(),
            ..app_version(1)
        };
        let registered = self.deployments.register(building, &next, &[app]).await?;
        Ok((next, registered))
    }

    /// Stores the n-th deployment and runs it.
    async fn running(&self, n: u32) -> Result<Deployment, Fault> {
        self.run(deployment(n)).await
    }

    async fn run(&self, one: Deployment) -> Result<Deployment, Fault> {
        assert_eq!(self.store(&one).await?, DeploymentStored::Yes);
        let (next, registered) = self.register(&self.take(&one, node_id()).await?).await?;
        assert_eq!(registered, Registered::Yes(Vec::new()));
        Ok(next)
    }

    async fn invoke(&self, one: &Invocation) -> Result<InvocationStored, Fault> {
        Ok(self.invocations.create(testing::organization_id(), one).await?)
    }

    async fn count(&self, table: &str) -> Result<String, Fault> {
        let rows = self.world.db.rows(&format!("SELECT count(*)::text FROM {table}")).await?;
        Ok(rows.into_iter().flatten().next().unwrap_or_default())
    }
}

#[tokio::test]
async fn a_deployment_is_found_in_its_project_alone_with_all_that_was_stored() -> TestResult {
    let apps = Apps::new().await?;
    let path = casement_domain::deployment::PackagePath::parse("apps/shop").map_err(|bad| bad.to_string())?;
    let source = DeploymentSource::Git {
        url: "https://github.com/me/shop".parse()?,
        git_ref: "main".to_owned(),
        path: Some(path),
    };
    let git = Deployment { source, source_checksum: None, force: true, ..deployment(2) };
    for one in [&deployment(1), &git] {
        assert_eq!(apps.store(one).await?, DeploymentStored::Yes);
        assert_eq!(apps.deployments.find(one.project, one.id).await?.as_ref(), Some(one));
        assert_eq!(apps.deployments.secrets(one.id).await?, Some(sealed(one)?));
    }
    let others = ProjectId::from_ulid(Ulid::from_parts(1, 99));
    assert_eq!(apps.deployments.find(others, git.id).await?, None);
    let third = deployment(3);
    let (secrets, key) = (sealed(&third)?, key_of(&third)?);
    let full = apps.deployments.create(testing::organization_id(), &third, &secrets, &key, 2).await?;
    assert!(
        matches!(full, DeploymentStored::LimitExceeded(limit) if (limit.limit, limit.used) == (Limit::ProjectDeployments, 2)),
        "{full:?}"
    );
    let foreign = Deployment { project: others, ..deployment(3) };
    assert_eq!(apps.store(&foreign).await?, DeploymentStored::ProjectGone);
    let listed = apps.deployments.list(testing::project_id(), &DeploymentFilter::default(), PAGE).await?;
    assert_eq!(listed.items, [git, deployment(1)]);
    Ok(())
}

#[tokio::test]
async fn of_two_builders_the_one_that_took_it_last_stores_what_came_of_it() -> TestResult {
    let apps = Apps::new().await?;
    let queued = deployment(1);
    let _stored = apps.store(&queued).await?;
    let due = async |node, at, own_before| apps.deployments.due(node, at, own_before, 10).await;
    assert_eq!(due(node_id(), NOON, NOON).await?, std::slice::from_ref(&queued));

    let first = apps.take(&queued, node_id()).await?;
    assert!(apps.take(&queued, other_node()).await.is_err(), "it is taken already");
    assert_eq!(due(other_node(), seconds(59), seconds(999)).await?, [], "its lease goes on");
    assert_eq!(due(node_id(), seconds(59), seconds(60)).await?, [], "this life of the node has it");
    assert_eq!(due(node_id(), seconds(59), seconds(61)).await?, std::slice::from_ref(&first), "an earlier life had it");
    assert!(apps.deployments.renew(first.id, 1, seconds(70)).await?);
    assert_eq!(due(other_node(), seconds(69), NOON).await?, []);

    let current = apps.deployments.get(first.id).await?.ok_or("gone")?;
    assert_eq!(due(other_node(), seconds(70), NOON).await?, std::slice::from_ref(&current));
    let lease = BuildLease { node: other_node(), number: 2, expires_at: seconds(130) };
    let second = current.on(&DeploymentEvent::Take(lease), seconds(70))?;
    assert_eq!(apps.deployments.replace(&current, &second).await?, Replaced::Yes);
    assert!(!apps.deployments.renew(first.id, 1, seconds(200)).await?, "it is another's");
    assert_eq!(apps.register(&first).await?.1, Registered::LostRace);
    assert!(matches!(apps.register(&second).await?.1, Registered::Yes(_)));
    Ok(())
}

#[tokio::test]
async fn an_app_that_has_the_version_gives_way_to_a_later_deployment_that_may_replace_it() -> TestResult {
    let apps = Apps::new().await?;
    let late = apps.running(5).await?;
    for (n, force, gives_way) in [(6, false, false), (4, true, false), (7, true, true)] {
        let one = Deployment { force, ..deployment(n) };
        let _stored = apps.store(&one).await?;
        let building = apps.take(&one, node_id()).await?;
        let (_, registered) = apps.register(&building).await?;
        if !gives_way {
            assert_eq!(registered, Registered::VersionExists { app: "shop".to_owned() }, "{n}");
            let failed = building.on(&DeploymentEvent::BuildFailed("version exists".to_owned()), seconds(30))?;
            assert_eq!(apps.deployments.replace(&building, &failed).await?, Replaced::Yes);
            continue;
        }
        let Registered::Yes(replaced) = registered else { panic!("{registered:?}") };
        assert_eq!(replaced.iter().map(|one| one.id).collect::<Vec<_>>(), [late.id]);
        let stopped = apps.deployments.get(late.id).await?.ok_or("gone")?;
        assert_eq!(stopped.status, DeploymentStatus::Stopped);
        assert_eq!(stopped.status_reason, Some(format!("replaced by deployment {}", one.id)));
    }
    let listed = apps.deployments.list_apps(testing::project_id(), &AppFilter::default(), PAGE).await?;
    assert_eq!(listed.items.iter().map(|one| one.app.deployment).collect::<Vec<_>>(), [deployment(7).id]);
    assert_eq!(listed.items[0].env_names, ["GREETING"]);
    let found = apps.deployments.find_app(testing::project_id(), "shop", "v1").await?.ok_or("no app")?;
    assert_eq!((found.0.deployment, found.1), (deployment(7).id, DeploymentStatus::Running));
    Ok(())
}

#[tokio::test]
async fn of_many_deployments_of_one_version_that_end_their_builds_at_once_one_runs() -> TestResult {
    let apps = Apps::new().await?;
    let mut building = Vec::new();
    for n in 1..=8 {
        let _stored = apps.store(&deployment(n)).await?;
        building.push(apps.take(&deployment(n), node_id()).await?);
    }
    let all = futures_util::future::join_all(building.iter().map(|one| apps.register(one))).await;
    let ran = all.into_iter().filter(|one| matches!(one, Ok((_, Registered::Yes(_))))).count();
    assert_eq!(ran, 1);
    assert_eq!(apps.count("app_versions WHERE live").await?, "1");
    Ok(())
}

#[tokio::test]
async fn of_a_deployment_that_has_ended_no_app_no_key_and_no_secret_is_left() -> TestResult {
    let apps = Apps::new().await?;
    let running = apps.running(1).await?;
    let key = async || apps.world.keys.find(running.api_key).await;
    assert!(key().await?.is_some_and(|found| found.key.deleted_at.is_none() && found.key.for_deployment));
    let stopped = running.on(&DeploymentEvent::Stop, seconds(40))?;
    assert_eq!(apps.deployments.replace(&running, &stopped).await?, Replaced::Yes);
    assert_eq!(apps.deployments.replace(&running, &stopped).await?, Replaced::LostRace, "it has moved");
    assert!(key().await?.is_some_and(|found| found.key.deleted_at.is_some()));
    assert_eq!(apps.deployments.secrets(running.id).await?, None);
    let listed = apps.deployments.list_apps(testing::project_id(), &AppFilter::default(), PAGE).await?;
    assert_eq!(listed.items, []);
    let found = apps.deployments.find_app(testing::project_id(), "shop", "v1").await?.ok_or("no app")?;
    assert_eq!(found.1, DeploymentStatus::Stopped, "whoever invokes it learns why not");

    let artifacts = [format!("of {}", running.id), "of a build that failed".to_owned()];
    assert_eq!(apps.deployments.unnamed_artifacts(&artifacts).await?, ["of a build that failed"]);
    assert_eq!(apps.deployments.release_artifacts(seconds(40), 10).await?, Vec::<String>::new(), "too early");
    let spent = apps.deployments.release_artifacts(seconds(41), 10).await?;
    assert_eq!(spent, [format!("of {}", running.id)]);
    assert_eq!(apps.deployments.release_artifacts(seconds(41), 10).await?, Vec::<String>::new());
    assert_eq!(apps.deployments.unnamed_artifacts(&artifacts).await?, artifacts);
    Ok(())
}

#[tokio::test]
async fn invocations_at_once_never_go_over_a_limit() -> TestResult {
    let caps = Caps { concurrent_invocations: Some(5), ..Organization::DEFAULT_CAPS };
    let apps = Apps::of(Organization { caps, ..testing::organization() }).await?;
    apps.running(1).await?;
    let wanted: Vec<Invocation> = (1..=20).map(invocation).collect();
    let all = futures_util::future::join_all(wanted.iter().map(|one| apps.invoke(one))).await;
    let (mut stored, mut refused) = (0, 0);
    for one in all {
        match one? {
            InvocationStored::Yes => stored += 1,
            InvocationStored::LimitExceeded(limit) => {
                assert_eq!((limit.limit, limit.value, limit.used), (Limit::OrganizationInvocations, 5, 5));
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((stored, refused), (5, 15));
    let queued = apps.invocations.queued(100).await?;
    let ended = queued[0].on(&InvocationEvent::Cancel(None), seconds(9))?;
    assert_eq!(apps.invocations.replace(&queued[0], &ended).await?, Replaced::Yes);
    assert_eq!(apps.invoke(&invocation(30)).await?, InvocationStored::Yes, "there is room again");
    Ok(())
}

#[tokio::test]
async fn the_first_build_of_each_project_comes_before_the_second_of_any() -> TestResult {
    let apps = Apps::new().await?;
    let project = apps.other_project().await?;
    let late = Deployment { project, ..deployment(9) };
    for one in (1..=3).map(deployment).chain([late.clone()]) {
        assert_eq!(apps.store(&one).await?, DeploymentStored::Yes);
    }
    let due = apps.deployments.due(node_id(), seconds(20), seconds(0), 3).await?;
    assert_eq!(due, [deployment(1), late, deployment(2)], "the limit hides no project behind another");
    Ok(())
}

#[tokio::test]
async fn the_first_invocation_of_each_project_comes_before_the_second_of_any() -> TestResult {
    let apps = Apps::new().await?;
    apps.running(1).await?;
    let project = apps.other_project().await?;
    let theirs = apps.run(Deployment { project, ..deployment(2) }).await?;
    let late = Invocation { project, deployment: theirs.id, ..invocation(9) };
    for one in (1..=3).map(invocation).chain([late.clone()]) {
        assert_eq!(apps.invoke(&one).await?, InvocationStored::Yes);
    }
    let queued = apps.invocations.queued(3).await?;
    assert_eq!(queued, [invocation(1), late, invocation(2)], "the limit hides no project behind another");
    Ok(())
}

#[tokio::test]
async fn of_all_who_end_an_invocation_at_once_one_does() -> TestResult {
    let apps = Apps::new().await?;
    apps.running(1).await?;
    assert_eq!(apps.invoke(&invocation(1)).await?, InvocationStored::Yes);
    let running = invocation(1).on(&InvocationEvent::Take(node_id()), NOON)?;
    assert_eq!(apps.invocations.replace(&invocation(1), &running).await?, Replaced::Yes);
    assert_eq!(apps.invocations.running_on(node_id()).await?, std::slice::from_ref(&running));
    let ends = [
        InvocationEvent::Returned(Some("1".to_owned())),
        InvocationEvent::Cancel(Some("2".to_owned())),
        InvocationEvent::TimedOut,
        InvocationEvent::DeploymentStopped,
        InvocationEvent::Finish(Some("3".to_owned())),
    ];
    let ends = ends.map(|event| running.on(&event, seconds(5)));
    let mut nexts = Vec::new();
    for end in ends {
        nexts.push(end?);
    }
    let won = futures_util::future::join_all(nexts.iter().map(|next| apps.invocations.replace(&running, next))).await;
    let mut winners = Vec::new();
    for (next, won) in nexts.iter().zip(won) {
        if won? == Replaced::Yes {
            winners.push(next.clone());
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(apps.invocations.get(running.id).await?.as_ref(), winners.first());
    Ok(())
}

#[tokio::test]
async fn what_is_late_or_stranded_is_found_and_what_has_ended_takes_nothing_new() -> TestResult {
    let apps = Apps::new().await?;
    let running = apps.running(1).await?;
    let short = Invocation { timeout_seconds: 10, ..invocation(2) };
    assert_eq!(apps.invoke(&short).await?, InvocationStored::Yes);
    assert_eq!(apps.invoke(&invocation(1)).await?, InvocationStored::Yes);
    assert_eq!(apps.invocations.queued(1).await?, [invocation(1)], "the oldest first");
    assert_eq!(apps.invocations.overdue(seconds(11), 10).await?, []);
    assert_eq!(apps.invocations.overdue(seconds(12), 10).await?, [short]);
    assert_eq!(apps.invocations.stranded(10).await?, []);

    let stopped = running.on(&DeploymentEvent::Stop, seconds(40))?;
    assert_eq!(apps.deployments.replace(&running, &stopped).await?, Replaced::Yes);
    assert_eq!(apps.invocations.stranded(10).await?.len(), 2);
    assert_eq!(apps.invocations.unfinished_of(running.id).await?.len(), 2);
    assert_eq!(apps.invoke(&invocation(3)).await?, InvocationStored::NotRunning);
    Ok(())
}

#[tokio::test]
async fn invocations_are_listed_by_what_they_are() -> TestResult {
    let apps = Apps::new().await?;
    apps.running(1).await?;
    let look = Invocation { action: LabelName::parse("Look 50%").map_err(|bad| bad.to_string())?, ..invocation(2) };
    for one in [&invocation(1), &look] {
        assert_eq!(apps.invoke(one).await?, InvocationStored::Yes);
    }
    let list = async |filter: InvocationFilter| {
        let listed = apps.invocations.list(testing::project_id(), &filter, PAGE).await?;
        Ok::<_, Fault>(listed.items.into_iter().map(|one| one.id).collect::<Vec<_>>())
    };
    let (one, two) = (invocation(1).id, look.id);
    let any = InvocationFilter::default;
    assert_eq!(list(any()).await?, [two, one]);
    assert_eq!(list(InvocationFilter { action_name: Some("buy".to_owned()), ..any() }).await?, [one]);
    assert_eq!(list(InvocationFilter { query: Some("look 50%".to_owned()), ..any() }).await?, [two]);
    assert_eq!(list(InvocationFilter { query: Some("%".to_owned()), ..any() }).await?, [two], "it is literal");
    assert_eq!(list(InvocationFilter { query: Some(one.to_string()), ..any() }).await?, [one]);
    assert_eq!(list(InvocationFilter { since: Some(seconds(2)), ..any() }).await?, [two]);
    assert_eq!(list(InvocationFilter { status: Some(InvocationStatus::Running), ..any() }).await?, []);
    assert_eq!(list(InvocationFilter { deployment: Some(deployment(2).id), ..any() }).await?, []);
    assert_eq!(list(InvocationFilter { version: Some("v1".to_owned()), ..any() }).await?, [two, one]);
    Ok(())
}

#[tokio::test]
async fn a_page_of_heavy_invocations_is_short_and_the_next_one_goes_on_behind_it() -> TestResult {
    let apps = Apps::new().await?;
    apps.running(1).await?;
    // One mebibyte each, so eight of 20 fit into a page.
    let heavy = |n| Invocation { payload: Some(format!("\"{}\"", "x".repeat((1 << 20) - 2))), ..invocation(n) };
    for n in 1..=20 {
        assert_eq!(apps.invoke(&heavy(n)).await?, InvocationStored::Yes);
    }
    let (mut offset, mut pages, mut seen) = (0, Vec::new(), Vec::new());
    loop {
        let page = Page { limit: 15, offset };
        let listed = apps.invocations.list(testing::project_id(), &InvocationFilter::default(), page).await?;
        pages.push(listed.items.len());
        seen.extend(listed.items.into_iter().map(|one| one.id));
        match listed.next_offset {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!(pages, [8, 8, 4]);
    assert_eq!(seen, (1..=20).rev().map(|n| invocation(n).id).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn sessions_of_cancelled_invocations_are_found_and_old_invocations_are_deleted() -> TestResult {
    let apps = Apps::new().await?;
    apps.running(1).await?;
    for n in 1..=3 {
        assert_eq!(apps.invoke(&invocation(n)).await?, InvocationStored::Yes);
        let mut session = testing::session(n);
        session.invocation = Some(invocation(n).id);
        session.name = None;
        assert_eq!(apps.world.sessions.create(testing::organization_id(), &session, None).await?, Created::Yes);
    }
    assert_eq!(apps.invocations.canceled_with_sessions(10).await?, []);
    for (n, event) in [(1, InvocationEvent::Cancel(None)), (2, InvocationEvent::Finish(None))] {
        let ended = invocation(n).on(&event, seconds(50))?;
        assert_eq!(apps.invocations.replace(&invocation(n), &ended).await?, Replaced::Yes);
        assert_eq!(apps.invocations.status(ended.id).await?, Some(ended.status));
    }
    assert_eq!(apps.invocations.canceled_with_sessions(10).await?, [invocation(1).id]);

    assert_eq!(apps.invocations.forget(seconds(51), 10).await?, 0, "their sessions live");
    apps.world.db.rows("UPDATE sessions SET state = 'ended', end_reason = 'deleted', ended_at = now()").await?;
    assert_eq!(apps.invocations.canceled_with_sessions(10).await?, []);
    assert_eq!(apps.invocations.forget(seconds(50), 10).await?, 0, "too early");
    assert_eq!(apps.invocations.forget(seconds(51), 10).await?, 2);
    assert_eq!(apps.invocations.status(invocation(1).id).await?, None);
    assert_eq!(apps.invocations.status(invocation(3).id).await?, Some(InvocationStatus::Queued));
    assert_eq!(apps.count("sessions").await?, "3", "of the sessions nothing is forgotten");
    Ok(())
}

fn line(number: u64, text: &str) -> Line {
    Line { number, at: seconds(i64::try_from(number).unwrap_or(0)), text: text.to_owned() }
}
