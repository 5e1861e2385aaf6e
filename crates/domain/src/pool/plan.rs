//! Plans the next steps of a pool from its configuration and its browsers: a pure function, tested without a browser.

use time::{Duration, OffsetDateTime};

use super::{Growth, Pool};
use crate::ids::BrowserId;

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

/// The observed browsers of a pool. Ending browsers do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The number of browsers that are starting.
    pub warming: u32,
    /// The idle browsers.
    pub idle: Vec<IdleBrowser>,
    /// The number of leased browsers.
    pub leased: u32,
}

/// The steps to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The new growth state.
    pub growth: Growth,
    /// The number of browsers to start.
    pub start: u32,
    /// The idle browsers to end, because the pool has become smaller or they are outdated.
    pub discard: Vec<BrowserId>,
    /// The time of the next growth; `None` if the allowance is the full size.
    pub again_at: Option<OffsetDateTime>,
}

/// Returns the next steps of a pool at `now`.
///
/// The allowance grows to the size at the fill rate. Missing browsers within the allowance are replaced at once. A pool
/// that has become smaller ends idle browsers, the oldest first; leased ones end with their lease and are not replaced.
/// Outdated browsers are ended first and replaced at once.
#[must_use]
pub fn plan(pool: &Pool, observed: &Observed, now: OffsetDateTime) -> Plan {
    let (growth, again_at) = grow_allowance(pool, now);
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
    fn missing_browsers_are_replaced_at_once() {
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
        // A pool that becomes smaller discards them first and does not replace them.
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
