//! Property tests of the plan of a pool and of the fair queue.

use std::collections::{BTreeMap, VecDeque};

use casement_domain::pool::{FairQueue, Growth, IdleBrowser, Observed, Pool, plan};
use casement_domain::testing::{NOON, browser_id, node_id, pool};
use proptest::prelude::*;
use time::Duration;

fn any_pool() -> impl Strategy<Value = Pool> {
    (1_u32..40, 1_u32..=100, 0_u32..50, 0_i64..7200).prop_map(|(size, rate, allowance, age)| {
        let mut pool = pool(size).build();
        pool.config.fill_rate_per_minute = rate;
        pool.growth = Growth { allowance, since: NOON - Duration::seconds(age) };
        pool
    })
}

fn any_observed() -> impl Strategy<Value = Observed> {
    (0_u32..20, prop::collection::vec(0_i64..100, 0..20), 0_u32..20).prop_map(|(warming, ages, leased)| {
        let idle = ages.iter().zip(1..).map(|(age, n)| IdleBrowser {
            id: browser_id(n),
            created_at: NOON - Duration::seconds(*age),
            outdated: false,
        });
        Observed { warming, idle: idle.collect(), leased, ..Observed::default() }
    })
}

fn has(observed: &Observed) -> u32 {
    observed.warming + u32::try_from(observed.idle.len()).expect("few") + observed.leased
}

proptest! {
    #[test]
    fn no_more_is_started_than_the_size_leaves_room_for(pool in any_pool(), observed in any_observed()) {
        let steps = plan(&pool, &observed, node_id(), NOON);
        prop_assert!(steps.start <= pool.config.size.saturating_sub(has(&observed)));
        prop_assert!(steps.growth.allowance <= pool.config.size);
        prop_assert!(steps.start == 0 || steps.discard.is_empty(), "never both");
    }

    #[test]
    fn only_surplus_idle_browsers_are_discarded_each_once_and_the_oldest_first(
        pool in any_pool(), observed in any_observed()
    ) {
        let steps = plan(&pool, &observed, node_id(), NOON);
        let made = |id| observed.idle.iter().find(|idle| idle.id == id).map(|idle| (idle.created_at, idle.id));
        let discarded: Vec<_> = steps.discard.iter().map(|id| made(*id)).collect();
        prop_assert!(discarded.iter().all(Option::is_some), "something else than idle ones");
        prop_assert!(discarded.is_sorted_by(|one, next| one < next));
        let surplus = has(&observed).saturating_sub(pool.config.size);
        prop_assert_eq!(steps.discard.len(), (surplus as usize).min(observed.idle.len()));
        let remaining = observed.idle.iter().filter(|idle| !steps.discard.contains(&idle.id));
        prop_assert!(remaining.map(|idle| Some((idle.created_at, idle.id))).all(|one| discarded.iter().all(|gone| *gone < one)));
    }

    #[test]
    fn what_is_followed_again_and_again_comes_to_rest_at_the_size(pool in any_pool(), observed in any_observed()) {
        let (mut pool, mut observed, mut now) = (pool, observed, NOON);
        let leased = observed.leased;
        let mut next = 1_000;
        for _ in 0..200 {
            let steps = plan(&pool, &observed, node_id(), now);
            prop_assert!(steps.growth.allowance >= pool.growth.allowance.min(pool.config.size), "it never shrinks");
            prop_assert!(steps.again_at.is_none_or(|at| at > now), "or the filler would turn in circles");
            pool.growth = steps.growth;
            observed.idle.retain(|idle| !steps.discard.contains(&idle.id));
            // The warming browsers become ready, and the started ones are warming now.
            let ready = std::mem::replace(&mut observed.warming, steps.start);
            for _ in 0..ready {
                observed.idle.push(IdleBrowser { id: browser_id(next), created_at: now, outdated: false });
                next += 1;
            }
            now = steps.again_at.unwrap_or(now);
        }
        prop_assert_eq!(observed.leased, leased);
        prop_assert_eq!(has(&observed), pool.config.size.max(leased));
        let rest = plan(&pool, &observed, node_id(), now);
        prop_assert_eq!((rest.start, rest.discard, rest.again_at), (0, vec![], None));
    }

    #[test]
    fn looking_oftener_earns_no_more(pool in any_pool(), looks in prop::collection::vec(0_i64..60_000, 1..30)) {
        let observed = Observed::default();
        let mut often = pool.clone();
        let mut now = NOON;
        for step in looks {
            now += Duration::milliseconds(step);
            often.growth = plan(&often, &observed, node_id(), now).growth;
        }
        prop_assert_eq!(often.growth.allowance, plan(&pool, &observed, node_id(), now).growth.allowance);
    }

    #[test]
    fn a_clock_that_is_set_back_earns_nothing_and_loses_nothing(pool in any_pool(), back in 1_i64..100_000) {
        let earlier = pool.growth.since - Duration::seconds(back);
        let steps = plan(&pool, &Observed::default(), node_id(), earlier);
        prop_assert_eq!(steps.growth.allowance, pool.growth.allowance.min(pool.config.size));
    }

    #[test]
    fn a_fair_queue_gives_everything_once_in_each_owners_order(wishes in prop::collection::vec(0_u8..5, 0..100)) {
        let mut queue = FairQueue::default();
        let mut expected: BTreeMap<u8, VecDeque<usize>> = BTreeMap::new();
        for (n, owner) in wishes.iter().enumerate() {
            queue.push(*owner, (*owner, n));
            expected.entry(*owner).or_default().push_back(n);
        }
        prop_assert_eq!(queue.len(), wishes.len());
        while let Some((owner, n)) = queue.pop() {
            prop_assert_eq!(expected.get_mut(&owner).and_then(VecDeque::pop_front), Some(n));
        }
        prop_assert!(queue.is_empty() && expected.values().all(VecDeque::is_empty));
    }

    #[test]
    fn no_owner_in_a_fair_queue_is_served_twice_before_another_one_that_waits(
        steps in prop::collection::vec(prop::option::of(0_u8..5), 0..200)
    ) {
        let mut queue = FairQueue::default();
        let mut waiting: BTreeMap<u8, u32> = BTreeMap::new();
        // The number of times that others were served since an owner began to wait or was served itself.
        let mut served_since: BTreeMap<(u8, u8), u32> = BTreeMap::new();
        for step in steps {
            match step {
                Some(owner) => {
                    queue.push(owner, owner);
                    *waiting.entry(owner).or_default() += 1;
                }
                None => {
                    let Some(served) = queue.pop() else { continue };
                    served_since.retain(|(waiter, _), _| *waiter != served);
                    *waiting.get_mut(&served).expect("it waited") -= 1;
                    for (waiter, count) in &waiting {
                        if *count > 0 && *waiter != served {
                            let times = served_since.entry((*waiter, served)).or_default();
                            *times += 1;
                            prop_assert!(*times <= 1, "{served} was served twice while {waiter} waited");
                        }
                    }
                }
            }
        }
    }
}
