//! Tests of the pool filler: the lead, the fence, and the backoff.

use std::sync::Arc;

use casement_domain::browser::{Browser, BrowserState, EngineError, Launch, Started};
use casement_domain::pool::{
    FillRound, FillStatus, Generation, Growth, IdleBrowser, LeaderFence, MAX_BLOCKED_REASON, NodeBrowsers, Observed,
    Pool, PoolFiller, WarmError,
};
use casement_domain::testing::{NOON, browser_id, node_id, pool, pool_id, project_id};
use casement_domain::{BrowserId, MonotonicClock as _, MonotonicTime, Replaced};
use parking_lot::Mutex;
use pretty_assertions::assert_eq;
use time::Duration;

use crate::support::{World, hung, nth, other_node, pooled_browser, store_down};

/// Returns a world in which this node has the lead of a pool of this size with the `observed` browsers.
fn leads(size: u32, observed: Observed) -> World {
    let mut world = World::default();
    world.pools.expect_lead().returning(|id, node, lasts| {
        assert_eq!((id, node, lasts), (pool_id(1), node_id(), PoolFiller::LEAD));
        Ok(Some(LeaderFence(5)))
    });
    world.pools.expect_find_by_id().returning(move |_| Ok(Some(pool(size).build())));
    world.pools.expect_observe().returning(move |_, _| Ok(observed.clone()));
    world.pools.expect_grow().returning(|_, _, _| Ok(Replaced::Yes));
    world
}

/// Lets this node observe the last of these first, and never take the lead.
fn observes(world: &mut World, size: u32, mut observed: Vec<Observed>) {
    world.pools.expect_find_by_id().returning(move |_| Ok(Some(pool(size).growth(size, NOON).build())));
    world.pools.expect_observe().returning(move |_, _| Ok(observed.pop().expect("an observation for each look")));
}

/// Returns the row of a warming browser when the filler is about to start it.
fn is_warming(world: &mut World) {
    world.browsers.expect_find().returning(|_| Ok(Some(pooled_browser(1, BrowserState::Warming))));
}

fn launch() -> Launch {
    Launch::new(browser_id(1), pool(1).build().config.shape, 600)
}

#[tokio::test]
async fn a_pool_that_another_node_leads_is_filled_here_too_but_does_not_grow() {
    let mut world = World::default();
    world.pools.expect_lead().times(1).returning(|_, _, _| Ok(None));
    let growing = pool(4).growth(1, NOON - Duration::HOUR).build();
    world.pools.expect_find_by_id().returning(move |_| Ok(Some(growing.clone())));
    world.pools.expect_observe().returning(|_, _| Ok(Observed::default()));
    world.pools.expect_warm().times(1).returning(|_, _| Ok(Replaced::Yes));
    let round = world.build().filler.look(pool_id(1)).await.expect("looked");
    assert_eq!((round.launches.len(), round.again_at), (1, None));
}

#[tokio::test]
async fn another_node_is_informed_of_its_work_once() {
    let lacks = NodeBrowsers { node: other_node(), capacity: Some(1), warming: 0, idle: 0, leased: 0 };
    let mut world = leads(4, Observed { capacity: 1, others: vec![lacks], ..Observed::default() });
    world.pools.expect_warm().returning(|_, _| Ok(Replaced::LostRace));
    let casement = world.build();
    for expected in [vec![other_node()], vec![]] {
        assert_eq!(casement.filler.look(pool_id(1)).await.expect("looked").inform, expected);
    }
}

#[tokio::test]
async fn a_node_is_informed_again_when_it_lacks_one_more() {
    let mut world = World::default();
    let mut seen = [(2, 1), (1, 2)].map(|(here, there)| {
        let other = NodeBrowsers { node: other_node(), capacity: Some(1), warming: 0, idle: there, leased: 0 };
        Observed { leased: here, takes_none: true, others: vec![other], ..Observed::default() }
    });
    seen.reverse();
    observes(&mut world, 4, seen.to_vec());
    let casement = world.build();
    for _ in 0..2 {
        assert_eq!(casement.filler.look(pool_id(1)).await.expect("looked").inform, [other_node()]);
    }
}

#[tokio::test]
async fn a_node_that_drains_informs_the_others_when_its_browsers_have_ended() {
    let others = vec![NodeBrowsers { node: other_node(), capacity: Some(1), warming: 0, idle: 2, leased: 0 }];
    let idle = (1..=2).map(|n| IdleBrowser { id: browser_id(n), created_at: NOON, outdated: false }).collect();
    let empty = Observed { takes_none: true, others, ..Observed::default() };
    let mut world = World::default();
    observes(&mut world, 4, vec![empty.clone(), Observed { idle, ..empty }]);
    world.browsers.expect_discard().times(2).returning(|_| Ok(true));
    world.expect_wakes(1);
    let casement = world.build();

    let round = casement.filler.look(pool_id(1)).await.expect("looked");
    assert_eq!((round.discarded.len(), round.inform), (2, vec![]), "the pool is full until they end");
    let round = casement.filler.look(pool_id(1)).await.expect("looked");
    assert_eq!((round.launches, round.inform), (vec![], vec![other_node()]));
}

#[tokio::test]
async fn a_pool_deleted_between_lead_and_look_gives_nothing_to_do() {
    let mut world = World::default();
    world.pools.expect_observe().times(1).returning(|_, _| Ok(Observed::default()));
    world.pools.expect_lead().times(1).returning(|_, _, _| Ok(Some(LeaderFence(1))));
    world.pools.expect_find_by_id().times(1).returning(|_| Ok(None));
    assert_eq!(world.build().filler.look(pool_id(1)).await.expect("looked"), FillRound::default());
}

#[tokio::test]
async fn missing_browsers_are_stored_as_warming_before_they_are_started() {
    let mut world = leads(3, Observed { warming: 1, ..Observed::default() });
    world
        .pools
        .expect_warm()
        .withf(|browser, generation| {
            (browser.state, browser.pool, browser.node, *generation)
                == (BrowserState::Warming, Some(pool_id(1)), node_id(), Generation::default())
        })
        .times(2)
        .returning(|_, _| Ok(Replaced::Yes));
    let round = world.build().filler.look(pool_id(1)).await.expect("looked");
    let ids: Vec<_> = round.launches.iter().map(|launch| (launch.id, launch.abandoned_after_seconds)).collect();
    assert_eq!(ids, [(BrowserId::from_ulid(nth(1)), 600), (BrowserId::from_ulid(nth(2)), 600)]);
    assert_eq!((round.project, round.discarded, round.again_at), (Some(project_id()), vec![], None));
}

#[tokio::test]
async fn who_lost_the_lead_starts_nothing_more() {
    let mut world = leads(3, Observed::default());
    let mut answers = vec![Replaced::LostRace, Replaced::Yes];
    world.pools.expect_warm().times(2).returning(move |_, _| Ok(answers.pop().expect("asked twice")));
    let round = world.build().filler.look(pool_id(1)).await.expect("looked");
    assert_eq!(round.launches.len(), 1);
}

#[tokio::test]
async fn what_was_stored_before_the_store_failed_is_started_all_the_same() {
    let mut world = leads(3, Observed::default());
    let mut stored = 0;
    world.pools.expect_warm().times(2).returning(move |_, _| {
        stored += 1;
        if stored == 1 { Ok(Replaced::Yes) } else { Err(store_down()) }
    });
    let round = world.build().filler.look(pool_id(1)).await.expect("looked");
    assert_eq!(round.launches.len(), 1);
}

#[tokio::test]
async fn an_abandoned_warming_row_is_discarded_after_a_timeout() {
    let mut world = leads(2, Observed { warming: 1, ..Observed::default() });
    world.pools.expect_warm().times(1).returning(|_, _| Ok(Replaced::Yes));
    let starting = BrowserId::from_ulid(nth(1));
    world.browsers.expect_of_node().withf(|node| *node == node_id()).returning(move |_| {
        let [idle, gone] = [7, 9].map(|n| pooled_browser(n, BrowserState::Idle));
        let lost = pooled_browser(8, BrowserState::Warming);
        Ok(vec![idle, gone, lost.clone(), Browser { id: starting, ..lost }])
    });
    world.engine.expect_is_known().returning(|id| id == browser_id(7));
    for n in [8, 9] {
        world.browsers.expect_discard().withf(move |id| *id == browser_id(n)).times(1).returning(|_| Ok(true));
        world.expect_cleanup(browser_id(n));
    }
    world.wake.expect_wake().withf(|id| *id == pool_id(1)).times(2).return_const(());
    let casement = world.build();
    casement.filler.look(pool_id(1)).await.expect("looked");

    casement.filler.clear_lost().await.expect("it may be stored just now");
    casement.clock.advance(Duration::seconds(61));
    casement.filler.clear_lost().await.expect("cleared");
}

#[tokio::test]
async fn of_what_is_too_much_only_what_was_still_idle_here_is_buried() {
    let idle = (1..=4).map(|n| IdleBrowser { id: browser_id(n), created_at: NOON, outdated: false }).collect();
    let mut world = leads(1, Observed { idle, ..Observed::default() });
    // The second browser was leased after the observation.
    world.browsers.expect_discard().times(3).returning(|id| Ok(id != browser_id(2)));
    // Other nodes may have room now.
    world.expect_wakes(1);
    let round = world.build().filler.look(pool_id(1)).await.expect("looked");
    assert_eq!((round.discarded, round.launches), (vec![browser_id(1), browser_id(3)], vec![]));
}

#[tokio::test]
async fn a_browser_that_answers_goes_into_its_pool() {
    let mut world = World::default();
    is_warming(&mut world);
    world
        .engine
        .expect_start()
        .withf(|launch| launch.id == browser_id(1))
        .times(1)
        .returning(|_| Ok(Started::default()));
    world
        .pools
        .expect_ready()
        .withf(|id, now| (*id, *now) == (browser_id(1), NOON))
        .times(1)
        .returning(|_, _| Ok(Replaced::Yes));
    world.build().filler.warm(pool_id(1), &launch()).await.expect("warm");
}

#[tokio::test]
async fn a_browser_that_the_pool_no_longer_needs_ends_without_backoff() {
    let mut world = World::default();
    is_warming(&mut world);
    world.engine.expect_start().times(1).returning(|_| Ok(Started::default()));
    world.pools.expect_ready().times(1).returning(|_, _| Ok(Replaced::LostRace));
    world.browsers.expect_discard().times(1).returning(|_| Ok(false));
    world.expect_cleanup(browser_id(1));
    world.expect_wakes(1);
    let casement = world.build();
    let error = casement.filler.warm(pool_id(1), &launch()).await.expect_err("not wanted");
    assert!(matches!(error, WarmError::NotWanted), "{error:?}");
    assert_eq!(casement.filler.status(pool_id(1)), FillStatus::default());
}

#[tokio::test]
async fn a_browser_that_was_discarded_while_it_waited_for_its_turn_is_not_started() {
    for row in [None, Some(pooled_browser(1, BrowserState::Ending))] {
        let mut world = World::default();
        world.browsers.expect_find().returning(move |_| Ok(row.clone()));
        world.browsers.expect_discard().times(1).returning(|_| Ok(false));
        world.expect_cleanup(browser_id(1));
        world.expect_wakes(1);
        let casement = world.build();
        let error = casement.filler.warm(pool_id(1), &launch()).await.expect_err("not wanted");
        assert!(matches!(error, WarmError::NotWanted), "{error:?}");
        assert_eq!(casement.filler.status(pool_id(1)), FillStatus::default());
    }
}

#[tokio::test]
async fn a_start_that_was_ended_on_purpose_is_no_failure() {
    let mut world = World::default();
    is_warming(&mut world);
    world.engine.expect_start().times(1).returning(|_| Err(hung()));
    world.browsers.expect_discard().times(1).returning(|_| Ok(false));
    world.expect_cleanup(browser_id(1));
    world.expect_wakes(1);
    let casement = world.build();
    let error = casement.filler.warm(pool_id(1), &launch()).await.expect_err("ended");
    assert!(matches!(error, WarmError::NotWanted), "{error:?}");
    assert_eq!(casement.filler.status(pool_id(1)), FillStatus::default());
}

/// Returns a world in which every start fails and is cleaned up.
fn cannot_start(mut world: World) -> World {
    is_warming(&mut world);
    world.engine.expect_start().returning(|_| Err(EngineError::NoRoom("no memory".to_owned())));
    world.pools.expect_set_blocked().returning(|_, _| Ok(()));
    world.engine.expect_end().returning(|_| Ok(()));
    world.browsers.expect_discard().returning(|_| Ok(true));
    world.browsers.expect_forget().returning(|_| Ok(()));
    world.wake.expect_wake().return_const(());
    world
}

#[tokio::test]
async fn pauses_after_failures_double_up_to_five_minutes() {
    let casement = cannot_start(World::default()).build();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let error = casement.filler.warm(pool_id(1), &launch()).await.expect_err("cannot start");
        assert!(matches!(error, WarmError::Engine(_)), "{error:?}");
        let status = casement.filler.status(pool_id(1));
        assert_eq!(status.reason.as_deref(), Some("no browser can be started here: no memory"));
        pauses.push((status.retry_at.expect("a pause") - MonotonicTime::default()).whole_seconds());
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    assert_eq!(casement.filler.status(pool_id(1)).failures, 12);
}

#[tokio::test]
async fn after_a_failure_nothing_is_started_in_the_pause_and_then_one_at_a_time() {
    let mut world = cannot_start(leads(3, Observed::default()));
    world.pools.expect_warm().times(1).returning(|_, _| Ok(Replaced::Yes));
    let casement = world.build();
    let _ = casement.filler.warm(pool_id(1), &launch()).await;

    let round = casement.filler.look(pool_id(1)).await.expect("looked");
    assert_eq!((round.launches.len(), round.again_at), (0, Some(MonotonicTime::after_origin(Duration::SECOND))));
    casement.clock.advance(Duration::SECOND);
    let round = casement.filler.look(pool_id(1)).await.expect("looked");
    assert_eq!(round.launches.len(), 1);
}

#[tokio::test]
async fn a_success_and_the_end_of_the_pool_clear_the_failures() {
    let mut world = World::default();
    is_warming(&mut world);
    let mut starts = vec![Ok(Started::default()), Err(hung())];
    world.engine.expect_start().times(2).returning(move |_| starts.pop().expect("started twice"));
    world.pools.expect_ready().returning(|_, _| Ok(Replaced::Yes));
    let mut reasons = vec![None, Some(hung().to_string())];
    world.pools.expect_set_blocked().times(2).returning(move |id, reason| {
        assert_eq!((id, Some(reason)), (pool_id(1), reasons.pop()));
        Ok(())
    });
    world.browsers.expect_discard().returning(|_| Ok(true));
    world.expect_cleanup(browser_id(1));
    world.expect_wakes(1);
    let casement = world.build();
    let _ = casement.filler.warm(pool_id(1), &launch()).await;
    assert_eq!(casement.filler.status(pool_id(1)).failures, 1);
    casement.filler.warm(pool_id(1), &launch()).await.expect("warm");
    assert_eq!(casement.filler.status(pool_id(1)), FillStatus::default());

    let mut world = cannot_start(World::default());
    world.pools.expect_observe().returning(|_, _| Ok(Observed::default()));
    world.pools.expect_lead().returning(|_, _, _| Ok(None));
    world.pools.expect_find_by_id().returning(|_| Ok(None));
    let casement = world.build();
    let _ = casement.filler.warm(pool_id(1), &launch()).await;
    casement.filler.look(pool_id(1)).await.expect("looked");
    assert_eq!(casement.filler.status(pool_id(1)), FillStatus::default());
}

/// Returns a pool that another node could not fill.
fn blocked(size: u32) -> Pool {
    let mut blocked = pool(size).growth(size, NOON).build();
    blocked.blocked_reason = Some("no memory".to_owned());
    blocked
}

#[tokio::test]
async fn a_start_that_succeeds_clears_the_reason_that_another_node_stored() {
    let mut world = World::default();
    is_warming(&mut world);
    world.pools.expect_lead().returning(|_, _, _| Ok(None));
    world.pools.expect_find_by_id().returning(|_| Ok(Some(blocked(1))));
    world.pools.expect_observe().returning(|_, _| Ok(Observed { warming: 1, ..Observed::default() }));
    world.engine.expect_start().times(2).returning(|_| Ok(Started::default()));
    world.pools.expect_ready().returning(|_, _| Ok(Replaced::Yes));
    world.pools.expect_set_blocked().withf(|_, reason| reason.is_none()).times(1).returning(|_, _| Ok(()));
    let casement = world.build();
    casement.filler.look(pool_id(1)).await.expect("looked");
    for _ in 0..2 {
        casement.filler.warm(pool_id(1), &launch()).await.expect("warm");
    }
}

#[tokio::test]
async fn the_leader_of_a_full_pool_clears_its_reason() {
    let mut world = World::default();
    world.pools.expect_lead().returning(|_, _, _| Ok(Some(LeaderFence(5))));
    world.pools.expect_find_by_id().returning(|_| Ok(Some(blocked(2))));
    world.pools.expect_observe().returning(|_, _| Ok(Observed { leased: 2, ..Observed::default() }));
    world.pools.expect_grow().returning(|_, _, _| Ok(Replaced::Yes));
    world.pools.expect_set_blocked().withf(|_, reason| reason.is_none()).times(1).returning(|_, _| Ok(()));
    world.build().filler.look(pool_id(1)).await.expect("looked");
}

#[tokio::test]
async fn the_reason_of_a_failed_start_is_stored_in_500_characters() {
    let mut world = World::default();
    is_warming(&mut world);
    world.engine.expect_start().returning(|_| Err(EngineError::NoRoom("ä".repeat(600))));
    world.pools.expect_set_blocked().times(1).returning(|_, reason| {
        assert_eq!(reason.map(|text| text.chars().count()), Some(MAX_BLOCKED_REASON));
        Ok(())
    });
    world.browsers.expect_discard().returning(|_| Ok(true));
    world.expect_cleanup(browser_id(1));
    world.expect_wakes(1);
    let _ = world.build().filler.warm(pool_id(1), &launch()).await;
}

/// Returns a world with a pool of eight that may have four browsers and one more every 30 s, and its stored growth.
fn grows() -> (World, Arc<Mutex<Growth>>) {
    let stored = Arc::new(Mutex::new(Growth { allowance: 4, since: NOON }));
    let mut world = World::default();
    world.pools.expect_lead().returning(|_, _, _| Ok(Some(LeaderFence(5))));
    let read = stored.clone();
    world.pools.expect_find_by_id().returning(move |_| {
        let growth = *read.lock();
        Ok(Some(pool(8).growth(growth.allowance, growth.since).build()))
    });
    world.pools.expect_observe().returning(|_, _| Ok(Observed { leased: 8, ..Observed::default() }));
    let row = stored.clone();
    world.pools.expect_grow().returning(move |_, _, growth| {
        *row.lock() = growth;
        Ok(Replaced::Yes)
    });
    (world, stored)
}

#[tokio::test]
async fn a_pool_grows_on_the_monotonic_clock() {
    for step in [Duration::HOUR, -Duration::HOUR] {
        let (world, stored) = grows();
        let casement = world.build();
        for (passed, allowance) in [(0, 4), (29, 4), (1, 5), (15, 5), (15, 6), (60, 8)] {
            casement.clock.advance(Duration::seconds(passed));
            let round = casement.filler.look(pool_id(1)).await.expect("looked");
            assert_eq!(stored.lock().allowance, allowance, "{step}");
            let now = casement.clock.monotonic_now();
            assert!(
                round.again_at.is_none_or(|at| at > now && at - now <= Duration::seconds(30)),
                "{:?}",
                round.again_at
            );
            casement.clock.step(step);
        }
    }
}

#[tokio::test]
async fn a_wall_clock_set_back_costs_a_pool_at_most_its_earned_growth() {
    let (world, stored) = grows();
    let casement = world.build();
    casement.clock.step(-Duration::HOUR);
    casement.filler.look(pool_id(1)).await.expect("looked");
    casement.clock.advance(Duration::seconds(30));
    casement.filler.look(pool_id(1)).await.expect("looked");
    assert_eq!(stored.lock().allowance, 5);
}
