//! Tests of the plan of a pool over several nodes, each of which plans for itself.

use std::collections::BTreeMap;

use casement_domain::pool::{Growth, IdleBrowser, NodeBrowsers, Observed, Plan, Pool, plan, shares};
use casement_domain::testing::{NOON, browser_id, pool};
use casement_domain::{BrowserId, NodeId};
use pretty_assertions::assert_eq;
use proptest::prelude::*;
use ulid::Ulid;

/// The browsers of a pool on one node.
#[derive(Clone, Debug, Default)]
struct Site {
    capacity: Option<u32>,
    warming: u32,
    idle: Vec<BrowserId>,
    leased: u32,
}

#[derive(Clone, Debug)]
struct Sites(BTreeMap<NodeId, Site>);

fn node(n: u128) -> NodeId {
    NodeId::from_ulid(Ulid::from_parts(3, n))
}

fn few(number: usize) -> u32 {
    u32::try_from(number).expect("few")
}

/// Returns ids that no site has at first.
fn new_ids() -> impl Iterator<Item = BrowserId> {
    (1000..).map(browser_id)
}

impl Sites {
    /// Makes sites of this capacity, idle and leased browsers each.
    fn of(sites: &[(Option<u32>, u32, u32)]) -> Self {
        let mut next = 0..;
        let site = |(capacity, idle, leased): &(Option<u32>, u32, u32)| Site {
            capacity: *capacity,
            warming: 0,
            idle: next.by_ref().take(*idle as usize).map(browser_id).collect(),
            leased: *leased,
        };
        Self((1..).map(node).zip(sites.iter().map(site).collect::<Vec<_>>()).collect())
    }

    fn observed(&self, own: NodeId) -> Observed {
        let site = &self.0[&own];
        let others = self.0.iter().filter(|(node, _)| **node != own).map(|(node, site)| NodeBrowsers {
            node: *node,
            capacity: site.capacity,
            warming: site.warming,
            idle: few(site.idle.len()),
            leased: site.leased,
        });
        Observed {
            warming: site.warming,
            idle: site.idle.iter().map(|id| IdleBrowser { id: *id, created_at: NOON, outdated: false }).collect(),
            leased: site.leased,
            takes_none: site.capacity.is_none(),
            capacity: site.capacity.unwrap_or_default(),
            others: others.collect(),
        }
    }

    fn plan(&self, pool: &Pool, own: NodeId) -> Plan {
        plan(pool, &self.observed(own), own, NOON)
    }

    fn total(&self) -> u32 {
        self.0.values().map(|site| site.warming + few(site.idle.len()) + site.leased).sum()
    }

    fn shares(&self, pool: &Pool) -> BTreeMap<NodeId, u32> {
        let serving = self.0.iter().filter_map(|(node, site)| Some((*node, site.capacity?)));
        shares(pool.id, pool.config.size, &serving.collect())
    }

    /// Lets each node plan and act, one after the other. Returns whether any had something to do.
    fn turn(&mut self, pool: &Pool, ids: &mut impl Iterator<Item = BrowserId>) -> bool {
        let mut acted = false;
        for own in self.0.keys().copied().collect::<Vec<_>>() {
            let steps = self.plan(pool, own);
            let site = self.0.get_mut(&own).expect("a site");
            // What was started at the last turn is ready.
            site.idle.extend(ids.by_ref().take(site.warming as usize));
            site.idle.retain(|id| !steps.discard.contains(id));
            acted |= site.warming > 0 || steps.start > 0 || !steps.discard.is_empty();
            site.warming = steps.start;
        }
        acted
    }
}

fn any_sites() -> impl Strategy<Value = Sites> {
    prop::collection::vec((prop::option::weighted(0.8, 1_u32..50), 0_u32..8, 0_u32..8), 1..5)
        .prop_map(|sites| Sites::of(&sites))
}

proptest! {
    #[test]
    fn nodes_that_plan_at_the_same_moment_start_no_more_than_there_is_room_for(
        size in 1_u32..30, allowance in 0_u32..30, sites in any_sites()
    ) {
        let mut pool = pool(size).build();
        pool.growth = Growth { allowance: allowance.min(size), since: NOON };
        let plans: Vec<Plan> = sites.0.keys().map(|own| sites.plan(&pool, *own)).collect();
        let starts: u32 = plans.iter().map(|steps| steps.start).sum();
        let most = plans.iter().map(|steps| steps.start).max().unwrap_or_default();
        let ends: u32 = sites.0.iter().zip(&plans).filter(|((_, site), _)| site.capacity.is_some())
            .map(|(_, steps)| few(steps.discard.len())).sum();
        let room = pool.growth.allowance.saturating_sub(sites.total());
        prop_assert!(most <= room, "the store refuses what the others have taken of it");
        prop_assert!(starts == 0 || room > 0);
        prop_assert!(ends <= sites.total().saturating_sub(size).max(1), "{ends} of {}", sites.total());
    }

    #[test]
    fn what_every_node_does_comes_to_rest_with_each_at_its_share(size in 1_u32..30, sites in any_sites()) {
        let pool = pool(size).build();
        let mut sites = sites;
        let (mut turns, mut ids) = (0, new_ids());
        while sites.turn(&pool, &mut ids) {
            turns += 1;
            prop_assert!(turns < 500, "it comes to no rest: {sites:?}");
        }
        let shares = sites.shares(&pool);
        let serves = !shares.is_empty();
        let leased: u32 = sites.0.values().map(|site| site.leased).sum();
        prop_assert_eq!(sites.total(), if serves { size.max(leased) } else { leased });
        for (own, site) in &sites.0 {
            let share = shares.get(own).copied().unwrap_or_default();
            let has = few(site.idle.len()) + site.leased;
            prop_assert!(has <= share.max(site.leased), "{has} at a share of {share}: {sites:?}");
        }
    }
}

#[test]
fn the_share_of_a_node_that_drains_is_filled_by_the_others_at_once() {
    let pool = pool(6).build();
    let mut sites = Sites::of(&[(Some(10), 3, 0), (Some(10), 3, 0)]);
    assert_eq!(sites.plan(&pool, node(1)).start, 0);
    sites.0.get_mut(&node(2)).expect("a site").capacity = None;
    assert_eq!(sites.plan(&pool, node(2)).discard.len(), 3);
    sites.0.get_mut(&node(2)).expect("a site").idle.clear();
    assert_eq!(sites.plan(&pool, node(1)).start, 3);
}

#[test]
fn a_new_node_gets_its_share_of_a_full_pool_one_browser_after_the_other() {
    let pool = pool(6).build();
    let mut sites = Sites::of(&[(Some(10), 6, 0), (Some(10), 0, 0)]);
    for moved in 0..3 {
        assert_eq!(sites.plan(&pool, node(1)).discard.len(), 1, "after {moved}");
        let site = sites.0.get_mut(&node(1)).expect("a site");
        site.idle.pop();
        assert_eq!(sites.plan(&pool, node(1)).start, 0);
        assert_eq!(sites.plan(&pool, node(1)).others, [(node(2), 1)], "the other node is informed");
        assert_eq!(sites.plan(&pool, node(2)).start, 1);
        let site = sites.0.get_mut(&node(2)).expect("a site");
        site.warming = 1;
        assert_eq!(sites.plan(&pool, node(1)).discard.len(), 0, "one at a time");
        let site = sites.0.get_mut(&node(2)).expect("a site");
        site.warming = 0;
        site.idle.push(browser_id(100 + moved));
    }
    assert!(!sites.turn(&pool, &mut new_ids()));
}

#[test]
fn leased_browsers_count_where_they_are() {
    let pool = pool(6).build();
    // The leases of the second node exceed its share, so the first one has fewer than its own.
    let sites = Sites::of(&[(Some(10), 1, 0), (Some(10), 0, 4)]);
    assert_eq!(sites.plan(&pool, node(1)).start, 1);
    assert_eq!(sites.plan(&pool, node(2)).start, 0);
}
