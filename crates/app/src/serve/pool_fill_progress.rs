//! Prints how the pools fill after a start.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::sync::{Arc, mpsc};
use std::thread;

use casement_domain::pool::PoolRepository;
use casement_domain::{PoolId, StoreError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::{debug, warn};

/// The pools at the start, each until it is full for the first time.
pub(super) struct PoolFillProgress {
    pools: Arc<dyn PoolRepository>,
    /// The last printed number of ready browsers of each pool.
    printed: HashMap<PoolId, Option<u32>>,
    /// Receives each pool that the pool job has checked.
    checked_pools: UnboundedReceiver<PoolId>,
}

impl PoolFillProgress {
    /// Starts with the current pools. The pool job sends each checked pool to the sender.
    pub(super) async fn begin(pools: Arc<dyn PoolRepository>) -> Result<(UnboundedSender<PoolId>, Self), StoreError> {
        let printed = pools.all().await?.into_iter().map(|pool| (pool, None)).collect();
        let (sender, checked_pools) = unbounded_channel();
        Ok((sender, Self { pools, printed, checked_pools }))
    }

    /// Prints the number of ready browsers of each pool, until each has been full.
    pub(super) async fn print_progress(mut self) {
        let lines = match standard_output() {
            Ok(lines) => lines,
            Err(error) => return warn!(%error, "cannot read how the pools fill"),
        };
        while !self.printed.is_empty()
            && let Some(pool) = self.checked_pools.recv().await
        {
            let line = self.line_to_print(pool).await.unwrap_or_else(|error| {
                debug!(%pool, %error, "cannot read how a pool fills until its next check");
                None
            });
            if line.is_some_and(|line| lines.send(line).is_err()) {
                return;
            }
        }
    }

    /// Returns the line to print: the pool has more ready browsers than before, or is full. `None` for a pool that was
    /// full from the beginning.
    async fn line_to_print(&mut self, id: PoolId) -> Result<Option<String>, StoreError> {
        let Some(printed) = self.printed.get(&id).copied() else { return Ok(None) };
        let Some(pool) = self.pools.find_by_id(id).await? else {
            self.printed.remove(&id);
            return Ok(None);
        };
        let (counts, size) = (self.pools.counts(id).await?, pool.config.size);
        // A leased browser counts as ready.
        let ready = counts.available.saturating_add(counts.acquired).min(size);
        let full = ready == size;
        if full {
            self.printed.remove(&id);
        } else {
            self.printed.insert(id, printed.max(Some(ready)));
        }
        let due = printed.map_or(!full, |printed| full || ready > printed);
        let name = pool.name.map_or_else(|| id.to_string(), |name| name.to_string());
        Ok(due.then(|| format!("pool {name}: {ready} of {size} browsers ready")))
    }
}

/// Returns a channel for lines on standard output. A detached thread writes them, because a write blocks forever if the
/// output is not read.
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

    /// Returns the lines for a pool of two with these idle and leased browsers at each check; `None` is a check while
    /// the store is unavailable.
    async fn printed_lines(checks: &'static [Option<(u32, u32)>]) -> Vec<String> {
        let mut pools = MockPoolRepository::new();
        pools.expect_all().returning(|| Ok(vec![pool_id(1)]));
        pools.expect_find_by_id().returning(|id| Ok(Some(pool(2).id(id).name("default").build())));
        let mut found = checks.iter();
        pools.expect_counts().returning(move |_| match found.next() {
            Some(Some((available, acquired))) => Ok(PoolCounts { available: *available, acquired: *acquired }),
            _ => Err(StoreError::unavailable("pool.counts", "away")),
        });
        let (_sender, mut pool_fill_progress) = PoolFillProgress::begin(Arc::new(pools)).await.expect("listed");
        let mut printed_lines = Vec::new();
        for _ in checks {
            printed_lines.extend(pool_fill_progress.line_to_print(pool_id(1)).await.ok().flatten());
            assert_eq!(
                pool_fill_progress.line_to_print(pool_id(2)).await.ok().flatten(),
                None,
                "a pool that was made later"
            );
        }
        printed_lines
    }

    #[tokio::test]
    async fn a_pool_is_printed_until_full_and_no_number_twice() {
        // One browser fails to start, one is leased and returned, one becomes ready while the store is unavailable.
        let printed_lines = printed_lines(&[
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
        assert_eq!(printed_lines.await, [0, 1, 2].map(|ready| format!("pool default: {ready} of 2 browsers ready")));
    }

    #[tokio::test]
    async fn a_pool_that_is_full_at_the_start_is_not_printed() {
        assert!(printed_lines(&[Some((1, 1)), Some((0, 1)), Some((2, 0))]).await.is_empty());
    }
}
