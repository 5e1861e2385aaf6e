//! Projects: unique names, compare-and-set, limits, and deletions that race with creations.

use casement_domain::api_key::ApiKeyRepository;
use casement_domain::organization::{Caps, OrganizationRepository, OrganizationUsage, Usage};
use casement_domain::page::Page;
use casement_domain::profile::{ProfileRepository as _, ProfileStored};
use casement_domain::project::{
    Project, ProjectDeleted, ProjectFilter, ProjectReplaced, ProjectRepository, ProjectStatus, ProjectStored,
    ResourceCount,
};
use casement_domain::session::{Created, Session, SessionRepository, SessionState};
use casement_domain::testing::{self, organization_id};
use casement_domain::{OrganizationId, ProfileId, ProjectId, StoreError};
use casement_postgres::PgProfiles;
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::{Held, TestResult, until};
use crate::world::{Fault, World, key, label, seconds};

fn project(n: u32, name: &str) -> Project {
    Project {
        id: ProjectId::from_ulid(Ulid::from_parts(20, u128::from(n))),
        is_default: false,
        name: label(name).expect("a name"),
        created_at: seconds(i64::from(n)),
        ..testing::project()
    }
}

fn session(n: u32, project: &Project) -> Session {
    Session { project: project.id, state: SessionState::Starting, browser: None, ..testing::session(n) }
}

#[tokio::test]
async fn a_name_is_taken_whatever_its_case_and_accents_until_its_project_is_deleted() -> TestResult {
    let world = World::new().await?;
    let projects = &world.projects;
    assert_eq!(projects.create(&project(1, "Straße Ärger")).await?, ProjectStored::Yes);
    assert_eq!(projects.create(&project(2, "strasse arger")).await?, ProjectStored::NameTaken);
    assert_eq!(projects.find_by_name(organization_id(), "STRASSE ÄRGER").await?, Some(project(1, "Straße Ärger")));
    assert_eq!(projects.delete(organization_id(), project(1, "x").id, seconds(9)).await?, ProjectDeleted::Yes);
    assert_eq!(projects.find(organization_id(), project(1, "x").id).await?, None);
    assert_eq!(projects.create(&project(2, "strasse arger")).await?, ProjectStored::Yes);
    Ok(())
}

#[tokio::test]
async fn a_list_is_filtered_and_paged_newest_first() -> TestResult {
    let world = World::new().await?;
    for (n, name) in [(1, "one"), (2, "Two 50%"), (3, "three_x")] {
        assert_eq!(world.projects.create(&project(n, name)).await?, ProjectStored::Yes);
    }
    let found = async |name: Option<&str>, query: Option<&str>| {
        let filter = ProjectFilter { name: name.map(Into::into), query: query.map(Into::into) };
        let listed = world.projects.list(organization_id(), &filter, Page { limit: 100, offset: 0 }).await?;
        Ok::<_, casement_domain::StoreError>(listed.items.iter().map(|p| p.name.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(found(Some("TWO 50%"), None).await?, ["Two 50%"]);
    assert_eq!(found(None, Some("0%")).await?, ["Two 50%"]);
    assert_eq!(found(None, Some("e_X")).await?, ["three_x"]);
    assert_eq!(found(None, Some(&project(1, "x").id.to_string())).await?, ["one"]);
    assert_eq!(found(None, Some("' OR true --")).await?, Vec::<String>::new());
    let page = world.projects.list(organization_id(), &ProjectFilter::default(), Page { limit: 2, offset: 1 }).await?;
    assert_eq!(page.items, [project(2, "Two 50%"), project(1, "one")]);
    assert_eq!(page.next_offset, Some(3));
    let other = OrganizationId::from_ulid(Ulid::from_parts(66, 6));
    assert_eq!(world.projects.list(other, &ProjectFilter::default(), Page { limit: 2, offset: 0 }).await?.items, []);
    Ok(())
}

#[tokio::test]
async fn of_two_changes_at_once_the_second_is_reported() -> TestResult {
    let world = World::new().await?;
    let before = project(1, "one");
    assert_eq!(world.projects.create(&before).await?, ProjectStored::Yes);
    let archived = Project { status: ProjectStatus::Archived, updated_at: seconds(5), ..before.clone() };
    let limited = Project { caps: Caps { pooled_sessions: Some(3), ..Caps::default() }, ..before.clone() };
    assert_eq!(world.projects.replace(&before, &archived).await?, ProjectReplaced::Yes);
    assert_eq!(world.projects.replace(&before, &limited).await?, ProjectReplaced::LostRace);
    let named = Project { name: testing::project().name, ..archived.clone() };
    assert_eq!(world.projects.replace(&archived, &named).await?, ProjectReplaced::NameTaken);
    assert_eq!(world.projects.find(organization_id(), before.id).await?, Some(archived));
    Ok(())
}

#[tokio::test]
async fn a_project_goes_with_its_keys_and_only_when_nothing_is_active() -> TestResult {
    let world = World::new().await?;
    let doomed = project(1, "one");
    assert_eq!(world.projects.create(&doomed).await?, ProjectStored::Yes);
    let of_it = casement_domain::api_key::ApiKey { project: Some(doomed.id), ..key(7)? };
    world.keys.insert(&of_it).await?;
    let living = session(1, &doomed);
    assert_eq!(world.sessions.create(organization_id(), &living, None).await?, Created::Yes);
    let delete = async || world.projects.delete(organization_id(), doomed.id, seconds(9)).await;
    assert_eq!(delete().await?, ProjectDeleted::InUse(vec![ResourceCount { kind: "sessions", count: 1 }]));

    let over = living.on(casement_domain::session::SessionEvent::StartFailed, seconds(5))?;
    assert_eq!(world.sessions.end(&living, &over).await?, casement_domain::Replaced::Yes);
    assert_eq!(delete().await?, ProjectDeleted::Yes);
    assert_eq!(delete().await?, ProjectDeleted::Gone);
    let deleted = "SELECT count(*) FROM api_keys WHERE project_id IS NOT NULL AND deleted_at IS NOT NULL";
    assert_eq!(world.db.rows(deleted).await?, [["1"]]);
    assert_eq!(world.sessions.create(organization_id(), &session(2, &doomed), None).await?, Created::ProjectGone);
    Ok(())
}

#[tokio::test]
async fn no_creation_slips_past_a_deletion() -> TestResult {
    let world = World::new().await?;
    for n in 1..=20 {
        let doomed = project(n, &format!("p{n}"));
        assert_eq!(world.projects.create(&doomed).await?, ProjectStored::Yes);
        let racing = session(n, &doomed);
        let (created, deleted) = tokio::join!(
            world.sessions.create(organization_id(), &racing, None),
            world.projects.delete(organization_id(), doomed.id, seconds(9)),
        );
        match (created?, deleted?) {
            (Created::Yes, ProjectDeleted::InUse(_)) | (Created::ProjectGone, ProjectDeleted::Yes) => {}
            other => return Err(format!("{other:?}").into()),
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_deletion_sees_what_is_made_in_the_project_at_that_moment() -> TestResult {
    let world = World::new().await?;
    let doomed = project(1, "one");
    assert_eq!(world.projects.create(&doomed).await?, ProjectStored::Yes);
    let profiles = PgProfiles::new(world.db.database().clone());
    let late = testing::profile(ProfileId::from_ulid(Ulid::from_parts(13, 1)), "late");
    assert_eq!(profiles.create(&late, 10).await?, ProfileStored::Yes);
    // Simulates a slow creation: it inserts the row, and commits later.
    let (id, profile) = (uuid::Uuid::from_u128(doomed.id.ulid().0), uuid::Uuid::from_u128(late.id.ulid().0));
    let creation = format!(
        "SELECT id FROM projects WHERE id = '{id}' FOR NO KEY UPDATE;
        UPDATE profiles SET project_id = '{id}' WHERE id = '{profile}'"
    );
    let creation = Held::begin(&world.db, &creation).await?;
    let committing = async {
        creation.until_waited_for().await?;
        creation.commit().await
    };
    let deletion = world.projects.delete(organization_id(), doomed.id, seconds(9));
    let (created, deleted) = tokio::join!(committing, deletion);
    created?;
    assert_eq!(deleted?, ProjectDeleted::InUse(vec![ResourceCount { kind: "profiles", count: 1 }]));
    Ok(())
}

#[tokio::test]
async fn a_limit_counts_from_the_next_creation_on() -> TestResult {
    let world = World::new().await?;
    let narrow = project(1, "one");
    assert_eq!(world.projects.create(&narrow).await?, ProjectStored::Yes);
    let create = async |n| world.sessions.create(organization_id(), &session(n, &narrow), None).await;
    let default = world.projects.set_default_sessions(organization_id(), Some(1)).await?;
    assert_eq!(default.default_project_max_concurrent_sessions, Some(1));
    assert_eq!(world.organizations.find(organization_id()).await?, Some(default));
    assert_eq!(create(1).await?, Created::Yes);
    assert!(matches!(create(2).await?, Created::LimitExceeded(_)));

    let wider = Project { caps: Caps { concurrent_sessions: Some(2), ..Caps::default() }, ..narrow.clone() };
    assert_eq!(world.projects.replace(&narrow, &wider).await?, ProjectReplaced::Yes);
    assert_eq!(create(2).await?, Created::Yes);
    let usage = world.projects.usage(organization_id()).await?;
    let limited = Usage { on_demand: 2, ..Usage::default() };
    assert_eq!(usage, OrganizationUsage { limited, auth_connections: 0 });
    let narrower = Project { caps: Caps { concurrent_sessions: Some(1), ..Caps::default() }, ..narrow.clone() };
    assert_eq!(world.projects.replace(&wider, &narrower).await?, ProjectReplaced::Yes);
    assert!(matches!(create(3).await?, Created::LimitExceeded(_)));
    Ok(())
}

/// A caller repeats a call that was reported as not done, so a committed one must not be reported like that.
#[tokio::test]
async fn what_may_have_been_committed_is_reported_apart_from_what_was_not() -> TestResult {
    let maybe_done = async |when: &str| {
        let world = World::new().await?;
        // Longer than the timeout of a call, and shorter than that of a statement in the server.
        let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_sleep(7); RETURN new; END'; CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON projects";
        world.db.execute(&format!("{slow} {when} FOR EACH ROW EXECUTE FUNCTION slow()")).await?;
        let created = world.projects.create(&project(1, "one")).await;
        let Err(StoreError::Unavailable { maybe_done, .. }) = created else { return Err("it answered in time".into()) };
        let others = "SELECT 1 FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state <> 'idle'
            AND datname = current_database()";
        until("it is over", async || world.db.rows(others).await.is_ok_and(|rows| rows.is_empty())).await?;
        Ok::<_, Fault>((maybe_done, world.db.rows("SELECT 1 FROM projects WHERE name = 'one'").await?.len()))
    };
    assert_eq!(maybe_done("").await?, (false, 0), "it is rolled back when its caller has given up");
    assert_eq!(maybe_done("DEFERRABLE INITIALLY DEFERRED").await?, (true, 1));
    Ok(())
}
