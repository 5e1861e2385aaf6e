//! The shares of the nodes in the browsers of a pool: a pure function, which every node computes for itself.

use std::collections::BTreeMap;

use crate::ids::{NodeId, PoolId};

/// Divides `total` browsers of a pool among nodes in proportion to their capacities, in sessions. Capacities of 0 only
/// count if all are 0; then all are equal. The shares sum to `total`, unless there is no node.
///
/// Each node gets its quota, rounded down. The rest goes to the nodes with the best draw, weighted by what was rounded
/// off: each pool draws anew, so that small pools are spread over the nodes, and a node that comes or goes changes the
/// draws of no other.
#[must_use]
pub fn shares(pool: PoolId, total: u32, nodes: &BTreeMap<NodeId, u32>) -> BTreeMap<NodeId, u32> {
    let capacity: u64 = nodes.values().map(|capacity| u64::from(*capacity)).sum();
    let weight_of = |one: u32| if capacity > 0 { u64::from(one) } else { 1 };
    let all: u64 = nodes.values().map(|one| weight_of(*one)).sum();
    let mut shares = BTreeMap::new();
    let mut draws = Vec::new();
    let mut rest = total;
    for (node, capacity) in nodes {
        let quota = u64::from(total) * weight_of(*capacity);
        let share = u32::try_from(quota / all).unwrap_or(total);
        shares.insert(*node, share);
        rest = rest.saturating_sub(share);
        if quota % all > 0 {
            draws.push((draw(pool, *node, quota % all), *node));
        }
    }
    draws.sort_by(|(one, a), (other, b)| other.total_cmp(one).then(a.cmp(b)));
    for (_, node) in draws.into_iter().take(rest as usize) {
        *shares.entry(node).or_default() += 1;
    }
    shares
}

/// Returns the draw of a node for a pool; the highest wins. The chance to win is in proportion to the weight (rendezvous
/// hashing).
#[expect(clippy::cast_precision_loss, reason = "the weight and the 53 bits of the hash are exact or nearly so")]
fn draw(pool: PoolId, node: NodeId, weight: u64) -> f64 {
    let uniform = ((hash(pool, node) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    weight as f64 / -uniform.ln()
}

/// A hash that is the same in each process and version.
fn hash(pool: PoolId, node: NodeId) -> u64 {
    let halves = [node.ulid().0, pool.ulid().0].map(u128::to_be_bytes);
    let words = halves.iter().flat_map(|bytes| bytes.chunks_exact(8));
    words.fold(0, |hash, word| mix(hash ^ word.iter().fold(0, |value, byte| (value << 8) | u64::from(*byte))))
}

/// The finalizer of `SplitMix64`.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;
    use crate::testing::pool_id;

    fn nodes(capacities: &[u32]) -> BTreeMap<NodeId, u32> {
        let id = |n| NodeId::from_ulid(Ulid::from_parts(3, n));
        (1..).map(id).zip(capacities.iter().copied()).collect()
    }

    #[test]
    fn shares_sum_to_the_total_and_follow_the_capacities() {
        for capacities in [vec![10], vec![10, 10, 10], vec![90, 45, 0], vec![0, 0], vec![1, 1000, 7]] {
            let nodes = nodes(&capacities);
            let sum: u32 = capacities.iter().sum();
            for (total, n) in (0..200).zip(1..) {
                let shares = shares(pool_id(n), total, &nodes);
                assert_eq!(shares.values().sum::<u32>(), total, "{total} over {capacities:?}");
                for (share, capacity) in shares.values().zip(&capacities).filter(|_| sum > 0) {
                    let quota = f64::from(total) * f64::from(*capacity) / f64::from(sum);
                    assert!((f64::from(*share) - quota).abs() < 1.0, "{share} of {total} over {capacities:?}");
                }
            }
        }
        assert_eq!(shares(pool_id(1), 5, &BTreeMap::new()), BTreeMap::new());
    }

    #[test]
    fn small_pools_are_spread_over_the_nodes() {
        let nodes = nodes(&[20, 10, 10]);
        let mut pools = BTreeMap::<NodeId, u32>::new();
        for n in 1..=400 {
            for (node, share) in shares(pool_id(n), 1, &nodes) {
                *pools.entry(node).or_default() += share;
            }
        }
        let pools: Vec<u32> = pools.into_values().collect();
        assert!((170..230).contains(&pools[0]) && (70..130).contains(&pools[1]), "{pools:?}");
    }

    #[test]
    fn a_node_that_comes_takes_pools_and_moves_no_other_one() {
        let (before, after) = (nodes(&[10, 10]), nodes(&[10, 10, 10]));
        let mut moved = 0;
        for n in 1..=300 {
            let at =
                |nodes| shares(pool_id(n), 1, nodes).into_iter().find(|(_, share)| *share == 1).map(|(node, _)| node);
            if at(&before) != at(&after) {
                moved += 1;
                assert_eq!(at(&after), after.keys().last().copied(), "only the new node takes pools over");
            }
        }
        assert!((70..130).contains(&moved), "{moved} of 300 pools moved");
    }
}
