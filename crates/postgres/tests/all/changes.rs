//! Notifications of changes that other nodes must learn of at once.

use casement_domain::Replaced;
use casement_domain::api_key::{ApiKeyDirectory as _, ApiKeyRepository as _};
use casement_domain::browser::{Browser, BrowserState};
use casement_domain::pool::PoolRepository as _;
use casement_domain::project::{Project, ProjectReplaced, ProjectRepository as _, ProjectStatus};
use casement_domain::session::{EndReason, Session, SessionRepository as _, SessionState};
use casement_domain::testing::{self, NOON, node_id, organization_id, project};
use casement_postgres::{CHANGES_CHANNEL, Change, PgSessions};
use pretty_assertions::assert_eq;

use crate::support::TestResult;
use crate::world::{Fault, Listener, World, key, key_id, label, other_node, seconds};

/// Another node, which listens.
struct OtherNode(Listener);

impl OtherNode {
    async fn new(world: &World) -> Result<Self, Fault> {
        Ok(Self(Listener::new(world, CHANGES_CHANNEL).await?))
    }

    /// Returns the changes since the last call.
    async fn changes(&mut self, world: &World) -> Result<Vec<Change>, Fault> {
        let payloads = self.0.payloads(world).await?;
        payloads.iter().map(|payload| payload.parse().map_err(|_| format!("{payload:?}").into())).collect()
    }
}

#[tokio::test]
async fn a_change_of_a_key_or_a_project_is_known_to_every_node_with_its_commit() -> TestResult {
    let world = World::new().await?;
    let mut other = OtherNode::new(&world).await?;
    assert!(world.keys.rename(organization_id(), key_id(1), &label("mine")?).await?);
    assert_eq!(other.changes(&world).await?, [Change::Keys]);
    assert!(world.keys.rotate(key_id(1), seconds(100), &key(2)?).await?);
    assert_eq!(other.changes(&world).await?, [Change::Keys]);
    assert!(world.keys.delete(organization_id(), key_id(1), seconds(5)).await?);
    assert_eq!(other.changes(&world).await?, [Change::Keys]);
    assert!(!world.keys.delete(organization_id(), key_id(1), seconds(5)).await?);
    let archived = Project { status: ProjectStatus::Archived, updated_at: seconds(1), ..project() };
    assert_eq!(world.projects.replace(&project(), &archived).await?, ProjectReplaced::Yes);
    assert_eq!(world.projects.replace(&project(), &archived).await?, ProjectReplaced::LostRace);
    assert_eq!(other.changes(&world).await?, [Change::Keys], "what changes nothing is not reported");
    Ok(())
}

#[tokio::test]
async fn a_node_whose_session_or_browser_another_node_ends_is_notified() -> TestResult {
    let world = World::new().await?;
    let mut owner = OtherNode::new(&world).await?;
    let ended = |session: &Session| Session {
        state: SessionState::Ended(EndReason::Deleted),
        ended_at: Some(NOON),
        ..session.clone()
    };
    for (n, by, notified) in [(1, node_id(), false), (2, other_node(), true)] {
        let sessions = PgSessions::new(world.db.database().clone()).on_node(by);
        let session = testing::session(n);
        let browser = Browser {
            id: session.browser.ok_or("no browser")?,
            node: session.node,
            pool: None,
            shape: session.shape.clone(),
            state: BrowserState::Leased,
            session: Some(session.id),
            created_at: session.created_at,
        };
        let _created = sessions.create(organization_id(), &session, Some(browser)).await?;
        assert_eq!(sessions.end(&session, &ended(&session)).await?, Replaced::Yes);
        assert_eq!(sessions.end(&session, &ended(&session)).await?, Replaced::LostRace);
        let expected: &[Change] = if notified { &[Change::SessionEnded(session.id)] } else { &[] };
        assert_eq!(owner.changes(&world).await?, expected);
    }

    let (pool, _) = world.pool(2).await?;
    assert_eq!(owner.changes(&world).await?, [Change::Pool(pool.id)]);
    world.ready(11).await?;
    world.ready(12).await?;
    owner.changes(&world).await?;
    assert_eq!(world.pools.flush(pool.id, NOON).await?.len(), 2);
    assert_eq!(owner.changes(&world).await?, [Change::EndingBrowsers(node_id()), Change::Pool(pool.id)]);
    let _deleted = world.pools.delete(pool.id, true).await?;
    assert_eq!(owner.changes(&world).await?, [Change::Pool(pool.id)]);
    Ok(())
}
