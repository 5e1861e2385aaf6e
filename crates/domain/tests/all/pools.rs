//! Tests of creating, changing, flushing and deleting pools.

use casement_domain::browser::{Browser, BrowserState};
use casement_domain::field::FieldCode;
use casement_domain::node::PeerNotice;
use casement_domain::organization::{Limit, LimitExceeded};
use casement_domain::pool::{
    BrowsersLeased, DeletePoolError, Growth, Pool, PoolCounts, PoolDeleted, PoolRequest, PoolStored, PoolUpdateRequest,
};
use casement_domain::reference::Reference;
use casement_domain::session::{EndReason, SessionState};
use casement_domain::testing::{
    NOON, browser_id, leased_session, organization_id, pool, pool_id, project_id, scope, session_id,
};
use casement_domain::{BrowserId, NotFound, PoolId, StoreError, UseCaseError};
use pretty_assertions::assert_eq;
use time::Duration;

use crate::support::{World, archived, nth, other_node, pooled_browser, store_down};

const FULL: LimitExceeded = LimitExceeded { limit: Limit::OrganizationPooled, value: 50, used: 49, requested: 4 };

fn four() -> PoolRequest {
    PoolRequest { size: Some(4), name: Some("warm".to_owned()), ..PoolRequest::default() }
}

fn resized(size: i64) -> PoolUpdateRequest {
    PoolUpdateRequest {
        input: PoolRequest { size: Some(size), ..PoolRequest::default() },
        ..PoolUpdateRequest::default()
    }
}

#[tokio::test]
async fn a_new_pool_may_be_filled_at_once_and_its_filler_is_notified() {
    let mut world = World::default();
    world
        .pools
        .expect_create()
        .withf(|organization, pool, max| {
            *organization == organization_id()
                && pool.project == project_id()
                && pool.growth == Growth { allowance: 4, since: NOON }
                && *max == 7
        })
        .times(1)
        .returning(|_, _, _| Ok(PoolStored::Yes));
    let made = PoolId::from_ulid(nth(1));
    world.wake.expect_wake().withf(move |id| *id == made).times(1).return_const(());
    let (pool, counts) = world.build().pools.create(&scope(), four()).await.expect("created");
    assert_eq!((pool.id, counts), (made, PoolCounts::default()));
    assert_eq!((pool.config.fill_rate_per_minute, pool.config.timeout_seconds), (25, 600));
}

#[tokio::test]
async fn what_the_store_refuses_is_reported_and_wakes_no_filler() {
    for stored in [PoolStored::NameTaken, PoolStored::LimitExceeded(FULL), PoolStored::Gone] {
        let mut world = World::default();
        let answer = stored.clone();
        world.pools.expect_create().times(1).returning(move |_, _, _| Ok(answer.clone()));
        let error = world.build().pools.create(&scope(), four()).await.expect_err("refused");
        let fits = match stored {
            PoolStored::NameTaken => matches!(&error, UseCaseError::NameTaken(taken) if taken.name == "warm"),
            PoolStored::LimitExceeded(_) => matches!(error, UseCaseError::Limit(limit) if limit == FULL),
            _ => matches!(error, UseCaseError::ProjectDeleted),
        };
        assert!(fits, "{error:?}");
    }
}

#[tokio::test]
async fn an_archived_project_takes_neither_new_pools_nor_changes() {
    let casement = World::default().build();
    let error = casement.pools.create(&archived(), PoolRequest::default()).await.expect_err("archived");
    assert!(matches!(error, UseCaseError::Archived(_)), "{error:?}");
    let error = casement.pools.update(&archived(), "warm", resized(1)).await.expect_err("archived");
    assert!(matches!(error, UseCaseError::Archived(_)), "{error:?}");
}

#[tokio::test]
async fn a_pool_that_is_not_valid_or_not_offered_touches_no_port() {
    for (field, input) in [
        ("size", PoolRequest { size: None, ..four() }),
        ("size", PoolRequest { size: Some(0), ..four() }),
        ("fill_rate_per_minute", PoolRequest { fill_rate_per_minute: Some(101), ..four() }),
        ("timeout_seconds", PoolRequest { timeout_seconds: Some(9), ..four() }),
        ("name", PoolRequest { name: Some("a b".to_owned()), ..four() }),
        ("profile", PoolRequest { profile: Some(Reference::default()), ..four() }),
        ("refresh_on_profile_update", PoolRequest { refresh_on_profile_update: Some(true), ..four() }),
    ] {
        let error = World::default().build().pools.create(&scope(), input).await.expect_err(field);
        let UseCaseError::Invalid(invalid) = error else { panic!("{error:?}") };
        assert_eq!(invalid.fields().iter().map(|bad| bad.field.as_str()).collect::<Vec<_>>(), [field]);
        assert_ne!(invalid.fields()[0].code, FieldCode::InvalidType);
    }
}

/// Stores an update of `before` and returns the stored pool.
async fn updated(before: Pool, update: PoolUpdateRequest) -> Pool {
    let mut world = World::default();
    world.has_pool(before.clone());
    world
        .pools
        .expect_replace()
        .withf(move |_, current, _, discards| *current == before && !discards)
        .times(1)
        .returning(|_, _, _, _| Ok((PoolStored::Yes, Vec::new())));
    world.pools.expect_counts().returning(|_| Ok(PoolCounts { available: 2, acquired: 1 }));
    world.expect_wakes(1);
    let casement = world.build();
    casement.clock.advance(Duration::MINUTE);
    let (pool, counts) = casement.pools.update(&scope(), "warm", update).await.expect("changed");
    assert_eq!(counts, PoolCounts { available: 2, acquired: 1 });
    pool
}

#[tokio::test]
async fn a_pool_that_grows_earns_from_the_moment_of_the_request() {
    let before = pool(4).name("warm").growth(4, NOON - Duration::DAY).build();
    let after = updated(before.clone(), resized(8)).await;
    assert_eq!(after.growth, Growth { allowance: 4, since: NOON + Duration::MINUTE });
    let mut expected = before.clone();
    expected.config.size = 8;
    assert_eq!(after, Pool { growth: after.growth, updated_at: NOON + Duration::MINUTE, ..expected });
}

#[tokio::test]
async fn a_pool_that_shrinks_may_hold_its_new_size_at_most() {
    let after = updated(pool(4).name("warm").growth(4, NOON).build(), resized(2)).await;
    assert_eq!(after.growth, Growth { allowance: 2, since: NOON });
}

#[tokio::test]
async fn what_an_update_does_not_name_stays() {
    let before = pool(4).name("warm").build();
    let empty_name = PoolRequest { name: Some(String::new()), ..PoolRequest::default() };
    for input in [PoolRequest::default(), empty_name] {
        let after = updated(before.clone(), PoolUpdateRequest { input, ..PoolUpdateRequest::default() }).await;
        assert_eq!(after, Pool { updated_at: NOON + Duration::MINUTE, ..before.clone() });
    }
}

#[tokio::test]
async fn an_update_that_lost_a_race_is_made_again_on_what_won() {
    let mut world = World::default();
    let newer = Pool { updated_at: NOON + Duration::SECOND, ..pool(9).name("warm").build() };
    let mut reads = vec![newer.clone(), pool(4).name("warm").build()];
    world.pools.expect_find().times(2).returning(move |_, _| Ok(reads.pop()));
    let winner = newer.clone();
    world.pools.expect_replace().times(2).returning(move |_, current, _, _| {
        Ok((if *current == winner { PoolStored::Yes } else { PoolStored::Gone }, Vec::new()))
    });
    world.pools.expect_counts().returning(|_| Ok(PoolCounts::default()));
    world.expect_wakes(1);
    let update = PoolUpdateRequest {
        input: PoolRequest { timeout_seconds: Some(30), ..PoolRequest::default() },
        ..PoolUpdateRequest::default()
    };
    let (pool, _) = world.build().pools.update(&scope(), "warm", update).await.expect("changed");
    assert_eq!((pool.config.size, pool.config.timeout_seconds), (9, 30));
}

#[tokio::test]
async fn an_update_of_a_pool_that_is_not_there_says_so() {
    let mut world = World::default();
    world.pools.expect_find().times(1).returning(|_, _| Ok(None));
    let error = world.build().pools.update(&scope(), "warm", resized(1)).await.expect_err("no pool");
    assert!(matches!(error, UseCaseError::NotFound(missing) if missing == NotFound::new("browser pool", "warm")));
}

/// Expects that three idle browsers that are stored as ending are cleaned up, but for the third, which is on another
/// node. Returns them.
fn discarded(world: &mut World) -> Vec<BrowserId> {
    world.browsers.expect_find().returning(|id| {
        let row = pooled_browser(1, BrowserState::Ending);
        let node = if id == browser_id(3) { other_node() } else { row.node };
        Ok(Some(Browser { id, node, ..row }))
    });
    world.expect_cleanup(browser_id(1));
    world.expect_cleanup(browser_id(2));
    [1, 2, 3].map(browser_id).to_vec()
}

/// The update stores that the browsers are ending, so that a failure in between leaves none of them to a lease.
/// Expects that the other node is informed of its ending browsers once.
fn informs_the_other_node(world: &mut World) {
    world
        .peers
        .expect_inform()
        .withf(|node, notice| (*node, *notice) == (other_node(), PeerNotice::Ended))
        .times(1)
        .returning(|_, _| Ok(()));
}

#[tokio::test]
async fn an_update_ends_idle_browsers_at_once_only_on_request() {
    let mut world = World::default();
    world.has_pool(pool(4).name("warm").build());
    let discarded = discarded(&mut world);
    world
        .pools
        .expect_replace()
        .withf(|_, _, next, discards| *discards && next.updated_at == NOON)
        .times(1)
        .returning(move |_, _, _, _| Ok((PoolStored::Yes, discarded.clone())));
    world.pools.expect_counts().returning(|_| Ok(PoolCounts::default()));
    informs_the_other_node(&mut world);
    world.expect_wakes(1);
    let update = PoolUpdateRequest { discard_all_idle: true, ..resized(4) };
    world.build().pools.update(&scope(), "warm", update).await.expect("changed");
}

#[tokio::test]
async fn a_flush_ends_this_nodes_idle_browsers_and_leaves_others_to_their_nodes() {
    let mut world = World::default();
    world.has_pool(pool(4).build());
    let discarded = discarded(&mut world);
    world
        .pools
        .expect_flush()
        .withf(|id, now| (*id, *now) == (pool_id(1), NOON))
        .times(1)
        .returning(move |_, _| Ok(discarded.clone()));
    informs_the_other_node(&mut world);
    world.expect_wakes(1);
    assert!(world.build().pools.flush(&scope(), "warm").await.expect("flushed"));
}

/// After an error the caller would flush again, which would end the new browsers.
#[tokio::test]
async fn what_of_a_flush_cannot_be_done_at_once_does_not_fail_it() {
    let mut world = World::default();
    world.has_pool(pool(4).build());
    world.pools.expect_flush().times(1).returning(|_, _| Ok(vec![browser_id(1)]));
    world.browsers.expect_find().returning(|_| Err(store_down()));
    world.expect_wakes(1);
    assert!(world.build().pools.flush(&scope(), "warm").await.expect("flushed"));
}

#[tokio::test]
async fn a_failure_after_an_update_was_stored_does_not_say_that_nothing_was_done() {
    let mut world = World::default();
    world.has_pool(pool(4).name("warm").build());
    world.pools.expect_replace().times(1).returning(|_, _, _, _| Ok((PoolStored::Yes, Vec::new())));
    world.pools.expect_counts().returning(|_| Err(store_down()));
    world.expect_wakes(1);
    let error = world.build().pools.update(&scope(), "warm", resized(2)).await.expect_err("the store is away");
    let UseCaseError::Store(StoreError::Unavailable { maybe_done, .. }) = error else {
        panic!("{error:?}");
    };
    assert!(maybe_done);
}

#[tokio::test]
async fn there_is_no_flush_of_a_pool_that_is_not_there() {
    let mut world = World::default();
    world.pools.expect_find().times(1).returning(|_, _| Ok(None));
    assert!(!world.build().pools.flush(&scope(), "warm").await.expect("asked"));
}

#[tokio::test]
async fn a_pool_with_leased_browsers_is_deleted_by_force_only() {
    let mut world = World::default();
    world.has_pool(pool(4).build());
    world.pools.expect_delete().withf(|_, force| !force).times(1).returning(|_, _| Ok(PoolDeleted::InUse(2)));
    let error = world.build().pools.delete(&scope(), "warm", false).await.expect_err("in use");
    assert!(matches!(error, DeletePoolError::Specific(BrowsersLeased { leased: 2 })), "{error:?}");

    let mut world = World::default();
    world.has_pool(pool(4).build());
    let rows = world.keep_sessions([leased_session(1)]);
    world.pools.expect_delete().withf(|_, force| *force).times(1).returning(|_, _| Ok(PoolDeleted::Yes));
    world.sessions.expect_of_pool().returning(|_| Ok(vec![leased_session(1)]));
    world.expect_close(session_id(1), EndReason::Deleted);
    world.expect_cleanup(browser_id(1));
    world.browsers.expect_of_node().times(1).returning(|_| Ok(vec![pooled_browser(2, BrowserState::Ending)]));
    world.expect_cleanup(browser_id(2));
    world.expect_wakes(2);
    world.build().pools.delete(&scope(), "warm", true).await.expect("deleted");
    assert_eq!(rows.states(), [SessionState::Ended(EndReason::Deleted)]);
}

#[tokio::test]
async fn a_delete_reports_a_missing_pool_and_a_store_error() {
    let mut world = World::default();
    world.pools.expect_find().times(1).returning(|_, _| Ok(None));
    let error = world.build().pools.delete(&scope(), "warm", false).await.expect_err("no pool");
    assert!(matches!(error, DeletePoolError::NotFound(missing) if missing == NotFound::new("browser pool", "warm")));

    let mut world = World::default();
    world.has_pool(pool(4).build());
    world.pools.expect_delete().times(1).returning(|_, _| Ok(PoolDeleted::NotFound));
    let error = world.build().pools.delete(&scope(), "warm", false).await.expect_err("another was first");
    assert!(matches!(error, DeletePoolError::NotFound(_)));

    let mut world = World::default();
    world.pools.expect_find().times(1).returning(|_, _| Err(store_down()));
    let error = world.build().pools.delete(&scope(), "warm", false).await.expect_err("the store is down");
    assert!(matches!(error, DeletePoolError::Store(_)));
}
