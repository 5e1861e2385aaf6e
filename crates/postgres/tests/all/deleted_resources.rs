//! The rows of deleted resources, which are removed when nothing refers to them.

use casement_domain::deleted_resource::DeletedResources as _;
use casement_domain::project::{Project, ProjectDeleted, ProjectRepository as _, ProjectStored};
use casement_domain::session::{Created, Session, SessionEvent, SessionRepository as _, SessionState};
use casement_domain::testing::{self, organization_id};
use casement_domain::{ProjectId, Replaced};
use casement_postgres::PgDeletedResources;
use pretty_assertions::assert_eq;
use tokio_postgres::NoTls;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{World, label, seconds};

/// The columns that refer to a resource whose deleted rows stay, except those that are deleted with it.
const REFERENCES: &str = "
    SELECT conrelid::regclass || '.' || attname || ' -> ' || confrelid::regclass
    FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
    WHERE contype = 'f' AND conparentid = 0 AND confdeltype <> 'c' AND confrelid IN (
        SELECT attrelid FROM pg_attribute WHERE attname = 'deleted_at' AND NOT attisdropped)";

fn project(n: u32) -> Project {
    let id = ProjectId::from_ulid(Ulid::from_parts(20, u128::from(n)));
    Project { id, is_default: false, name: label(&format!("project {n}")).expect("a name"), ..testing::project() }
}

#[tokio::test]
async fn a_deleted_project_is_removed_after_its_time_when_nothing_refers_to_it() -> TestResult {
    let world = World::new().await?;
    let resources = PgDeletedResources::new(world.db.database().clone());
    for n in 1..=4 {
        assert_eq!(world.projects.create(&project(n)).await?, ProjectStored::Yes);
    }
    let draft = Session { project: project(1).id, state: SessionState::Starting, browser: None, ..testing::session(1) };
    assert_eq!(world.sessions.create(organization_id(), &draft, None).await?, Created::Yes);
    let failed = draft.on(SessionEvent::StartFailed, seconds(1))?;
    assert_eq!(world.sessions.end(&draft, &failed).await?, Replaced::Yes);
    for (n, at) in [(1, 2), (2, 3), (3, 9)] {
        let deleted = world.projects.delete(organization_id(), project(n).id, seconds(at)).await?;
        assert_eq!(deleted, ProjectDeleted::Yes);
    }

    assert_eq!(resources.forget(seconds(5), 10).await?, 1, "the second project; the first one has a session");
    assert_eq!(resources.forget(seconds(5), 10).await?, 0);
    assert_eq!(world.sessions.forget(seconds(5), 10).await?, 1);
    assert_eq!(resources.forget(seconds(5), 10).await?, 1, "the first project");
    assert_eq!(resources.forget(seconds(10), 10).await?, 1, "the third project");
    assert!(world.projects.find(organization_id(), project(4).id).await?.is_some());
    Ok(())
}

#[tokio::test]
async fn every_column_that_refers_to_a_deleted_resource_keeps_it() -> TestResult {
    let world = World::new().await?;
    let known: Vec<String> = PgDeletedResources::references().collect();
    let (client, connection) = tokio_postgres::connect(&world.db.url(), NoTls).await?;
    let driving = tokio::spawn(connection);
    let stored: Vec<String> = client.query(REFERENCES, &[]).await?.iter().map(|row| row.get(0)).collect();
    driving.abort();
    assert!(stored.len() > 15, "{stored:?}");
    let missing: Vec<&String> = stored.iter().filter(|column| !known.contains(column)).collect();
    assert_eq!(missing, Vec::<&String>::new());
    Ok(())
}
