//! From what a pool wishes and has to what is to be done: pure, so that it is tested without a browser.

use time::{Duration, OffsetDateTime};

use super::{Growth, Pool};
use crate::ids::BrowserId;

/// An idle browser of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleBrowser {
    /// Which one.
    pub id: BrowserId,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// Whether it is to be replaced, because its profile has changed or all that its pool had was discarded.
    pub outdated: bool,
}

/// What a pool has. Browsers that are ending do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Being started.
    pub warming: u32,
    /// Ready.
    pub idle: Vec<IdleBrowser>,
    /// With callers.
    pub leased: u32,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How far the pool may grow from now on.
    pub growth: Growth,
    /// How many browsers to start.
    pub start: u32,
    /// Which idle ones to end, because the pool has become smaller or they are outdated.
    pub discard: Vec<BrowserId>,
    /// When the pool may grow further; `None`: it is allowed its size.
    pub again_at: Option<OffsetDateTime>,
}

/// The next steps of a pool at `now`.
///
/// The allowance grows from what it is to the size at the fill rate; what was within the allowance and is missing is
/// replaced at once. A pool that has become smaller loses idle browsers, the oldest first; leased ones end with their
/// lease and are not replaced. Outdated ones go first, and are replaced at once.
#[must_use]
pub fn plan(pool: &Pool, observed: &Observed, now: OffsetDateTime) -> Plan {
    let (growth, again_at) = grown(pool, now);
    let idle = u32::try_from(observed.idle.len()).unwrap_or(u32::MAX);
    let has = observed.warming.saturating_add(idle).saturating_add(observed.leased);
    let outdated = u32::try_from(observed.idle.iter().filter(|browser| browser.outdated).count()).unwrap_or(idle);
    let gone = has.saturating_sub(pool.config.size).min(idle).max(outdated);
    let mut oldest = observed.idle.clone();
    oldest.sort_by_key(|browser| (!browser.outdated, browser.created_at, browser.id));
    let discard = oldest.into_iter().take(gone as usize).map(|browser| browser.id).collect();
    let has = has - outdated;
    Plan { growth, start: growth.allowance.saturating_sub(has), discard, again_at }
}

fn grown(pool: &Pool, now: OffsetDateTime) -> (Growth, Option<OffsetDateTime>) {
    let size = pool.config.size;
    let Growth { allowance, since } = pool.growth;
    if allowance >= size {
        return (Growth { allowance: size, since }, None);
    }
    let one = time_for_one(pool);
    // In whole nanoseconds: fractions would round a moment that is just reached to one that is not.
    let earned = (now - since).whole_nanoseconds().max(0) / one.whole_nanoseconds();
    match u32::try_from(earned) {
        Ok(earned) if earned < size - allowance => {
            let since = since + one * earned;
            (Growth { allowance: allowance + earned, since }, Some(since + one))
        }
        _ => (Growth { allowance: size, since: now }, None),
    }
}

/// How long a pool takes to earn one more browser; never longer than a minute, so that small pools grow too.
fn time_for_one(pool: &Pool) -> Duration {
    let percent_per_minute = u64::from(pool.config.size) * u64::from(pool.config.fill_rate_per_minute);
    let nanoseconds = 6_000_000_000_000 / percent_per_minute.max(100);
    Duration::nanoseconds(i64::try_from(nanoseconds).unwrap_or(i64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::testing::pool;

    const NOON: OffsetDateTime = datetime!(2026-12-01 12:00 UTC);

    fn idle(n: u32) -> Vec<IdleBrowser> {
        (0..n).map(|i| IdleBrowser { id: crate::testing::browser_id(i), created_at: NOON, outdated: false }).collect()
    }

    #[test]
    fn a_new_pool_is_filled_at_once() {
        let pool = pool(4).growth(4, NOON).build();
        let steps = plan(&pool, &Observed::default(), NOON);
        assert_eq!((steps.start, steps.again_at), (4, None));
    }

    #[test]
    fn what_was_given_back_is_replaced_at_once() {
        let pool = pool(4).growth(4, NOON).build();
        let steps = plan(&pool, &Observed { warming: 1, idle: idle(1), leased: 1 }, NOON);
        assert_eq!(steps.start, 1);
    }

    #[test]
    fn a_larger_size_is_reached_at_the_fill_rate() {
        // 25 % of 8 per minute: one every 30 s.
        let pool = pool(8).growth(4, NOON).build();
        let has = Observed { warming: 0, idle: idle(4), leased: 0 };
        for (seconds, start) in [(0, 0), (29, 0), (30, 1), (59, 1), (60, 2), (120, 4), (3600, 4)] {
            let steps = plan(&pool, &has, NOON + Duration::seconds(seconds));
            assert_eq!(steps.start, start, "after {seconds} s");
        }
        assert_eq!(plan(&pool, &has, NOON).again_at, Some(NOON + Duration::seconds(30)));
    }

    #[test]
    fn a_pool_of_two_grows_by_at_least_one_a_minute() {
        let pool = pool(2).growth(0, NOON).build();
        assert_eq!(plan(&pool, &Observed::default(), NOON + Duration::MINUTE).start, 1);
    }

    #[test]
    fn outdated_browsers_are_replaced_at_once() {
        let pool = pool(3).growth(3, NOON).build();
        let mut has = idle(3);
        has[1].outdated = true;
        let steps = plan(&pool, &Observed { warming: 0, idle: has.clone(), leased: 0 }, NOON);
        assert_eq!((steps.start, steps.discard), (1, vec![crate::testing::browser_id(1)]));
        // Of a pool that is to become smaller they are the first to go, and none takes their place.
        let steps = plan(&pool, &Observed { warming: 0, idle: has, leased: 2 }, NOON);
        assert_eq!((steps.start, steps.discard.len(), steps.discard[0]), (0, 2, crate::testing::browser_id(1)));
    }

    #[test]
    fn a_smaller_size_ends_idle_browsers_and_leaves_leased_ones() {
        let pool = pool(2).growth(5, NOON).build();
        let steps = plan(&pool, &Observed { warming: 0, idle: idle(2), leased: 3 }, NOON);
        assert_eq!((steps.start, steps.discard.len()), (0, 2));
        let steps = plan(&pool, &Observed { warming: 0, idle: idle(3), leased: 0 }, NOON);
        assert_eq!(steps.discard, [crate::testing::browser_id(0)]);
    }
}
