//! How the pools fill after a start, for whoever waits for it in front of the server.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::sync::{Arc, mpsc};
use std::thread;

use casement_domain::pool::PoolRepository;
use casement_domain::{PoolId, StoreError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::{debug, warn};

/// The pools that there are at a start, each until it is full for the first time.
pub(super) struct PoolFillProgress {
    pools: Arc<dyn PoolRepository>,
    /// How many ready browsers were told last, if any number was.
    told: HashMap<PoolId, Option<u32>>,
    /// Hears of each pool that was looked at: in the pool loop's first round, and whenever something about it has changed.
    checked_pools: UnboundedReceiver<PoolId>,
}

impl PoolFillProgress {
    /// Of the pools that there are now. Whoever looks at one says so to the sender.
    pub(super) async fn begin(pools: Arc<dyn PoolRepository>) -> Result<(UnboundedSender<PoolId>, Self), StoreError> {
        let told = pools.all().await?.into_iter().map(|pool| (pool, None)).collect();
        let (sender, checked_pools) = unbounded_channel();
        Ok((sender, Self { pools, told, checked_pools }))
    }

    /// Says on standard output how many browsers of each pool are ready, until each has been full.
    pub(super) async fn tell(mut self) {
        let lines = match standard_output() {
            Ok(lines) => lines,
            Err(error) => return warn!(%error, "cannot tell how the pools fill"),
        };
        while !self.told.is_empty()
            && let Some(pool) = self.checked_pools.recv().await
        {
            let line = self.news(pool).await.unwrap_or_else(|error| {
                debug!(%pool, %error, "cannot tell how a pool fills before the next look at it");
                None
            });
            if line.is_some_and(|line| lines.send(line).is_err()) {
                return;
            }
        }
    }

    /// The line that is due after a look at this pool: it has more ready browsers than ever, or is full. None of a pool that was
    /// full from the beginning.
    async fn news(&mut self, id: PoolId) -> Result<Option<String>, StoreError> {
        let Some(told) = self.told.get(&id).copied() else { return Ok(None) };
        let Some(pool) = self.pools.find_by_id(id).await? else {
            self.told.remove(&id);
            return Ok(None);
        };
        let (counts, size) = (self.pools.counts(id).await?, pool.config.size);
        // What is leased already has come up, too.
        let ready = counts.available.saturating_add(counts.acquired).min(size);
        let full = ready == size;
        if full {
            self.told.remove(&id);
        } else {
            self.told.insert(id, told.max(Some(ready)));
        }
        let due = told.map_or(!full, |told| full || ready > told);
        let name = pool.name.map_or_else(|| id.to_string(), |name| name.to_string());
        Ok(due.then(|| format!("pool {name}: {ready} of {size} browsers ready")))
    }
}

/// Takes lines for standard output, until it cannot be written to any more. They are written on a thread of its own, which nobody
/// waits for: where standard output is not read, a line takes for ever.
fn standard_output() -> io::Result<mpsc::Sender<String>> {
    let (sender, lines) = mpsc::channel::<String>();
    thread::Builder::new().name("filling".to_owned()).spawn(move || {
        let mut out = io::stdout();
        for line in lines {
            if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
                return;
            }
        }
    })?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use casement_domain::pool::{MockPoolRepository, PoolCounts};
    use casement_domain::testing::{pool, pool_id};

    use super::*;

    /// What is said of a pool of two that has so many idle and leased browsers, one look after the other; at `None` the store is
    /// away.
    async fn said(looks: &'static [Option<(u32, u32)>]) -> Vec<String> {
        let mut pools = MockPoolRepository::new();
        pools.expect_all().returning(|| Ok(vec![pool_id(1)]));
        pools.expect_find_by_id().returning(|id| Ok(Some(pool(2).id(id).name("default").build())));
        let mut found = looks.iter();
        pools.expect_counts().returning(move |_| match found.next() {
            Some(Some((available, acquired))) => Ok(PoolCounts { available: *available, acquired: *acquired }),
            _ => Err(StoreError::unavailable("pool.counts", "away")),
        });
        let (_sender, mut pool_fill_progress) = PoolFillProgress::begin(Arc::new(pools)).await.expect("listed");
        let mut said = Vec::new();
        for _ in looks {
            said.extend(pool_fill_progress.news(pool_id(1)).await.ok().flatten());
            assert_eq!(pool_fill_progress.news(pool_id(2)).await.ok().flatten(), None, "a pool that was made later");
        }
        said
    }

    #[tokio::test]
    async fn a_pool_is_told_until_it_is_full_and_no_number_twice() {
        // One fails to start, one is leased and given back, one comes up while the store is away.
        let said = said(&[
            Some((0, 0)),
            Some((0, 0)),
            Some((1, 0)),
            Some((0, 1)),
            Some((0, 0)),
            Some((1, 0)),
            None,
            Some((1, 1)),
            Some((0, 1)),
            Some((2, 0)),
        ]);
        assert_eq!(said.await, [0, 1, 2].map(|ready| format!("pool default: {ready} of 2 browsers ready")));
    }

    #[tokio::test]
    async fn of_a_pool_that_is_full_from_the_beginning_nothing_is_told() {
        assert!(said(&[Some((1, 1)), Some((0, 1)), Some((2, 0))]).await.is_empty());
    }
}
