//! Plans the next steps of a pool from its configuration and its browsers: a pure function, tested without a browser.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use time::{Duration, OffsetDateTime};

use super::{Growth, Pool, shares};
use crate::ids::{BrowserId, NodeId};

/// An idle browser of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleBrowser {
    /// The identifier.
    pub id: BrowserId,
    /// The time of its creation.
    pub created_at: OffsetDateTime,
    /// Whether it must be replaced, because its profile changed or the pool's browsers were discarded.
    pub outdated: bool,
}

/// The browsers of a pool on another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeBrowsers {
    /// The node.
    pub node: NodeId,
    /// The capacity of the node in sessions; `None` if it takes no browsers, because it drains or is silent.
    pub capacity: Option<u32>,
    /// The number of browsers that are starting.
    pub warming: u32,
    /// The number of idle browsers.
    pub idle: u32,
    /// The number of leased browsers.
    pub leased: u32,
}

impl NodeBrowsers {
    fn has(&self) -> u32 {
        self.warming.saturating_add(self.idle).saturating_add(self.leased)
    }
}

/// The observed browsers of a pool, as seen by one node. Ending browsers do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The number of browsers of this node that are starting.
    pub warming: u32,
    /// The idle browsers of this node.
    pub idle: Vec<IdleBrowser>,
    /// The number of leased browsers of this node.
    pub leased: u32,
    /// Whether this node takes no browsers, because it drains or has no capacity.
    pub takes_none: bool,
    /// The capacity of this node in sessions.
    pub capacity: u32,
    /// The browsers on other nodes: those of all nodes that serve, and of all that have browsers of the pool.
    pub others: Vec<NodeBrowsers>,
}

impl Observed {
    /// Returns whether a browser is starting on any node.
    #[must_use]
    pub fn has_warming(&self) -> bool {
        self.warming > 0 || self.others.iter().any(|node| node.warming > 0)
    }
}

/// The steps to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The new growth state.
    pub growth: Growth,
    /// The number of browsers to start.
    pub start: u32,
    /// The idle browsers to end: the pool has become smaller, other nodes have too few, or they are outdated.
    pub discard: Vec<BrowserId>,
    /// The time of the next growth; `None` if the allowance is the full size.
    pub again_at: Option<OffsetDateTime>,
    /// The other nodes that have browsers to start or to end, with the number.
    pub others: Vec<(NodeId, u32)>,
}

/// Returns the next steps of a pool on `node` at `now`.
///
/// The allowance grows to the size at the fill rate. It is divided into [`shares`] of the nodes. Browsers that a node
/// lacks in its share are started at once, as long as all nodes together are within the allowance. A pool that has become
/// smaller ends idle browsers, first where there are most beyond the share, and there the oldest; leased ones end with
/// their lease and are not replaced. In a full pool, one idle browser at a time moves from the node that has most beyond
/// its share to one that lacks some. Outdated browsers are ended first and replaced at once. A node that takes no
/// browsers ends its idle ones.
#[must_use]
pub fn plan(pool: &Pool, observed: &Observed, node: NodeId, now: OffsetDateTime) -> Plan {
    let (growth, again_at) = grow_allowance(pool, now);
    let nodes = Nodes::of(observed, node);
    let total: u32 = nodes.all.iter().map(NodeBrowsers::has).fold(0, u32::saturating_add);
    let surplus = nodes.surplus(pool, total);
    let outdated = count(observed.idle.iter().filter(|browser| browser.outdated).count());
    let gone = surplus.get(&node).copied().unwrap_or_default().max(outdated);
    let mut oldest = observed.idle.clone();
    oldest.sort_by_key(|browser| (!browser.outdated, browser.created_at, browser.id));
    let discard = oldest.into_iter().take(gone as usize).map(|browser| browser.id).collect();
    let allowed = shares(pool.id, growth.allowance, &nodes.capacities);
    let mut room = growth.allowance.saturating_sub(total - outdated);
    let mut lacking = |browsers: &NodeBrowsers| {
        let share = allowed.get(&browsers.node).copied().unwrap_or_default();
        let lacks = share.saturating_sub(browsers.has()).min(room);
        room -= lacks;
        lacks
    };
    let start = lacking(&NodeBrowsers { idle: nodes.all[0].idle - outdated, ..nodes.all[0] });
    let mut others = Vec::new();
    for browsers in &nodes.all[1..] {
        let ends =
            if browsers.capacity.is_some() { surplus.get(&browsers.node).copied().unwrap_or_default() } else { 0 };
        match lacking(browsers).max(ends) {
            0 => {}
            number => others.push((browsers.node, number)),
        }
    }
    Plan { growth, start, discard, again_at, others }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The nodes of a pool, this one first.
struct Nodes {
    all: Vec<NodeBrowsers>,
    /// The capacities of those that take browsers.
    capacities: BTreeMap<NodeId, u32>,
}

impl Nodes {
    fn of(observed: &Observed, node: NodeId) -> Self {
        let own = NodeBrowsers {
            node,
            capacity: (!observed.takes_none).then_some(observed.capacity),
            warming: observed.warming,
            idle: count(observed.idle.len()),
            leased: observed.leased,
        };
        let all: Vec<_> = std::iter::once(own).chain(observed.others.iter().copied()).collect();
        let capacities = all.iter().filter_map(|one| Some((one.node, one.capacity?))).collect();
        Self { all, capacities }
    }

    /// Returns the number of idle browsers that each node ends.
    fn surplus(&self, pool: &Pool, total: u32) -> BTreeMap<NodeId, u32> {
        let shares = shares(pool.id, pool.config.size, &self.capacities);
        let mut beyond: Vec<(u32, NodeId, u32)> = Vec::new();
        let mut ends = BTreeMap::new();
        let mut excess = total.saturating_sub(pool.config.size);
        let mut lacks = false;
        for one in &self.all {
            match (one.capacity, shares.get(&one.node)) {
                (Some(_), Some(share)) => {
                    lacks |= one.has() < *share;
                    beyond.push((one.has().saturating_sub(*share).min(one.idle), one.node, one.idle));
                }
                _ => {
                    ends.insert(one.node, one.idle);
                    excess = excess.saturating_sub(one.idle);
                }
            }
        }
        beyond.sort_by_key(|(beyond, node, _)| (Reverse(*beyond), *node));
        let is_full = total == pool.config.size && self.all.iter().all(|one| one.warming == 0);
        if let Some((1.., node, _)) = beyond.first().filter(|_| is_full && lacks) {
            ends.insert(*node, 1);
            return ends;
        }
        for (beyond, node, _) in &beyond {
            let end = excess.min(*beyond);
            excess -= end;
            ends.insert(*node, end);
        }
        // Leases are more than the shares of their nodes.
        for (beyond, node, idle) in &beyond {
            let end = excess.min(idle - beyond);
            excess -= end;
            *ends.entry(*node).or_default() += end;
        }
        ends
    }
}

fn grow_allowance(pool: &Pool, now: OffsetDateTime) -> (Growth, Option<OffsetDateTime>) {
    let size = pool.config.size;
    let Growth { allowance, since } = pool.growth;
    if allowance >= size {
        return (Growth { allowance: size, since }, None);
    }
    let one = growth_interval(pool);
    // Whole nanoseconds: with fractions, a moment that is just reached could be rounded down.
    let earned = (now - since).whole_nanoseconds().max(0) / one.whole_nanoseconds();
    match u32::try_from(earned) {
        Ok(earned) if earned < size - allowance => {
            let since = since + one * earned;
            (Growth { allowance: allowance + earned, since }, Some(since + one))
        }
        _ => (Growth { allowance: size, since: now }, None),
    }
}

/// Returns the time for growth by one browser; at most a minute, so that small pools grow too.
fn growth_interval(pool: &Pool) -> Duration {
    let percent_per_minute = u64::from(pool.config.size) * u64::from(pool.config.fill_rate_per_minute);
    let nanoseconds = 6_000_000_000_000 / percent_per_minute.max(100);
    Duration::nanoseconds(i64::try_from(nanoseconds).unwrap_or(i64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::testing::{node_id, pool};

    const NOON: OffsetDateTime = datetime!(2026-12-01 12:00 UTC);

    fn idle(n: u32) -> Vec<IdleBrowser> {
        (0..n).map(|i| IdleBrowser { id: crate::testing::browser_id(i), created_at: NOON, outdated: false }).collect()
    }

    #[test]
    fn a_new_pool_is_filled_at_once() {
        let pool = pool(4).growth(4, NOON).build();
        let steps = plan(&pool, &Observed::default(), node_id(), NOON);
        assert_eq!((steps.start, steps.again_at), (4, None));
    }

    #[test]
    fn missing_browsers_are_replaced_at_once() {
        let pool = pool(4).growth(4, NOON).build();
        let steps =
            plan(&pool, &Observed { warming: 1, idle: idle(1), leased: 1, ..Observed::default() }, node_id(), NOON);
        assert_eq!(steps.start, 1);
    }

    #[test]
    fn a_larger_size_is_reached_at_the_fill_rate() {
        // 25 % of 8 per minute: one every 30 s.
        let pool = pool(8).growth(4, NOON).build();
        let has = Observed { idle: idle(4), leased: 0, ..Observed::default() };
        for (seconds, start) in [(0, 0), (29, 0), (30, 1), (59, 1), (60, 2), (120, 4), (3600, 4)] {
            let steps = plan(&pool, &has, node_id(), NOON + Duration::seconds(seconds));
            assert_eq!(steps.start, start, "after {seconds} s");
        }
        assert_eq!(plan(&pool, &has, node_id(), NOON).again_at, Some(NOON + Duration::seconds(30)));
    }

    #[test]
    fn a_pool_of_two_grows_by_at_least_one_a_minute() {
        let pool = pool(2).growth(0, NOON).build();
        assert_eq!(plan(&pool, &Observed::default(), node_id(), NOON + Duration::MINUTE).start, 1);
    }

    #[test]
    fn outdated_browsers_are_replaced_at_once() {
        let pool = pool(3).growth(3, NOON).build();
        let mut has = idle(3);
        has[1].outdated = true;
        let steps = plan(&pool, &Observed { idle: has.clone(), leased: 0, ..Observed::default() }, node_id(), NOON);
        assert_eq!((steps.start, steps.discard), (1, vec![crate::testing::browser_id(1)]));
        // A pool that becomes smaller discards them first and does not replace them.
        let steps = plan(&pool, &Observed { idle: has, leased: 2, ..Observed::default() }, node_id(), NOON);
        assert_eq!((steps.start, steps.discard.len(), steps.discard[0]), (0, 2, crate::testing::browser_id(1)));
    }

    #[test]
    fn a_smaller_size_ends_idle_browsers_and_leaves_leased_ones() {
        let pool = pool(2).growth(5, NOON).build();
        let steps = plan(&pool, &Observed { idle: idle(2), leased: 3, ..Observed::default() }, node_id(), NOON);
        assert_eq!((steps.start, steps.discard.len()), (0, 2));
        let steps = plan(&pool, &Observed { idle: idle(3), leased: 0, ..Observed::default() }, node_id(), NOON);
        assert_eq!(steps.discard, [crate::testing::browser_id(0)]);
    }
}
