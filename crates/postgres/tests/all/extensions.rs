//! Extensions: names, limits, and the references that prevent a deletion.

use casement_domain::browser::Browser;
use casement_domain::extension::{
    Extension, ExtensionDeleted, ExtensionFilter, ExtensionRepository as _, ExtensionStored,
};
use casement_domain::name::SlugName;
use casement_domain::page::Page;
use casement_domain::pool::{ImmediateLease, Pool, PoolRepository as _, PoolStored, WaitQueue as _};
use casement_domain::session::{IdOrName, SessionRepository as _};
use casement_domain::testing::{self, NOON};
use casement_domain::{ExtensionId, ProjectId, Replaced};
use casement_postgres::PgExtensions;
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{Fault, World, lease, seconds, warming};

fn id(n: u32) -> ExtensionId {
    ExtensionId::from_ulid(Ulid::from_parts(11, u128::from(n)))
}

fn extension(n: u32, name: Option<&str>) -> Extension {
    Extension {
        id: id(n),
        project: testing::project_id(),
        name: name.map(|name| SlugName::parse(name).expect("a name")),
        size_bytes: 50 << 20,
        checksum: "ab".repeat(32),
        created_at: seconds(i64::from(n)),
        last_used_at: None,
    }
}

async fn stored(world: &World) -> Result<PgExtensions, Fault> {
    let extensions = PgExtensions::new(world.db.database().clone());
    for (n, name) in [(1, Some("Red")), (2, None), (3, Some("blue"))] {
        assert_eq!(extensions.create(&extension(n, name), 10).await?, ExtensionStored::Yes);
    }
    Ok(extensions)
}

#[tokio::test]
async fn an_extension_is_found_by_id_and_name_in_its_project_alone() -> TestResult {
    let world = World::new().await?;
    let extensions = stored(&world).await?;
    let (ours, others) = (testing::project_id(), ProjectId::from_ulid(Ulid::from_parts(1, 99)));
    assert_eq!(extensions.find(ours, &IdOrName::Id(id(2))).await?, Some(extension(2, None)));
    assert_eq!(extensions.find(ours, &IdOrName::Name("RED".to_owned())).await?, Some(extension(1, Some("Red"))));
    assert_eq!(extensions.find(others, &IdOrName::Id(id(2))).await?, None);
    assert_eq!(extensions.create(&extension(4, Some("BLUE")), 10).await?, ExtensionStored::NameTaken);
    assert_eq!(
        extensions.create(&Extension { project: others, ..extension(5, None) }, 10).await?,
        ExtensionStored::ProjectGone
    );
    let refused = extensions.create(&extension(6, None), 3).await?;
    assert!(matches!(refused, ExtensionStored::LimitExceeded(limit) if limit.used == 3), "{refused:?}");
    assert_eq!(extensions.known(&[id(1), id(9), id(3)]).await?.len(), 2);

    let list = async |name: Option<&str>, query: Option<&str>, limit| {
        let filter = ExtensionFilter { name: name.map(str::to_owned), query: query.map(str::to_owned) };
        let listed = extensions.list(ours, &filter, Page { limit, offset: 0 }).await?;
        Ok::<_, Fault>((listed.items.iter().map(|one| one.id).collect::<Vec<_>>(), listed.next_offset))
    };
    assert_eq!(list(None, None, 2).await?, (vec![id(3), id(2)], Some(2)));
    assert_eq!(list(Some("BLUE"), None, 20).await?.0, [id(3)]);
    assert_eq!(list(None, Some("E"), 20).await?.0, [id(3), id(1)]);
    assert_eq!(list(Some("red"), Some("u"), 20).await?.0, []);
    Ok(())
}

#[tokio::test]
async fn a_pool_holds_on_to_its_extensions_and_hands_them_to_its_leases() -> TestResult {
    let world = World::new().await?;
    let extensions = stored(&world).await?;
    let mut pool = testing::pool(1).build();
    pool.config.shape.extensions = vec![id(3), id(1)];
    let store = async |pool: &Pool| world.pools.create(testing::organization_id(), pool, 100).await;
    let mut unknown = pool.clone();
    unknown.config.shape.extensions.push(id(9));
    assert_eq!(store(&unknown).await?, PoolStored::ExtensionGone);
    assert_eq!(store(&pool).await?, PoolStored::Yes);
    assert_eq!(world.pools.find_by_id(pool.id).await?, Some(pool.clone()));
    assert_eq!(extensions.delete(id(1)).await?, ExtensionDeleted::InUse);

    let browser = Browser { shape: pool.config.shape.clone(), ..warming(1) };
    assert_eq!(world.pools.warm(&browser, pool.generation).await?, Replaced::Yes);
    assert_eq!(world.pools.ready(browser.id, NOON).await?, Replaced::Yes);
    let ImmediateLease::Leased(session) = world.wait_queue.take_now(pool.id, &lease(1), NOON).await? else {
        return Err("a browser was idle".into());
    };
    assert_eq!(session.shape.extensions, [id(3), id(1)]);
    assert_eq!(world.sessions.find(session.id).await?.map(|found| found.shape), Some(session.shape.clone()));

    let mut next = pool.clone();
    (next.config.shape.extensions, next.updated_at) = (vec![id(9)], seconds(1));
    assert_eq!(world.replace(&pool, &next).await?, PoolStored::ExtensionGone);
    next.config.shape.extensions = vec![id(3)];
    assert_eq!(world.replace(&pool, &next).await?, PoolStored::Yes);
    assert_eq!(extensions.delete(id(1)).await?, ExtensionDeleted::Yes, "a session that has it does not hold it");
    assert_eq!(extensions.delete(id(1)).await?, ExtensionDeleted::NotFound);
    let _ = world.pools.delete(pool.id, true).await?;
    assert_eq!(extensions.delete(id(3)).await?, ExtensionDeleted::Yes, "nor does a pool that is gone");
    Ok(())
}

#[tokio::test]
async fn an_extension_is_not_deleted_while_a_pool_takes_it() -> TestResult {
    let world = World::new().await?;
    let extensions = stored(&world).await?;
    for n in 1..=10 {
        let extension = extension(100 + n, None);
        assert_eq!(extensions.create(&extension, 100).await?, ExtensionStored::Yes);
        let mut pool = testing::pool(1).id(testing::pool_id(n)).build();
        pool.config.shape.extensions = vec![extension.id];
        let (stored, deleted) =
            tokio::join!(world.pools.create(testing::organization_id(), &pool, 100), extensions.delete(extension.id));
        match (stored?, deleted?) {
            (PoolStored::Yes, ExtensionDeleted::InUse) | (PoolStored::ExtensionGone, ExtensionDeleted::Yes) => {}
            both => return Err(format!("{both:?}").into()),
        }
    }
    Ok(())
}

#[tokio::test]
async fn its_last_use_never_moves_backwards() -> TestResult {
    let world = World::new().await?;
    let extensions = stored(&world).await?;
    let used = async || {
        Ok::<_, Fault>(extensions.find(testing::project_id(), &IdOrName::Id(id(1))).await?.and_then(|e| e.last_used_at))
    };
    for (at, then) in [(5, 5), (3, 5), (9, 9)] {
        extensions.used(id(1), seconds(at)).await?;
        assert_eq!(used().await?, Some(seconds(then)));
    }
    Ok(())
}
